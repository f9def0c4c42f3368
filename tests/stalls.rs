//! Whatever keeps a fetch from its answer, it is back at the time that was set: with the phase that
//! it was in, on a connection that is never used again, and ready for the next.

mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use experiment::client::Client;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::rules::error::Status;
use experiment::rules::metrics::CloseReason;
use experiment::rules::timings::Phase;
use mock_service::{Answer, BlackHole, MockService, Script, Step};
use support::net::{Dropping, Narrow, connecting_to};
use support::proxy::{Conduct, Proxy};
use support::stall::{self, Stall};
use support::tls::{Authority, NAMES, TlsServer};
use support::{
    LOCALHOST, PATIENCE, PROMISE, SLACK, TRIES, bounded, client, fetch, large_user, named_url,
    on_time, resolve_to, timed, timeouts, wait_until,
};

/// Long enough to connect, send and receive what does come; short enough to try many things.
const BOUND: Duration = Duration::from_millis(150);

/// Fetches, and proves that it ends at the bound, as a timeout in this phase, counted there alone.
/// Says how many fetches that took: one that was late is tried again, see [`TRIES`].
#[track_caller]
fn ends_at_its_bound(client: &Client, user: &User, phase: Phase) -> u64 {
    for tries in 1..=TRIES {
        let before = timeouts(client);
        let (fetched, took) = timed(|| client.fetch(user, &FetchOptions::default()));
        let error = fetched.result.expect_err("it must not succeed");
        assert_eq!((error.status, error.phase), (Status::Timeout, Some(phase)), "{error}");
        assert!(error.retryable);
        assert!(error.message.contains(phase.activity()), "{error}");
        assert!(error.message.contains("within 150 ms"), "{error}");
        let expected = before.map(|(of, count)| (of, count + u64::from(of == phase)));
        assert_eq!(timeouts(client), expected);
        assert!(took >= BOUND, "back after {took:?}, before its time was over");
        if took <= BOUND + PROMISE + SLACK {
            return tries;
        }
    }
    panic!("{TRIES} times later than {:?} after {BOUND:?}", PROMISE + SLACK);
}

/// Plays the stall to a new connection, then to one that has served before.
#[track_caller]
fn is_bounded(stall: Stall) {
    let service = MockService::start(Script::service());
    let mut config = bounded(&service.url(), BOUND);
    config.set_max_response_bytes(1 << 30).unwrap(); // so that no flood ends before its time
    let user = large_user(stall.user_bytes);
    for kept in [0, 1] {
        let client = client(&config);
        service.set_script(Script::service());
        for _ in 0..kept {
            fetch(&client).unwrap();
        }
        service.set_script(stall.script.clone());
        let stalled = ends_at_its_bound(&client, &user, stall.phase);
        // Before the end of the connection the system still tries to send what it was given.
        let is_seen = stall.phase != Phase::Send;
        let closed = || service.wait_until(PATIENCE, |seen| seen.connections_open == 0);
        assert!(!is_seen || closed(), "the service sees that it is closed");
        service.set_script(Script::service());
        fetch(&client).unwrap();
        let metrics = client.metrics();
        assert_eq!(metrics.connections_opened.value(), stalled + 1, "none is used again");
        assert_eq!(metrics.connections_closed(CloseReason::Failed), stalled);
        assert_eq!(metrics.connections_reused.value(), kept);
    }
}

#[test]
fn an_accept_and_then_silence() {
    is_bounded(stall::silence());
}

#[test]
fn a_head_that_drips() {
    is_bounded(stall::dripped_head());
}

#[test]
fn a_body_that_drips() {
    is_bounded(stall::dripped_body());
}

#[test]
fn chunks_that_drip() {
    is_bounded(stall::dripped_chunks());
}

#[test]
fn a_body_that_stops_in_the_middle() {
    is_bounded(stall::body_that_stops());
}

#[test]
fn a_body_without_a_length_that_never_ends() {
    is_bounded(stall::endless_body_without_length());
}

#[test]
fn informational_answers_without_end() {
    is_bounded(stall::endless_early_hints());
}

#[test]
fn a_flood_that_never_makes_the_reader_wait() {
    is_bounded(stall::flood());
}

#[test]
fn gzip_data_without_end_that_unpacks_to_nothing() {
    is_bounded(stall::endless_empty_gzip());
}

#[test]
fn little_gzip_data_that_unpacks_to_very_much() {
    is_bounded(stall::gzip_bomb());
}

#[test]
fn a_user_that_the_server_does_not_read() {
    is_bounded(stall::unread_user());
}

#[test]
fn a_megabyte_of_user_on_a_narrow_path_that_the_server_does_not_read() {
    let server = Narrow::listen();
    let client = client(&bounded(&server.url(), BOUND));
    ends_at_its_bound(&client, &large_user(1 << 20), Phase::Send);
}

