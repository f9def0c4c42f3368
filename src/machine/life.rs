//! The life of a client in one process: what runs for it, that it is closing, and the wait for its end.

use std::sync::Arc;
use std::time::Duration;

use crate::machine::cancel::Cancel;
use crate::machine::clock;
use crate::machine::executor::Executor;
use crate::machine::sync::atomic::{AtomicUsize, Ordering};
use crate::machine::sync::{Condvar, Mutex};
use crate::machine::sys;
use crate::rules::deadline::{Deadline, Limit};
use crate::rules::error::{Error, Status};

/// What threads may take to end once nothing runs any more, also when the time to close is over: they
/// are on their way, unless a destructor of a thread-local of the host's keeps one.
const THREADS_END: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub struct Life {
    /// The process it belongs to.
    generation: u64,
    /// Fires when the client begins to close: nothing new begins, and no pause goes on.
    pub closing: Arc<Cancel>,
    /// Fires when the close has waited long enough: nothing goes on.
    cut: Arc<Cancel>,
    running: AtomicUsize,
    /// Signaled when nothing is running any more, once the client is closing.
    idle: (Mutex<()>, Condvar),
    pub executor: Executor,
}

impl Life {
    pub fn new(cut: Arc<Cancel>) -> Self {
        Life {
            generation: sys::fork_generation(),
            closing: Cancel::new(),
            cut,
            running: AtomicUsize::new(0),
            idle: (Mutex::new(()), Condvar::new()),
            executor: Executor::default(),
        }
    }

    /// Whether this process was forked from the one it belongs to.
    pub fn is_inherited(&self) -> bool {
        self.generation != sys::fork_generation()
    }

    /// Something runs until the guard is dropped. One that is forgotten is taken up by `running`.
    pub fn run(&self) -> Running<'_> {
        self.running.fetch_add(1, Ordering::SeqCst);
        Running(self)
    }

    /// The guard of what has been running since one was forgotten.
    pub fn running(&self) -> Running<'_> {
        Running(self)
    }

    /// Waits until nothing runs any more and the threads have ended. What still runs after `limit` is
    /// cut off, and that is a timeout. Nothing new may begin meanwhile.
    pub fn wait_for_end(&self, limit: Limit) -> Result<(), Error> {
        let until = Deadline::after(clock::now(), limit);
        if !self.wait_idle(until) {
            self.cut.fire();
            return Err(Error::new(
                Status::Timeout,
                "fetches were still running when the time to close was over, and were cut off",
            ));
        }
        if !self.executor.join(until.max(Deadline::at(clock::now() + THREADS_END))) {
            return Err(Error::new(Status::Timeout, "the client's threads have not ended yet"));
        }
        Ok(())
    }

    fn wait_idle(&self, until: Deadline) -> bool {
        let (lock, condvar) = &self.idle;
        let mut guard = lock.lock();
        while self.running.load(Ordering::SeqCst) > 0 {
            guard = match until.instant() {
                None => condvar.wait(guard),
                Some(instant) if instant <= clock::now() => return false,
                Some(instant) => condvar.wait_until(guard, instant),
            };
        }
        true
    }
}

/// Counts something as running while it lives.
pub struct Running<'a>(&'a Life);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let last = self.0.running.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.0.closing.is_fired() && !self.0.is_inherited() {
            let (lock, condvar) = &self.0.idle;
            // Taken so that whoever is about to wait is seen to wait.
            drop(lock.lock());
            condvar.notify_all();
        }
    }
}
