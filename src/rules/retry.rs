//! Whether a failed attempt is worth another: its class, what the service asks for, the budget.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use crate::rules::error::Error;
use crate::rules::schedule::Schedule;

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Another attempt, after this wait.
    RetryAfter(Duration),
    /// None: this failure is final, or the attempts are used up, or it asks for too long a wait.
    GiveUp,
    /// Another would have been made, but the client's retries are used up for now.
    Suppressed,
}

/// Decides on attempt `i`, which ended with `error`; `left` is what remains until the deadline.
pub fn decide(
    error: &Error,
    attempt: u32,
    schedule: &Schedule,
    left: Option<Duration>,
    budget: &Budget,
    random: f64,
) -> Verdict {
    if !error.retryable || attempt >= schedule.retries {
        return Verdict::GiveUp;
    }
    let asked = error.retry_after.unwrap_or(Duration::ZERO);
    if asked > schedule.backoff_max {
        return Verdict::GiveUp;
    }
    let wait = schedule.backoff(attempt, random).max(asked);
    if left.is_some_and(|left| wait >= left) {
        return Verdict::GiveUp;
    }
    if budget.withdraw() { Verdict::RetryAfter(wait) } else { Verdict::Suppressed }
}

/// Reads a `Retry-After` header (RFC 9110, section 10.2.3): seconds, or a date that is measured
/// against the answer's own `Date`, so that clocks that differ do no harm. A date without a
/// `Date`, and anything else, says nothing.
pub fn retry_after(value: &str, date: Option<&str>) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds is a very long time, not nonsense.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until: SystemTime = httpdate::parse_http_date(value).ok()?;
    let now: SystemTime = httpdate::parse_http_date(date?.trim()).ok()?;
    Some(until.duration_since(now).unwrap_or(Duration::ZERO))
}

/// Keeps retries from multiplying an outage: a bucket of tokens, one client's.
///
/// Every fetch puts in `percent` hundredths of a token, every retry takes out a whole one. The
/// bucket starts full and holds [`Budget::CAPACITY`] tokens, so that a quiet client may still
/// retry. Without a percentage there is no bucket and nothing is ever suppressed.
#[derive(Debug)]
pub struct Budget {
    percent: u32,
    hundredths: AtomicU32,
}

impl Budget {
    /// Tokens the bucket holds at most.
    pub const CAPACITY: u32 = 10;

    const TOKEN: u32 = 100;
    const FULL: u32 = Budget::CAPACITY * Budget::TOKEN;

    /// `percent` = 0: no budget, every retry is allowed.
    pub const fn new(percent: u32) -> Self {
        Budget { percent, hundredths: AtomicU32::new(Budget::FULL) }
    }

    /// A fetch begins.
    pub fn deposit(&self) {
        if self.percent != 0 {
            self.update(|hundredths| Some((hundredths + self.percent).min(Budget::FULL)));
        }
    }

    /// Takes one retry out; false when none is left.
    pub fn withdraw(&self) -> bool {
        self.percent == 0 || self.update(|hundredths| hundredths.checked_sub(Budget::TOKEN))
    }

