//! What a peer sends or withholds without an end, where nothing is waited for: each is bounded by the
//! fetch's time, its cancel and the close, in the core's loops and in those of TLS.

mod common;
mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{millis, within};
use experiment::client::{Client, Fetched};
use experiment::config::Config;
use experiment::machine::cancel::Cancel;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::rules::deadline::Limit;
use experiment::rules::error::{Error, Status};
use experiment::rules::metrics::CloseReason;
use mock_service::{Answer, MockService, Script, Step};
use support::tls::{Authority, NAMES, Stream, TlsServer, answer, read_request};
use support::{bounded, client, fetch, large_user, wait_until};

const BOUND: Duration = millis(300);

/// How long a flood goes on when nobody stops it: far beyond every bound here.
const FLOOD: Duration = Duration::from_secs(6);

fn trusting(authority: &Authority, server: &TlsServer, bound: Duration) -> Config {
    let mut settings = bounded(&server.url(), bound);
    settings.set_ca_file(authority.file()).unwrap();
    settings
}

fn server_of(
    authority: &Authority,
    conduct: impl Fn(usize, Stream) + Send + Sync + 'static,
) -> TlsServer {
    let config = authority.certify(&NAMES).server_config(&[&rustls::version::TLS13]);
    TlsServer::start_with(config, conduct)
}

/// Records of TLS that hold no data, as fast as the peer takes them. `begun` counts batches sent.
fn flood(stream: &mut Stream, begun: &AtomicUsize) {
    let began = Instant::now();
    while began.elapsed() < FLOOD {
        for _ in 0..64 {
            if stream.conn.refresh_traffic_keys().is_err() {
                return;
            }
        }
        while stream.conn.wants_write() {
            if stream.conn.write_tls(&mut stream.sock).is_err() {
                return;
            }
        }
        begun.fetch_add(1, Ordering::SeqCst);
    }
}

fn failure(fetched: Fetched) -> Error {
    fetched.result.expect_err("nothing usable comes")
}

/// How a fetch, a cancel and a close come back while a service does this to a new connection.
fn all_three_end_in_time(settings: &Config) {
    let client = client(settings);
    let error = failure(within(BOUND, || client.fetch(&User::new(), &FetchOptions::default())));
    assert_eq!(error.status, Status::Timeout, "{error}");

    let cancel = Cancel::new();
    let options = FetchOptions { cancel: Some(Arc::clone(&cancel)), ..FetchOptions::default() };
    let canceled = within(millis(100), || {
        thread::scope(|scope| {
            let fetching = scope.spawn(|| client.fetch(&User::new(), &options));
            thread::sleep(millis(100));
            cancel.fire();
            fetching.join().unwrap()
        })
    });
    assert_eq!(failure(canceled).status, Status::Canceled);

    let (closed, ended) = within(millis(200), || {
        thread::scope(|scope| {
            let fetching = scope.spawn(|| client.fetch(&User::new(), &FetchOptions::default()));
            wait_until("the fetch runs", || client.gauges().leased == 1);
            let closed = client.close(Limit::millis(100));
            (closed, fetching.join().unwrap())
        })
    });
    assert_eq!(closed.expect_err("a fetch was cut off").status, Status::Timeout);
    assert_eq!(failure(ended).status, Status::Closed);
}

#[test]
fn trailers_without_an_end_cost_no_more_than_the_bound() {
    let endless = |status: &str| {
        let head =
            format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n");
        Answer::steps([Step::send(head), Step::repeat("a: b\r\n", 1 << 40)])
    };
    let service = MockService::start(Script::answers([endless("200 OK")]));
    all_three_end_in_time(&bounded(&service.url(), BOUND));
    // With a status that says it all, nobody listens to them.
    service.set_script(Script::answers([endless("503 X"), Answer::service()]));
    let client = client(&bounded(&service.url(), BOUND));
    let error = failure(within(BOUND, || client.fetch(&User::new(), &FetchOptions::default())));
    assert_eq!(error.http_status, Some(503), "{error}");
    fetch(&client).unwrap();
}

