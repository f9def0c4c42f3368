//! Opening and closing connections: names and their addresses, which one is tried when, and how
//! long a connection is used.

mod support;

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use experiment::client::Client;
use experiment::config::Config;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::rules::deadline::Limit;
use experiment::rules::error::Status;
use experiment::rules::metrics::CloseReason;
use experiment::rules::timings::Phase;
use mock_service::{Answer, MockService, Script, Step};
use support::net::{Dropping, connecting_to};
use support::tls::{Authority, NAMES, TlsServer};
use support::{
    LOCALHOST, PROMISE, SLACK, TRIES, client, config, fetch, named_url, on_time, resolve_to, timed,
    wait_until,
};

const DEAD: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const DEAD_TOO: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

/// A service, and addresses at its port where every packet is dropped.
fn service_and_dead() -> (MockService, [Dropping; 2]) {
    let service = MockService::start(Script::service());
    let port = service.address().port();
    let dead = [DEAD, DEAD_TOO].map(|ip| Dropping::listen(SocketAddr::new(ip, port)));
    (service, dead)
}

fn named(service: &MockService) -> Config {
    config(&named_url("http", "service.test", service.address()))
}

/// Connects to a dead address and then a live one; the time spent on it in the best of some tries.
fn head_start(millis: u64) -> Duration {
    let (service, _dead) = service_and_dead();
    let mut times = Vec::new();
    for _ in 0..TRIES {
        let mut settings = named(&service);
        settings.set_fetch_timeout(millis).unwrap();
        resolve_to(&mut settings, &[DEAD, LOCALHOST]);
        let client = client(&settings);
        if let Ok(fetched) = fetch(&client) {
            times.push(fetched.timings.spent(Phase::Connect));
        }
        assert_eq!(connecting_to(service.address().port()), 0, "who lost is given up at once");
    }
    times.into_iter().min().expect("the live address serves")
}

#[test]
fn the_next_address_is_tried_beside_one_that_does_not_answer() {
    let spent = head_start(10_000);
    assert!(spent >= Duration::from_millis(250), "{spent:?}");
    assert!(spent <= Duration::from_millis(250) + PROMISE + SLACK, "{spent:?}");
}

#[test]
fn the_next_address_is_tried_after_a_quarter_of_a_short_time() {
    let spent = head_start(400);
    assert!(spent >= Duration::from_millis(95), "{spent:?}"); // the attempt is older than its connect
    assert!(spent <= Duration::from_millis(100) + PROMISE + SLACK, "{spent:?}");
}

#[test]
fn the_next_address_is_tried_at_once_where_one_refuses() {
    let service = MockService::start(Script::service());
    let mut settings = named(&service);
    resolve_to(&mut settings, &[DEAD, DEAD_TOO, LOCALHOST]); // nobody listens at the first two
    let client = client(&settings);
    let fetched = fetch(&client).unwrap();
    assert!(fetched.timings.spent(Phase::Connect) < Duration::from_millis(250));
    assert_eq!(fetched.attempts, 1);
}

#[test]
fn the_address_that_answered_is_the_first_next_time() {
    let (service, _dead) = service_and_dead();
    let mut settings = named(&service);
    settings.set_connection_max_lifetime(0).unwrap(); // each fetch on a connection of its own
    resolve_to(&mut settings, &[DEAD, LOCALHOST, DEAD_TOO]);
    let client = client(&settings);
    fetch(&client).unwrap();
    for _ in 0..5 {
        let spent =
            on_time(Duration::ZERO, || fetch(&client).unwrap().timings.spent(Phase::Connect));
        assert!(spent < Duration::from_millis(250), "{spent:?}");
    }
    assert_eq!(client.metrics().lookups.value(), 1);
}

#[test]
fn an_address_that_dies_is_left_for_the_one_that_lives() {
    let (service, _dead) = service_and_dead();
    let refusing = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4));
    let mut settings = named(&service);
    settings.set_connection_max_lifetime(0).unwrap();
    resolve_to(&mut settings, &[refusing, LOCALHOST]);
    let client = client(&settings);
    for _ in 0..3 {
        fetch(&client).unwrap();
    }
    service.stop();
    let error = client.fetch(&User::new(), &FetchOptions::default()).result.unwrap_err();
    assert_eq!(error.status, Status::Network, "{error}");
    let port = service.address().port();
    let again = MockService::start_on(port, Script::service()).unwrap();
    fetch(&client).unwrap();
    drop(again);
}

