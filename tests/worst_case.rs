//! The longest that a fetch can take, told beforehand: the bound that a caller plans with.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::millis;
use experiment::model::Variants;
use experiment::rules::deadline::Limit;
use experiment::rules::error::{Error, Status};
use experiment::rules::fetch::{Fetch, Refusal, Rules, Step};
use experiment::rules::pool::Snapshot;
use experiment::rules::retry::Budget;
use experiment::rules::schedule::Schedule;
use experiment::rules::timings::{Phase, Timings};

/// How one fetch goes on, wherever it leaves a choice.
trait History {
    /// When the wait for a connection ends, if not later than `until`; true if with a connection.
    fn wait(&mut self, now: Instant, until: Option<Instant>) -> (Instant, bool);
    /// When the exchange ends, at `until` or before, and how.
    fn exchange(&mut self, now: Instant, until: Instant) -> (Instant, Result<Variants, Error>);
}

/// How long it takes.
fn run(schedule: &Schedule, own_limit: Limit, history: &mut dyn History) -> Duration {
    let (schedule, budget) = (schedule.clone(), Budget::new(0));
    let rules = Arc::new(Rules { schedule, budget, metrics: Arc::default() });
    let begun = Instant::now();
    let mut now = begun;
    let (mut fetch, mut step) = Fetch::begin(&rules, own_limit, 7, now);
    loop {
        step = match step {
            Step::Attempt { until } => {
                let (when, leased) = history.wait(now, until.instant());
                now = when;
                if leased {
                    let bounds = fetch.leased(now);
                    let until = bounds.until.instant().expect("an exchange is always bounded");
                    let (when, result) = history.exchange(now, until);
                    now = when;
                    fetch.exchanged(result, &Timings::default(), now)
                } else {
                    fetch.refused(Refusal::Expired(BUSY), now)
                }
            }
            Step::Pause { until } => {
                now = until;
                fetch.resumed(now)
            }
            Step::Done(_) => return now - begun,
        };
    }
}

const BUSY: Snapshot =
    Snapshot { size: 1, leased: 1, idle_warm: 0, waiting: 1, free_workers: 0, longest_lease: None };

/// Everything comes at the last moment, and the service asks for the longest wait there is.
struct Worst {
    retry_after: Option<Duration>,
}

impl History for Worst {
    fn wait(&mut self, now: Instant, until: Option<Instant>) -> (Instant, bool) {
        (until.unwrap_or(now), true)
    }

    fn exchange(&mut self, _: Instant, until: Instant) -> (Instant, Result<Variants, Error>) {
        (until, Err(Error { retry_after: self.retry_after, ..Error::timeout(Phase::Body, "") }))
    }
}

fn schedule(retries: u32) -> Schedule {
    Schedule {
        fetch_timeout: millis(1000),
        retry_timeout: millis(300),
        acquire_timeout: None,
        retries,
        backoff_min: millis(500),
        backoff_max: millis(10_000),
        backoff_scalar: 1.5,
        jitter: false,
        deadline: Limit::None,
    }
}

fn told(schedule: &Schedule) -> Duration {
    match schedule.worst_case() {
        Limit::After(worst) => worst,
        Limit::None => panic!("no worst case for {schedule:?}"),
    }
}

#[test]
fn the_worst_case_is_what_the_worst_history_takes() {
    let explicit = |acquire| Some(Limit::millis(acquire));
    for (schedule, worst) in [
        (schedule(0), 2000),
        (schedule(1), 2000 + 600 + 10_000),
        (schedule(7), 2000 + 7 * 600 + 7 * 10_000),
        (schedule(100), 2000 + 100 * 600 + 100 * 10_000),
        (Schedule { acquire_timeout: explicit(0), ..schedule(2) }, 1000 + 600 + 20_000),
        (Schedule { acquire_timeout: explicit(50), ..schedule(2) }, 1050 + 700 + 20_000),
        (Schedule { backoff_max: millis(0), ..schedule(3) }, 2000 + 3 * 600),
        (Schedule { backoff_max: millis(100), ..schedule(3) }, 2000 + 3 * 600 + 300),
        (Schedule { backoff_min: millis(0), ..schedule(3) }, 2000 + 3 * 600 + 30_000),
        (Schedule { jitter: true, ..schedule(2) }, 2000 + 1200 + 20_000),
        (Schedule { backoff_scalar: 100.0, ..schedule(2) }, 2000 + 1200 + 20_000),
    ] {
        let mut history = Worst { retry_after: Some(schedule.backoff_max) };
        let took = run(&schedule, Limit::None, &mut history);
        assert_eq!(told(&schedule), millis(worst), "{schedule:?}");
        assert_eq!(took, told(&schedule), "{schedule:?}");
    }
}