#[test]
fn session_tickets_without_an_end_before_an_answer_cost_no_more_than_the_bound() {
    let authority = Authority::new();
    let mut config = authority.certify(&NAMES).server_config(&[&rustls::version::TLS13]);
    config.send_tls13_tickets = 200_000; // some fifty megabytes
    let server = TlsServer::start_with(config, |_, mut stream| {
        read_request(&mut stream);
        thread::sleep(FLOOD);
    });
    all_three_end_in_time(&trusting(&authority, &server, BOUND));
}

#[test]
fn tls_records_without_data_after_a_status_cost_no_more_than_the_bound() {
    let authority = Authority::new();
    let server = server_of(&authority, |_, mut stream| {
        if read_request(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.1 503 X\r\nContent-Length: 9\r\n\r\n");
            flood(&mut stream, &AtomicUsize::new(0));
        }
    });
    let client = client(&trusting(&authority, &server, BOUND));
    let error = failure(within(BOUND, || client.fetch(&User::new(), &FetchOptions::default())));
    assert_eq!(error.http_status, Some(503), "{error}");
}

#[test]
fn tls_records_without_data_on_a_kept_connection_cost_that_connection_alone() {
    let authority = Authority::new();
    let flooding = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&flooding);
    let server = server_of(&authority, move |number, mut stream| {
        while let Some(body) = read_request(&mut stream) {
            stream.write_all(answer(&body).as_bytes()).unwrap();
            if number == 1 {
                return flood(&mut stream, &begun);
            }
        }
    });
    let client = client(&trusting(&authority, &server, BOUND));
    fetch(&client).unwrap();
    wait_until("the flood has begun", || flooding.load(Ordering::SeqCst) > 0);
    within(BOUND, || fetch(&client)).unwrap();
    assert_eq!(client.metrics().connections_opened.value(), 2);
    assert_eq!(client.metrics().fetches_ok.value(), 2);
}

// Certificates: the search for an issuer.

#[test]
fn certificates_of_one_name_are_not_searched_without_an_end() {
    let authority = Authority::new();
    for count in [8, 80] {
        // Each is issued by the next, as far as names tell, and all have the authority's own.
        let (mut last, mut chain) = (Authority::new(), Vec::new());
        for _ in 0..count {
            let (next, certificate) = last.certify_authority("one name");
            chain.push(certificate);
            last = next;
        }
        let config = last.certify(&NAMES).with_chain(chain).server_config(rustls::ALL_VERSIONS);
        let server = TlsServer::start(config);
        let client = client(&trusting(&authority, &server, millis(100)));
        let error =
            failure(within(millis(100), || client.fetch(&User::new(), &FetchOptions::default())));
        assert!(matches!(error.status, Status::Tls | Status::Timeout), "{error}");
    }
}

#[test]
fn a_chain_is_found_among_certificates_that_it_does_not_need() {
    let authority = Authority::new();
    let (upper, upper_certificate) = authority.certify_authority("upper");
    let (lower, lower_certificate) = upper.certify_authority("lower");
    let (_, cross_signed) = Authority::new().certify_authority("lower");
    let strangers = (0..5).map(|i| Authority::new().certify_authority(&format!("other {i}")).1);
    let mut chain = vec![cross_signed, lower_certificate.clone(), lower_certificate];
    chain.extend(strangers);
    chain.push(upper_certificate);
    let config = lower.certify(&NAMES).with_chain(chain).server_config(rustls::ALL_VERSIONS);
    let server = TlsServer::start(config);
    fetch(&client(&trusting(&authority, &server, millis(5000)))).unwrap();
}

// Answers that come while the request is being sent.

