//! The bounded pool of connections, as a pure state machine: who may use which slot, and when.
//!
//! **Events.** A fetch asks for a slot ([`Pool::acquire`]), gives it back ([`Pool::release`]) or
//! stops wanting it ([`Pool::withdraw`]); time passes ([`Pool::expire`]); a worker comes
//! ([`Pool::worker_ready`]); the pool closes ([`Pool::close`]). Each event is told what time it is, and
//! nothing here waits, locks or wakes: the caller keeps the pool under one mutex and reads the clock
//! while it holds it.
//!
//! **Decisions.** What cannot be answered at once gets a [`Ticket`], and with it stands in line. A
//! ticket is decided exactly once, inside an event, and the event returns the waker `W` that its
//! owner left: one decision, one wake-up. [`Pool::collect`] then trades the ticket for the
//! decision. Tickets and leases can neither be copied nor used twice, and are lost only by dropping
//! them.
//!
//! **Invariants**, after every event:
//! - at most `size` leases are out, each of its own slot; a lease granted but not yet collected is
//!   out;
//! - no slot is idle while a ticket waits that could take it, so a newcomer overtakes nobody;
//! - among the tickets that could take a slot, the one that entered first gets it;
//! - a ticket is granted only before its deadline, and then stays granted; it expires only once it
//!   has passed.
//!
//! Threads and tasks stand in one line. A thread can always take a slot; a task only together with
//! a free worker to run it. While none is free a task keeps its place and lets threads pass.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use crate::rules::deadline::Deadline;

mod line;
mod slots;
#[cfg(test)]
mod tests;

pub use slots::Lease;

use line::{Line, Place};
use slots::Slots;

/// Hands out `size` slots, first come first served. `W` is whatever wakes the owner of a ticket.
#[derive(Debug)]
pub struct Pool<W> {
    slots: Slots,
    free_workers: usize,
    line: Line<W>,
    /// Decided, and not collected yet.
    decided: BTreeMap<Place, Answer>,
    closed: bool,
}

/// Who stands in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiter {
    /// A thread of the host, blocked in its call: it runs the fetch itself.
    Thread,
    /// An asynchronous fetch: it needs a free worker to run it.
    Task,
}

/// What became of a wish for a slot.
#[derive(Debug)]
#[must_use = "a lease or ticket that is dropped is lost to the pool for good"]
pub enum Answer {
    /// The slot is yours. If you are a task, so is one worker.
    Leased(Lease),
    /// Not decided yet; your waker is returned by the event that decides it.
    Waiting(Ticket),
    /// The deadline came first. This is how the pool looked at that moment.
    Expired(Snapshot),
    /// The pool was closed first.
    Closed,
}

/// A place in the line, until it is given to [`Pool::collect`] or [`Pool::withdraw`].
#[derive(Debug)]
#[must_use = "a ticket that is dropped may take a lease with it"]
pub struct Ticket(Place);

/// How the pool looks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The number of slots.
    pub size: usize,
    /// Slots that are leased, also those granted and not yet collected.
    pub leased: usize,
    /// Slots not leased that have an open connection.
    pub idle_warm: usize,
    /// Tickets in the line; in the answer to a ticket that expired, this one and all that expired
    /// with it too.
    pub waiting: usize,
    /// Workers that are free to run a task.
    pub free_workers: usize,
    /// How long ago the oldest of the running leases began; `None` if nothing is leased.
    pub longest_lease: Option<Duration>,
}

impl<W> Pool<W> {
    /// A pool of `size` cold slots, and no worker.
    pub fn new(size: NonZeroUsize) -> Self {
        Pool {
            slots: Slots::new(size.get()),
            free_workers: 0,
            line: Line::new(),
            decided: BTreeMap::new(),
            closed: false,
        }
    }

    /// Asks for a slot: leased at once if possible, even at the deadline; else the wait ends at
    /// `deadline`. If that has passed already, there is no wait. `waker` is made for a wait only.
    pub fn acquire(
        &mut self,
        now: Instant,
        deadline: Deadline,
        waiter: Waiter,
        waker: impl FnOnce() -> W,
    ) -> Answer {
        if self.closed {
            return Answer::Closed;
        }
        // Whoever waits now cannot take an idle slot, or would have it: nobody is overtaken here.
        if let Some(lease) = self.lease_to(waiter, now) {
            return Answer::Leased(lease);
        }
        if deadline.has_passed(now) {
            return Answer::Expired(self.snapshot(now));
        }
        Answer::Waiting(Ticket(self.line.enter(waiter, deadline, waker())))
    }