#[test]
fn a_connect_to_a_listener_whose_backlog_is_full() {
    let hole = BlackHole::open();
    let client = client(&bounded(&hole.url(), BOUND));
    ends_at_its_bound(&client, &User::new(), Phase::Connect);
    assert_eq!(connecting_to(hole.address().port()), 0, "the attempt is given up");
    assert_eq!(client.metrics().connections_opened.value(), 0);
}

#[test]
fn a_connect_whose_packets_are_dropped() {
    let listener = Dropping::listen((Ipv4Addr::LOCALHOST, 0).into());
    let client = client(&bounded(&format!("http://{}", listener.address()), BOUND));
    ends_at_its_bound(&client, &User::new(), Phase::Connect);
    assert_eq!(connecting_to(listener.address().port()), 0, "the attempt is given up");
}

#[test]
fn many_addresses_none_of_which_answers() {
    let listener = Dropping::listen((Ipv4Addr::UNSPECIFIED, 0).into());
    let port = listener.address().port();
    let mut config = bounded(&named_url("http", "hole.test", listener.address()), BOUND);
    let addresses: Vec<_> = (1..=20).map(|i| Ipv4Addr::new(127, 0, 1, i).into()).collect();
    resolve_to(&mut config, &addresses);
    let client = client(&config);
    ends_at_its_bound(&client, &User::new(), Phase::Connect);
    assert_eq!(connecting_to(port), 0, "every attempt is given up");
}

/// A lookup that hangs until it is released; and how many are in it.
struct Hanging {
    release: mpsc::Sender<()>,
    inside_max: Arc<AtomicUsize>,
}

fn hang(config: &mut experiment::config::Config) -> Hanging {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let (inside, inside_max) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let max = Arc::clone(&inside_max);
    config.set_lookup(Arc::new(move |_| {
        max.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let _ = gate.lock().unwrap().recv(); // an error, for all, when it is dropped
        inside.fetch_sub(1, Ordering::SeqCst);
        Ok(vec![LOCALHOST])
    }));
    Hanging { release, inside_max }
}

/// Threads of this process that look up names for this client's name.
fn lookup_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks.filter_map(|task| name(task).ok()).filter(|name| name.trim() == "exp-resolve").count()
}

#[test]
fn a_lookup_that_hangs_also_two_hundred_of_them_on_at_most_four_threads() {
    const THREADS: usize = 200;
    let service = MockService::start(Script::service());
    let mut config = bounded(&named_url("http", "host.test", service.address()), BOUND);
    config.set_connection_pool_max_size(THREADS as u32).unwrap();
    let hanging = hang(&mut config);
    let client = client(&config);
    ends_at_its_bound(&client, &User::new(), Phase::Resolve);
    assert_eq!(client.metrics().lookups_abandoned.value(), 1);
    // Six rounds: those who come after a lookup was left behind may begin another, up to four.
    for _ in 0..6 {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let (fetched, took) =
                        timed(|| client.fetch(&User::new(), &FetchOptions::default()));
                    assert_eq!(fetched.result.unwrap_err().phase, Some(Phase::Resolve));
                    // Two hundred threads wake at one moment: ten times the slack of one.
                    assert!(took <= BOUND + PROMISE + SLACK * 10, "{took:?}");
                });
            }
        });
        assert!(lookup_threads() <= 4, "{} threads", lookup_threads());
    }
    assert_eq!(client.metrics().lookups.value(), 4);
    assert_eq!(client.metrics().lookups_abandoned.value(), 4);
    assert!(hanging.inside_max.load(Ordering::SeqCst) <= 4);
    drop(hanging.release);
    wait_until("the threads end", || lookup_threads() == 0);
    fetch(&client).unwrap();
}

/// What a proxy of this conduct comes to, with a tunnel and with a request that it forwards; then it is
/// mended.
fn a_proxy_ends_at_the_bound(conduct: &Conduct) {
    let service = MockService::start(Script::service());
    let authority = Authority::new();
    let server = TlsServer::start(authority.certify(&NAMES).server_config(rustls::ALL_VERSIONS));
    for (url, phase) in [(service.url(), Phase::FirstByte), (server.url(), Phase::Connect)] {
        let proxy = Proxy::start(conduct.clone());
        let mut config = bounded(&url, BOUND);
        config.set_ca_file(authority.file()).unwrap();
        config.set_proxy_url(&proxy.url()).unwrap();
        let client = client(&config);
        ends_at_its_bound(&client, &User::new(), phase);
        proxy.behave(Conduct::Tunnel);
        fetch(&client).unwrap();
        assert_eq!(proxy.heads().len(), 2);
    }
}

#[test]
fn a_proxy_that_accepts_and_says_nothing() {
    a_proxy_ends_at_the_bound(&Conduct::Silence);
}

#[test]
fn a_proxy_whose_answer_drips() {
    let drip = Conduct::Drip("HTTP/1.1 200 OK\r\nX-Long: x", Duration::from_millis(10));
    a_proxy_ends_at_the_bound(&drip);
}

