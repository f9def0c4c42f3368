//! The end of a client: nobody waits for nothing, and what runs is waited for or cut off.

mod common;

use std::thread;
use std::time::Duration;

use common::*;
use experiment::client::Client;
use experiment::config::NO_LIMIT;
use experiment::rules::deadline::Limit;
use experiment::rules::error::Status;
use experiment::rules::metrics::CloseReason;
use experiment::rules::timings::Phase;
use mock_service::{Answer, MockService, Script};

#[track_caller]
fn is_closed(client: &Client) {
    let fetched = within(Duration::ZERO, || fetch(client));
    assert_eq!((error(&fetched).status, error(&fetched).retryable), (Status::Closed, false));
}

#[test]
fn a_fetch_after_the_close_is_closed_and_sends_nothing() {
    let service = MockService::start(Script::service());
    let client = Settings { retries: 3, ..Settings::default() }.client(&service);
    good(&client);
    within(Duration::ZERO, || client.close(Limit::millis(1000)).unwrap());
    is_closed(&client);
    assert_eq!(service.requests_total(), 1);
    assert_eq!(client.metrics().failures(Status::Closed), 1);
    check_books(&client);
}

#[test]
fn closing_closes_the_connections_that_are_kept() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    good(&client);
    client.close(Limit::None).unwrap();
    until_disconnected(&service);
    assert_eq!(client.metrics().connections_closed(CloseReason::Shutdown), 1);
    check_books(&client);
}

#[test]
fn a_client_that_never_fetched_is_closed_at_once_and_as_often_as_one_likes() {
    let client = Settings::default().client_at(&MockService::refused_url());
    for limit in [Limit::millis(0), Limit::millis(1000), Limit::None] {
        within(Duration::ZERO, || client.close(limit).unwrap());
    }
    is_closed(&client);
}

#[test]
fn closing_wakes_all_who_wait_for_a_connection_and_waits_for_those_who_have_one() {
    let slow = Answer::service().delayed(300);
    let service = MockService::start(Script::answers([slow]));
    let client =
        Settings { acquire: Some(NO_LIMIT), retries: 2, ..Settings::default() }.client(&service);
    thread::scope(|scope| {
        let running = scope.spawn(|| good(&client));
        until_requests(&service, 1);
        let waiting: Vec<_> = (1..=20)
            .map(|waiting| {
                let waiter = scope.spawn(|| timed(|| fetch(&client)));
                until("it waits", || client.gauges().waiting == waiting);
                waiter
            })
            .collect();
        let (closed, took) = timed(|| client.close(Limit::millis(5000)));
        closed.expect("nothing runs any more");
        check_bound(took, millis(300));
        assert!(running.is_finished() || client.metrics().fetches_ok.value() == 1);
        for waiter in waiting {
            let (fetched, _) = waiter.join().unwrap();
            assert_eq!((error(&fetched).status, fetched.attempts), (Status::Closed, 1));
        }
        running.join().unwrap();
    });
    assert_eq!(service.requests_total(), 1);
    assert_eq!(client.metrics().failures(Status::Closed), 20);
    until_disconnected(&service);
    check_books(&client);
}

#[test]
fn those_who_wait_are_woken_at_once_and_not_when_the_running_ones_are_done() {
    let service = MockService::start(Script::answers([silence()]));
    let client = client(&service);
    let (options, cancel) = cancelable();
    thread::scope(|scope| {
        scope.spawn(|| fetch_with(&client, &options));
        until_requests(&service, 1);
        let waiter = scope.spawn(|| fetch(&client));
        until("it waits", || client.gauges().waiting == 1);
        within(Duration::ZERO, || {
            client.begin_close();
            assert_eq!(error(&waiter.join().unwrap()).status, Status::Closed);
        });
        cancel.fire();
    });
}

