//! What a service remembers, what it counts, and how it ends.

mod support;

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use mock_service::{Answer, Keep, MockService, Script, Step};
use support::{Client, PATIENCE, USER, play};

/// A stop wakes every thread at once, and waits for nothing that takes time by itself.
const STOPPED: Duration = Duration::from_millis(500);

#[test]
fn requests_are_kept_as_they_were_sent() {
    let service = MockService::start(Script::service());
    let sent = "POST /x?y=%20 HTTP/1.1\r\nhOST:a\r\nB:  c d \r\nB: \r\nContent-Length: 3\r\n\r\n";
    let mut client = Client::of(&service);
    client.send(sent).send([0, 255, b'x']).response();
    client.post(USER).response();
    let requests = service.requests();
    let first = &requests[0];
    assert_eq!((first.number, first.connection), (1, 1));
    assert_eq!((first.method.as_str(), first.path.as_str()), ("POST", "/x?y=%20"));
    let headers: Vec<_> = first.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(headers, [("hOST", "a"), ("B", "c d"), ("B", ""), ("Content-Length", "3")]);
    assert_eq!(&*first.head, sent.as_bytes());
    assert_eq!(&*first.body, [0, 255, b'x']);
    assert_eq!(first.header("host"), Some("a"));
    assert_eq!((requests[1].number, &*requests[1].body), (2, USER.as_bytes()));
    assert!(requests[0].at <= requests[1].at);
}

#[test]
fn a_malformed_request_is_kept_refused_and_takes_no_answer() {
    let service = play(r#"{"answers":[{"status":201},{"status":202}]}"#);
    for (sent, problem) in [
        ("\x16\x03\x01", "no HTTP"),
        ("GET /\r\n\r\n", "no request line: GET /"),
        ("GET / HTTP/1.1\nA: b\n\n", "a line of the head does not end in CR LF"),
        ("GET / HTTP/1.1\r\nA b\r\n\r\n", "no header: A b"),
        ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "no acceptable Content-Length"),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "a body without Content-Length"),
        ("GET / HT", "ended within the head"),
    ] {
        let mut client = Client::of(&service);
        let answer = client.send(sent).finish().rest();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let seen = service.requests().pop().expect("it is kept");
        assert_eq!(seen.problem.as_deref(), Some(problem));
        assert!(sent.as_bytes().starts_with(&seen.head), "{:?}", seen.head);
    }
    assert_eq!(Client::of(&service).post(USER).response().status(), 201);
}

#[test]
fn a_request_cut_in_its_body_is_kept() {
    let service = MockService::start(Script::service());
    let sent = "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\ncut";
    Client::of(&service).send(sent).finish().rest();
    let requests = service.requests();
    assert_eq!(requests[0].problem.as_deref(), Some("ended within the body"));
    assert_eq!(&*requests[0].body, b"cut");
}

#[test]
fn a_script_can_keep_less() {
    let kept = |keep: Keep| {
        let service = MockService::start(Script::service().keep(keep));
        Client::of(&service).post(USER).response();
        assert_eq!(service.requests_total(), 1);
        service.requests().iter().map(|request| request.body.len()).collect::<Vec<_>>()
    };
    assert_eq!(kept(Keep::Everything), [USER.len()]);
    assert_eq!(kept(Keep::Heads), [0]);
    assert_eq!(kept(Keep::Nothing), [0; 0]);
}

#[test]
fn a_client_that_has_left_is_not_open_whatever_is_being_played() {
    let long = 3_600_000;
    for step in
        [Step::Hold, Step::WaitMillis(long), Step::drip("ab", long), Step::repeat("x", u64::MAX)]
    {
        let service = MockService::start(Script::answers([Answer::steps([step.clone()])]));
        let mut client = Client::of(&service);
        client.post(USER);
        assert!(service.wait_until(PATIENCE, |record| record.requests_total == 1));
        assert_eq!(service.connections_open(), 1, "{step:?}");
        drop(client);
        let gone = service.wait_until(PATIENCE, |record| record.connections_open == 0);
        assert!(gone, "{step:?}");
    }
}

