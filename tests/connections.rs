//! Which connections are used again, which are not, and that no fetch feels what befell another.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use common::*;
use experiment::client::Client;
use experiment::config::NO_LIMIT;
use experiment::remote::options::FetchOptions;
use experiment::rules::error::Status;
use experiment::rules::metrics::CloseReason;
use mock_service::{Answer, Keep, MockService, Script, Step};

fn opened(client: &Client) -> u64 {
    client.metrics().connections_opened.value()
}

fn stale_repeats(client: &Client) -> u64 {
    client.metrics().stale_repeats.value()
}

#[test]
fn one_connection_serves_one_fetch_after_the_other() {
    let service = MockService::start(Script::service());
    let client = Settings { pool: 8, ..Settings::default() }.client(&service);
    for number in 0..20 {
        let fetched = good(&client);
        assert_eq!(fetched.timings.reused, number > 0);
    }
    assert_eq!((service.connections_accepted(), opened(&client)), (1, 1));
    assert_eq!(client.metrics().connections_reused.value(), 19);
    assert_eq!(client.gauges().idle, 1);
    check_books(&client);
}

#[test]
fn a_client_opens_no_connection_before_its_first_fetch() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    drop(client);
    assert_eq!(service.connections_accepted(), 0);
}

#[test]
fn a_client_that_is_dropped_closes_its_connections() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    good(&client);
    assert_eq!(service.connections_open(), 1);
    drop(client);
    until_disconnected(&service);
}

#[test]
fn never_more_connections_are_open_than_the_pool_has_places() {
    // Answers that end their connection, that are cut and that are good, to 64 threads.
    let faults = [
        Answer::service(),
        Answer::reply(500, &[], "x".repeat(50_000)),
        Answer::service().then(Step::Close),
        raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{").then(Step::Reset),
        Answer::service(),
        Answer::reply(503, &[("Connection", "close")], ""),
        Answer::service().delayed(2),
    ];
    for pool in [1, 4] {
        let script = Script::answers(faults.iter().cycle().take(640).cloned()).keep(Keep::Nothing);
        let service = MockService::start(script);
        let client = Settings { pool, ..Settings::default() }.client(&service);
        thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| (0..8).for_each(|_| drop(fetch(&client))));
            }
        });
        assert!(service.requests_total() >= 512);
        assert!(opened(&client) > 64, "many of them had to be opened anew");
        let most = service.connections_open_max();
        assert!(most <= pool as usize, "{most} open at once, with {pool} places");
        check_books(&client);
    }
}

// Another answer than 200.

/// A fetch that fails with `answer`, and one after it that must not feel it. Whether they went
/// over one connection.
#[track_caller]
fn kept_after(answer: Answer) -> bool {
    let service =
        MockService::start(Script::answers([Answer::service(), answer, Answer::service()]));
    let client = client(&service);
    good(&client);
    let fetched = within(millis(0), || fetch(&client));
    assert_eq!(error(&fetched).status, Status::HttpStatus);
    good(&client);
    good(&client);
    assert_eq!(service.requests_total(), 4);
    assert_eq!(stale_repeats(&client), 0);
    check_books(&client);
    service.connections_accepted() == 1
}