#[test]
fn a_lookup_is_shared_by_all_who_need_it_and_kept_for_those_who_come_later() {
    let service = MockService::start(Script::service());
    let mut settings = named(&service);
    settings.set_connection_pool_max_size(32).unwrap();
    let (gate, asked) = (Arc::new(Mutex::new(())), Arc::new(AtomicUsize::new(0)));
    let (passed, counted) = (Arc::clone(&gate), Arc::clone(&asked));
    settings.set_lookup(Arc::new(move |name| {
        assert_eq!(name, "service.test");
        counted.fetch_add(1, Ordering::SeqCst);
        drop(passed.lock().unwrap());
        Ok(vec![LOCALHOST])
    }));
    let client = client(&settings);
    let closed = gate.lock().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| drop(fetch(&client).unwrap()));
        }
        wait_until("all have a place", || client.gauges().leased == 32);
        drop(closed);
    });
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(client.metrics().lookups.value(), 1);
    assert_eq!(client.metrics().lookups_abandoned.value(), 0);
}

#[test]
fn a_name_without_an_address_is_a_network_failure_and_asked_for_again() {
    let service = MockService::start(Script::service());
    let mut settings = named(&service);
    let asked = AtomicUsize::new(0);
    settings.set_lookup(Arc::new(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Err(io::Error::new(ErrorKind::NotFound, "no such host")),
        _ => Ok(vec![LOCALHOST]),
    }));
    let client = client(&settings);
    let error = client.fetch(&User::new(), &FetchOptions::default()).result.unwrap_err();
    assert_eq!((error.status, error.retryable), (Status::Network, true), "{error}");
    assert!(error.message.contains("service.test") && error.message.contains("no such host"));
    fetch(&client).unwrap();
}

#[test]
fn a_lookup_that_panics_is_a_failure_and_takes_no_thread_with_it() {
    let service = MockService::start(Script::service());
    let mut settings = named(&service);
    settings.set_fetch_timeout(300).unwrap();
    let asked = AtomicUsize::new(0);
    settings.set_lookup(Arc::new(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        0..8 => panic!("a test of what happens then"),
        _ => Ok(vec![LOCALHOST]),
    }));
    let client = client(&settings);
    for _ in 0..8 {
        let (fetched, took) = timed(|| client.fetch(&User::new(), &FetchOptions::default()));
        assert_eq!(fetched.result.unwrap_err().status, Status::Network);
        assert!(took < Duration::from_millis(300), "{took:?}");
    }
    fetch(&client).unwrap();
}

#[test]
fn the_systems_own_lookup_knows_this_machine() {
    let service = MockService::start(Script::service());
    let client = client(&config(&named_url("http", "localhost", service.address())));
    fetch(&client).unwrap();
    fetch(&client).unwrap();
    assert_eq!(client.metrics().lookups.value(), 1);
}

#[test]
fn a_literal_address_is_not_looked_up_also_in_version_six() {
    let service = MockService::start(Script::service());
    fetch(&client(&config(&service.url()))).unwrap();
    let mut settings = config("http://[::1]:1");
    settings.set_lookup(Arc::new(|name| panic!("{name} is an address")));
    let client = client(&settings);
    let error = client.fetch(&User::new(), &FetchOptions::default()).result.unwrap_err();
    assert_eq!(error.status, Status::Network, "{error}");
    assert_eq!(client.metrics().lookups.value(), 0);
}

#[test]
fn a_connection_is_closed_when_its_lifetime_is_over() {
    let service = MockService::start(Script::service());
    let mut settings = config(&service.url());
    settings.set_connection_max_lifetime(100).unwrap();
    let client = client(&settings);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(450) {
        fetch(&client).unwrap(); // busy all the time: never unused, never failed
    }
    let metrics = client.metrics();
    let closed = metrics.connections_closed(CloseReason::Lifetime);
    assert!((1..=4).contains(&closed), "{closed}");
    assert_eq!(metrics.connections_opened.value(), closed + 1);
    assert_eq!(service.connections_open_max(), 1, "the old one is closed first");
    assert_eq!(metrics.fetches_ok.value(), metrics.attempts.value());
}

