//! One fetch: what comes next, after each thing that happens to it.
//!
//! A state machine without threads, sockets or clock. Whoever drives it (a caller's thread, a
//! worker, a simulation) does what the step says and reports how it went:
//!
//! ```text
//!            ┌────────────────── resumed ──────────────────┐
//!            ▼                                             │
//! begin ─▶ Attempt ─ leased ─▶ (exchange) ─ exchanged ─▶ Pause
//!            │                                  │
//!            └──── refused ──▶ Done ◀───────────┘
//! ```
//!
//! Everything it decides follows from the [`Schedule`], the deadline, and [`retry::decide`].

use std::sync::Arc;
use std::time::Instant;

use crate::model::Variants;
use crate::rules::deadline::{Deadline, Limit};
use crate::rules::error::Error;
use crate::rules::metrics::Metrics;
use crate::rules::pool::Snapshot;
use crate::rules::retry::{self, Budget, Verdict};
use crate::rules::schedule::{Bound, Schedule};
use crate::rules::timings::{Phase, Timings};

/// Of an answer that was decoded when the time was over, or of which decoding was ended.
pub const TOO_LONG_TO_DECODE: &str =
    "the response arrived, but decoding it took longer than the timeout allows";

/// What all fetches of a client go by.
#[derive(Debug)]
pub struct Rules {
    pub schedule: Schedule,
    pub budget: Budget,
    pub metrics: Arc<Metrics>,
}

/// What is to be done next.
#[derive(Debug)]
#[must_use]
pub enum Step {
    /// Wait for a connection until then; report `leased` and make the exchange, or `refused`.
    Attempt { until: Deadline },
    /// Wait until then; report `resumed`.
    Pause { until: Instant },
    /// It is over.
    Done(Result<Variants, Error>),
}

/// What one exchange may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub timeout: Bound,
    pub until: Deadline,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum Refusal {
    /// The wait was over first; so the pool looked then.
    Expired(Snapshot),
    /// Canceled, closed, or no descriptor to open a connection with.
    Failed(Error),
}

/// What a fetch came to.
#[derive(Debug)]
pub struct Fetched {
    pub result: Result<Variants, Error>,
    /// Attempts made, the first included; 0 when it failed before it began.
    pub attempts: u32,
    pub timings: Timings,
    /// When its last attempt had to be over: what is made of its answer is to be ready by then, too.
    pub until: Deadline,
}