/// A server that says this after the first bytes of a request, stops reading and holds on.
fn speaking_early(says: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut held = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream.write_all(says.as_bytes());
            held.push(stream);
        }
    });
    address
}

/// A user that the buffers of two sockets on loopback do not hold.
fn very_large_user() -> User {
    large_user(7_900_000)
}

#[test]
fn an_answer_that_comes_before_the_request_is_sent_is_the_answer() {
    for (says, status) in [
        ("HTTP/1.1 413 X\r\nContent-Length: 3\r\n\r\nbig", 413),
        ("HTTP/1.1 401 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 401),
        ("HTTP/1.1 103 X\r\nLink: <a>\r\n\r\nHTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n", 429),
    ] {
        let mut settings = bounded(&format!("http://{}", speaking_early(says)), millis(5000));
        settings.set_fetch_retries(0).unwrap();
        let client = client(&settings);
        let user = very_large_user();
        let error = failure(within(millis(500), || client.fetch(&user, &FetchOptions::default())));
        assert_eq!(error.http_status, Some(status), "{error}");
        assert_eq!(client.gauges().idle, 0, "nobody listens to the rest of the request");
    }
}

#[test]
fn an_early_401_is_final() {
    let address = speaking_early("HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n");
    let mut settings = bounded(&format!("http://{address}"), millis(5000));
    settings.set_fetch_retries(2).unwrap();
    let client = client(&settings);
    let fetched = client.fetch(&very_large_user(), &FetchOptions::default());
    assert_eq!(fetched.attempts, 1);
    assert_eq!(failure(fetched).http_status, Some(401));
}

#[test]
fn an_early_answer_comes_through_tls_too_and_tickets_are_none() {
    let authority = Authority::new();
    let mut config = authority.certify(&NAMES).server_config(rustls::ALL_VERSIONS);
    config.send_tls13_tickets = 8;
    let server = TlsServer::start_with(config, |_, mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n");
        thread::sleep(FLOOD);
    });
    let client = client(&trusting(&authority, &server, millis(5000)));
    let user = very_large_user();
    let error = failure(within(millis(500), || client.fetch(&user, &FetchOptions::default())));
    assert_eq!(error.http_status, Some(413), "{error}");
}

/// A service that begins its answer with the first bytes of a request, and goes on with it, piece by
/// piece, once so much more of the request has come.
fn answering_in_turn(pieces: &'static [(&'static str, usize)]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            for &(piece, bytes) in pieces {
                let _ = std::io::copy(&mut (&stream).take(bytes as u64), &mut std::io::sink());
                let _ = stream.write_all(piece.as_bytes());
                thread::sleep(millis(20)); // until the buffers are full
            }
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    address
}

#[test]
fn an_answer_that_begins_early_and_waits_for_the_rest_of_the_request_gets_it() {
    const REST: usize = 7_800_000;
    for pieces in [
        &[("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", 1000), ("{}", REST)][..],
        &[("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{", 1000), ("}", REST)],
        &[("HTTP/1.1 200 OK\r\nContent-Le", 1000), ("ngth: 2\r\n\r\n{}", REST)],
        &[
            ("HTTP/1.1 100 Continue\r\n", 1000),
            ("\r\nHTTP/1.1 200 OK\r\n", REST),
            ("Content-Length: 2\r\n\r\n{}", 1),
        ],
        &[
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 1000),
            ("1\r\n}\r\n0\r\n\r\n", REST),
        ],
    ] {
        let url = format!("http://{}", answering_in_turn(pieces));
        let client = client(&bounded(&url, millis(3000)));
        let fetched = client.fetch(&very_large_user(), &FetchOptions::default());
        assert!(fetched.result.is_ok(), "{pieces:?}: {:?}", fetched.result);
    }
}