#[test]
fn a_connection_without_a_lifetime_is_kept() {
    let service = MockService::start(Script::service());
    let mut settings = config(&service.url());
    settings.set_connection_max_lifetime(experiment::config::NO_LIMIT).unwrap();
    let client = client(&settings);
    for _ in 0..50 {
        fetch(&client).unwrap();
    }
    assert_eq!(service.connections_accepted(), 1);
}

#[test]
fn a_connection_that_was_unused_for_too_long_is_closed_and_not_used() {
    let service = MockService::start(Script::service());
    for (idle_millis, kept) in [(0, false), (1, false), (60_000, true)] {
        let mut settings = config(&service.url());
        settings.set_connection_idle_timeout(idle_millis).unwrap();
        let client = client(&settings);
        for round in 1..=3 {
            fetch(&client).unwrap();
            std::thread::sleep(Duration::from_millis(idle_millis.min(5) + 1));
            assert_eq!(client.metrics().connections_opened.value(), if kept { 1 } else { round });
        }
        let closed = client.metrics().connections_closed(CloseReason::Idle);
        // The last one is closed when the client is next used, or by the lease that it ends with.
        let expected = if kept { 0..=0 } else { 2..=3 };
        assert!(expected.contains(&closed), "{closed}");
        assert_eq!(client.metrics().stale_repeats.value(), 0);
    }
}

#[test]
fn each_end_of_a_connection_is_counted_for_what_it_was() {
    let body = r#"{"a":{"key":"on"}}"#;
    let length = body.len();
    let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
    let with = |header: &str| whole.replacen("\r\n", &format!("\r\n{header}\r\n"), 1);
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let cases = [
        ("kept", whole.clone(), None),
        ("close", with("Connection: close"), Some(CloseReason::Peer)),
        ("in a list", with("Connection: x, Close"), Some(CloseReason::Peer)),
        ("HTTP/1.0", whole.replacen("1.1", "1.0", 1), Some(CloseReason::Peer)),
        ("twice", with(&format!("Content-Length: {length}")), Some(CloseReason::Unclean)),
        ("more than it said", format!("{whole}x"), Some(CloseReason::Unclean)),
        ("chunks", format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"), None),
        (
            "chunks and more",
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}HTTP"),
            Some(CloseReason::Unclean),
        ),
        (
            "chunks and a length",
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"
            ),
            Some(CloseReason::Unclean),
        ),
    ];
    for (name, answer, reason) in cases {
        let answer = Answer::steps([Step::send(answer)]);
        let service = MockService::start(Script::answers([answer]));
        let client = client(&config(&service.url()));
        for _ in 0..2 {
            let fetched = client.fetch(&User::new(), &FetchOptions::default());
            assert_eq!(fetched.result.map(|variants| variants.len()), Ok(1), "{name}");
        }
        let closed = |of| client.metrics().connections_closed(of);
        for of in [
            CloseReason::Idle,
            CloseReason::Lifetime,
            CloseReason::Failed,
            CloseReason::Unclean,
            CloseReason::Peer,
            CloseReason::Shutdown,
        ] {
            let expected = if Some(of) == reason { 2 } else { 0 };
            assert_eq!(closed(of), expected, "{name}: {of:?}");
        }
        client.close(Limit::millis(1000)).unwrap();
        assert_eq!(closed(CloseReason::Shutdown), u64::from(reason.is_none()), "{name}");
    }
}

