//! A fetch comes back within the time it was given, whatever the service does with it.

mod common;

use std::time::Duration;

use common::*;
use experiment::remote::options::FetchOptions;
use experiment::rules::deadline::Limit;
use experiment::rules::error::Status;
use experiment::rules::timings::Phase;
use mock_service::{Answer, MockService, Script, Step};

const TIMEOUT: u64 = 120;

/// Fetches once from a service that plays `script`: it must time out at the fetch timeout, in this
/// phase, and the next fetch must be clean.
#[track_caller]
fn times_out(script: Script, phase: Phase) {
    let service = MockService::start(script);
    let client = Settings { fetch_timeout: TIMEOUT, ..Settings::default() }.client(&service);
    let fetched = takes(millis(TIMEOUT), || fetch(&client));
    let error = error(&fetched);
    assert_eq!((error.status, error.phase), (Status::Timeout, Some(phase)), "{error}");
    assert!(error.message.contains("120 ms"), "{error}");
    assert_eq!(client.metrics().timeouts(phase), 1);
    // The connection it had is closed at once: nobody reads what still comes.
    until_disconnected(&service);
    service.set_script(Script::service());
    // On a busy machine the next may be too slow for so short a timeout.
    let next = (0..5).map(|_| client.fetch(&user(7), &FetchOptions::default()));
    let next = next.into_iter().find(|next| next.result.is_ok()).expect("a good one");
    assert_eq!(nonce_of(variants(&next)), Some(7));
    check_books(&client);
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";

#[test]
fn a_service_that_says_nothing_is_given_up_at_the_fetch_timeout() {
    times_out(Script::answers([silence()]), Phase::FirstByte);
}

#[test]
fn a_head_that_comes_byte_by_byte_is_given_up_at_the_fetch_timeout() {
    let dripped = Answer::steps([Step::drip(HEAD, 15)]);
    times_out(Script::answers([dripped]), Phase::FirstByte);
}

#[test]
fn a_body_that_comes_byte_by_byte_is_given_up_at_the_fetch_timeout() {
    let dripped = Answer::steps([Step::send(HEAD), Step::drip(" ".repeat(1000), 10)]);
    times_out(Script::answers([dripped]), Phase::Body);
}

#[test]
fn a_chunked_body_that_comes_byte_by_byte_is_given_up_at_the_fetch_timeout() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let dripped = Answer::steps([Step::send(head), Step::drip("1\r\n \r\n".repeat(200), 5)]);
    times_out(Script::answers([dripped]), Phase::Body);
}

#[test]
fn a_body_without_a_length_that_never_ends_is_given_up_at_the_fetch_timeout() {
    let head = "HTTP/1.1 200 OK\r\n\r\n{}";
    let dripped = Answer::steps([Step::send(head), Step::drip(" ".repeat(1000), 10)]);
    times_out(Script::answers([dripped]), Phase::Body);
}

#[test]
fn a_body_that_stops_in_the_middle_is_given_up_at_the_fetch_timeout() {
    let stopped = Answer::steps([Step::send(format!("{HEAD}{{")), Step::Hold]);
    times_out(Script::answers([stopped]), Phase::Body);
}

