//! Who runs next: the pool's line, and beside it the asynchronous fetches that wait in it, pause
//! between two attempts, or have come to their end and must be delivered.
//!
//! A state machine like the pool, which it owns: events come with the time, nothing here waits,
//! locks or wakes. A fetch that is pending is in exactly one place:
//!
//! ```text
//! submit ──▶ in line ──▶ runnable ──▶ (a worker has it) ──▶ decided ──▶ (delivered)
//!              ▲  └──────────────────────────▲ │                 ▲
//!              │                     pausing ◀┘ └────────────────┘
//!              └────────────────────────┘
//! ```
//!
//! `P` is the handle of a pending fetch, `W` what wakes a thread that waits in line; what is in them does
//! not matter here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use crate::model::Variants;
use crate::rules::deadline::Deadline;
use crate::rules::error::Error;
use crate::rules::fetch::{Fetch, Refusal, Step};
use crate::rules::pool::{Answer, Lease, Pool, Snapshot, Ticket, Waiter};

#[cfg(test)]
mod tests;

/// Names a pending fetch.
pub type Id = u64;

/// Whom a decision of the pool concerns.
#[derive(Debug)]
pub enum Waker<W> {
    /// A thread of the host.
    Thread(W),
    /// An asynchronous fetch.
    Task(Id),
}

/// A fetch whose connection is leased; a worker is to make the exchange.
#[derive(Debug)]
pub struct Run<P> {
    pub id: Id,
    pub pending: P,
    pub fetch: Fetch,
    pub lease: Lease,
}

/// A fetch that has ended; someone is to be told.
#[derive(Debug)]
pub struct Decided<P> {
    pub pending: P,
    pub fetch: Fetch,
    pub result: Result<Variants, Error>,
}

#[derive(Debug)]
struct Waiting<P> {
    pending: P,
    fetch: Fetch,
    place: Place,
}

#[derive(Debug)]
enum Place {
    InLine(Ticket),
    Pausing(Instant),
}

/// See the module.
#[derive(Debug)]
pub struct Dispatch<P, W> {
    pool: Pool<Waker<W>>,
    last_id: Id,
    waiting: BTreeMap<Id, Waiting<P>>,
    pauses: BTreeSet<(Instant, Id)>,
    runnable: VecDeque<Run<P>>,
    decided: VecDeque<Decided<P>>,
    /// Admitted, and nobody is being told yet.
    pending: usize,
    /// Their sinks are being notified.
    notifying: usize,
    closed: bool,
}

impl<P, W> Dispatch<P, W> {
    pub fn new(size: NonZeroUsize) -> Self {
        Dispatch {
            pool: Pool::new(size),
            last_id: 0,
            waiting: BTreeMap::new(),
            pauses: BTreeSet::new(),
            runnable: VecDeque::new(),
            decided: VecDeque::new(),
            pending: 0,
            notifying: 0,
            closed: false,
        }
    }

    // What threads of the host do, which run their fetches themselves.

    /// Asks for a slot, for a thread. See [`Pool::acquire`].
    pub fn acquire(&mut self, now: Instant, until: Deadline, waker: impl FnOnce() -> W) -> Answer {
        self.pool.acquire(now, until, Waiter::Thread, || Waker::Thread(waker()))
    }

    pub fn collect(&mut self, ticket: Ticket) -> Answer {
        self.pool.collect(ticket)
    }

    #[must_use = "these threads must be woken"]
    pub fn withdraw(&mut self, now: Instant, ticket: Ticket) -> Vec<W> {
        let mut threads = self.advance(now);
        let woken = self.pool.withdraw(now, ticket);
        threads.extend(self.settle(now, woken));
        threads
    }

    // What happens to leases, whoever has them.