    /// The tokens are all that is kept, so their order against other memory does not matter.
    fn update(&self, change: impl FnMut(u32) -> Option<u32>) -> bool {
        self.hundredths.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::error::Status;
    use crate::rules::schedule::tests::schedule;

    fn verdict(error: &Error, attempt: u32, left: Option<Duration>) -> Verdict {
        let schedule = Schedule { retries: 3, ..schedule() };
        decide(error, attempt, &schedule, left, &Budget::new(0), 0.0)
    }

    fn millis(millis: u64) -> Verdict {
        Verdict::RetryAfter(Duration::from_millis(millis))
    }

    #[test]
    fn a_retryable_failure_is_tried_again_after_its_backoff_until_the_retries_are_used_up() {
        let error = Error::new(Status::Network, "");
        assert_eq!(verdict(&error, 0, None), millis(500));
        assert_eq!(verdict(&error, 2, None), millis(1125));
        assert_eq!(verdict(&error, 3, None), Verdict::GiveUp);
    }

    #[test]
    fn a_final_failure_is_never_tried_again() {
        assert_eq!(verdict(&Error::http_status(400, None), 0, None), Verdict::GiveUp);
        assert_eq!(verdict(&Error::new(Status::Tls, ""), 0, None), Verdict::GiveUp);
        assert_eq!(verdict(&Error::canceled(), 0, None), Verdict::GiveUp);
        assert_eq!(verdict(&Error::closed(), 0, None), Verdict::GiveUp);
    }

    #[test]
    fn retry_after_lengthens_the_wait_and_never_shortens_it() {
        let asks = |secs| Error::http_status(429, Some(Duration::from_secs(secs)));
        assert_eq!(verdict(&asks(0), 0, None), millis(500));
        assert_eq!(verdict(&asks(2), 0, None), millis(2000));
        assert_eq!(verdict(&asks(10), 0, None), millis(10_000));
    }

    #[test]
    fn a_retry_after_beyond_the_largest_backoff_ends_the_fetch() {
        let error = Error::http_status(503, Some(Duration::from_secs(11)));
        assert_eq!(verdict(&error, 0, None), Verdict::GiveUp);
    }

    #[test]
    fn a_wait_that_does_not_fit_the_deadline_ends_the_fetch() {
        let error = Error::new(Status::Timeout, "");
        assert_eq!(verdict(&error, 0, Some(Duration::from_millis(500))), Verdict::GiveUp);
        assert_eq!(verdict(&error, 0, Some(Duration::from_millis(501))), millis(500));
    }

    #[test]
    fn retry_after_is_read_in_each_of_its_forms() {
        let date = Some("Sun, 06 Nov 1994 08:49:00 GMT");
        let secs = |value| retry_after(value, date).map(|duration| duration.as_secs());
        assert_eq!(secs("0"), Some(0));
        assert_eq!(secs(" 120 "), Some(120));
        assert_eq!(secs("Sun, 06 Nov 1994 08:49:37 GMT"), Some(37));
        assert_eq!(secs("Sunday, 06-Nov-94 08:49:37 GMT"), Some(37));
        assert_eq!(secs("Sun Nov  6 08:49:37 1994"), Some(37));
        assert_eq!(secs("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(secs("99999999999999999999999"), Some(u64::MAX));
    }

    #[test]
    fn a_retry_after_that_says_nothing_is_ignored() {
        for value in ["", "-1", "1.5", "soon", "+3", "0x10"] {
            assert_eq!(retry_after(value, Some("Sun, 06 Nov 1994 08:49:00 GMT")), None, "{value}");
        }
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", None), None);
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT", Some("today")), None);
    }

    #[test]
    fn a_budget_pays_its_capacity_at_once_and_then_its_share_of_the_fetches() {
        let budget = Budget::new(20);
        for _ in 0..Budget::CAPACITY {
            assert!(budget.withdraw());
        }
        assert!(!budget.withdraw());
        for _ in 0..5 {
            assert!(!budget.withdraw());
            budget.deposit();
        }
        assert!(budget.withdraw());
        assert!(!budget.withdraw());
    }

    #[test]
    fn an_empty_budget_suppresses_only_what_would_have_been_tried_again() {
        let budget = Budget::new(1);
        while budget.withdraw() {}
        let schedule = Schedule { retries: 1, ..schedule() };
        let decide = |error: &Error, attempt| decide(error, attempt, &schedule, None, &budget, 0.0);
        assert_eq!(decide(&Error::new(Status::Timeout, ""), 0), Verdict::Suppressed);
        assert_eq!(decide(&Error::new(Status::Timeout, ""), 1), Verdict::GiveUp);
        assert_eq!(decide(&Error::http_status(404, None), 0), Verdict::GiveUp);
    }

    #[test]
    fn a_budget_never_holds_more_than_its_capacity() {
        let budget = Budget::new(100);
        for _ in 0..1000 {
            budget.deposit();
        }
        assert_eq!((0..1000).filter(|_| budget.withdraw()).count(), Budget::CAPACITY as usize);
    }
}