#[test]
fn informational_answers_without_end_are_given_up_at_the_fetch_timeout() {
    let hints = Step::drip("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100), 1);
    times_out(Script::answers([Answer::steps([hints])]), Phase::FirstByte);
}

#[test]
fn a_service_that_reads_nothing_is_given_up_at_the_fetch_timeout() {
    let service = MockService::start(Script::service().connections([vec![Step::Hold]]));
    let client = Settings { fetch_timeout: TIMEOUT, ..Settings::default() }.client(&service);
    let mut large = user(1);
    large.set_text("carrier", &"x".repeat(5 << 20)).unwrap();
    let (fetched, took) = timed(|| client.fetch(&large, &FetchOptions::default()));
    let error = error(&fetched);
    assert_eq!((error.status, error.phase), (Status::Timeout, Some(Phase::Send)), "{error}");
    assert!(took >= millis(TIMEOUT));
    // Encoding 5 MiB comes before the exchange, and is slow without optimisation.
    check_bound(took, millis(TIMEOUT) + millis(400));
}

#[test]
fn a_connection_that_is_never_made_is_given_up_at_the_fetch_timeout() {
    let hole = MockService::black_hole();
    let client = Settings { fetch_timeout: TIMEOUT, ..Settings::default() }.client_at(&hole.url());
    let fetched = takes(millis(TIMEOUT), || fetch(&client));
    let error = error(&fetched);
    assert_eq!((error.status, error.phase), (Status::Timeout, Some(Phase::Connect)), "{error}");
    assert!(error.message.contains("connecting"), "{error}");
    check_books(&client);
}

#[test]
fn a_body_of_another_status_that_never_ends_holds_nobody_up() {
    let answer = Answer::steps([
        Step::send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1000\r\n\r\nsorry"),
        Step::Hold,
    ]);
    let service = MockService::start(Script::answers([answer, Answer::service()]));
    let client = client(&service);
    let fetched = within(millis(0), || fetch(&client));
    assert_eq!(error(&fetched).http_status, Some(503));
    good(&client);
}

#[test]
fn a_slow_answer_within_the_timeout_is_good() {
    let slow = Answer::service().delayed(TIMEOUT);
    let service = MockService::start(Script::answers([slow]));
    let client = client(&service);
    let fetched = good(&client);
    assert!(fetched.timings.spent(Phase::FirstByte) >= millis(TIMEOUT));
}

#[test]
fn each_attempt_after_the_first_has_the_retry_timeout() {
    let service = MockService::start(Script::answers([silence()]));
    let bounds =
        Settings { fetch_timeout: 60, retry_timeout: 160, retries: 2, ..Settings::default() };
    let client = bounds.client(&service);
    takes(millis(60 + 160 + 160), || fetch(&client));
}

#[test]
fn time_in_line_is_not_taken_from_the_exchange() {
    // The first holds the connection for 150 of 300 ms; the second, which waits for it, still has
    // its whole timeout for an answer that takes 250.
    let answers = [Answer::service().delayed(150), Answer::service().delayed(250)];
    let service = MockService::start(Script::answers(answers));
    let client = Settings { fetch_timeout: 300 + 150, ..Settings::default() }.client(&service);
    std::thread::scope(|scope| {
        scope.spawn(|| good(&client));
        until_requests(&service, 1);
        let fetched = good(&client);
        assert!(fetched.timings.spent(Phase::FirstByte) >= millis(250));
    });
}

// The deadline of the whole fetch.

fn deadline(millis: u64) -> FetchOptions {
    FetchOptions { deadline: Limit::millis(millis), ..FetchOptions::default() }
}

#[test]
fn the_deadline_clips_an_attempt() {
    let service = MockService::start(Script::answers([silence()]));
    for (of_client, of_call, bound) in [
        (Some(90), Limit::None, 90),
        (None, Limit::millis(80), 80),
        (Some(5000), Limit::millis(70), 70),
        (Some(60), Limit::millis(5000), 60),
    ] {
        let client = Settings { deadline: of_client, ..Settings::default() }.client(&service);
        let options = FetchOptions { deadline: of_call, ..FetchOptions::default() };
        let fetched = takes(millis(bound), || fetch_with(&client, &options));
        assert_eq!(error(&fetched).status, Status::Timeout);
        assert_eq!(fetched.attempts, 1);
    }
}

#[test]
fn a_deadline_never_extends_the_fetch_timeout() {
    let service = MockService::start(Script::answers([silence()]));
    let client = Settings { fetch_timeout: 60, deadline: Some(5000), ..Settings::default() }
        .client(&service);
    takes(millis(60), || fetch_with(&client, &deadline(4000)));
}

#[test]
fn the_deadline_bounds_all_attempts_together() {
    let service = MockService::start(Script::answers([silence()]));
    let bounds = Settings {
        fetch_timeout: 100,
        retry_timeout: 100,
        retries: 50,
        deadline: Some(250),
        ..Settings::default()
    };
    let client = bounds.client(&service);
    let fetched = takes(millis(250), || fetch(&client));
    assert_eq!(error(&fetched).status, Status::Timeout);
    // Two whole attempts fit, and half of a third; a busy machine may have made them longer.
    assert!((2..=3).contains(&fetched.attempts), "{}", fetched.attempts);
}

#[test]
fn a_wait_that_does_not_fit_the_deadline_ends_the_fetch_at_once_with_the_last_real_error() {
    let service = MockService::start(Script::answers([Answer::reply(503, &[], "")]));
    let bounds =
        Settings { retries: 3, backoff_min: 2000, deadline: Some(1500), ..Settings::default() };
    let client = bounds.client(&service);
    let fetched = within(millis(0), || fetch(&client));
    assert_eq!((error(&fetched).http_status, fetched.attempts), (Some(503), 1));
}

#[test]
fn a_deadline_of_zero_is_a_timeout_at_once_and_sends_nothing() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    let fetched = within(Duration::ZERO, || fetch_with(&client, &deadline(0)));
    assert_eq!(error(&fetched).status, Status::Timeout);
    assert_eq!(service.requests_total(), 0);
    good(&client);
    let again = within(Duration::ZERO, || fetch_with(&client, &deadline(0)));
    assert_eq!(error(&again).status, Status::Timeout);
    assert_eq!(service.requests_total(), 1, "nor over a connection that is open already");
    good(&client);
}

#[test]
fn no_fetch_takes_longer_than_the_worst_case_that_the_configuration_tells() {
    let service = MockService::start(Script::answers([silence()]));
    let bounds = Settings {
        fetch_timeout: 60,
        retry_timeout: 40,
        acquire: Some(30),
        retries: 3,
        backoff_min: 20,
        backoff_max: 25,
        ..Settings::default()
    };
    let client = bounds.client(&service);
    // Σ (acquire + timeout) + Σ backoff_max
    let worst = millis((30 + 60) + 3 * (30 + 40) + 3 * 25);
    within(worst, || fetch(&client));
}