    /// Gives a slot back. See [`Pool::release`].
    #[must_use = "these threads must be woken"]
    pub fn release(&mut self, now: Instant, lease: Lease, warm: bool) -> Vec<W> {
        // Whose pause is over stands in line by now, also if nobody had the time to put it there.
        let mut threads = self.advance(now);
        let woken = self.pool.release(now, lease, warm);
        threads.extend(self.settle(now, woken));
        threads
    }

    /// See [`Pool::slept`].
    pub fn slept(&mut self, time: Duration) {
        self.pool.slept(time);
    }

    pub fn reap(&mut self, now: Instant, idle_for: Duration) -> Vec<usize> {
        self.pool.reap(now, idle_for)
    }

    // What happens to asynchronous fetches.

    /// One more fetch is about to be submitted.
    pub fn admit(&mut self) {
        self.pending += 1;
    }

    /// It will not be, after all.
    pub fn dismiss(&mut self) {
        self.pending -= 1;
    }

    /// Takes a fetch in that was admitted, at its first step.
    pub fn submit(&mut self, now: Instant, pending: P, fetch: Fetch, step: Step) -> Id {
        self.last_id += 1;
        self.go_on(now, self.last_id, pending, fetch, step);
        self.last_id
    }

    /// Goes on with a fetch that nobody else has, as its step says.
    pub fn go_on(&mut self, now: Instant, id: Id, pending: P, mut fetch: Fetch, step: Step) {
        match step {
            Step::Attempt { until } => {
                let answer = self.pool.acquire(now, until, Waiter::Task, || Waker::Task(id));
                self.answered(now, id, pending, fetch, answer);
            }
            Step::Pause { .. } if self.closed => {
                let step = fetch.stopped(Error::closed(), now);
                self.go_on(now, id, pending, fetch, step);
            }
            Step::Pause { until } => {
                self.pauses.insert((until, id));
                self.waiting.insert(id, Waiting { pending, fetch, place: Place::Pausing(until) });
            }
            Step::Done(result) => self.decided.push_back(Decided { pending, fetch, result }),
        }
    }

    /// Goes on with a fetch that asked for a slot.
    fn answered(&mut self, now: Instant, id: Id, pending: P, mut fetch: Fetch, answer: Answer) {
        let refusal = match answer {
            Answer::Leased(lease) => {
                self.runnable.push_back(Run { id, pending, fetch, lease });
                return;
            }
            Answer::Waiting(ticket) => {
                self.waiting.insert(id, Waiting { pending, fetch, place: Place::InLine(ticket) });
                return;
            }
            Answer::Expired(snapshot) => Refusal::Expired(snapshot),
            Answer::Closed => Refusal::Failed(Error::closed()),
        };
        let step = fetch.refused(refusal, now);
        self.go_on(now, id, pending, fetch, step);
    }

    /// Ends a fetch that waits. One that a worker has, or that has ended, is left alone; so is one
    /// whose time was over before, whoever noticed.
    #[must_use = "these threads must be woken"]
    pub fn cancel(&mut self, now: Instant, id: Id) -> Vec<W> {
        let mut threads = self.advance(now);
        let Some(Waiting { pending, mut fetch, place }) = self.waiting.remove(&id) else {
            return threads;
        };
        let (step, woken) = match place {
            Place::InLine(ticket) => {
                let woken = self.pool.withdraw(now, ticket);
                (fetch.refused(Refusal::Failed(Error::canceled()), now), woken)
            }
            Place::Pausing(until) => {
                self.pauses.remove(&(until, id));
                (fetch.stopped(Error::canceled(), now), Vec::new())
            }
        };
        self.go_on(now, id, pending, fetch, step);
        threads.extend(self.settle(now, woken));
        threads
    }

    /// Those of the fetches that wait of which `is_one` says so.
    pub fn those_that_wait(&self, is_one: impl Fn(&P) -> bool) -> Vec<Id> {
        let those = self.waiting.iter().filter(|(_, waiting)| is_one(&waiting.pending));
        those.map(|(&id, _)| id).collect()
    }

