//! How long is waited between two attempts, and when there is no other.

mod common;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use experiment::rules::deadline::Limit;
use experiment::rules::error::{Error, Status};
use experiment::rules::fetch::{Fetch, Rules, Step};
use experiment::rules::retry::Budget;
use experiment::rules::schedule::Schedule;
use experiment::rules::timings::{Phase, Timings};
use mock_service::{Answer, MockService, Script};

/// The waits between the attempts of a fetch that fails every time, by a virtual clock.
fn waits(schedule: &Schedule, random: u64, error: &Error) -> Vec<Duration> {
    let (schedule, budget) = (schedule.clone(), Budget::new(0));
    let rules = Arc::new(Rules { schedule, budget, metrics: Arc::default() });
    let mut now = Instant::now();
    let (mut fetch, mut step) = Fetch::begin(&rules, Limit::None, random, now);
    let mut waits = Vec::new();
    loop {
        step = match step {
            Step::Attempt { .. } => {
                let _ = fetch.leased(now);
                fetch.exchanged(Err(error.clone()), &Timings::default(), now)
            }
            Step::Pause { until } => {
                waits.push(until - now);
                now = until;
                fetch.resumed(now)
            }
            Step::Done(_) => return waits,
        };
    }
}

fn schedule() -> Schedule {
    Schedule {
        fetch_timeout: millis(1000),
        retry_timeout: millis(1000),
        acquire_timeout: None,
        retries: 12,
        backoff_min: millis(500),
        backoff_max: millis(10_000),
        backoff_scalar: 1.5,
        jitter: false,
        deadline: Limit::None,
    }
}

#[test]
fn the_backoff_is_500_750_1125_and_so_on_up_to_its_maximum() {
    let waits = waits(&schedule(), 0, &Error::http_status(500, None));
    let millis: Vec<u128> = waits.iter().map(Duration::as_millis).collect();
    let grown = [500, 750, 1125, 1687, 2531, 3796, 5695, 8542];
    assert_eq!(millis[..8], grown);
    assert_eq!(millis[8..], [10_000; 4]);
}

#[test]
fn a_wait_is_the_larger_of_backoff_and_retry_after() {
    let asks = Error::http_status(503, Some(millis(2000)));
    let waits = waits(&Schedule { retries: 6, ..schedule() }, 0, &asks);
    let millis: Vec<u128> = waits.iter().map(Duration::as_millis).collect();
    assert_eq!(millis, [2000, 2000, 2000, 2000, 2531, 3796]);
}

#[test]
fn jitter_draws_each_wait_from_zero_to_the_backoff_evenly() {
    let schedule = Schedule { jitter: true, retries: 2, ..schedule() };
    let error = Error::http_status(500, None);
    let (mut sum, mut least, mut most) = (Duration::ZERO, Duration::MAX, Duration::ZERO);
    for random in 0..4000 {
        let waits = waits(&schedule, random, &error);
        assert!(waits[0] < millis(500) && waits[1] < millis(750), "{waits:?}");
        assert_ne!(waits[0].as_nanos() * 3, waits[1].as_nanos() * 2, "each draws anew");
        sum += waits[0];
        (least, most) = (least.min(waits[0]), most.max(waits[0]));
    }
    assert!((240..260).contains(&(sum / 4000).as_millis()), "{:?}", sum / 4000);
    assert!(least < millis(5) && most > millis(495), "{least:?} to {most:?}");
}

#[test]
fn jitter_never_shortens_what_the_service_asks_for() {
    let schedule = Schedule { jitter: true, retries: 5, ..schedule() };
    let asks = Error::http_status(429, Some(millis(10_000)));
    assert_eq!(waits(&schedule, 9, &asks), [millis(10_000); 5]);
}

