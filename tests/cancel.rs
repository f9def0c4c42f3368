//! Whoever no longer wants an answer gets the thread back at once, in whatever the fetch is doing.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use experiment::client::{Client, Fetched};
use experiment::remote::options::FetchOptions;
use experiment::rules::error::Status;
use experiment::rules::timings::Phase;
use mock_service::{Answer, MockService, Script, Step};

fn settings() -> Settings {
    Settings { retries: 2, backoff_min: 5000, ..Settings::default() }
}

/// Cancels a fetch once `is_there` says that it is where it is wanted.
#[track_caller]
fn cancel_when(client: &Client, is_there: impl Fn() -> bool) -> Fetched {
    let (options, cancel) = cancelable();
    let fetched = thread::scope(|scope| {
        let fetching = scope.spawn(|| fetch_with(client, &options));
        until("it is there", is_there);
        within(Duration::ZERO, || {
            cancel.fire();
            fetching.join().unwrap()
        })
    });
    let error = error(&fetched);
    assert_eq!((error.status, error.retryable), (Status::Canceled, false), "{error}");
    assert_eq!(fetched.attempts, 1);
    assert_eq!(client.metrics().failures(Status::Canceled), 1);
    check_nothing_timed_out(client);
    fetched
}

fn check_nothing_timed_out(client: &Client) {
    for phase in Phase::ALL {
        assert_eq!(client.metrics().timeouts(phase), 0, "{phase:?}");
    }
}

#[test]
fn a_cancel_before_the_call_is_canceled_and_sends_nothing() {
    let service = MockService::start(Script::service());
    let client = settings().client(&service);
    let (options, cancel) = cancelable();
    cancel.fire();
    let fetched = within(Duration::ZERO, || fetch_with(&client, &options));
    assert_eq!(error(&fetched).status, Status::Canceled);
    assert_eq!(service.connections_accepted(), 0);
    good(&client);
    let again = fetch_with(&client, &options);
    assert_eq!(error(&again).status, Status::Canceled, "a switch that has fired stays so");
    assert_eq!(service.requests_total(), 1);
    check_books(&client);
}

#[test]
fn a_cancel_ends_the_wait_for_a_connection() {
    let service = MockService::start(Script::answers([silence(), Answer::service()]));
    let client = settings().client(&service);
    let (held, release) = cancelable();
    thread::scope(|scope| {
        let holder = scope.spawn(|| fetch_with(&client, &held));
        until_requests(&service, 1);
        let fetched = cancel_when(&client, || client.gauges().waiting == 1);
        assert_eq!(client.gauges().waiting, 0);
        assert_eq!(fetched.timings.spent(Phase::FirstByte), Duration::ZERO);
        release.fire();
        holder.join().unwrap();
    });
    assert_eq!(service.requests_total(), 1);
    good(&client);
    check_books(&client);
}

#[test]
fn a_cancel_ends_the_connecting() {
    let hole = MockService::black_hole();
    let client = settings().client_at(&hole.url());
    cancel_when(&client, || client.gauges().leased == 1);
    assert_eq!(client.gauges().leased, 0);
    check_books(&client);
}

#[test]
fn a_cancel_ends_the_wait_for_the_answer() {
    let service = MockService::start(Script::answers([silence(), Answer::service()]));
    let client = settings().client(&service);
    cancel_when(&client, || service.requests_total() == 1);
    until_disconnected(&service);
    good(&client);
    check_books(&client);
}

#[test]
fn a_cancel_ends_the_wait_for_the_answer_on_a_kept_connection() {
    let service =
        MockService::start(Script::answers([Answer::service(), silence(), Answer::service()]));
    let client = settings().client(&service);
    good(&client);
    cancel_when(&client, || service.requests_total() == 2);
    assert_eq!(client.metrics().stale_repeats.value(), 0);
    good(&client);
    check_books(&client);
}

#[test]
fn a_cancel_ends_a_head_and_a_body_that_drip() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    for answer in [
        Answer::steps([Step::drip(head.repeat(100), 5)]),
        Answer::steps([Step::send(head), Step::drip(" ".repeat(1000), 5)]),
        Answer::steps([Step::send(head), Step::Hold]),
        Answer::steps([
            Step::send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            Step::Hold,
        ]),
    ] {
        let service = MockService::start(Script::answers([answer, Answer::service()]));
        let client = settings().client(&service);
        let seen = Instant::now();
        cancel_when(&client, || service.requests_total() == 1 && seen.elapsed() > millis(40));
        good(&client);
        check_books(&client);
    }
}

#[test]
fn a_cancel_ends_the_sending() {
    let service = MockService::start(Script::service().connections([vec![Step::Hold], vec![]]));
    let client = settings().client(&service);
    let mut large = user(1);
    large.set_text("carrier", &"x".repeat(5 << 20)).unwrap();
    let (options, cancel) = cancelable();
    thread::scope(|scope| {
        let fetching = scope.spawn(|| client.fetch(&large, &options));
        assert!(service.wait_until(SOON, |seen| seen.connections_accepted == 1));
        let fetched = within(Duration::ZERO, || {
            cancel.fire();
            fetching.join().unwrap()
        });
        assert_eq!(error(&fetched).status, Status::Canceled);
    });
    good(&client);
    check_books(&client);
}