    /// Time has passed: decides what is overdue, and ends the pauses that are over. Those end when
    /// they were due: if this comes late, what they go on to is bounded as if it had not.
    #[must_use = "these threads must be woken"]
    pub fn advance(&mut self, now: Instant) -> Vec<W> {
        let woken = self.pool.expire(now);
        let threads = self.settle(now, woken);
        while let Some(&(until, id)) = self.pauses.first()
            && until <= now
        {
            self.pauses.pop_first();
            if let Some(Waiting { pending, mut fetch, .. }) = self.waiting.remove(&id) {
                let step = fetch.resumed(until);
                self.go_on(now, id, pending, fetch, step);
            }
        }
        threads
    }

    /// When `advance` is next needed.
    pub fn next_deadline(&self) -> Option<Instant> {
        let pause = self.pauses.first().map(|&(until, _)| until);
        match (self.pool.next_deadline(), pause) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Ends all that wait; what is leased comes back by itself.
    #[must_use = "these threads must be woken"]
    pub fn close(&mut self, now: Instant) -> Vec<W> {
        let mut threads = self.advance(now);
        self.closed = true;
        let woken = self.pool.close(now);
        threads.extend(self.settle(now, woken));
        while let Some((_, id)) = self.pauses.pop_first() {
            if let Some(Waiting { pending, mut fetch, .. }) = self.waiting.remove(&id) {
                let step = fetch.stopped(Error::closed(), now);
                self.go_on(now, id, pending, fetch, step);
            }
        }
        threads
    }

    // What workers do, and whoever delivers.

    /// One more worker has nothing to do, or is on its way to look for something.
    #[must_use = "these threads must be woken"]
    pub fn worker_ready(&mut self, now: Instant) -> Vec<W> {
        let mut threads = self.advance(now);
        let woken = self.pool.worker_ready(now);
        threads.extend(self.settle(now, woken));
        threads
    }

    /// The next exchange to make.
    pub fn next_run(&mut self) -> Option<Run<P>> {
        self.runnable.pop_front()
    }

    /// The next outcome to deliver.
    pub fn next_decided(&mut self) -> Option<Decided<P>> {
        self.decided.pop_front()
    }

    /// Someone is about to be told of an outcome, by whomever; from now on the fetch is not pending.
    pub fn begin_notifying(&mut self) {
        self.pending -= 1;
        self.notifying += 1;
    }

    /// Someone has been told.
    pub fn notified(&mut self) {
        self.notifying -= 1;
    }

    /// How many workers can be busy at once as things stand: each fetch keeps one busy at most, and
    /// so does each sink. With that many none ever waits in line for want of a worker.
    pub fn workers_wanted(&self) -> usize {
        self.pending + self.notifying
    }

    pub fn has_runnable(&self) -> bool {
        !self.runnable.is_empty()
    }

    pub fn has_decided(&self) -> bool {
        !self.decided.is_empty()
    }

    /// Fetches that were admitted, and of whose outcome nobody is being told yet.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Whether nothing will ever be left to begin.
    pub fn is_over(&self) -> bool {
        self.closed && self.pending == 0
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    pub fn snapshot(&self, now: Instant) -> Snapshot {
        self.pool.snapshot(now)
    }

    /// Does for tasks what their owners would do when woken, and returns the threads to wake.
    fn settle(&mut self, now: Instant, woken: Vec<Waker<W>>) -> Vec<W> {
        let mut threads = Vec::new();
        for waker in woken {
            match waker {
                Waker::Thread(waker) => threads.push(waker),
                Waker::Task(id) => self.settle_task(now, id),
            }
        }
        threads
    }

    fn settle_task(&mut self, now: Instant, id: Id) {
        if let Some(Waiting { pending, fetch, place: Place::InLine(ticket) }) =
            self.waiting.remove(&id)
        {
            let answer = self.pool.collect(ticket);
            self.answered(now, id, pending, fetch, answer);
        }
    }
}
