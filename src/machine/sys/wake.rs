//! Waking threads, also from a signal handler: system calls that are async-signal-safe and no
//! cancellation points, atomics, no thread-local and no allocation.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::time::timespec;
use crate::rules::deadline::Deadline;

/// Waits until `word` is no longer `expected`, it is woken, or `deadline` passes. May return early.
pub fn futex_wait(word: &AtomicU32, expected: u32, deadline: Deadline) {
    let left = deadline.remaining(Instant::now()).map(timespec);
    let timeout = left.as_ref().map_or(ptr::null(), ptr::from_ref);
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the timeout, if there is one, are alive for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wait, expected, timeout) };
}

/// Wakes one thread that waits at `word`. Safe in a signal handler, but for errno.
pub fn futex_wake(word: &AtomicU32) {
    let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is alive for the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wake, 1) };
}

/// A lock that a signal handler may try. It never waits for it: whoever holds it may be what the
/// handler interrupted.
#[derive(Debug, Default)]
pub struct Latch<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the guard alone, of which there is one at a time.
unsafe impl<T: Send> Sync for Latch<T> {}

impl<T> Latch<T> {
    const FREE: u32 = 0;
    const TAKEN: u32 = 1;
    /// Taken, and somebody waits.
    const AWAITED: u32 = 2;

    pub const fn new(value: T) -> Self {
        Latch { state: AtomicU32::new(Self::FREE), value: UnsafeCell::new(value) }
    }

    /// Safe in a signal handler, as is dropping the guard.
    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        let taken = self.state.compare_exchange(
            Self::FREE,
            Self::TAKEN,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        // Not `then_some`: the guard of a latch that is not held must not be made, and dropped.
        taken.is_ok().then(|| LatchGuard { latch: self })
    }

    pub fn lock(&self) -> LatchGuard<'_, T> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        while self.state.swap(Self::AWAITED, Ordering::SeqCst) != Self::FREE {
            futex_wait(&self.state, Self::AWAITED, Deadline::NEVER);
        }
        LatchGuard { latch: self }
    }
}

#[derive(Debug)]
pub struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
}

// SAFETY: it gives what a `&mut T` gives, and through `&` what a `&T` does.
unsafe impl<T: Sync> Sync for LatchGuard<'_, T> {}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the latch is held, so nobody else reaches the value.
        unsafe { &*self.latch.value.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed for as long as the value is.
        unsafe { &mut *self.latch.value.get() }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    fn drop(&mut self) {
        let state = &self.latch.state;
        if state.swap(Latch::<T>::FREE, Ordering::SeqCst) == Latch::<T>::AWAITED {
            futex_wake(state);
        }
    }
}

/// Runs what a signal handler runs: errno is afterwards what it was before.
pub fn keeping_errno<R>(run: impl FnOnce() -> R) -> R {
    // SAFETY: the location is this thread's, and valid as long as it lives.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = run();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn whoever_tries_a_latch_that_is_held_goes_on_without_it() {
        let latch = Latch::new(1);
        let mut guard = latch.lock();
        *guard = 2;
        assert!(latch.try_lock().is_none());
        assert!(latch.try_lock().is_none(), "to try changes nothing");
        drop(guard);
        assert_eq!(*latch.try_lock().unwrap(), 2);
    }

    #[test]
    fn a_latch_is_held_by_one_thread_at_a_time() {
        const TIMES: usize = 20_000;
        let latch = Arc::new(Latch::new(0usize));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let latch = Arc::clone(&latch);
                thread::spawn(move || {
                    for _ in 0..TIMES {
                        *latch.lock() += 1;
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*latch.lock(), 4 * TIMES);
    }

    #[test]
    fn errno_is_what_it_was() {
        let before = io::Error::from_raw_os_error(libc::EXDEV);
        // SAFETY: this thread's own.
        unsafe { *libc::__errno_location() = libc::EXDEV };
        // SAFETY: takes no pointer; fails with EBADF.
        keeping_errno(|| unsafe { libc::close(-1) });
        assert_eq!(io::Error::last_os_error().raw_os_error(), before.raw_os_error());
    }
}
