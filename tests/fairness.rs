//! Who waits for a connection gets it in turn, and nobody is forgotten.

mod common;

use std::thread;

use common::*;
use experiment::client::Client;
use experiment::remote::options::FetchOptions;
use experiment::rules::deadline::Limit;
use experiment::rules::error::Status;
use mock_service::{Answer, MockService, Script};

const THREADS: usize = 64;

/// While the client's only connection waits for an answer, lets `fetch` begin for one user after
/// the other, each once the one before it stands in line. Then does what `meanwhile` says, and
/// lets go of the connection. The users, in the order of their arrival.
fn line(
    service: &MockService,
    client: &Client,
    fetch: impl Fn(u64) + Sync,
    meanwhile: impl FnOnce(),
) -> Vec<u64> {
    let (options, cancel) = cancelable();
    let arrivals: Vec<u64> = (0..THREADS).map(|_| draw()).collect();
    let fetch = &fetch;
    thread::scope(|scope| {
        scope.spawn(|| fetch_with(client, &options));
        until_requests(service, 1);
        for (ahead, &nonce) in arrivals.iter().enumerate() {
            scope.spawn(move || fetch(nonce));
            until("it waits", || client.gauges().waiting == ahead + 1);
        }
        meanwhile();
        cancel.fire();
    });
    arrivals
}

/// Whose requests came, in their order, the first left out.
fn served(service: &MockService) -> Vec<u64> {
    let requests = service.requests();
    let users = requests[1..].iter().map(|request| {
        let user: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        user["user_properties"]["nonce"].as_u64().unwrap()
    });
    users.collect()
}

#[test]
fn sixty_four_threads_are_served_first_come_first_served_by_a_pool_of_one() {
    let service = MockService::start(Script::answers([silence(), Answer::service()]));
    let client = client(&service);
    let fetch = |nonce| {
        let fetched = client.fetch(&user(nonce), &FetchOptions::default());
        assert_eq!(nonce_of(variants(&fetched)), Some(nonce));
    };
    let arrivals = line(&service, &client, fetch, || {});
    assert_eq!(served(&service), arrivals);
    check_books(&client);
}

#[test]
fn those_who_give_up_leave_the_line_and_its_order_as_it_was() {
    let service = MockService::start(Script::answers([silence(), Answer::service()]));
    let client = client(&service);
    let (impatient, cancel) = cancelable();
    let gives_up = |nonce: u64| nonce.is_multiple_of(3);
    let fetch = |nonce| {
        if gives_up(nonce) {
            let fetched = client.fetch(&user(nonce), &impatient);
            assert_eq!(error(&fetched).status, Status::Canceled);
        } else {
            let fetched = client.fetch(&user(nonce), &FetchOptions::default());
            assert_eq!(nonce_of(variants(&fetched)), Some(nonce));
        }
    };
    let mut arrivals = line(&service, &client, fetch, || {
        cancel.fire();
        let gone = || client.metrics().failures(Status::Canceled);
        until("they have gone", || client.gauges().waiting + gone() as usize == THREADS);
        until("all of them", || gone() >= 21);
    });
    arrivals.retain(|nonce| !gives_up(*nonce));
    assert_eq!(served(&service), arrivals);
    check_books(&client);
}

#[test]
fn a_retry_goes_to_the_end_of_the_line() {
    let unavailable = Answer::reply(503, &[], "").delayed(100);
    let service = MockService::start(Script::answers([unavailable, Answer::service()]));
    let client = Settings { retries: 1, ..Settings::default() }.client(&service);
    let (first, second) = (draw(), draw());
    let fetch = |nonce| drop(client.fetch(&user(nonce), &FetchOptions::default()));
    thread::scope(|scope| {
        scope.spawn(|| fetch(first));
        until_requests(&service, 1);
        scope.spawn(|| fetch(second));
        until("the second waits", || client.gauges().waiting == 1);
    });
    assert_eq!(served(&service), [second, first]);
}

#[test]
fn no_lease_is_lost_when_one_who_waits_dies_just_as_it_is_handed_over() {
    // Answers of 1 ms, and waits that end at any moment around that: by their deadline or by a
    // cancel. A lost lease would leave the pool of one empty for good.
    let service = MockService::start(Script::answers([Answer::service().delayed(1)]));
    let client = client(&service);
    thread::scope(|scope| {
        for thread in 0..16u64 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..60u64 {
                    let limit = (thread * 7 + round * 13) % 23;
                    let (mut options, cancel) = cancelable();
                    if round.is_multiple_of(2) {
                        options.deadline = Limit::millis(limit);
                    } else {
                        thread::spawn(move || {
                            thread::sleep(millis(limit));
                            cancel.fire();
                        });
                    }
                    let nonce = draw();
                    match client.fetch(&user(nonce), &options).result {
                        Ok(variants) => assert_eq!(nonce_of(&variants), Some(nonce)),
                        Err(error) => assert!(
                            matches!(error.status, Status::Timeout | Status::Canceled),
                            "{error:?}"
                        ),
                    }
                }
            });
        }
    });
    check_books(&client);
    let metrics = client.metrics();
    assert!(metrics.failures(Status::Timeout) > 20 && metrics.failures(Status::Canceled) > 20);
    assert!(metrics.fetches_ok.value() > 20);
    within(millis(10), || good(&client));
}

#[test]
fn a_pool_of_four_is_used_by_four_at_once() {
    let service = MockService::start(Script::answers([Answer::service().delayed(60)]));
    let client = Settings { pool: 4, ..Settings::default() }.client(&service);
    // Sixteen fetches of 60 ms, four at a time.
    takes(millis(240), || {
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| good(&client));
            }
        });
    });
    assert_eq!(service.connections_open_max(), 4);
}