#[test]
fn an_early_answer_that_waits_for_the_rest_of_the_request_gets_it_through_tls_too() {
    let authority = Authority::new();
    let server = server_of(&authority, |_, mut stream| {
        let _ = stream.read(&mut [0; 1000]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
        thread::sleep(millis(50)); // until the buffers are full
        let _ = std::io::copy(&mut (&mut stream).take(7_800_000), &mut std::io::sink());
        let _ = stream.write_all(b"{}");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let client = client(&trusting(&authority, &server, millis(3000)));
    let fetched = client.fetch(&very_large_user(), &FetchOptions::default());
    assert!(fetched.result.is_ok(), "{:?}", fetched.result);
}

#[test]
fn an_early_answer_that_takes_nothing_more_and_does_not_end_costs_no_more_than_the_bound() {
    let says = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{";
    let client = client(&bounded(&format!("http://{}", speaking_early(says)), BOUND));
    let user = very_large_user();
    let error = failure(within(BOUND, || client.fetch(&user, &FetchOptions::default())));
    assert_eq!(error.status, Status::Timeout);
}

#[test]
fn an_interim_answer_while_the_request_is_sent_lets_it_go_on() {
    let service = MockService::start(Script::answers([Answer::steps([
        Step::send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nLink: <a>\r\n\r\n"),
        Step::WaitMillis(20),
        Step::Service,
    ])]));
    let client = client(&bounded(&service.url(), millis(5000)));
    assert!(client.fetch(&very_large_user(), &FetchOptions::default()).result.is_ok());
    fetch(&client).unwrap();
    assert_eq!(client.metrics().connections_opened.value(), 1);
}

// A path that is cut in silence.

/// A service whose connections, up to the one with this number, fall silent.
fn cut_up_to(last: &Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let last = Arc::clone(last);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let last = Arc::clone(&last);
            thread::spawn(move || serve_until_cut(stream, number + 1, &last));
        }
    });
    address
}

fn serve_until_cut(mut stream: TcpStream, number: usize, last: &AtomicUsize) {
    while let Some(body) = read_request(&mut stream) {
        if number <= last.load(Ordering::SeqCst) {
            let _ = stream.read_to_end(&mut Vec::new());
            return;
        }
        thread::sleep(millis(20)); // so that callers who come together have a connection each
        stream.write_all(answer(&body).as_bytes()).unwrap();
    }
}

const POOL: usize = 8;

/// A client with as many warm connections as its pool holds, all of which are cut then.
fn warm_and_cut(retries: u32) -> Client {
    let last = Arc::default();
    let mut settings = bounded(&format!("http://{}", cut_up_to(&last)), millis(400));
    settings.set_connection_pool_max_size(POOL as u32).unwrap();
    settings.set_fetch_retries(retries).unwrap();
    settings.set_fetch_retry_backoff_min(0).unwrap();
    settings.set_fetch_retry_timeout(5000).unwrap();
    let client = client(&settings);
    while client.gauges().idle < POOL {
        thread::scope(|scope| {
            for _ in 0..POOL {
                scope.spawn(|| fetch(&client).unwrap());
            }
        });
    }
    last.store(client.metrics().connections_opened.value() as usize, Ordering::SeqCst);
    client
}

#[test]
fn a_path_that_is_cut_in_silence_costs_one_fetch_its_timeout() {
    let client = warm_and_cut(0);
    assert_eq!(fetch(&client).expect_err("it is the first to find out").status, Status::Timeout);
    while client.gauges().idle < POOL {
        thread::scope(|scope| {
            for _ in 0..POOL {
                scope.spawn(|| fetch(&client).unwrap());
            }
        });
    }
    assert_eq!(client.metrics().connections_closed(CloseReason::Suspect), POOL as u64 - 1);
}

#[test]
fn with_a_retry_a_path_that_is_cut_in_silence_costs_no_fetch() {
    let client = warm_and_cut(1);
    for _ in 0..POOL * 2 {
        fetch(&client).unwrap();
    }
    assert_eq!(client.metrics().retries.value(), 1);
}