/// The times between the requests of one fetch, as the service saw them. It notes a request before
/// it answers, so none can be shorter than the client's wait.
fn gaps(service: &MockService) -> Vec<Duration> {
    let at: Vec<Duration> = service.requests().iter().map(|request| request.at).collect();
    at.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn unavailable(headers: &[(&str, &str)]) -> Answer {
    Answer::reply(503, headers, "")
}

#[test]
fn a_client_waits_as_long_as_the_backoff_says() {
    let service = MockService::start(Script::answers([unavailable(&[])]));
    let settings = Settings { retries: 4, backoff_min: 40, backoff_max: 85, ..Settings::default() };
    let client = settings.client(&service);
    let fetched = takes(millis(40 + 60 + 85 + 85), || fetch(&client));
    assert_eq!(fetched.attempts, 5);
    for (gap, wait) in gaps(&service).into_iter().zip([40, 60, 85, 85]) {
        assert!(gap >= millis(wait), "{gap:?} < {wait} ms");
    }
    assert!(fetched.timings.spent(Phase::Backoff) >= millis(270));
}

#[test]
fn a_client_waits_as_long_as_retry_after_asks_in_each_of_its_forms() {
    let date = ("Date", "Sun, 06 Nov 1994 08:49:36 GMT");
    thread::scope(|scope| {
        for value in [
            "1",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            scope.spawn(move || {
                let first = unavailable(&[date, ("Retry-After", value)]);
                let service = MockService::start(Script::answers([first, Answer::service()]));
                let client = Settings { retries: 1, ..Settings::default() }.client(&service);
                let fetched = takes(millis(1000), || good(&client));
                assert_eq!(fetched.attempts, 2, "{value}");
                assert!(gaps(&service)[0] >= millis(1000), "{value}");
            });
        }
    });
}

/// What a fetch without retries tells of one answer's `Retry-After`.
fn told(code: u16, headers: &[(&str, &str)]) -> Option<Duration> {
    let service = MockService::start(Script::answers([Answer::reply(code, headers, "")]));
    let fetched = fetch(&client(&service));
    assert_eq!(error(&fetched).http_status, Some(code));
    error(&fetched).retry_after
}

#[test]
fn what_the_service_asks_for_is_told_in_the_error() {
    let date = ("Date", "Sun, 06 Nov 1994 08:49:00 GMT");
    for code in [429, 503, 302, 400] {
        assert_eq!(told(code, &[("Retry-After", "37")]), Some(Duration::from_secs(37)));
        for value in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            let asked = told(code, &[("Retry-After", value), date]);
            assert_eq!(asked, Some(Duration::from_secs(37)), "{value}");
        }
    }
}

#[test]
fn a_date_that_has_passed_asks_for_no_wait() {
    let date = ("Date", "Sun, 06 Nov 1994 08:49:00 GMT");
    let value = ("Retry-After", "Sun, 06 Nov 1994 08:00:00 GMT");
    assert_eq!(told(503, &[value, date]), Some(Duration::ZERO));
}

#[test]
fn a_retry_after_that_says_nothing_is_ignored() {
    let date = ("Date", "Sun, 06 Nov 1994 08:49:00 GMT");
    for value in ["soon", "-1", "1.5", "1 s", "Sun, 99 Nov 1994 08:49:37 GMT", "\u{e9}"] {
        assert_eq!(told(503, &[("Retry-After", value), date]), None, "{value}");
    }
    assert_eq!(told(503, &[("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT")]), None, "no Date");
    let service = MockService::start(Script::answers([
        unavailable(&[("Retry-After", "soon")]),
        Answer::service(),
    ]));
    let client = Settings { retries: 1, backoff_min: 50, ..Settings::default() }.client(&service);
    takes(millis(50), || good(&client));
}

