//! More fetches than connections: the wait in line, its bound, and what the caller hears of it.

mod common;

use std::thread;

use common::*;
use experiment::client::{Client, Fetched};
use experiment::config::NO_LIMIT;
use experiment::remote::options::FetchOptions;
use experiment::rules::error::Status;
use experiment::rules::timings::Phase;
use mock_service::{Answer, MockService, Script};

/// Runs `act` while every connection of the client waits for an answer that never comes.
fn with_all_busy<T>(settings: &Settings, act: impl FnOnce(&Client, &MockService) -> T) -> T {
    let answers = (0..settings.pool).map(|_| silence()).chain([Answer::service()]);
    let service = MockService::start(Script::answers(answers));
    let client = settings.client(&service);
    let (options, cancel) = cancelable();
    thread::scope(|scope| {
        for holder in 1..=settings.pool as usize {
            scope.spawn(|| fetch_with(&client, &options));
            until_requests(&service, holder);
        }
        let result = act(&client, &service);
        cancel.fire();
        result
    })
}

const ACQUIRE: u64 = 100;

fn settings() -> Settings {
    Settings { acquire: Some(ACQUIRE), ..Settings::default() }
}

#[test]
fn a_fetch_that_finds_all_connections_busy_times_out_at_the_acquire_timeout() {
    with_all_busy(&settings(), |client, service| {
        let fetched = takes(millis(ACQUIRE), || fetch(client));
        let error = error(&fetched);
        assert_eq!(error.status, Status::Timeout);
        assert_eq!(error.phase, Some(Phase::Pool));
        assert!(error.retryable);
        assert_eq!(fetched.attempts, 1);
        assert!(fetched.timings.spent(Phase::Pool) >= millis(ACQUIRE));
        assert_eq!(client.metrics().timeouts(Phase::Pool), 1);
        assert_eq!(client.metrics().failures(Status::Timeout), 1);
        assert_eq!(service.requests_total(), 1, "nothing of it was sent");
    });
}

#[test]
fn its_message_names_the_wait_the_pool_size_the_busy_the_waiting_and_the_longest_lease() {
    with_all_busy(&settings(), |client, _| {
        let fetched = fetch(client);
        let message = &error(&fetched).message;
        for part in
            ["100 ms", "fetch_pool_acquire_timeout_millis", "pool of 1,", "1 busy", "1 waiting"]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
        let age = message.split("the longest lease is ").nth(1).expect(message);
        let age: u64 = age.split(' ').next().unwrap().parse().expect(message);
        assert!(age >= ACQUIRE, "{message}");
        assert!(!message.contains('\n'), "{message}");
    });
}

#[test]
fn its_message_counts_all_that_are_busy_and_all_that_wait() {
    let settings = Settings { pool: 2, acquire: Some(400), ..Settings::default() };
    with_all_busy(&settings, |client, _| {
        let messages: Vec<String> = thread::scope(|scope| {
            let waiters = [1, 2, 3].map(|waiting| {
                let waiter = scope.spawn(|| fetch(client));
                until("it waits", || client.gauges().waiting == waiting);
                waiter
            });
            let fetches = waiters.map(|waiter| waiter.join().unwrap());
            fetches.iter().map(|fetched| error(fetched).message.to_string()).collect()
        });
        let first = &messages[0];
        assert!(first.contains("pool of 2, 2 busy, 3 waiting"), "{first}");
    });
}

/// What a caller can tell one failure from another by, the message aside.
fn as_seen(fetched: &Fetched) -> impl PartialEq + std::fmt::Debug {
    let error = error(fetched);
    (error.status, error.retryable, error.http_status, error.retry_after, fetched.attempts)
}

#[test]
fn waiting_too_long_for_a_connection_and_for_the_answer_are_one_failure_to_the_caller() {
    for retries in [0, 2] {
        let bounds = Settings {
            retries,
            acquire: Some(50),
            fetch_timeout: 50,
            retry_timeout: 50,
            ..Settings::default()
        };
        let service = MockService::start(Script::answers([silence()]));
        let reader = bounds.client(&service);
        let read = fetch(&reader);

        let patient = Settings { fetch_timeout: 8000, ..bounds };
        let waited = with_all_busy(&patient, |client, _| {
            let waited = fetch(client);
            let attempts = u64::from(retries) + 1;
            assert_eq!(client.metrics().timeouts(Phase::Pool), attempts);
            assert_eq!(client.metrics().timeouts(Phase::FirstByte), 0);
            assert_eq!(reader.metrics().timeouts(Phase::FirstByte), attempts);
            assert_eq!(reader.metrics().timeouts(Phase::Pool), 0);
            assert_eq!(client.metrics().retries.value(), reader.metrics().retries.value());
            waited
        });
        assert_eq!(as_seen(&read), as_seen(&waited));
        assert_eq!(read.attempts, retries + 1);
        assert_ne!(error(&read).message, error(&waited).message);
    }
}