#[test]
fn the_worst_case_under_a_deadline_is_the_deadline_when_an_attempt_can_reach_it() {
    let no_limit = Some(Limit::None);
    for schedule in [
        Schedule { deadline: Limit::millis(0), ..schedule(0) },
        Schedule { deadline: Limit::millis(1), ..schedule(5) },
        Schedule { deadline: Limit::millis(1500), ..schedule(0) },
        Schedule { deadline: Limit::millis(2000), ..schedule(0) },
        Schedule { deadline: Limit::millis(1999), ..schedule(9) },
        Schedule { deadline: Limit::millis(2600), ..schedule(9) },
        Schedule { deadline: Limit::millis(2900), backoff_min: millis(0), ..schedule(9) },
        Schedule { deadline: Limit::millis(700), acquire_timeout: no_limit, ..schedule(9) },
    ] {
        let took = run(&schedule, Limit::None, &mut Worst { retry_after: None });
        assert_eq!(Limit::After(told(&schedule)), schedule.deadline, "{schedule:?}");
        assert_eq!(took, told(&schedule), "{schedule:?}");
    }
}

#[test]
fn nothing_bounds_a_fetch_that_waits_without_limit_and_has_no_deadline() {
    let schedule = Schedule { acquire_timeout: Some(Limit::None), ..schedule(1) };
    assert_eq!(schedule.worst_case(), Limit::None);
}

/// Draws what happens; the same from the same seed.
struct Drawn(u64);

impl Drawn {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        if bound == 0 { 0 } else { self.0 % bound }
    }

    fn one_of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize].clone()
    }

    /// A moment from `now` to `until`, quite often the last.
    fn moment(&mut self, now: Instant, until: Instant) -> Instant {
        if self.below(3) == 0 {
            return until;
        }
        let left = until.saturating_duration_since(now).as_micros() as u64;
        now + Duration::from_micros(self.below(left + 1))
    }

    fn schedule(&mut self) -> Schedule {
        let times = [0, 1, 30, 500, 2000];
        let limits = [Limit::None, Limit::millis(0), Limit::millis(40), Limit::millis(3000)];
        Schedule {
            fetch_timeout: millis(1 + self.one_of(&times)),
            retry_timeout: millis(1 + self.one_of(&times)),
            acquire_timeout: self.one_of(&[None, Some(0), Some(1), Some(2)]).map(|i| limits[i]),
            retries: self.one_of(&[0, 1, 2, 5, 20]),
            backoff_min: millis(self.one_of(&times)),
            backoff_max: millis(self.one_of(&times)),
            backoff_scalar: self.one_of(&[1.0, 1.5, 100.0]),
            jitter: self.below(2) == 0,
            deadline: self.one_of(&limits),
        }
    }
}

impl History for Drawn {
    fn wait(&mut self, now: Instant, until: Option<Instant>) -> (Instant, bool) {
        let until = until.unwrap_or(now + millis(5000));
        match self.below(4) {
            0 => (until.max(now), false),
            _ => (self.moment(now, until), true),
        }
    }

    fn exchange(&mut self, now: Instant, until: Instant) -> (Instant, Result<Variants, Error>) {
        let when = self.moment(now, until);
        let asked = self.one_of(&[None, Some(millis(0)), Some(millis(30)), Some(millis(100_000))]);
        let result = match self.below(12) {
            0 => Ok(Variants::empty()),
            1 => Err(Error::http_status(400, asked)),
            2..=4 => Err(Error::new(Status::Network, "")),
            5..=8 => Err(Error::http_status(503, asked)),
            _ => Err(Error::timeout(Phase::FirstByte, "")),
        };
        (when, result)
    }
}

#[test]
fn no_history_takes_longer_than_the_worst_case_or_the_deadline() {
    let mut drawn = Drawn(0x0123_4567_89ab_cdef);
    let mut reached = 0;
    for number in 0..30_000 {
        let schedule = drawn.schedule();
        let own_limit = drawn.one_of(&[Limit::None, Limit::millis(0), Limit::millis(700)]);
        let took = run(&schedule, own_limit, &mut drawn);
        if let Limit::After(bound) = schedule.worst_case().min(own_limit) {
            assert!(took <= bound, "history {number}: {took:?} > {bound:?}, {schedule:?}");
            reached += u32::from(took == bound);
        }
    }
    assert!(reached > 1000, "the bound is tight: {reached}");
}