#[test]
fn a_close_that_has_waited_long_enough_cuts_off_what_runs_and_says_so() {
    for limit in [0, 100] {
        let service = MockService::start(Script::answers([silence()]));
        let client = Settings { pool: 3, retries: 5, ..Settings::default() }.client(&service);
        thread::scope(|scope| {
            let running = [1, 2, 3].map(|running| {
                let fetch = scope.spawn(|| fetch(&client));
                until_requests(&service, running);
                fetch
            });
            let closed = takes(millis(limit), || client.close(Limit::millis(limit)));
            assert_eq!(closed.expect_err("it cut them off").status, Status::Timeout);
            let (_, took) = timed(|| {
                for fetch in running {
                    let fetched = fetch.join().unwrap();
                    assert_eq!(error(&fetched).status, Status::Closed);
                    assert_eq!(fetched.attempts, 1);
                }
            });
            check_bound(took, Duration::ZERO);
            client.close(Limit::millis(1000)).expect("nothing runs any more");
        });
        until_disconnected(&service);
        is_closed(&client);
        check_books(&client);
    }
}

#[test]
fn closing_ends_a_fetch_that_is_connecting() {
    let hole = MockService::black_hole();
    let client = Settings::default().client_at(&hole.url());
    thread::scope(|scope| {
        let running = scope.spawn(|| fetch(&client));
        until("it has its place", || client.gauges().leased == 1);
        assert!(takes(millis(50), || client.close(Limit::millis(50))).is_err());
        let fetched = within(Duration::ZERO, || running.join().unwrap());
        assert_eq!(error(&fetched).status, Status::Closed);
    });
    check_books(&client);
}

#[test]
fn closing_ends_a_wait_between_two_attempts_at_once() {
    let service = MockService::start(Script::answers([Answer::reply(503, &[], "")]));
    let client = Settings { retries: 1, backoff_min: 5000, ..Settings::default() }.client(&service);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| fetch(&client));
        until_requests(&service, 1);
        until("its first attempt is over", || client.gauges().leased == 0);
        within(Duration::ZERO, || client.close(Limit::millis(3000)).unwrap());
        let fetched = waiting.join().unwrap();
        assert_eq!((error(&fetched).status, fetched.attempts), (Status::Closed, 1));
        assert!(fetched.timings.spent(Phase::Backoff) < millis(5000));
    });
    check_books(&client);
}

#[test]
fn a_retry_after_the_close_is_closed() {
    let unavailable = Answer::reply(503, &[], "").delayed(100);
    let service = MockService::start(Script::answers([unavailable]));
    let client = Settings { retries: 5, ..Settings::default() }.client(&service);
    thread::scope(|scope| {
        let running = scope.spawn(|| fetch(&client));
        until_requests(&service, 1);
        within(millis(100), || client.close(Limit::millis(3000)).unwrap());
        let fetched = running.join().unwrap();
        assert_eq!(error(&fetched).status, Status::Closed);
    });
    assert_eq!(service.requests_total(), 1);
}

#[test]
fn two_may_close_at_once() {
    let slow = Answer::service().delayed(100);
    let service = MockService::start(Script::answers([slow]));
    let client = client(&service);
    thread::scope(|scope| {
        scope.spawn(|| good(&client));
        until_requests(&service, 1);
        let closes = [0; 8].map(|_| scope.spawn(|| client.close(Limit::millis(5000))));
        for close in closes {
            close.join().unwrap().expect("all of them see the end");
        }
        assert_eq!(client.metrics().fetches_ok.value(), 1);
    });
}

#[test]
fn closing_while_64_threads_fetch_leaves_no_fetch_without_an_end() {
    let service = MockService::start(Script::service());
    let client = Settings { pool: 4, ..Settings::default() }.client(&service);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                loop {
                    let nonce = draw();
                    match client.fetch(&user(nonce), &Default::default()).result {
                        Ok(variants) => assert_eq!(nonce_of(&variants), Some(nonce)),
                        Err(error) => break assert_eq!(error.status, Status::Closed, "{error}"),
                    }
                }
            });
        }
        until_requests(&service, 200);
        client.close(Limit::millis(5000)).unwrap();
    });
    assert_eq!(client.metrics().failures(Status::Closed), 64);
    until_disconnected(&service);
    check_books(&client);
}