#[test]
fn gzip_with_ambiguous_framing_is_read_and_its_connection_not_kept() {
    let packed = support::stall::gzip(br#"{"a":{"key":"on"}}"#);
    let length = packed.len();
    let gzip = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n";
    let chunked = [format!("{length:x}\r\n").as_bytes(), &packed, b"\r\n0\r\n\r\n"].concat();
    for (head, body, kept) in [
        (format!("{gzip}Content-Length: {length}\r\n\r\n"), &packed, true),
        (format!("{gzip}Transfer-Encoding: chunked\r\n\r\n"), &chunked, true),
        (
            format!("{gzip}Content-Length: {length}\r\nContent-Length: {length}\r\n\r\n"),
            &packed,
            false,
        ),
        (
            format!("{gzip}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n"),
            &chunked,
            false,
        ),
    ] {
        let answer = [head.as_bytes(), body].concat();
        let service = MockService::start(Script::answers([Answer::steps([Step::send(answer)])]));
        let client = client(&config(&service.url()));
        for _ in 0..3 {
            let fetched = client.fetch(&User::new(), &FetchOptions::default());
            assert_eq!(fetched.result.map(|variants| variants.len()), Ok(1), "{head}");
        }
        assert_eq!(client.metrics().connections_opened.value(), if kept { 1 } else { 3 }, "{head}");
    }
}

#[test]
fn damaged_gzip_cut_gzip_and_a_cut_connection_are_told_apart() {
    let packed = support::stall::gzip(format!("{{\"a\":\"{}\"}}", "xyz".repeat(1000)).as_bytes());
    let reply = |body: Vec<u8>| Answer::reply(200, &[("Content-Encoding", "gzip")], body);
    let mut damaged = packed.clone();
    damaged[20] ^= 0xff;
    let mut sum = packed.clone();
    *sum.last_mut().unwrap() ^= 1;
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        packed.len()
    );
    let half = packed[..packed.len() / 2].to_vec();
    let cut = Answer::steps([Step::send(head.as_str()), Step::send(half.clone()), Step::Close]);
    let reset = Answer::steps([
        Step::send(head.as_str()),
        Step::send(half.clone()),
        Step::WaitMillis(20),
        Step::Reset,
    ]);
    let behind = [packed.clone(), b"junk".to_vec()].concat();
    for (name, answer, status, says) in [
        ("damaged", reply(damaged), Status::InvalidResponse, "gzip"),
        ("wrong sum", reply(sum), Status::InvalidResponse, "gzip"),
        ("half of it", reply(half), Status::InvalidResponse, "gzip"),
        ("no gzip", reply(b"{}".to_vec()), Status::InvalidResponse, "gzip"),
        ("junk behind it", reply(behind), Status::InvalidResponse, "gzip"),
        ("connection cut", cut, Status::InvalidResponse, "before the body was complete"),
        ("connection reset", reset, Status::Network, "broke"),
        (
            "another coding",
            Answer::reply(200, &[("Content-Encoding", "br")], "x"),
            Status::InvalidResponse,
            "content coding",
        ),
    ] {
        let service = MockService::start(Script::answers([answer]));
        let client = client(&config(&service.url()));
        let error = client.fetch(&User::new(), &FetchOptions::default()).result.expect_err(name);
        assert_eq!(error.status, status, "{name}: {error}");
        assert!(error.message.contains(says), "{name}: {error}");
    }
}

#[test]
fn a_head_may_follow_hints_that_fill_the_buffer_and_may_not_fill_it_alone() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n".repeat(400);
    assert!(hints.len() > 20 << 10);
    let hinted = Answer::steps([Step::send(hints), Step::Service]);
    let head = format!(
        "HTTP/1.1 200 OK\r\nX-Long: {}\r\nContent-Length: 2\r\n\r\n{{}}",
        "x".repeat(20 << 10)
    );
    let service = MockService::start(Script::answers([
        hinted.clone(),
        hinted,
        Answer::steps([Step::send(head)]),
        Answer::service(),
    ]));
    let client = client(&config(&service.url()));
    fetch(&client).unwrap();
    fetch(&client).unwrap();
    assert_eq!(service.connections_accepted(), 1);
    let error = client.fetch(&User::new(), &FetchOptions::default()).result.unwrap_err();
    assert_eq!(error.status, Status::InvalidResponse, "{error}");
    assert!(error.message.contains("headers are larger"), "{error}");
    fetch(&client).unwrap();
}