#[test]
fn a_proxy_that_cannot_be_reached() {
    let hole = BlackHole::open();
    let mut config = bounded("http://127.0.0.1:1", BOUND);
    config.set_proxy_url(&hole.url()).unwrap();
    ends_at_its_bound(&client(&config), &User::new(), Phase::Connect);
}

/// One variant with a payload that makes the whole body this long.
fn body_of(bytes: usize) -> String {
    const AROUND: usize = r#"{"a":{"key":"on","payload":""}}"#.len();
    format!(r#"{{"a":{{"key":"on","payload":"{}"}}}}"#, "x".repeat(bytes - AROUND))
}

#[test]
fn a_gzip_body_may_unpack_to_the_limit_and_not_to_a_byte_more() {
    const LIMIT: usize = 1 << 20;
    let packed = stall::gzip(body_of(LIMIT).as_bytes());
    assert!(packed.len() < 10_000);
    let answer = Answer::reply(200, &[("Content-Encoding", "gzip")], packed);
    let service = MockService::start(Script::answers([answer]));
    for (limit, fits) in [(LIMIT, true), (LIMIT - 1, false)] {
        let mut config = support::config(&service.url());
        config.set_max_response_bytes(limit as u64).unwrap();
        let client = client(&config);
        let result = client.fetch(&User::new(), &FetchOptions::default()).result;
        match fits {
            true => assert_eq!(result.unwrap().len(), 1),
            false => {
                let error = result.unwrap_err();
                assert_eq!(error.status, Status::InvalidResponse);
                assert!(error.message.contains("max_response_bytes"), "{error}");
            }
        }
    }
}

#[test]
fn five_megabytes_of_json_are_decoded_in_time_or_given_up_in_time() {
    // A thousand variants of five kilobytes, with text, numbers and lists in their payloads.
    let payload = format!(r#"{{"text":"{}","list":[{}0]}}"#, "é".repeat(1000), "12,".repeat(1000));
    let variants: Vec<_> = (0..1000)
        .map(|i| format!(r#""flag-{i}":{{"key":"on","value":"on","payload":{payload}}}"#))
        .collect();
    let body = format!("{{{}}}", variants.join(","));
    assert!(body.len() >= 5_000_000);
    let service = MockService::start(Script::answers([Answer::json(200, body)]));
    let mut given_up = 0;
    for millis in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] {
        let bound = Duration::from_millis(millis);
        let client = client(&bounded(&service.url(), bound));
        let fetched = on_time(bound, || client.fetch(&User::new(), &FetchOptions::default()));
        match fetched.result {
            Ok(variants) => assert_eq!(variants.len(), 1000),
            Err(error) => {
                assert_eq!(error.status, Status::Timeout, "{error}");
                given_up += 1;
            }
        }
    }
    assert!((1..11).contains(&given_up), "some bounds are too short, and some are not");
}

#[test]
fn every_message_of_a_tls_handshake_that_does_not_come() {
    use support::tls::{Authority, NAMES, stalling_after};
    let authority = Authority::new();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = Arc::new(authority.certify(&NAMES).server_config(&[version]));
        // One record more each time, until the handshake is complete and the answer is missing.
        let mut records = 0;
        loop {
            let address: SocketAddr = stalling_after(Arc::clone(&config), records);
            let mut settings = bounded(&format!("https://{address}"), BOUND);
            settings.set_ca_file(authority.file()).unwrap();
            let client = client(&settings);
            let first = client.fetch(&User::new(), &FetchOptions::default()).result.unwrap_err();
            if first.phase == Some(Phase::FirstByte) {
                break;
            }
            ends_at_its_bound(&client, &User::new(), Phase::Tls);
            records += 1;
        }
        println!("{version:?}: {records} records in the handshake");
        assert!((3..=8).contains(&records));
    }
}

#[test]
fn a_stall_is_tried_again_as_often_as_told_and_no_longer_than_the_deadline() {
    let service = MockService::start(Script::answers([Answer::steps([Step::Hold])]));
    let mut config = bounded(&service.url(), BOUND);
    config.set_fetch_retries(10).unwrap();
    config.set_fetch_retry_timeout(BOUND.as_millis() as u64).unwrap();
    config.set_fetch_retry_backoff_min(10).unwrap();
    config.set_fetch_retry_backoff_max(10).unwrap();
    let deadline = Duration::from_millis(400);
    config.set_fetch_deadline(deadline.as_millis() as u64).unwrap();
    let client = client(&config);
    let fetched = on_time(deadline, || client.fetch(&User::new(), &FetchOptions::default()));
    assert_eq!(fetched.result.unwrap_err().status, Status::Timeout);
    assert_eq!(fetched.attempts, 3, "two whole ones and what is left for a third");
    assert_eq!(client.metrics().connections_reused.value(), 0, "no connection serves twice");
}
