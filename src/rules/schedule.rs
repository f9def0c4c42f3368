//! The arithmetic of time: what each attempt of a fetch may take, and how long to wait between.
//!
//! | | attempt 0 | attempt i > 0 |
//! |---|---|---|
//! | `timeout(i)`: from the lease to the last byte of the body | fetch timeout | retry timeout |
//! | `acquire(i)`: waiting for a connection | its own setting, else `timeout(i)` | the same |
//! | `backoff(i)`: before attempt i + 1 | min | min × scalar^i, at most max |
//!
//! The wait before attempt i + 1 is the larger of `backoff(i)` and the answer's `Retry-After`; one
//! above the largest back-off, or that does not fit the deadline, ends the fetch instead. The
//! deadline of the whole fetch clips everything and extends nothing.

use std::fmt;
use std::time::Duration;

use crate::rules::deadline::Limit;

/// A time that was given, and the setting that gave it: what a message says when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    pub time: Duration,
    setting: &'static str,
}

impl Bound {
    /// This one, or what a deadline leaves if that is less.
    fn clipped(self, left: Option<Duration>) -> Self {
        match left {
            Some(time) if time < self.time => Bound { time, setting: "the rest of the deadline" },
            _ => self,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // To the nearest: what a deadline of 150 ms leaves is a few microseconds less.
        let millis = self.time.saturating_add(Duration::from_micros(500)).as_millis();
        write!(f, "{millis} ms ({})", self.setting)
    }
}

/// The bounds of one fetch, as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pub fetch_timeout: Duration,
    pub retry_timeout: Duration,
    /// `None`: each attempt's own timeout.
    pub acquire_timeout: Option<Limit>,
    pub retries: u32,
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    pub backoff_scalar: f64,
    /// Full jitter: the wait is drawn evenly from zero to the back-off.
    pub jitter: bool,
    /// Over everything, from the call to its return.
    pub deadline: Limit,
}

impl Schedule {
    /// How long attempt `i` may take, once it has its connection.
    pub fn timeout(&self, attempt: u32) -> Duration {
        if attempt == 0 { self.fetch_timeout } else { self.retry_timeout }
    }

    /// How long attempt `i` may wait for its connection.
    pub fn acquire(&self, attempt: u32) -> Limit {
        self.acquire_timeout.unwrap_or(Limit::After(self.timeout(attempt)))
    }

    /// What bounds attempt `i` with its connection, with so much left of the deadline.
    pub fn timeout_bound(&self, attempt: u32, left: Option<Duration>) -> Bound {
        let setting =
            if attempt == 0 { "fetch_timeout_millis" } else { "fetch_retry_timeout_millis" };
        Bound { time: self.timeout(attempt), setting }.clipped(left)
    }

    /// What bounds the wait of attempt `i` for its connection; for ever is `Duration::MAX`.
    pub fn acquire_bound(&self, attempt: u32, left: Option<Duration>) -> Bound {
        let time = match self.acquire_timeout {
            None => return self.timeout_bound(attempt, left),
            Some(Limit::After(time)) => time,
            Some(Limit::None) => Duration::MAX,
        };
        Bound { time, setting: "fetch_pool_acquire_timeout_millis" }.clipped(left)
    }

    /// The wait after attempt `i`, with `random` in [0, 1) for the jitter.
    pub fn backoff(&self, attempt: u32, random: f64) -> Duration {
        if self.backoff_min.is_zero() {
            return Duration::ZERO; // and zero times infinity would be no number
        }
        let grown = self.backoff_min.as_secs_f64() * self.backoff_scalar.powf(f64::from(attempt));
        let max = self.backoff_max.as_secs_f64();
        // min(): growth without end is infinite, and infinity is no Duration.
        let backoff = if grown < max { Duration::from_secs_f64(grown) } else { self.backoff_max };
        if self.jitter { backoff.mul_f64(random) } else { backoff }
    }