#[test]
fn a_cancel_ends_the_wait_between_two_attempts() {
    let service =
        MockService::start(Script::answers([Answer::reply(503, &[], ""), Answer::service()]));
    let client = settings().client(&service);
    cancel_when(&client, || service.requests_total() == 1 && client.gauges().leased == 0);
    good(&client);
    check_books(&client);
}

#[test]
fn a_cancel_after_the_end_changes_nothing() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    let (options, cancel) = cancelable();
    variants(&fetch_with(&client, &options));
    cancel.fire();
    good(&client);
    assert_eq!(service.connections_accepted(), 1);
}

#[test]
fn one_switch_ends_all_that_carry_it_and_no_other() {
    let answers = [silence(), silence(), silence(), Answer::service().delayed(200)];
    let service = MockService::start(Script::answers(answers));
    let client = Settings { pool: 4, ..settings() }.client(&service);
    let (options, cancel) = cancelable();
    thread::scope(|scope| {
        let canceled = [1, 2, 3].map(|number| {
            let fetch = scope.spawn(|| fetch_with(&client, &options));
            until_requests(&service, number);
            fetch
        });
        let other = scope.spawn(|| good(&client));
        until_requests(&service, 4);
        cancel.fire();
        for fetch in canceled {
            assert_eq!(error(&fetch.join().unwrap()).status, Status::Canceled);
        }
        other.join().unwrap();
    });
    assert_eq!(client.metrics().failures(Status::Canceled), 3);
    check_books(&client);
}

#[test]
fn cancels_at_any_moment_leave_the_other_fetches_alone() {
    let service = MockService::start(Script::service());
    let client = Settings { pool: 2, ..Settings::default() }.client(&service);
    thread::scope(|scope| {
        let canceled = scope.spawn(|| {
            for round in 0..200u64 {
                let (options, cancel) = cancelable();
                let delay = Duration::from_micros(round * 37 % 1500);
                thread::scope(|scope| {
                    scope.spawn(move || {
                        thread::sleep(delay);
                        cancel.fire();
                    });
                    let nonce = draw();
                    match client.fetch(&user(nonce), &options).result {
                        Ok(variants) => assert_eq!(nonce_of(&variants), Some(nonce)),
                        Err(error) => assert_eq!(error.status, Status::Canceled, "{error}"),
                    }
                });
            }
        });
        while !canceled.is_finished() {
            good(&client);
        }
    });
    check_books(&client);
}

// The interrupt hook.

/// Options whose hook counts how often it is asked, and says yes from the time `yes` on.
fn hooked(yes: usize) -> (FetchOptions, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let hook = move || count.fetch_add(1, Ordering::SeqCst) + 1 >= yes;
    (FetchOptions { interrupt: Some(Arc::new(hook)), ..FetchOptions::default() }, asked)
}

/// A fetch whose hook says yes the third time: after 150 ms.
#[track_caller]
fn interrupted(client: &Client) {
    let (options, asked) = hooked(3);
    let fetched = takes(millis(150), || fetch_with(client, &options));
    assert_eq!((error(&fetched).status, fetched.attempts), (Status::Canceled, 1));
    assert_eq!(asked.load(Ordering::SeqCst), 3, "and after its yes it is asked no more");
}

#[test]
fn a_hook_ends_the_fetch_in_whatever_it_is_doing() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    for answer in [
        silence(),
        Answer::steps([Step::send(head), Step::Hold]),
        Answer::steps([Step::send(head), Step::drip(" ".repeat(1000), 5)]),
        Answer::steps([Step::drip("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(40), 1)]),
    ] {
        let service = MockService::start(Script::answers([answer, Answer::service()]));
        let client = settings().client(&service);
        interrupted(&client);
        good(&client);
        check_books(&client);
    }
}

#[test]
fn a_hook_ends_the_connecting() {
    let hole = MockService::black_hole();
    interrupted(&settings().client_at(&hole.url()));
}

#[test]
fn a_hook_ends_the_wait_between_two_attempts() {
    let service =
        MockService::start(Script::answers([Answer::reply(503, &[], ""), Answer::service()]));
    let client = settings().client(&service);
    interrupted(&client);
    good(&client);
}

#[test]
fn a_hook_ends_the_wait_for_a_connection() {
    let service = MockService::start(Script::answers([silence(), Answer::service()]));
    let client = settings().client(&service);
    let (held, release) = cancelable();
    thread::scope(|scope| {
        scope.spawn(|| fetch_with(&client, &held));
        until_requests(&service, 1);
        interrupted(&client);
        release.fire();
    });
    good(&client);
}

#[test]
fn a_hook_is_asked_about_every_50_ms_and_its_no_changes_nothing() {
    let service = MockService::start(Script::answers([Answer::service().delayed(500)]));
    let client = client(&service);
    let (options, asked) = hooked(usize::MAX);
    let (fetched, took) = timed(|| fetch_with(&client, &options));
    variants(&fetched);
    let asked = asked.load(Ordering::SeqCst);
    let most = took.as_millis() as usize / 50;
    // Each turn comes 50 ms after the last at the earliest, and a busy machine may miss some.
    assert!(asked >= 4 && asked <= most, "{asked} times in {took:?}");
}

#[test]
fn a_quick_fetch_does_not_ask_its_hook() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    good(&client);
    let (options, asked) = hooked(1);
    let (fetched, took) = timed(|| fetch_with(&client, &options));
    if took < millis(50) {
        variants(&fetched);
        assert_eq!(asked.load(Ordering::SeqCst), 0);
    }
}
