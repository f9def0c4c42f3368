//! The line of those who wait for a slot.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::Waiter;
use crate::rules::deadline::Deadline;

/// A ticket's place in the line. They are ordered by the number drawn on entering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    number: u64,
    pub(super) waiter: Waiter,
}

/// The line, kept in two halves so that tasks without a worker are passed in one step, however many
/// they are.
#[derive(Debug)]
pub(super) struct Line<W> {
    threads: BTreeMap<Place, Waiting<W>>,
    tasks: BTreeMap<Place, Waiting<W>>,
    deadlines: BTreeSet<(Instant, Place)>,
    next_number: u64,
}

#[derive(Debug)]
struct Waiting<W> {
    deadline: Deadline,
    waker: W,
}

impl<W> Line<W> {
    pub(super) fn new() -> Self {
        Line {
            threads: BTreeMap::new(),
            tasks: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next_number: 0,
        }
    }

    pub(super) fn enter(&mut self, waiter: Waiter, deadline: Deadline, waker: W) -> Place {
        let place = Place { number: self.next_number, waiter };
        self.next_number += 1;
        self.half(waiter).insert(place, Waiting { deadline, waker });
        self.deadlines.extend(deadline.instant().map(|instant| (instant, place)));
        place
    }

    pub(super) fn leave(&mut self, place: Place) -> Option<W> {
        let waiting = self.half(place.waiter).remove(&place)?;
        if let Some(instant) = waiting.deadline.instant() {
            self.deadlines.remove(&(instant, place));
        }
        Some(waiting.waker)
    }

    fn half(&mut self, waiter: Waiter) -> &mut BTreeMap<Place, Waiting<W>> {
        match waiter {
            Waiter::Thread => &mut self.threads,
            Waiter::Task => &mut self.tasks,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.threads.len() + self.tasks.len()
    }

    pub(super) fn first(&self) -> Option<Place> {
        self.first_eligible(true)
    }

    pub(super) fn first_eligible(&self, worker_is_free: bool) -> Option<Place> {
        let thread = self.threads.keys().next();
        let task = self.tasks.keys().next().filter(|_| worker_is_free);
        thread.into_iter().chain(task).min().copied()
    }

    pub(super) fn first_overdue(&self, now: Instant) -> Option<Place> {
        self.deadlines.first().filter(|(instant, _)| *instant <= now).map(|(_, place)| *place)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(instant, _)| *instant)
    }
}