#[test]
fn the_acquire_timeout_is_by_default_the_attempts_own_timeout() {
    const TIMEOUT: u64 = 100;
    let service = MockService::start(Script::answers([Answer::reply(503, &[], ""), silence()]));
    let settings =
        Settings { fetch_timeout: TIMEOUT, retries: 1, backoff_min: 0, ..Settings::default() };
    let client = settings.client(&service);
    let (options, cancel) = cancelable();
    thread::scope(|scope| {
        // One has the connection for its second attempt, which may take much longer.
        scope.spawn(|| fetch_with(&client, &options));
        until_requests(&service, 2);
        takes(millis(TIMEOUT), || {
            scope.spawn(|| fetch_with(&client, &options));
            until("it gives up its place", || client.metrics().timeouts(Phase::Pool) == 1);
        });
        cancel.fire();
    });
}

#[test]
fn the_acquire_timeout_of_a_retry_is_by_default_the_retry_timeout() {
    let unavailable = Answer::reply(503, &[], "");
    let service = MockService::start(Script::answers([unavailable, silence()]));
    let settings =
        Settings { retries: 1, backoff_min: 300, retry_timeout: 80, ..Settings::default() };
    let client = settings.client(&service);
    let (options, cancel) = cancelable();
    thread::scope(|scope| {
        let retrying = scope.spawn(|| fetch(&client));
        until_requests(&service, 1);
        until("the first attempt is over", || client.gauges().leased == 0);
        scope.spawn(|| fetch_with(&client, &options));
        until_requests(&service, 2);
        let fetched = retrying.join().unwrap();
        cancel.fire();
        assert_eq!((error(&fetched).phase, fetched.attempts), (Some(Phase::Pool), 2));
        let waited = fetched.timings.spent(Phase::Pool);
        assert!(waited >= millis(80));
        check_bound(waited, millis(80));
    });
}

#[test]
fn an_acquire_timeout_of_zero_never_waits() {
    let settings = Settings { acquire: Some(0), ..Settings::default() };
    with_all_busy(&settings, |client, _| {
        let fetched = within(millis(0), || fetch(client));
        assert_eq!(error(&fetched).phase, Some(Phase::Pool));
        assert!(error(&fetched).message.contains("within 0 ms"), "{}", error(&fetched));
    });
}

#[test]
fn an_acquire_timeout_of_zero_takes_a_connection_that_is_free() {
    let service = MockService::start(Script::service());
    let client = Settings { acquire: Some(0), ..Settings::default() }.client(&service);
    good(&client);
    good(&client);
}

#[test]
fn an_acquire_timeout_beyond_the_fetch_timeout_or_without_limit_waits_longer_than_an_attempt_may() {
    const TIMEOUT: u64 = 200;
    for acquire in [5000, NO_LIMIT] {
        let answers = [silence(), silence(), Answer::service()];
        let service = MockService::start(Script::answers(answers));
        let bounds =
            Settings { acquire: Some(acquire), fetch_timeout: TIMEOUT, ..Settings::default() };
        let client = bounds.client(&service);
        thread::scope(|scope| {
            scope.spawn(|| fetch(&client));
            until_requests(&service, 1);
            scope.spawn(|| fetch(&client));
            until("the second waits", || client.gauges().waiting == 1);
            let fetched = good(&client);
            assert!(fetched.timings.spent(Phase::Pool) > millis(TIMEOUT), "it had to wait for two");
        });
    }
}

#[test]
fn the_deadline_clips_the_wait_for_a_connection_and_the_message_says_so() {
    let settings = Settings { acquire: Some(5000), deadline: Some(80), ..Settings::default() };
    // The holder is under the same deadline, and is long gone in its own time: so two hold.
    let service = MockService::start(Script::answers([silence()]));
    let client = Settings { deadline: None, ..settings }.client(&service);
    let (held, cancel) = cancelable();
    thread::scope(|scope| {
        scope.spawn(|| fetch_with(&client, &held));
        until_requests(&service, 1);
        let deadline = experiment::rules::deadline::Limit::millis(80);
        let options = FetchOptions { deadline, ..FetchOptions::default() };
        let fetched = takes(millis(80), || fetch_with(&client, &options));
        cancel.fire();
        let error = error(&fetched);
        assert_eq!((error.status, error.phase), (Status::Timeout, Some(Phase::Pool)));
        assert!(error.message.contains("within 80 ms (the rest of the deadline)"), "{error}");
    });
}
