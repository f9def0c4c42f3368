//! Which failures are tried again, how often, and what is reported in the end.

mod common;

use common::*;
use experiment::rules::error::Status;
use experiment::rules::timings::Phase;
use mock_service::{Answer, MockService, Script};

const FINAL: [u16; 9] = [400, 401, 403, 404, 405, 408, 410, 422, 451];
const RETRYABLE: [u16; 12] = [201, 202, 204, 206, 301, 302, 304, 307, 429, 500, 503, 599];

fn status(code: u16) -> Answer {
    Answer::reply(code, &[("Location", "http://127.0.0.1:1/elsewhere")], "")
}

/// Plays `answers` to one fetch with so many retries, and then checks that the next one is clean.
fn play(
    answers: impl IntoIterator<Item = Answer>,
    retries: u32,
) -> (experiment::client::Fetched, usize) {
    let answers: Vec<Answer> = answers.into_iter().collect();
    let service = MockService::start(Script::answers(answers));
    let client = Settings { retries, ..Settings::default() }.client(&service);
    let fetched = fetch(&client);
    let seen = service.requests_total();
    assert_eq!(seen, fetched.attempts as usize, "every attempt is one request");
    assert_eq!(client.metrics().attempts.value(), u64::from(fetched.attempts));
    assert_eq!(client.metrics().retries.value(), u64::from(fetched.attempts) - 1);
    service.set_script(Script::service());
    good(&client);
    check_books(&client);
    (fetched, seen)
}

#[test]
fn another_4xx_than_429_is_an_error_at_once_however_many_retries_there_are() {
    for code in FINAL {
        for retries in [0, 2] {
            let (fetched, _) = play([status(code)], retries);
            let error = error(&fetched);
            assert_eq!((error.status, error.http_status), (Status::HttpStatus, Some(code)));
            assert_eq!((error.retryable, fetched.attempts), (false, 1), "{code}");
            assert!(error.message.contains(&code.to_string()), "{error}");
        }
    }
}

#[test]
fn a_429_a_5xx_a_redirect_and_a_success_that_is_not_200_are_tried_again() {
    for code in RETRYABLE {
        for retries in [0, 2] {
            let (fetched, _) = play([status(code)], retries);
            let error = error(&fetched);
            assert_eq!((error.status, error.http_status), (Status::HttpStatus, Some(code)));
            assert_eq!((error.retryable, fetched.attempts), (true, retries + 1), "{code}");
            assert!(error.message.contains(&code.to_string()), "{error}");
        }
    }
}

#[test]
fn a_read_timeout_is_tried_again() {
    for retries in [0, 2] {
        let service = MockService::start(Script::answers([silence()]));
        let bounds =
            Settings { retries, fetch_timeout: 60, retry_timeout: 40, ..Settings::default() };
        let client = bounds.client(&service);
        let bound = millis(60) + millis(40) * retries;
        let fetched = takes(bound, || fetch(&client));
        let error = error(&fetched);
        assert_eq!((error.status, error.phase), (Status::Timeout, Some(Phase::FirstByte)));
        assert_eq!((error.retryable, fetched.attempts), (true, retries + 1));
        until_requests(&service, retries as usize + 1);
        check_books(&client);
    }
}

#[test]
fn a_refused_connection_is_tried_again() {
    for retries in [0, 2] {
        let client =
            Settings { retries, ..Settings::default() }.client_at(&MockService::refused_url());
        let fetched = within(millis(0), || fetch(&client));
        let error = error(&fetched);
        assert_eq!((error.status, error.retryable), (Status::Network, true));
        assert_eq!(fetched.attempts, retries + 1);
        check_books(&client);
    }
}

#[test]
fn a_host_that_nobody_knows_is_a_retryable_failure_within_the_timeout() {
    let bounds = Settings { fetch_timeout: 500, ..Settings::default() };
    let client = bounds.client_at("http://no-such-host.invalid");
    let fetched = within(millis(500), || fetch(&client));
    // Without a name server, the lookup may take longer than there is time.
    assert!(matches!(error(&fetched).status, Status::Network | Status::Timeout));
    assert!(error(&fetched).retryable);
    check_books(&client);
}

#[test]
fn an_unreadable_body_is_tried_again() {
    for retries in [0, 2] {
        let (fetched, _) = play([Answer::json(200, "null")], retries);
        let error = error(&fetched);
        assert_eq!((error.status, error.retryable), (Status::InvalidResponse, true));
        assert_eq!(fetched.attempts, retries + 1);
    }
}

#[test]
fn a_success_on_a_retry_is_the_result() {
    for failures in [vec![status(500)], vec![status(429), status(302)]] {
        let attempts = failures.len() as u32 + 1;
        let answers = failures.into_iter().chain([Answer::service()]);
        let service = MockService::start(Script::answers(answers));
        let client = Settings { retries: 2, ..Settings::default() }.client(&service);
        let fetched = good(&client);
        assert_eq!(fetched.attempts, attempts);
        assert_eq!(client.metrics().fetches_ok.value(), 1);
    }
}

#[test]
fn a_success_after_a_timeout_is_the_result() {
    let service = MockService::start(Script::answers([silence(), Answer::service()]));
    let client = Settings { retries: 1, fetch_timeout: 60, ..Settings::default() }.client(&service);
    assert_eq!(good(&client).attempts, 2);
}

#[test]
fn a_400_on_the_second_attempt_ends_it() {
    let (fetched, seen) = play([status(500), status(400), Answer::service()], 5);
    assert_eq!((error(&fetched).http_status, error(&fetched).retryable), (Some(400), false));
    assert_eq!((fetched.attempts, seen), (2, 2));
}

#[test]
fn the_last_error_is_the_one_reported() {
    let (fetched, _) = play([status(500), status(503), status(429)], 2);
    assert_eq!((error(&fetched).http_status, fetched.attempts), (Some(429), 3));
    let (fetched, _) = play([status(500), Answer::json(200, "[]")], 1);
    assert_eq!(error(&fetched).status, Status::InvalidResponse);
    assert_eq!(error(&fetched).http_status, None, "of the last attempt, nothing of the first");
}

#[test]
fn a_redirect_is_not_followed_and_the_key_goes_nowhere_else() {
    let elsewhere = MockService::start(Script::service());
    for code in [301, 302, 303, 307, 308] {
        let location = format!("{}/sdk/v2/vardata?v=0", elsewhere.url());
        let (fetched, _) = play([Answer::reply(code, &[("Location", &location)], "")], 0);
        assert_eq!(error(&fetched).http_status, Some(code));
    }
    assert_eq!(elsewhere.connections_accepted(), 0);
}
