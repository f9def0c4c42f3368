//! One asynchronous fetch, from its submission until whoever waits for it has been told.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::machine::alarm::Alarm;
use crate::machine::cancel::{Attached, Cancel, Ring};
use crate::machine::catch::catch;
use crate::machine::clock;
use crate::machine::completions::Completions;
use crate::machine::gaps;
use crate::machine::logger::Logger;
use crate::machine::sync::atomic::{AtomicU64, Ordering};
use crate::machine::sync::thread::{self, ThreadId};
use crate::machine::sync::{Condvar, Mutex};
use crate::machine::sys;
use crate::remote::options::FetchOptions;
use crate::rules::deadline::Deadline;
use crate::rules::dispatch::Id;
use crate::rules::error::Error;
use crate::rules::fetch::Fetched;

/// Who is told what a fetch came to.
pub enum Sink {
    /// Called once, on a thread of ours.
    Callback(Box<dyn FnOnce(Fetched) + Send>),
    /// The outcome is kept here, and whoever polls the queue finds the fetch in it.
    Completions(Arc<Completions<Arc<Pending>>>),
}

/// The queue in which a pending fetch waits.
pub trait Line: Send + Sync {
    /// Ends one that is in line or pauses. One in the middle of its exchange hears of it by its own
    /// switch.
    fn cancel(&self, id: Id);
}

/// See the module.
pub struct Pending {
    /// The process it was submitted in.
    generation: u64,
    line: Weak<dyn Line>,
    alarm: Arc<Alarm>,
    /// Set once, when it is submitted.
    id: AtomicU64,
    pub began: Instant,
    pub user: Vec<u8>,
    pub options: FetchOptions,
    /// What the host knows it by.
    pub token: usize,
    logger: Arc<Logger>,
    cancel: Arc<Cancel>,
    sink: Mutex<Option<Sink>>,
    outcome: Mutex<Outcome>,
    done: Condvar,
    /// Lets the caller's own switch reach this fetch, until it is over.
    attached: Mutex<Option<Attached>>,
}

#[derive(Debug)]
enum Outcome {
    NotYet,
    /// The callback runs, on this thread.
    BeingTold(ThreadId),
    Kept(Box<Fetched>),
    Given,
}

/// Why there is no outcome to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoOutcome {
    /// The fetch is not over.
    NotYet,
    /// It was taken before, or given to the callback.
    Given,
    /// The fetch was submitted in the process from which this one was forked.
    Inherited,
}

impl Pending {
    pub fn new(
        line: Weak<dyn Line>,
        alarm: &Arc<Alarm>,
        logger: &Arc<Logger>,
        user: Vec<u8>,
        options: FetchOptions,
        token: usize,
        sink: Sink,
    ) -> Arc<Self> {
        Arc::new(Pending {
            generation: sys::fork_generation(),
            line,
            alarm: Arc::clone(alarm),
            id: AtomicU64::new(0),
            began: clock::now(),
            user,
            options,
            token,
            logger: Arc::clone(logger),
            cancel: Cancel::new(),
            sink: Mutex::new(Some(sink)),
            outcome: Mutex::new(Outcome::NotYet),
            done: Condvar::new(),
            attached: Mutex::new(None),
        })
    }

    /// Whether this process was forked from the one that submitted it. There it has no outcome.
    pub fn is_inherited(&self) -> bool {
        self.generation != sys::fork_generation()
    }

    /// Where its client's messages go.
    pub fn logger(&self) -> &Arc<Logger> {
        &self.logger
    }

    /// Its own switch, which ends an exchange that a worker makes for it.
    pub fn switch(&self) -> &Arc<Cancel> {
        &self.cancel
    }

    /// Lets the switch in its options end it too, until it is over. Before it is started, since it
    /// may be over at once, and would then stay on the switch for good.
    pub fn attach(self: &Arc<Self>) {
        if let Some(cancel) = &self.options.cancel {
            *self.attached.lock() = Some(cancel.attach(self));
            if cancel.is_fired() {
                self.cancel.fire();
            }
        }
    }

    pub fn submitted_as(&self, id: Id) {
        self.id.store(id, Ordering::SeqCst);
    }

    /// Ends it as canceled, wherever it is; does nothing once it has ended.
    pub fn cancel(&self) {
        if self.is_inherited() {
            return;
        }
        self.cancel.fire();
        if let Some(line) = self.line.upgrade() {
            line.cancel(self.id.load(Ordering::SeqCst));
        }
    }

    /// No switch of the caller's reaches it any more.
    pub fn detach(&self) {
        drop(self.attached.lock().take());
    }

    /// Tells whoever is to be told; `told` is called in between, once they have been and before it
    /// is seen to be over, but not in a child that they forked. Called once. Fails if they panicked.
    pub fn deliver(
        self: &Arc<Self>,
        fetched: Fetched,
        notified: impl FnOnce(),
    ) -> Result<(), Error> {
        self.detach();
        let sink = self.sink.lock().take();
        match sink {
            Some(Sink::Callback(callback)) => {
                *self.outcome.lock() = Outcome::BeingTold(thread::current().id());
                let result = {
                    let _host = gaps::outside();
                    catch(|| callback(fetched))
                };
                // In a child that the callback forked, other threads' locks may be held for ever.
                if !self.is_inherited() {
                    notified();
                    self.settle(Outcome::Given);
                }
                result
            }
            Some(Sink::Completions(completions)) => {
                notified();
                // Whoever waited for it finds it in the queue, so the one is not seen before the other.
                let mut outcome = self.outcome.lock();
                *outcome = Outcome::Kept(Box::new(fetched));
                completions.push(Arc::clone(self));
                drop(outcome);
                self.done.notify_all();
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn settle(&self, outcome: Outcome) {
        *self.outcome.lock() = outcome;
        self.done.notify_all();
    }

    /// Waits until it has been delivered; false if `until` comes first. Its own callback does not
    /// wait for itself.
    pub fn wait(&self, until: Deadline) -> bool {
        let mut outcome = self.outcome.lock();
        loop {
            match *outcome {
                Outcome::Kept(_) | Outcome::Given => return true,
                Outcome::BeingTold(thread) if thread == thread::current().id() => return true,
                Outcome::BeingTold(_) | Outcome::NotYet => {}
            }
            outcome = match until.instant() {
                None => self.done.wait(outcome),
                Some(instant) if instant <= clock::now() => return false,
                Some(instant) => self.done.wait_until(outcome, instant),
            };
        }
    }

    /// Takes the outcome, which is there once.
    pub fn take(&self) -> Result<Fetched, NoOutcome> {
        if self.is_inherited() {
            return Err(NoOutcome::Inherited);
        }
        let mut outcome = self.outcome.lock();
        match *outcome {
            Outcome::NotYet => return Err(NoOutcome::NotYet),
            Outcome::BeingTold(_) | Outcome::Given => return Err(NoOutcome::Given),
            Outcome::Kept(_) => {}
        }
        match std::mem::replace(&mut *outcome, Outcome::Given) {
            Outcome::Kept(fetched) => Ok(*fetched),
            _ => Err(NoOutcome::Given),
        }
    }
}

impl Ring for Pending {
    /// Its exchange, if there is one, hears of it by its own switch. If it waits, the timer ends it.
    fn ring(&self) {
        if !self.is_inherited() {
            self.cancel.fire();
            self.alarm.ring(self.id.load(Ordering::SeqCst));
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("id", &self.id).finish_non_exhaustive()
    }
}