impl Fetched {
    pub fn not_begun(error: Error) -> Self {
        Fetched {
            result: Err(error),
            attempts: 0,
            timings: Timings::default(),
            until: Deadline::NEVER,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Fetch {
    rules: Arc<Rules>,
    deadline: Deadline,
    /// Attempts begun before the one under way.
    attempt: u32,
    /// When the one thing that is under way began.
    since: Instant,
    until: Deadline,
    random: u64,
    timings: Timings,
}

impl Fetch {
    /// A fetch that begins `now`, with a bound of its own beside the client's. `random` is where
    /// its jitter comes from.
    pub fn begin(rules: &Arc<Rules>, own_limit: Limit, random: u64, now: Instant) -> (Self, Step) {
        rules.budget.deposit();
        let mut fetch = Fetch {
            rules: Arc::clone(rules),
            deadline: Deadline::after(now, rules.schedule.deadline.min(own_limit)),
            attempt: 0,
            since: now,
            until: Deadline::NEVER,
            random,
            timings: Timings::default(),
        };
        let step = fetch.next_attempt(now);
        (fetch, step)
    }

    fn next_attempt(&mut self, now: Instant) -> Step {
        self.rules.metrics.attempts.increment();
        self.since = now;
        let acquire = Deadline::after(now, self.rules.schedule.acquire(self.attempt));
        Step::Attempt { until: acquire.min(self.deadline) }
    }

    /// A connection is there; the exchange begins.
    pub fn leased(&mut self, now: Instant) -> Bounds {
        self.spend(Phase::Pool, now);
        self.since = now;
        let left = self.deadline.remaining(now);
        let timeout = self.rules.schedule.timeout_bound(self.attempt, left);
        self.until = Deadline::after(now, Limit::After(timeout.time));
        Bounds { timeout, until: self.until }
    }

    /// There is no connection.
    pub fn refused(&mut self, refusal: Refusal, now: Instant) -> Step {
        self.spend(Phase::Pool, now);
        let error = match refusal {
            Refusal::Expired(snapshot) => self.no_connection(&snapshot),
            Refusal::Failed(error) => error,
        };
        self.failed(error, now)
    }

    /// The exchange is over, its answer decoded.
    pub fn exchanged(
        &mut self,
        result: Result<Variants, Error>,
        timings: &Timings,
        now: Instant,
    ) -> Step {
        self.timings.merge(timings);
        match result {
            // Decoding looks at the clock now and then; what it overran since is found here.
            Ok(_) if self.until.has_passed(now) => {
                self.failed(Error::timeout(Phase::Body, TOO_LONG_TO_DECODE), now)
            }
            Ok(variants) => Step::Done(Ok(variants)),
            Err(error) => self.failed(error, now),
        }
    }

    /// The pause is over.
    pub fn resumed(&mut self, now: Instant) -> Step {
        self.spend(Phase::Backoff, now);
        self.attempt += 1;
        self.rules.metrics.retries.increment();
        self.next_attempt(now)
    }

    /// The pause was cut short: canceled, or the client is closing.
    pub fn stopped(&mut self, error: Error, now: Instant) -> Step {
        self.spend(Phase::Backoff, now);
        Step::Done(Err(error))
    }

    /// It is over, as its last step says.
    pub fn ended(self, result: Result<Variants, Error>) -> Fetched {
        Fetched { result, attempts: self.attempt + 1, timings: self.timings, until: self.until }
    }

    fn failed(&mut self, error: Error, now: Instant) -> Step {
        if let Some(phase) = error.phase {
            self.rules.metrics.timed_out(phase);
        }
        let Rules { schedule, budget, .. } = &*self.rules;
        let left = self.deadline.remaining(now);
        let random = unit_interval(self.random, self.attempt);
        match retry::decide(&error, self.attempt, schedule, left, budget, random) {
            Verdict::RetryAfter(wait) => {
                self.since = now;
                Step::Pause { until: now + wait }
            }
            Verdict::GiveUp => Step::Done(Err(error)),
            Verdict::Suppressed => {
                self.rules.metrics.retries_suppressed.increment();
                Step::Done(Err(error))
            }
        }
    }

    fn no_connection(&self, pool: &Snapshot) -> Error {
        let left = self.deadline.remaining(self.since);
        let bound = self.rules.schedule.acquire_bound(self.attempt, left);
        let Snapshot { size, leased, waiting, .. } = *pool;
        if leased < size {
            // The caller's own thread would have taken what is free; so this is an asynchronous fetch.
            return Error::timeout(
                Phase::Pool,
                format!(
                    "a connection was free, but no worker thread became free within {bound}: check \
                     for slow callbacks; pool of {size}, {leased} busy, {waiting} waiting"
                ),
            );
        }
        let oldest = match pool.longest_lease {
            Some(age) => format!("the longest lease is {} ms old", age.as_millis()),
            None => "no lease is out".to_owned(),
        };
        Error::timeout(
            Phase::Pool,
            format!(
                "no connection became free within {bound}: pool of {size}, {leased} busy, \
                 {waiting} waiting, {oldest}"
            ),
        )
    }

    fn spend(&mut self, phase: Phase, now: Instant) {
        self.timings.add(phase, now.saturating_duration_since(self.since));
    }
}

/// A number in [0, 1) from a seed and a position (SplitMix64).
fn unit_interval(seed: u64, position: u32) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(position) + 1));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
