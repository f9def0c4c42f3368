//! Locks, atomics and threads whose every step the seed of a simulation orders.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use crate::machine::clock::{self, Alarm};
use crate::rules::deadline::Deadline;

pub use shuttle::sync::atomic;

pub type MutexGuard<'a, T> = shuttle::sync::MutexGuard<'a, T>;

#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

#[derive(Debug, Default)]
pub struct Condvar(Arc<shuttle::sync::Condvar>);

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
        if instant <= clock::now() {
            return guard;
        }
        let _alarm = Alarm::set(instant, &self.0);
        self.wait(guard)
    }
}

/// No signals are handled here: what a handler would find held, another thread does.
pub type Latch<T> = Mutex<T>;

#[derive(Debug, Default)]
pub struct Parker {
    woken: Mutex<bool>,
    condvar: Condvar,
}

impl Parker {
    pub fn new() -> Self {
        Parker::default()
    }

    pub fn unpark(&self) {
        *self.woken.lock() = true;
        self.condvar.notify_all();
    }

    pub fn park(&self, deadline: Deadline) {
        let mut woken = self.woken.lock();
        while !*woken {
            match deadline.instant() {
                None => woken = self.condvar.wait(woken),
                Some(instant) if instant <= clock::now() => break,
                Some(instant) => woken = self.condvar.wait_until(woken, instant),
            }
        }
        *woken = false;
    }
}

pub mod thread {
    use std::io;

    use crate::rules::deadline::Deadline;

    pub use shuttle::thread::{JoinHandle, ThreadId, current};
    pub use shuttle::thread_local;

    /// What threads do at their very end takes no time here.
    pub fn join_until(handle: JoinHandle<()>, _until: Deadline) -> Result<(), JoinHandle<()>> {
        let _ = handle.join();
        Ok(())
    }

    pub fn spawn(
        _name: &str,
        _stack_bytes: usize,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        Ok(shuttle::thread::spawn(body))
    }
}