    /// Asks what became of a ticket. Does not look at the clock: to learn of a deadline just
    /// passed, let [`Pool::expire`] decide first.
    pub fn collect(&mut self, ticket: Ticket) -> Answer {
        self.decided.remove(&ticket.0).unwrap_or(Answer::Waiting(ticket))
    }

    /// The owner no longer wants a slot. If it had been granted one, that goes to the next in line.
    #[must_use = "the tickets decided must be woken"]
    pub fn withdraw(&mut self, now: Instant, Ticket(place): Ticket) -> Vec<W> {
        self.line.leave(place);
        match self.decided.remove(&place) {
            Some(Answer::Leased(lease)) => self.release_unused(now, place.waiter, lease),
            _ => Vec::new(),
        }
    }

    /// Gives a slot back, `warm` if its connection is open and may be used again. It goes straight
    /// to the next in line. A task's worker stays taken until [`Pool::worker_ready`].
    #[must_use = "the tickets decided must be woken"]
    pub fn release(&mut self, now: Instant, lease: Lease, warm: bool) -> Vec<W> {
        let mut woken = self.expire(now);
        self.slots.put_back(now, lease, warm);
        self.hand_over(now, &mut woken);
        woken
    }

    /// Decides every ticket whose deadline has passed.
    #[must_use = "the tickets decided must be woken"]
    pub fn expire(&mut self, now: Instant) -> Vec<W> {
        let snapshot = self.snapshot(now);
        let mut woken = Vec::new();
        while let Some(place) = self.line.first_overdue(now) {
            woken.extend(self.decide(place, Answer::Expired(snapshot)));
        }
        woken
    }

    /// When [`Pool::expire`] is next needed; `None` if no ticket in the line has a deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.line.next_deadline()
    }

    /// One more worker is free, and the first task in line can be granted.
    #[must_use = "the tickets decided must be woken"]
    pub fn worker_ready(&mut self, now: Instant) -> Vec<W> {
        let mut woken = self.expire(now);
        self.free_workers += 1;
        self.hand_over(now, &mut woken);
        woken
    }

    /// Closes the pool: whoever waits is refused, as is whoever comes later. What was granted stays
    /// granted, until it is released.
    #[must_use = "the tickets decided must be woken"]
    pub fn close(&mut self, now: Instant) -> Vec<W> {
        self.closed = true;
        let mut woken = self.expire(now);
        while let Some(place) = self.line.first() {
            woken.extend(self.decide(place, Answer::Closed));
        }
        woken
    }

    /// The machine has slept, which `now` does not count: what is idle is so much older.
    pub fn slept(&mut self, time: Duration) {
        self.slots.grow_older(time);
    }

    /// Makes cold those idle slots that nobody has used for `idle_for`, and returns their numbers.
    /// Their connections are yours to close; take them out of reach before a slot can be leased
    /// again.
    #[must_use = "the connections of these slots must be closed"]
    pub fn reap(&mut self, now: Instant, idle_for: Duration) -> Vec<usize> {
        let mut reaped = Vec::new();
        while let Some(slot) = self.slots.cool_longest_idle(now, idle_for) {
            reaped.push(slot);
        }
        reaped
    }

    /// How the pool looks now.
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        Snapshot {
            size: self.slots.size(),
            leased: self.slots.leased.len(),
            idle_warm: self.slots.warm.len(),
            waiting: self.line.len(),
            free_workers: self.free_workers,
            longest_lease: self.slots.longest_lease(now),
        }
    }

    /// Leases a slot if one is idle, and if a worker is free where one is needed.
    fn lease_to(&mut self, waiter: Waiter, now: Instant) -> Option<Lease> {
        match waiter {
            Waiter::Thread => self.slots.take(now),
            Waiter::Task => {
                let workers_left = self.free_workers.checked_sub(1)?;
                let lease = self.slots.take(now)?;
                self.free_workers = workers_left;
                Some(lease)
            }
        }
    }

    /// Gives back what was granted and never collected: the slot is as it was, the worker is free
    /// again.
    fn release_unused(&mut self, now: Instant, waiter: Waiter, lease: Lease) -> Vec<W> {
        if waiter == Waiter::Task {
            self.free_workers += 1;
        }
        let warm = lease.is_warm();
        self.release(now, lease, warm)
    }

    /// Grants idle slots until none is left, or nobody who could take one.
    fn hand_over(&mut self, now: Instant, woken: &mut Vec<W>) {
        while let Some(place) = self.line.first_eligible(self.free_workers > 0)
            && let Some(lease) = self.lease_to(place.waiter, now)
        {
            woken.extend(self.decide(place, Answer::Leased(lease)));
        }
    }

    fn decide(&mut self, place: Place, answer: Answer) -> Option<W> {
        let waker = self.line.leave(place);
        self.decided.insert(place, answer);
        waker
    }
}
