//! Where finished asynchronous fetches wait for a host that polls, so that no thread of ours ever
//! enters it. What a fetch is does not matter here.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::machine::clock;
use crate::machine::sync::{Condvar, Mutex};
use crate::machine::sys::{self, EventFd};
use crate::rules::deadline::Deadline;

/// A queue with a descriptor that is readable while there is something in it.
#[derive(Debug)]
pub struct Completions<T> {
    /// The process it was made in.
    generation: u64,
    finished: Mutex<VecDeque<T>>,
    arrived: Condvar,
    event: EventFd,
}

impl<T> Completions<T> {
    /// Takes a descriptor.
    pub fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Completions {
            generation: sys::fork_generation(),
            finished: Mutex::default(),
            arrived: Condvar::new(),
            event: EventFd::new()?,
        }))
    }

    /// Whether this process was forked from the one it was made in. The queue is dead then: its
    /// descriptor is the parent's too, and nothing more will come.
    pub fn is_inherited(&self) -> bool {
        self.generation != sys::fork_generation()
    }

    pub fn push(&self, fetch: T) {
        let mut finished = self.finished.lock();
        finished.push_back(fetch);
        // Under the lock, so that the descriptor always says what the queue holds.
        let was_empty = finished.len() == 1;
        if was_empty {
            self.event.raise();
        }
        drop(finished);
        // All: each of them waits for the queue not to be empty, whoever then takes what is in it.
        // Nobody waits while something is in it.
        if was_empty {
            self.arrived.notify_all();
        }
    }

    /// The fetch that finished first, if any is there.
    pub fn next(&self) -> Option<T> {
        if self.is_inherited() {
            return None;
        }
        let mut finished = self.finished.lock();
        let fetch = finished.pop_front();
        if fetch.is_some() && finished.is_empty() {
            self.event.clear();
        }
        fetch
    }

    /// Waits until something is there; false if `until` comes first.
    pub fn wait(&self, until: Deadline) -> bool {
        let mut finished = self.finished.lock();
        while finished.is_empty() {
            finished = match until.instant() {
                None => self.arrived.wait(finished),
                Some(instant) if instant <= clock::now() => return false,
                Some(instant) => self.arrived.wait_until(finished, instant),
            };
        }
        true
    }

    /// What to poll for reading; -1 in a forked child. Never read from it.
    pub fn fd(&self) -> RawFd {
        self.event.fd()
    }
}
