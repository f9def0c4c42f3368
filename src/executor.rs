//! The threads of asynchronous fetches: workers that make the exchanges, as many as there are
//! connections at most, and one that keeps the time. None before the first fetch is submitted, none
//! left when the client is closed. Knows no HTTP.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::session::Session;
use crate::sync::Mutex;
use crate::sys;

/// Host callbacks run on these threads, so they get what threads commonly have.
const STACK_BYTES: usize = 2 << 20;

/// The threads of one session.
#[derive(Debug, Default)]
pub struct Executor {
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    workers: usize,
    timer: bool,
    handles: Vec<JoinHandle<()>>,
}

impl Executor {
    /// Sees to it that there is a timer, and one more worker if `wanted` and there are fewer than
    /// `limit`. Fails if there is none at all and none can be started.
    pub fn provide(&self, session: &Arc<Session>, wanted: bool, limit: usize) -> io::Result<()> {
        let mut threads = self.threads.lock();
        if !threads.timer {
            let timer = Arc::clone(session);
            let handle = sys::spawn("exp-timer", STACK_BYTES, move || timer.keep_time())?;
            threads.timer = true;
            threads.handles.push(handle);
        }
        if threads.workers == 0 || (wanted && threads.workers < limit) {
            let worker = Arc::clone(session);
            match sys::spawn("exp-worker", STACK_BYTES, move || worker.work()) {
                Ok(handle) => {
                    threads.workers += 1;
                    threads.handles.push(handle);
                }
                Err(error) if threads.workers == 0 => return Err(error),
                Err(_) => {} // those that are there do it, later
            }
        }
        Ok(())
    }

    /// Waits for the threads to be gone, which they are about to be; but not for the one that asks.
    pub fn join(&self) {
        let handles = std::mem::take(&mut self.threads.lock().handles);
        for handle in handles {
            if handle.thread().id() != thread::current().id() {
                // A panic of theirs was caught and logged where it happened.
                let _ = handle.join();
            }
        }
    }
}