#[test]
fn a_fetch_is_reused_only_if_its_connection_served_before() {
    let service = MockService::start(Script::answers([
        Answer::reply(204, &[], ""),
        Answer::reply(500, &[("Content-Length", "0")], ""),
        Answer::service(),
    ]));
    let client = client(&config(&service.url()));
    let reused =
        |client: &Client| client.fetch(&User::new(), &FetchOptions::default()).timings.reused;
    assert_eq!([reused(&client), reused(&client), reused(&client)], [false, true, true]);
    assert_eq!(client.metrics().connections_reused.value(), 2);
    assert_eq!(service.connections_accepted(), 1);
}

#[test]
fn more_dead_addresses_than_can_be_tried_at_once_do_not_hide_the_one_that_lives() {
    let service = MockService::start(Script::service());
    let port = service.address().port();
    let dead: Vec<IpAddr> =
        (10..19).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))).collect();
    let _dropping: Vec<Dropping> =
        dead.iter().map(|ip| Dropping::listen(SocketAddr::new(*ip, port))).collect();
    let mut settings = named(&service);
    settings.set_fetch_timeout(5000).unwrap();
    resolve_to(&mut settings, &[&dead[..], &[LOCALHOST]].concat());
    let client = client(&settings);
    fetch(&client).unwrap();
    assert_eq!(client.metrics().attempts.value(), 1);
}

#[test]
fn addresses_that_were_tried_in_vain_come_last_the_next_time() {
    let service = MockService::start(Script::service());
    let port = service.address().port();
    let dead: Vec<IpAddr> =
        (30..60).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))).collect();
    let _dropping: Vec<Dropping> =
        dead.iter().map(|ip| Dropping::listen(SocketAddr::new(*ip, port))).collect();
    let mut settings = named(&service);
    settings.set_fetch_timeout(300).unwrap();
    resolve_to(&mut settings, &[&dead[..], &[LOCALHOST]].concat());
    let client = client(&settings);
    // Nine or more are given a start in 300 ms, a quarter of what is left apart.
    let fetches = (1..=10).find(|_| fetch(&client).is_ok());
    assert!(fetches.is_some_and(|fetches| fetches > 1), "{fetches:?}");
    assert_eq!(client.metrics().failures(Status::Timeout), fetches.unwrap_or(0) - 1);
}

/// What accepts connections at an address and does not serve them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum HalfAlive {
    Silent,
    Ends,
}

fn half_alive(address: SocketAddr, how: HalfAlive) {
    let listener = TcpListener::bind(address).unwrap();
    thread::spawn(move || {
        let mut held = Vec::new();
        for mut stream in listener.incoming().flatten() {
            match how {
                HalfAlive::Silent => held.push(stream),
                HalfAlive::Ends => drop(stream.read(&mut [0; 4096])),
            }
        }
    });
}

#[test]
fn an_address_that_accepts_and_does_not_serve_costs_one_attempt_and_not_every_one() {
    let authority = Authority::new();
    for how in [HalfAlive::Silent, HalfAlive::Ends] {
        let plain = MockService::start(Script::service());
        let tls = TlsServer::start(authority.certify(&NAMES).server_config(rustls::ALL_VERSIONS));
        for (scheme, address) in [("http", plain.address()), ("https", tls.address)] {
            for dead in [DEAD, DEAD_TOO] {
                half_alive(SocketAddr::new(dead, address.port()), how);
            }
            let mut settings = config(&named_url(scheme, NAMES[0], address));
            settings.set_ca_file(authority.file()).unwrap();
            settings.set_fetch_timeout(200).unwrap();
            settings.set_fetch_retry_timeout(200).unwrap();
            settings.set_fetch_retry_backoff_min(0).unwrap();
            settings.set_fetch_retries(2).unwrap();
            settings.set_connection_idle_timeout(0).unwrap(); // each fetch has a connection of its own
            resolve_to(&mut settings, &[DEAD, DEAD_TOO, LOCALHOST]);
            let client = client(&settings);
            let attempts = || fetch(&client).map(|fetched| fetched.attempts);
            assert_eq!(attempts().unwrap(), 3, "{scheme}, {how:?}");
            for _ in 0..3 {
                assert_eq!(attempts().unwrap(), 1, "{scheme}, {how:?}");
            }
            assert_eq!(client.metrics().lookups.value(), 1, "it is no reason to ask anew");
        }
    }
}