#[test]
fn a_retry_after_beyond_the_largest_backoff_ends_the_fetch_at_once_with_its_error() {
    let asks = unavailable(&[("Retry-After", "2")]);
    let service = MockService::start(Script::answers([asks, Answer::service()]));
    let settings = Settings { retries: 3, backoff_max: 1999, ..Settings::default() };
    let client = settings.client(&service);
    let fetched = within(millis(0), || fetch(&client));
    assert_eq!((error(&fetched).http_status, fetched.attempts), (Some(503), 1));
    assert_eq!(error(&fetched).retry_after, Some(millis(2000)));
    for value in ["99999999999999999999999999", "18446744073709551615"] {
        service.set_script(Script::answers([unavailable(&[("Retry-After", value)])]));
        assert_eq!(within(millis(0), || fetch(&client)).attempts, 1, "{value}");
    }
}

#[test]
fn a_retry_after_that_does_not_fit_the_deadline_ends_the_fetch_at_once_with_its_error() {
    let asks = unavailable(&[("Retry-After", "2")]);
    let service = MockService::start(Script::answers([asks, Answer::service()]));
    let settings = Settings { retries: 3, deadline: Some(1500), ..Settings::default() };
    let fetched = within(millis(0), || fetch(&settings.client(&service)));
    assert_eq!((error(&fetched).http_status, fetched.attempts), (Some(503), 1));
}

#[test]
fn a_client_with_jitter_waits_no_longer_than_the_backoff_and_not_always_the_same() {
    let service = MockService::start(Script::answers([unavailable(&[])]));
    let settings = Settings { retries: 1, backoff_min: 40, jitter: true, ..Settings::default() };
    let client = settings.client(&service);
    let waits: Vec<Duration> =
        (0..10).map(|_| fetch(&client).timings.spent(Phase::Backoff)).collect();
    for wait in &waits {
        check_bound(*wait, millis(40));
    }
    let rounded: std::collections::BTreeSet<u128> =
        waits.iter().map(|wait| wait.as_millis() / 4).collect();
    assert!(rounded.len() > 2, "{waits:?}");
    assert!(waits.iter().any(|wait| *wait < millis(35)), "{waits:?}");
}

#[test]
fn a_retry_budget_that_is_empty_gives_the_last_real_error_at_once_and_is_counted() {
    let service = MockService::start(Script::answers([unavailable(&[])]));
    let client = Settings { retries: 1, budget: 20, ..Settings::default() }.client(&service);
    // The bucket as it is documented: full with ten, a fifth more for each fetch.
    let (mut hundredths, mut retries) = (1000, 0);
    for _ in 0..40 {
        hundredths = (hundredths + 20).min(1000);
        let may = hundredths >= 100;
        if may {
            hundredths -= 100;
            retries += 1;
        }
        let fetched = fetch(&client);
        assert_eq!(fetched.attempts, 1 + u32::from(may));
        assert_eq!(
            (error(&fetched).status, error(&fetched).http_status),
            (Status::HttpStatus, Some(503))
        );
    }
    assert!(retries < 40 && retries > 10);
    assert_eq!(client.metrics().retries.value(), retries);
    assert_eq!(client.metrics().retries_suppressed.value(), 40 - retries);
    check_books(&client);
}

#[test]
fn without_a_retry_budget_nothing_is_suppressed() {
    let service = MockService::start(Script::answers([unavailable(&[])]));
    let client = Settings { retries: 2, ..Settings::default() }.client(&service);
    for _ in 0..20 {
        fetch(&client);
    }
    assert_eq!(client.metrics().retries.value(), 40);
    assert_eq!(client.metrics().retries_suppressed.value(), 0);
}

#[test]
fn a_connection_is_given_back_while_its_fetch_waits_between_attempts() {
    let service = MockService::start(Script::answers([unavailable(&[]), Answer::service()]));
    let client = Settings { retries: 1, backoff_min: 400, ..Settings::default() }.client(&service);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| good(&client));
        until_requests(&service, 1);
        until("its connection is free", || client.gauges().leased == 0);
        within(millis(0), || good(&client));
        waiting.join().unwrap();
    });
}
