//! Points in time after which something must not go on, and the arithmetic between them.
//!
//! Time always comes in as an argument: whoever decides is told what time it is, so that the whole
//! client can be run by a virtual clock.

use std::time::{Duration, Instant};

/// How long something may take: a bound, or none because none was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    After(Duration),
    None,
}

impl Limit {
    pub const fn millis(millis: u64) -> Self {
        Limit::After(Duration::from_millis(millis))
    }

    /// Whether something that has taken `time` has taken all that it may.
    pub fn is_reached(self, time: Duration) -> bool {
        matches!(self, Limit::After(limit) if time >= limit)
    }

    /// The tighter of two limits.
    pub fn min(self, other: Limit) -> Limit {
        match (self, other) {
            (Limit::After(a), Limit::After(b)) => Limit::After(a.min(b)),
            (Limit::None, other) => other,
            (this, Limit::None) => this,
        }
    }
}

/// The instant by which something must be over; `NEVER` stands for no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    pub const NEVER: Deadline = Deadline(None);

    pub fn at(instant: Instant) -> Self {
        Deadline(Some(instant))
    }

    /// The deadline `limit` after `now`. A limit beyond what the clock can hold is no bound.
    pub fn after(now: Instant, limit: Limit) -> Self {
        match limit {
            Limit::After(duration) => Deadline(now.checked_add(duration)),
            Limit::None => Deadline::NEVER,
        }
    }

    /// The earlier of two deadlines: a phase is only ever clipped by the one around it.
    pub fn min(self, other: Deadline) -> Deadline {
        match (self.0, other.0) {
            (Some(a), Some(b)) => Deadline(Some(a.min(b))),
            (None, other) => Deadline(other),
            (this, None) => Deadline(this),
        }
    }

    /// The later of two deadlines.
    pub fn max(self, other: Deadline) -> Deadline {
        Deadline(self.0.zip(other.0).map(|(a, b)| a.max(b)))
    }

    pub fn instant(self) -> Option<Instant> {
        self.0
    }

    pub fn has_passed(self, now: Instant) -> bool {
        self.0.is_some_and(|instant| instant <= now)
    }

    /// What is left of it at `now`: zero when it has passed, `None` when there is no bound.
    pub fn remaining(self, now: Instant) -> Option<Duration> {
        self.0.map(|instant| instant.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_deadline_counts_and_never_is_the_latest() {
        let now = Instant::now();
        let soon = Deadline::after(now, Limit::millis(1));
        let late = Deadline::after(now, Limit::millis(2));
        assert_eq!(soon.min(late), soon);
        assert_eq!(late.min(soon), soon);
        assert_eq!((soon.max(late), late.max(soon)), (late, late));
        assert_eq!(Deadline::NEVER.max(late), Deadline::NEVER);
        assert_eq!(Deadline::NEVER.min(late), late);
        assert_eq!(late.min(Deadline::NEVER), late);
        assert_eq!(Deadline::NEVER.min(Deadline::NEVER), Deadline::NEVER);
    }

    #[test]
    fn a_limit_is_reached_at_its_time_and_no_limit_never() {
        let reached =
            [4, 5, 6].map(|millis| Limit::millis(5).is_reached(Duration::from_millis(millis)));
        assert_eq!(reached, [false, true, true]);
        assert!(!Limit::None.is_reached(Duration::MAX));
    }

    #[test]
    fn a_deadline_passes_at_its_instant_and_then_leaves_nothing() {
        let now = Instant::now();
        let deadline = Deadline::after(now, Limit::millis(5));
        let at = now + Duration::from_millis(5);
        assert!(!deadline.has_passed(now));
        assert!(deadline.has_passed(at));
        assert_eq!(deadline.remaining(now), Some(Duration::from_millis(5)));
        assert_eq!(deadline.remaining(at + Duration::from_secs(1)), Some(Duration::ZERO));
        assert!(!Deadline::NEVER.has_passed(at));
        assert_eq!(Deadline::NEVER.remaining(at), None);
    }

    #[test]
    fn a_limit_beyond_the_clock_is_no_bound() {
        let now = Instant::now();
        assert_eq!(Deadline::after(now, Limit::After(Duration::MAX)), Deadline::NEVER);
        assert_eq!(Deadline::after(now, Limit::None), Deadline::NEVER);
    }
}