    /// The longest a fetch can take: every attempt waits for its connection to the last moment,
    /// times out, and is followed by the longest wait. Saturates; `Limit::None` when nothing
    /// bounds the wait for a connection and no deadline is set.
    pub fn worst_case(&self) -> Limit {
        let mut total = Duration::ZERO;
        for (attempt, times) in [(0, 1), (1, self.retries)] {
            if times == 0 {
                continue;
            }
            let Limit::After(acquire) = self.acquire(attempt) else { return self.deadline };
            let attempt = acquire.saturating_add(self.timeout(attempt));
            total = total.saturating_add(attempt.saturating_mul(times));
        }
        total = total.saturating_add(self.backoff_max.saturating_mul(self.retries));
        Limit::After(total).min(self.deadline)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The defaults, in which tests change what they are about.
    pub(crate) fn schedule() -> Schedule {
        Schedule {
            fetch_timeout: Duration::from_millis(1000),
            retry_timeout: Duration::from_millis(300),
            acquire_timeout: None,
            retries: 0,
            backoff_min: Duration::from_millis(500),
            backoff_max: Duration::from_millis(10_000),
            backoff_scalar: 1.5,
            jitter: false,
            deadline: Limit::None,
        }
    }

    #[test]
    fn the_first_attempt_has_the_fetch_timeout_and_the_others_the_retry_timeout() {
        let schedule = schedule();
        assert_eq!(schedule.timeout(0), Duration::from_millis(1000));
        assert_eq!(schedule.timeout(1), Duration::from_millis(300));
        assert_eq!(schedule.timeout(9), Duration::from_millis(300));
    }

    #[test]
    fn the_acquire_timeout_is_the_attempts_own_unless_it_is_set() {
        let mut schedule = schedule();
        assert_eq!(schedule.acquire(0), Limit::millis(1000));
        assert_eq!(schedule.acquire(1), Limit::millis(300));
        schedule.acquire_timeout = Some(Limit::millis(0));
        assert_eq!(schedule.acquire(0), Limit::millis(0));
        schedule.acquire_timeout = Some(Limit::None);
        assert_eq!(schedule.acquire(1), Limit::None);
    }

    #[test]
    fn a_wait_in_line_is_told_by_the_setting_that_bounded_it() {
        let mut schedule = schedule();
        let told =
            |schedule: &Schedule, attempt, left| schedule.acquire_bound(attempt, left).to_string();
        assert_eq!(told(&schedule, 0, None), "1000 ms (fetch_timeout_millis)");
        assert_eq!(told(&schedule, 1, None), "300 ms (fetch_retry_timeout_millis)");
        let left = Some(Duration::from_millis(70));
        assert_eq!(told(&schedule, 0, left), "70 ms (the rest of the deadline)");
        schedule.acquire_timeout = Some(Limit::millis(200));
        assert_eq!(told(&schedule, 1, None), "200 ms (fetch_pool_acquire_timeout_millis)");
    }

    #[test]
    fn backoff_grows_by_the_scalar_up_to_its_maximum() {
        let schedule = schedule();
        let millis = |i| schedule.backoff(i, 0.0).as_millis();
        assert_eq!([millis(0), millis(1), millis(2)], [500, 750, 1125]);
        assert_eq!(millis(7), 8542);
        assert_eq!([millis(8), millis(1000), millis(u32::MAX)], [10_000, 10_000, 10_000]);
    }

    #[test]
    fn backoff_with_a_minimum_above_the_maximum_is_the_maximum() {
        let schedule = Schedule { backoff_min: Duration::from_secs(60), ..schedule() };
        assert_eq!(schedule.backoff(0, 0.0), Duration::from_secs(10));
    }

    #[test]
    fn a_backoff_of_zero_stays_zero() {
        let schedule = Schedule { backoff_min: Duration::ZERO, ..schedule() };
        assert_eq!(schedule.backoff(u32::MAX, 0.0), Duration::ZERO);
    }

    #[test]
    fn full_jitter_draws_from_zero_to_the_backoff() {
        let schedule = Schedule { jitter: true, ..schedule() };
        assert_eq!(schedule.backoff(1, 0.0), Duration::ZERO);
        assert_eq!(schedule.backoff(1, 0.5), Duration::from_millis(375));
        assert!(schedule.backoff(1, 0.999_999) < Duration::from_millis(750));
    }

    #[test]
    fn the_worst_case_adds_up_every_attempt_and_every_longest_wait() {
        let mut schedule = schedule();
        assert_eq!(schedule.worst_case(), Limit::millis(2000));
        schedule.retries = 2;
        assert_eq!(schedule.worst_case(), Limit::millis(2000 + 2 * 600 + 2 * 10_000));
        schedule.acquire_timeout = Some(Limit::millis(50));
        assert_eq!(schedule.worst_case(), Limit::millis(1050 + 2 * 350 + 2 * 10_000));
        schedule.deadline = Limit::millis(700);
        assert_eq!(schedule.worst_case(), Limit::millis(700));
    }

    #[test]
    fn the_worst_case_is_without_bound_only_if_nothing_bounds_the_wait() {
        let mut schedule = Schedule { acquire_timeout: Some(Limit::None), ..schedule() };
        assert_eq!(schedule.worst_case(), Limit::None);
        schedule.deadline = Limit::millis(5);
        assert_eq!(schedule.worst_case(), Limit::millis(5));
    }

    #[test]
    fn the_worst_case_saturates() {
        let schedule = Schedule {
            retry_timeout: Duration::MAX,
            retries: u32::MAX,
            backoff_max: Duration::MAX,
            ..schedule()
        };
        assert_eq!(schedule.worst_case(), Limit::After(Duration::MAX));
    }
}
