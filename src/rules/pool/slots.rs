//! The slots of a pool, and which of them are idle.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// The right to use one slot, until it is given to [`Pool::release`](super::Pool::release).
#[derive(Debug)]
#[must_use = "a lease that is dropped is lost to the pool for good"]
pub struct Lease {
    slot: usize,
    warm: bool,
    since: Instant,
}

impl Lease {
    /// The number of the slot, below the pool's size.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Whether the slot had an open connection when it was leased. Who gives it back unused says
    /// the same.
    pub fn is_warm(&self) -> bool {
        self.warm
    }
}

/// The slots: leased, idle with an open connection (warm), or idle without one (cold).
#[derive(Debug)]
pub(super) struct Slots {
    /// By the time they began: the longest-running lease comes first.
    pub(super) leased: BTreeSet<(Instant, usize)>,
    /// With the time they became idle: the longest idle at the front, the last used at the back.
    pub(super) warm: VecDeque<(Instant, usize)>,
    /// The last used on top.
    cold: Vec<usize>,
}

impl Slots {
    pub(super) fn new(size: usize) -> Self {
        Slots { leased: BTreeSet::new(), warm: VecDeque::new(), cold: (0..size).rev().collect() }
    }

    pub(super) fn size(&self) -> usize {
        self.leased.len() + self.warm.len() + self.cold.len()
    }

    /// Warm before cold, and of these the last used first, so that surplus connections age.
    pub(super) fn take(&mut self, now: Instant) -> Option<Lease> {
        let (slot, warm) = match self.warm.pop_back() {
            Some((_, slot)) => (slot, true),
            None => (self.cold.pop()?, false),
        };
        self.leased.insert((now, slot));
        Some(Lease { slot, warm, since: now })
    }

    pub(super) fn put_back(&mut self, now: Instant, lease: Lease, warm: bool) {
        let was_leased = self.leased.remove(&(lease.since, lease.slot));
        debug_assert!(was_leased, "the lease is of another pool");
        if warm {
            self.warm.push_back((now, lease.slot));
        } else {
            self.cold.push(lease.slot);
        }
    }

    /// What is idle became so that much earlier.
    pub(super) fn grow_older(&mut self, time: Duration) {
        for (since, _) in &mut self.warm {
            *since = since.checked_sub(time).unwrap_or(*since);
        }
    }

    pub(super) fn cool_longest_idle(&mut self, now: Instant, idle_for: Duration) -> Option<usize> {
        let (since, _) = self.warm.front()?;
        if now.saturating_duration_since(*since) < idle_for {
            return None;
        }
        let (_, slot) = self.warm.pop_front()?;
        self.cold.push(slot);
        Some(slot)
    }

    pub(super) fn longest_lease(&self, now: Instant) -> Option<Duration> {
        self.leased.first().map(|(since, _)| now.saturating_duration_since(*since))
    }
}