#[test]
fn a_connection_that_the_script_ends_is_not_open() {
    let service = play(r#"{"answers":[{"then":"close"},{"then":"reset"}]}"#);
    Client::of(&service).post(USER).rest();
    assert_eq!(service.connections_open(), 0);
    Client::of(&service).post(USER).fault();
    assert_eq!(service.connections_open(), 0);
    assert_eq!(service.connections_accepted(), 2);
}

#[test]
fn one_connection_after_the_other_is_one_at_once() {
    let service = MockService::start(Script::service());
    for _ in 0..100 {
        Client::of(&service).post(USER).response();
    }
    assert_eq!((service.connections_accepted(), service.connections_open_max()), (100, 1));
    let clients: Vec<_> = (0..5).map(|_| Client::of(&service)).collect();
    assert!(service.wait_until(PATIENCE, |record| record.connections_open == 5));
    drop(clients);
    assert!(service.wait_until(PATIENCE, |record| record.connections_open == 0));
    assert_eq!(service.record().connections_open_max, 5);
}

#[test]
fn a_client_that_asks_for_the_end_gets_it() {
    let service = play(r#"{"answers":[{"status":200,"body":"x"}]}"#);
    let answer = Client::of(&service).post_with("Connection: close\r\n", USER).rest();
    assert!(answer.ends_with("\r\n\r\nx"), "{answer}");
}

#[test]
fn waiting_for_what_does_not_come_ends() {
    let service = MockService::start(Script::service());
    let start = Instant::now();
    assert!(!service.wait_until(Duration::from_millis(20), |record| record.requests_total > 0));
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_stop_ends_everything_at_once() {
    let long = 3_600_000;
    let service = MockService::start(Script::answers([
        Answer::steps([Step::Hold]),
        Answer::service().delayed(long),
        Answer::steps([Step::drip("ab", long)]),
        // Nobody reads it, so the service is in the middle of a write.
        Answer::steps([Step::repeat("x", u64::MAX)]),
        Answer::service(),
    ]));
    let mut clients: Vec<_> = (0..6).map(|_| Client::of(&service)).collect();
    for (place, client) in clients.iter_mut().take(5).enumerate() {
        client.post(USER);
        assert!(service.wait_until(PATIENCE, |record| record.requests_total == place + 1));
    }
    // The last one is in the middle of a head.
    clients[5].send("POST / HT");
    assert!(service.wait_until(PATIENCE, |record| record.connections_open == 6));
    let start = Instant::now();
    service.stop();
    assert!(start.elapsed() < STOPPED, "{:?}", start.elapsed());
    assert_eq!((service.connections_open(), service.requests_total()), (0, 6));
    let refused = TcpStream::connect(service.address()).expect_err("it does not listen");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    service.stop();
}

#[test]
fn dropping_stops() {
    let service = play(r#"{"connections":[["hold"]]}"#);
    let address = service.address();
    let mut client = Client::of(&service);
    assert!(service.wait_until(PATIENCE, |record| record.connections_open == 1));
    drop(service);
    assert_eq!(client.rest(), "");
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_panic_in_a_predicate_is_no_hang() {
    let service = MockService::start(Script::service());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        service.wait_until(PATIENCE, |_| panic!("the test's own"))
    }));
    assert!(panicked.is_err());
    assert_eq!(Client::of(&service).post(USER).response().status(), 200);
}

#[test]
fn nobody_is_at_the_unreachable_addresses() {
    let refused = MockService::refused_url();
    let address = refused.strip_prefix("http://").expect("it is an http URL");
    for _ in 0..100 {
        let error = TcpStream::connect(address).expect_err("nobody listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
    let hole = MockService::black_hole();
    assert_eq!(hole.url(), format!("http://{}", hole.address()));
    for _ in 0..3 {
        let timeout = Duration::from_millis(50);
        let error = TcpStream::connect_timeout(&hole.address(), timeout).expect_err("it is full");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
