//! The locks, atomics and threads of this library, chosen in one place.
//!
//! On Unix they are std's: a child forked while other threads contend must not hang on a *fresh*
//! lock, and parking_lot parks through one process-wide table whose own locks may be held at the
//! fork. `parking-lot-locks` selects parking_lot for builds under ThreadSanitizer, which sees into
//! parking_lot but not into std; `simulation` those of tests/simulation. Poisoning is ignored
//! either way: every panic is caught at the boundary, and nothing panics half-way through a change
//! to what these locks guard.
//!
//! A signal handler may fire a switch, so what that touches is no lock of these: a [`Latch`], which
//! is only tried there, and a [`Parker`].

use std::time::Instant;

use self::atomic::{AtomicUsize, Ordering};
#[cfg(not(feature = "simulation"))]
use crate::machine::clock;
#[cfg(not(feature = "simulation"))]
use crate::machine::sys;
#[cfg(not(feature = "simulation"))]
use crate::rules::deadline::Deadline;

#[cfg(not(any(feature = "parking-lot-locks", feature = "simulation")))]
mod imp {
    use std::sync::{self, PoisonError, TryLockError};
    use std::time::Instant;

    use crate::machine::clock;

    pub type MutexGuard<'a, T> = sync::MutexGuard<'a, T>;

    #[derive(Debug, Default)]
    pub struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub const fn new(value: T) -> Self {
            Mutex(sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Does not wait: `None` if someone holds the lock, be it a thread that this process, a
        /// forked child, does not have.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }
    }

    #[derive(Debug, Default)]
    pub struct Condvar(sync::Condvar);

    impl Condvar {
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }

        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
        }

        pub fn wait_until<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            instant: Instant,
        ) -> MutexGuard<'a, T> {
            let left = instant.saturating_duration_since(clock::now());
            let result = self.0.wait_timeout(guard, left);
            result.unwrap_or_else(PoisonError::into_inner).0
        }
    }
}

#[cfg(feature = "parking-lot-locks")]
mod imp {
    use std::time::Instant;

    pub type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;

    #[derive(Debug, Default)]
    pub struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub const fn new(value: T) -> Self {
            Mutex(parking_lot::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock()
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock()
        }
    }

    #[derive(Debug, Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }

        pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }

        pub fn wait_until<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            instant: Instant,
        ) -> MutexGuard<'a, T> {
            self.0.wait_until(&mut guard, instant);
            guard
        }
    }
}

#[cfg(feature = "simulation")]
#[path = "../../tests/simulation/sync.rs"]
mod imp;

#[cfg(not(feature = "simulation"))]
pub use std::sync::atomic;

#[cfg(not(feature = "simulation"))]
pub mod thread {
    pub use std::thread::{JoinHandle, ThreadId, current};
    pub use std::thread_local;

    pub use crate::machine::sys::{join_until, spawn};
}

#[cfg(feature = "simulation")]
pub use imp::{Latch, Parker, atomic, thread};
pub use imp::{Mutex, MutexGuard};

#[cfg(not(feature = "simulation"))]
pub use crate::machine::sys::Latch;

/// Wakes threads that wait for something to come true. It counts them: std's asks the system to wake
/// somebody also where nobody waits.
///
/// Whoever notifies must hold the lock, or have held it since that came true. Then those that have not
/// seen it are counted.
#[derive(Debug, Default)]
pub struct Condvar {
    condvar: imp::Condvar,
    waiting: AtomicUsize,
}

impl Condvar {
    pub fn new() -> Self {
        Condvar::default()
    }

    pub fn notify_one(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.condvar.notify_one();
        }
    }

    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.condvar.notify_all();
        }
    }

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.counted(|| self.condvar.wait(guard))
    }

    /// May return early, and without having been woken.
    pub fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        instant: Instant,
    ) -> MutexGuard<'a, T> {
        self.counted(|| self.condvar.wait_until(guard, instant))
    }

    fn counted<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = wait();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        waited
    }
}

/// Where one thread waits to be woken: in the pool's line, for a name, between two attempts.
///
/// A wake-up that comes before the wait is not lost; the next wait returns at once.
#[cfg(not(feature = "simulation"))]
#[derive(Debug, Default)]
pub struct Parker(atomic::AtomicU32);

#[cfg(not(feature = "simulation"))]
impl Parker {
    const IDLE: u32 = 0;
    const WOKEN: u32 = 1;
    const PARKED: u32 = 2;

    pub const fn new() -> Self {
        Parker(atomic::AtomicU32::new(Self::IDLE))
    }

    /// Wakes the thread that waits here, or the next one that does. Safe in a signal handler.
    pub fn unpark(&self) {
        if self.0.swap(Self::WOKEN, Ordering::SeqCst) == Self::PARKED {
            sys::futex_wake(&self.0);
        }
    }

    /// Waits until woken or until `deadline`, whichever is first. May return early: look again.
    pub fn park(&self, deadline: Deadline) {
        let idle =
            self.0.compare_exchange(Self::IDLE, Self::PARKED, Ordering::SeqCst, Ordering::SeqCst);
        if idle.is_ok() {
            while self.0.load(Ordering::SeqCst) == Self::PARKED
                && !deadline.has_passed(clock::now())
            {
                sys::futex_wait(&self.0, Self::PARKED, deadline);
            }
        }
        self.0.store(Self::IDLE, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_wake_up_before_the_wait_is_not_lost() {
        let parker = Parker::new();
        parker.unpark();
        parker.park(Deadline::NEVER);
    }

    #[test]
    fn a_wait_without_a_wake_up_ends_at_its_deadline() {
        let parker = Parker::new();
        let until = clock::now() + Duration::from_millis(5);
        parker.park(Deadline::at(until));
        assert!(clock::now() >= until);
    }
}