#[test]
fn a_small_body_that_nobody_wants_is_drained_and_its_connection_kept() {
    for code in [400, 401, 404, 429, 500, 503] {
        assert!(kept_after(Answer::reply(code, &[], "")), "{code} without a body");
        assert!(kept_after(Answer::reply(code, &[], r#"{"error":"no"}"#)), "{code} with a body");
    }
    assert!(kept_after(Answer::reply(204, &[], "")));
    assert!(kept_after(Answer::reply(304, &[], "")));
    let chunks = "HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n";
    assert!(kept_after(raw(chunks)));
}

#[test]
fn a_large_body_that_nobody_wants_costs_its_connection_and_nothing_else() {
    assert!(!kept_after(Answer::reply(500, &[], "x".repeat(1 << 20))));
    let head = "HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n";
    assert!(!kept_after(Answer::steps([Step::send(head), Step::repeat("x", 0x10_0000)])));
}

#[test]
fn a_body_that_nobody_wants_and_that_does_not_come_costs_its_connection_and_nothing_else() {
    for answer in [
        raw("HTTP/1.1 500 Oh\r\nContent-Length: 10\r\n\r\nhalf").then(Step::Hold),
        raw("HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab").then(Step::Hold),
        raw("HTTP/1.1 500 Oh\r\n\r\nno length").then(Step::Hold),
        raw("HTTP/1.1 500 Oh\r\nContent-Length: 10\r\n\r\nhalf").then(Step::Close),
        raw("HTTP/1.1 500 Oh\r\nContent-Length: 10\r\n\r\nhalf").then(Step::Reset),
        raw("HTTP/1.1 500 Oh\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n\r\nno"),
    ] {
        let _ = kept_after(answer);
    }
}

#[test]
fn a_body_where_none_can_be_is_not_taken_for_the_next_answer() {
    for code in [204, 304] {
        let answer = raw(format!("HTTP/1.1 {code} Odd\r\nContent-Length: 2\r\n\r\n{}", crossed()));
        assert!(!kept_after(answer), "{code}");
    }
}

#[test]
fn a_gzip_bomb_that_nobody_wants_is_not_unpacked_and_costs_nothing_but_its_connection() {
    let digits = include_str!("common/bomb.hex").trim().as_bytes();
    let value = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    let bomb: Vec<u8> = digits.chunks(2).map(|pair| value(pair[0]) * 16 + value(pair[1])).collect();
    let _ = kept_after(Answer::reply(500, &[("Content-Encoding", "gzip")], bomb));
}

#[test]
fn an_answer_that_comes_before_the_request_is_whole_is_good() {
    let early = Answer::json(200, "{}").after_head();
    let service = MockService::start(Script::answers([early, Answer::service()]));
    let client = client(&service);
    let mut large = user(1);
    large.set_text("carrier", &"x".repeat(1 << 20)).unwrap();
    assert!(variants(&client.fetch(&large, &FetchOptions::default())).is_empty());
    good(&client);
    check_books(&client);
}

// What a kept connection may do meanwhile.

#[test]
fn a_connection_that_the_service_closed_while_idle_is_replaced_without_a_trace() {
    for end in [Step::Close, Step::Reset] {
        let answers = [Answer::service().then(end), Answer::service()];
        let service = MockService::start(Script::answers(answers));
        let client = client(&service);
        // A reset may overtake the answer itself, so that the first is not always good.
        let first = fetch(&client);
        until_disconnected(&service);
        let attempts = good(&client).attempts;
        assert_eq!(attempts, 1);
        assert_eq!(opened(&client), 2);
        if first.result.is_ok() {
            assert_eq!(client.metrics().connections_closed(CloseReason::Peer), 1);
        }
        check_books(&client);
    }
}

#[test]
fn the_python_servers_habit_of_closing_idle_connections_fails_no_fetch() {
    let service = MockService::start(Script::answers([Answer::service().then(Step::Close)]));
    let client = client(&service);
    for _ in 0..20 {
        good(&client);
    }
    assert_eq!(client.metrics().fetches_ok.value(), 20);
    check_books(&client);
}

/// What ends a kept connection at the instant of a request.
fn ends() -> [Answer; 4] {
    [
        Answer::steps([Step::Close]),
        Answer::steps([Step::Close]).after_head(),
        Answer::steps([Step::Reset]),
        Answer::steps([Step::Reset]).after_head(),
    ]
}

#[test]
fn a_kept_connection_that_ends_at_the_instant_of_the_request_is_repeated_once_unseen() {
    for end in ends() {
        let service =
            MockService::start(Script::answers([Answer::service(), end, Answer::service()]));
        let client = client(&service);
        good(&client);
        let fetched = good(&client);
        assert_eq!(fetched.attempts, 1, "inside the same attempt");
        assert_eq!((stale_repeats(&client), client.metrics().retries.value()), (1, 0));
        assert_eq!(opened(&client), 2);
        let requests = service.requests();
        let of = |number: usize| (requests[number].connection, &requests[number].head);
        assert_eq!((of(1).0, of(2).0), (1, 2));
        assert_eq!(of(1).1, of(2).1, "the same request again");
        check_books(&client);
    }
}

#[test]
fn a_repeat_has_what_is_left_of_the_attempts_time_and_no_more() {
    let end = Answer::steps([Step::WaitMillis(100), Step::Close]);
    let service = MockService::start(Script::answers([Answer::service(), end, silence()]));
    let client = Settings { fetch_timeout: 200, ..Settings::default() }.client(&service);
    good(&client);
    let fetched = takes(millis(200), || fetch(&client));
    assert_eq!((error(&fetched).status, stale_repeats(&client)), (Status::Timeout, 1));
}

#[test]
fn a_fresh_connection_that_ends_is_not_repeated() {
    for end in ends() {
        let service = MockService::start(Script::answers([end, Answer::service()]));
        let client = client(&service);
        let fetched = fetch(&client);
        assert_eq!(error(&fetched).status, Status::Network);
        assert_eq!((stale_repeats(&client), service.requests_total()), (0, 1));
        good(&client);
        check_books(&client);
    }
}

#[test]
fn a_repeat_that_ends_too_is_not_repeated_again() {
    let [end, ..] = ends();
    let answers = [Answer::service(), end.clone(), end, Answer::service()];
    let service = MockService::start(Script::answers(answers));
    let client = client(&service);
    good(&client);
    let fetched = fetch(&client);
    assert_eq!((error(&fetched).status, fetched.attempts), (Status::Network, 1));
    assert_eq!((stale_repeats(&client), service.requests_total()), (1, 3));
    good(&client);
    check_books(&client);
}

#[test]
fn a_kept_connection_that_ends_after_the_first_byte_of_an_answer_is_not_repeated() {
    for sent in [
        "H",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
    ] {
        let cut = raw(sent).then(Step::Close);
        let service =
            MockService::start(Script::answers([Answer::service(), cut, Answer::service()]));
        let client = client(&service);
        good(&client);
        let fetched = fetch(&client);
        assert!(error(&fetched).retryable, "{sent:?}");
        assert_eq!((stale_repeats(&client), service.requests_total()), (0, 2), "{sent:?}");
        good(&client);
        check_books(&client);
    }
}

#[test]
fn a_kept_connection_that_times_out_is_not_repeated() {
    let service =
        MockService::start(Script::answers([Answer::service(), silence(), Answer::service()]));
    let client = Settings { fetch_timeout: 100, ..Settings::default() }.client(&service);
    good(&client);
    let fetched = takes(millis(100), || fetch(&client));
    assert_eq!(error(&fetched).status, Status::Timeout);
    assert_eq!((stale_repeats(&client), service.requests_total()), (0, 2));
    good(&client);
    check_books(&client);
}

#[test]
fn a_kept_connection_whose_fetch_was_canceled_is_not_repeated() {
    let service =
        MockService::start(Script::answers([Answer::service(), silence(), Answer::service()]));
    let client = client(&service);
    good(&client);
    let (options, cancel) = cancelable();
    thread::scope(|scope| {
        let canceled = scope.spawn(|| fetch_with(&client, &options));
        until_requests(&service, 2);
        cancel.fire();
        assert_eq!(error(&canceled.join().unwrap()).status, Status::Canceled);
    });
    assert_eq!((stale_repeats(&client), service.requests_total()), (0, 2));
    good(&client);
    check_books(&client);
}

fn exposing(tracks: Option<bool>) -> FetchOptions {
    FetchOptions { tracks_exposure: tracks, ..FetchOptions::default() }
}

#[test]
fn a_request_that_records_an_exposure_is_not_repeated_once_bytes_of_it_had_gone_out() {
    for (tracks, repeats) in [(Some(true), 0), (Some(false), 1), (None, 1)] {
        for end in ends() {
            let service =
                MockService::start(Script::answers([Answer::service(), end, Answer::service()]));
            let client = client(&service);
            good(&client);
            let fetched = fetch_with(&client, &exposing(tracks));
            assert_eq!(stale_repeats(&client), repeats);
            match &fetched.result {
                Ok(_) => assert_eq!(repeats, 1),
                Err(error) => {
                    assert_eq!((repeats, error.status, error.retryable), (0, Status::Network, true))
                }
            }
            assert_eq!(service.requests_total() as u64, 2 + repeats);
            good(&client);
            check_books(&client);
        }
    }
}

#[test]
fn a_request_that_records_an_exposure_is_good_when_the_close_was_seen_before_a_byte_went_out() {
    let answers = [Answer::service().then(Step::Close), Answer::service()];
    let service = MockService::start(Script::answers(answers));
    let client = client(&service);
    good(&client);
    until_disconnected(&service);
    variants(&fetch_with(&client, &exposing(Some(true))));
    assert_eq!(service.requests_total(), 2);
}

// Bytes that follow an answer.

fn crossed() -> String {
    let body = r#"{"demo-nonce":{"key":"crossed","payload":0}}"#;
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_whole_extra_answer_in_the_same_write_is_never_anyones() {
    let body = r#"{"a":{"key":"on"}}"#;
    let plain = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    for answer in [plain, chunked] {
        for extra in
            [crossed(), "x".to_owned(), "\r\n".to_owned(), "HTTP/1.1 408 Bye\r\n\r\n".to_owned()]
        {
            let together = raw(format!("{answer}{extra}"));
            let service = MockService::start(Script::answers([together, Answer::service()]));
            let client = client(&service);
            assert_eq!(variants(&fetch(&client)).len(), 1);
            good(&client);
            good(&client);
            assert_eq!(service.connections_accepted(), 2, "{extra:?}");
            assert_eq!(client.metrics().connections_closed(CloseReason::Unclean), 1, "{extra:?}");
            assert_eq!(stale_repeats(&client), 0);
            check_books(&client);
        }
    }
}

#[test]
fn an_extra_answer_after_one_that_nobody_wants_is_never_anyones() {
    for code in [204, 304, 400, 500] {
        let length = if code == 204 || code == 304 { "" } else { "Content-Length: 0\r\n" };
        let together = raw(format!("HTTP/1.1 {code} Odd\r\n{length}\r\n{}", crossed()));
        let service = MockService::start(Script::answers([together, Answer::service()]));
        let client = client(&service);
        assert_eq!(error(&fetch(&client)).http_status, Some(code));
        good(&client);
        assert_eq!(service.connections_accepted(), 2, "{code}");
        check_books(&client);
    }
}

/// Answers each request of one connection after the other with what `answer` sends, then tells.
fn bare_service(
    answer: impl Fn(&mut TcpStream, usize) + Send + 'static,
) -> (String, mpsc::Receiver<usize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut number = 0;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut seen = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(amount @ 1..) = stream.read(&mut buffer) {
                seen.extend(&buffer[..amount]);
                // Every test's user ends so.
                if seen.ends_with(b"\"library\":\"libexperiment/0.1.0\"}") {
                    seen.clear();
                    number += 1;
                    answer(&mut stream, number);
                    if tell.send(number).is_err() {
                        return;
                    }
                }
            }
        }
    });
    (url, told)
}

#[test]
fn a_whole_extra_answer_in_a_second_write_before_the_next_request_is_never_anyones() {
    let (url, told) = bare_service(|stream, number| {
        let body = format!(r#"{{"own":{{"key":"{number}"}}}}"#);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).unwrap();
        let _ = stream.write_all(crossed().as_bytes());
    });
    let client = Settings::default().client_at(&url);
    for number in 1..=50 {
        let fetched = fetch(&client);
        let own = variants(&fetched).get("own").expect("its own answer").key().unwrap();
        assert_eq!(own.as_str(), number.to_string());
        assert_eq!(told.recv_timeout(SOON), Ok(number), "the extra answer has been sent");
    }
    assert_eq!(opened(&client), 50);
    // Nobody has looked at the last one since, if its extra answer came late.
    assert!(client.metrics().connections_closed(CloseReason::Unclean) >= 49);
    assert_eq!(stale_repeats(&client), 0);
}

#[test]
fn a_body_where_none_can_be_that_comes_late_is_not_taken_for_the_next_answer() {
    for head in [
        "HTTP/1.1 204 No Content\r\nContent-Length: $\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: $\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let (url, _told) = bare_service(move |stream, number| {
            let body = format!(r#"{{"own":{{"key":"{number}"}}}}"#);
            let length = body.len();
            if number == 1 {
                let head = head.replace('$', &crossed().len().to_string());
                stream.write_all(head.as_bytes()).unwrap();
                thread::sleep(millis(50));
                let _ = stream.write_all(crossed().as_bytes());
            } else {
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        let client = Settings::default().client_at(&url);
        assert_eq!(error(&fetch(&client)).status, Status::HttpStatus);
        let fetched = fetch(&client);
        assert!(variants(&fetched).get("own").is_some(), "{head}");
    }
}

// Framing.

#[test]
fn a_connection_whose_answer_is_framed_in_two_ways_is_not_used_again() {
    let body = "{}";
    for (headers, body) in [
        ("Content-Length: 12\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 12\r\n", "2\r\n{}\r\n0\r\n\r\n"),
        ("Content-Length: 2\r\nContent-Length: 2\r\n", body),
        ("Content-Length: 2\r\nContent-Length: 3\r\n", body),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"),
        ("Transfer-Encoding: gzip, chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"),
        ("Transfer-Encoding: identity\r\nContent-Length: 2\r\n", body),
    ] {
        let odd = raw(format!("HTTP/1.1 200 OK\r\n{headers}\r\n{body}"));
        let service = MockService::start(Script::answers([odd, Answer::service()]));
        let client = Settings { fetch_timeout: 500, ..Settings::default() }.client(&service);
        let _ = within(millis(500), || fetch(&client)); // good or not, it harms no other
        good(&client);
        assert_eq!(service.connections_accepted(), 2, "{headers:?}");
        check_books(&client);
    }
}

#[test]
fn a_connection_that_is_announced_to_end_is_not_used_again() {
    let body = r#"{"a":{}}"#;
    let length = body.len();
    for head in [
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n"),
        format!("HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: {length}\r\n"),
        format!("HTTP/1.1 200 OK\r\nConnection: x, close\r\nContent-Length: {length}\r\n"),
        format!("HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n"),
    ] {
        let last = raw(format!("{head}\r\n{body}"));
        let service = MockService::start(Script::answers([last, Answer::service()]));
        let client = client(&service);
        assert_eq!(variants(&fetch(&client)).len(), 1);
        good(&client);
        good(&client);
        assert_eq!(service.connections_accepted(), 2, "{head:?}");
        assert_eq!(client.metrics().connections_closed(CloseReason::Peer), 1, "{head:?}");
        assert_eq!(stale_repeats(&client), 0);
        check_books(&client);
    }
}

#[test]
fn a_connection_whose_body_had_no_length_is_not_used_again() {
    let endless = raw("HTTP/1.1 200 OK\r\n\r\n{}").then(Step::Close);
    let service = MockService::start(Script::answers([endless, Answer::service()]));
    let client = client(&service);
    assert!(variants(&fetch(&client)).is_empty());
    assert_eq!(client.gauges().idle, 0);
    good(&client);
    assert_eq!((service.connections_accepted(), stale_repeats(&client)), (2, 0));
    check_books(&client);
}

#[test]
fn a_connection_whose_answer_could_not_be_used_does_not_touch_the_next_fetch() {
    let sent = |bytes: &str| raw(bytes.to_owned());
    for answer in [
        Answer::json(200, "null"),
        Answer::json(200, "{\"a\":"),
        Answer::reply(200, &[("Content-Encoding", "br")], "x".repeat(100_000)),
        Answer::reply(200, &[("Content-Encoding", "gzip")], "no gzip at all"),
        sent("rubbish\r\n\r\n"),
        sent("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        sent("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}X\r\n0\r\n\r\n"),
    ] {
        let service = MockService::start(Script::answers([answer, Answer::service()]));
        let client = Settings { fetch_timeout: 500, ..Settings::default() }.client(&service);
        assert!(fetch(&client).result.is_err());
        for _ in 0..3 {
            good(&client);
        }
        assert_eq!(stale_repeats(&client), 0);
        check_books(&client);
    }
}

// Age.

#[test]
fn a_connection_that_was_unused_for_longer_than_the_idle_timeout_is_not_used_again() {
    let service = MockService::start(Script::service());
    let mut config = Settings::default().config(&service.url());
    config.set_connection_idle_timeout(0).unwrap();
    let client = client_of(&config);
    good(&client);
    good(&client);
    assert_eq!((opened(&client), service.connections_accepted()), (2, 2));
    assert_eq!(client.metrics().connections_closed(CloseReason::Idle), 2);
    assert_eq!(client.gauges().idle, 0);
    check_books(&client);
}

#[test]
fn a_connection_is_not_used_when_its_service_is_about_to_close_it() {
    let answer = Answer::reply(200, &[("Keep-Alive", "timeout=1, max=100")], "{}");
    let service = MockService::start(Script::answers([answer]));
    let client = client(&service);
    let fetch = || assert!(fetch(&client).result.is_ok());
    fetch();
    fetch();
    assert_eq!(service.connections_accepted(), 1);
    thread::sleep(millis(600)); // the second half of its second has begun
    fetch();
    assert_eq!(service.connections_accepted(), 2);
    assert_eq!(client.metrics().connections_closed(CloseReason::Idle), 1);
    assert_eq!(stale_repeats(&client), 0);
    check_books(&client);
}

#[test]
fn a_connection_is_not_used_beyond_its_lifetime() {
    let service = MockService::start(Script::service());
    for (lifetime, connections) in [(0, 3), (NO_LIMIT, 1)] {
        let mut config = Settings::default().config(&service.url());
        config.set_connection_max_lifetime(lifetime).unwrap();
        let client = client_of(&config);
        for _ in 0..3 {
            good(&client);
        }
        assert_eq!(opened(&client), connections);
        let closed = client.metrics().connections_closed(CloseReason::Lifetime);
        assert_eq!(closed, connections - 1, "the last is looked at by the next fetch");
        check_books(&client);
    }
}

#[test]
fn connections_that_end_at_once_are_network_failures_and_the_next_one_is_good() {
    for opening in [vec![Step::Close], vec![Step::Reset]] {
        let service = MockService::start(Script::service().connections([opening, vec![]]));
        let client = client(&service);
        assert_eq!(error(&fetch(&client)).status, Status::Network);
        good(&client);
        check_books(&client);
    }
}

#[test]
fn an_answer_to_no_request_is_answered_to_none() {
    let opening = vec![Step::send("HTTP/1.1 408 Request Timeout\r\n\r\n"), Step::Close];
    let service = MockService::start(Script::service().connections([opening, vec![]]));
    let client = client(&service);
    let _ = within(millis(0), || fetch(&client));
    good(&client);
    check_books(&client);
}
