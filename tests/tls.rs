//! HTTPS against a real TLS server: whom the client trusts, what its failures are called, and that
//! a kept connection is as clean under TLS as it is without.

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use experiment::client::Client;
use experiment::config::Config;
use experiment::machine::logger::Level;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::rules::error::{Error, Status};
use experiment::rules::metrics::CloseReason;
use experiment::rules::timings::Phase;
use mock_service::{MockService, Script};
use rustls::version::{TLS12, TLS13};
use rustls::{ProtocolVersion, ServerConfig, ServerConnection};
use support::tls::{
    Authority, Identity, NAMES, TlsServer, answer, expired, not_yet_valid, read_request, serve,
};
use support::{LOCALHOST, bounded, client, config, fetch, named_url, resolve_to, wait_until};

const BOTH: [&rustls::SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// Settings that trust this authority alone, and know every name as this machine.
fn trusting(authority: &Authority, url: &str) -> Config {
    let mut config = config(url);
    config.set_ca_file(authority.file()).unwrap();
    resolve_to(&mut config, &[LOCALHOST]);
    config
}

fn failure(client: &Client) -> Error {
    client.fetch(&User::new(), &FetchOptions::default()).result.expect_err("it must fail")
}

/// The failure of a fetch from a server with this certificate, by the name it is for.
fn failure_with(authority: &Authority, identity: &Identity) -> Error {
    let server = TlsServer::start(identity.server_config(&BOTH));
    let client = client(&trusting(authority, &server.named_url()));
    let error = failure(&client);
    assert_eq!(server.seen.requests.load(Ordering::SeqCst), 0, "nothing was sent");
    assert_eq!(client.metrics().connections_closed(CloseReason::Failed), 1);
    error
}

#[track_caller]
fn is_final_tls_failure(error: &Error, reason: &str) {
    assert_eq!(error.status, Status::Tls, "{error}");
    assert!(!error.retryable);
    assert!(error.message.contains(reason), "{error}");
}

#[test]
fn the_ca_file_is_trusted_and_both_versions_are_spoken() {
    let authority = Authority::new();
    for (versions, spoken) in [
        (&[&TLS12][..], ProtocolVersion::TLSv1_2),
        (&[&TLS13][..], ProtocolVersion::TLSv1_3),
        (&BOTH[..], ProtocolVersion::TLSv1_3),
    ] {
        let server = TlsServer::start(authority.certify(&NAMES).server_config(versions));
        let client = client(&trusting(&authority, &server.named_url()));
        for _ in 0..3 {
            let fetched = fetch(&client).unwrap();
            assert!(fetched.timings.spent(Phase::Backoff).is_zero());
        }
        assert_eq!(server.seen.versions.lock().unwrap()[..], [spoken]);
        assert_eq!(client.metrics().connections_opened.value(), 1);
        assert_eq!(client.metrics().connections_reused.value(), 2);
    }
}

#[test]
fn without_it_the_authority_is_unknown_and_with_it_the_built_in_ones_are() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.certify(&NAMES).server_config(&BOTH));
    let mut settings = config(&server.named_url());
    resolve_to(&mut settings, &[LOCALHOST]);
    is_final_tls_failure(&failure(&client(&settings)), "UnknownIssuer");
    let other = Authority::new();
    is_final_tls_failure(
        &failure(&client(&trusting(&other, &server.named_url()))),
        "UnknownIssuer",
    );
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let authority = Authority::new();
    let error = failure_with(&authority, &authority.certify(&["other.test"]));
    is_final_tls_failure(&error, "not valid for name \"service.test\"");
}

#[test]
fn a_certificate_that_has_expired_is_refused() {
    let authority = Authority::new();
    let error = failure_with(&authority, &authority.certify_as(&NAMES, expired));
    is_final_tls_failure(&error, "expired");
}

#[test]
fn a_certificate_that_is_not_valid_yet_is_refused() {
    let authority = Authority::new();
    let error = failure_with(&authority, &authority.certify_as(&NAMES, not_yet_valid));
    is_final_tls_failure(&error, "not valid yet");
}

#[test]
fn a_self_signed_certificate_is_refused() {
    let error = failure_with(&Authority::new(), &Identity::self_signed(&NAMES));
    is_final_tls_failure(&error, "UnknownIssuer");
}

#[test]
fn an_authority_that_is_none_is_refused() {
    // Its certificate is in the ca_file, and is shown by the server: still it is no server's.
    let authority = Authority::new();
    let error = failure_with(
        &authority,
        &authority.certify_as(&NAMES, |params| {
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        }),
    );
    is_final_tls_failure(&error, "allows client authentication");
}

#[test]
fn plain_http_on_the_port_is_a_tls_failure() {
    let service = MockService::start(
        Script::service().connections([vec![mock_service::Step::send("HTTP/1.1 400 Bad\r\n\r\n")]]),
    );
    let mut settings = config(&service.url().replace("http:", "https:"));
    settings.set_fetch_retries(3).unwrap();
    let client = client(&settings);
    is_final_tls_failure(&failure(&client), "InvalidContentType");
    assert_eq!(client.metrics().attempts.value(), 1, "it is not tried again");
}

#[test]
fn a_server_of_old_versions_alone_is_a_tls_failure() {
    // What a server of TLS 1.0 answers: a fatal alert, protocol_version.
    let alert = [0x15, 3, 1, 0, 2, 2, 70];
    let service = MockService::start(
        Script::service().connections([vec![mock_service::Step::send(&alert[..])]]),
    );
    let client = client(&config(&service.url().replace("http:", "https:")));
    is_final_tls_failure(&failure(&client), "ProtocolVersion");
}

#[test]
fn a_server_that_asks_for_a_certificate_gets_none_and_one_that_insists_is_a_tls_failure() {
    let authority = Authority::new();
    for version in BOTH {
        let start = |goes_on| {
            let clients = authority.asks_clients(goes_on);
            TlsServer::start(authority.certify(&NAMES).server_config_with(&[version], clients))
        };
        let server = start(true);
        fetch(&client(&trusting(&authority, &server.named_url()))).unwrap();

        // Its alert is what counts, also where it stops listening before our part of the handshake is out.
        let server = start(false);
        for _ in 0..30 {
            let error = failure(&client(&trusting(&authority, &server.named_url())));
            is_final_tls_failure(&error, "CertificateRequired");
        }
    }
}

#[test]
fn an_end_or_reset_in_the_handshake_is_a_network_failure() {
    use mock_service::Step::{Close, Reset};
    for end in [Close, Reset] {
        let service = MockService::start(Script::service().connections([vec![end]]));
        let mut settings = config(&service.url().replace("http:", "https:"));
        settings.set_fetch_retries(1).unwrap();
        settings.set_fetch_retry_backoff_min(0).unwrap();
        let client = client(&settings);
        let error = failure(&client);
        assert_eq!(error.status, Status::Network, "{error}");
        assert!(error.retryable);
        assert_eq!(client.metrics().attempts.value(), 2, "it is tried again");
        assert_eq!(client.metrics().stale_repeats.value(), 0, "and not as a stale connection");
    }
}

#[test]
fn the_name_is_sent_to_the_server_and_an_address_is_not() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.certify(&NAMES).server_config(&BOTH));
    fetch(&client(&trusting(&authority, &server.named_url()))).unwrap();
    fetch(&client(&trusting(&authority, &server.url()))).unwrap();
    let names = server.seen.names.lock().unwrap();
    assert_eq!(names[..], [Some("service.test".to_owned()), None]);
}

#[test]
fn a_dot_at_the_end_of_a_name_is_none_of_its_certificates() {
    let authority = Authority::new();
    for version in BOTH {
        let server = TlsServer::start(authority.certify(&NAMES).server_config(&[version]));
        let url = named_url("https", "service.test.", server.address);
        fetch(&client(&trusting(&authority, &url))).unwrap();
        assert_eq!(*server.seen.names.lock().unwrap(), [Some("service.test".to_owned())]);
    }
}

#[test]
fn an_address_must_stand_in_the_certificate() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.certify(&["service.test"]).server_config(&BOTH));
    is_final_tls_failure(
        &failure(&client(&trusting(&authority, &server.url()))),
        "not valid for name \"127.0.0.1\"",
    );
}

#[test]
fn sessions_are_resumed_by_all_connections_of_a_client() {
    let authority = Authority::new();
    for version in BOTH {
        let server = TlsServer::start(authority.certify(&NAMES).server_config(&[version]));
        let mut settings = trusting(&authority, &server.named_url());
        settings.set_connection_pool_max_size(4).unwrap();
        settings.set_connection_max_lifetime(0).unwrap(); // each fetch on a connection of its own
        let client = client(&settings);
        fetch(&client).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..3).for_each(|_| drop(fetch(&client).unwrap())));
            }
        });
        // The server keeps its ticket's key, and a client has a ticket for each it may need: only
        // those that begin before the first has one have nothing to resume.
        let seen = &server.seen;
        let (full, resumed) =
            (seen.full.load(Ordering::SeqCst), seen.resumed.load(Ordering::SeqCst));
        println!("{version:?}: {full} full handshakes, {resumed} resumed");
        assert_eq!(full + resumed, 13);
        assert!(full <= 4 && resumed >= 9, "{full} full, {resumed} resumed");
    }
}

/// How a server treats whoever wants to resume a session: it should shake hands anew.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refusal {
    Alert,
    End,
    Silence,
}

/// Whether this greeting asks for a session to be resumed: by an identifier or a ticket (TLS 1.2), or by
/// a key that both know (1.3).
fn asks_to_resume(hello: &[u8]) -> bool {
    const TICKET: u16 = 35;
    const KNOWN_KEY: u16 = 41;
    let number = |at: usize| u16::from_be_bytes([hello[at], hello[at + 1]]);
    let mut at = 5 + 4 + 2 + 32; // record, message, version, random
    at += 1 + usize::from(hello[at]); // session
    at += 2 + usize::from(number(at)); // cipher suites
    at += 1 + usize::from(hello[at]); // compressions
    at += 2;
    while at + 4 <= hello.len() {
        let (kind, length) = (number(at), number(at + 2));
        if kind == KNOWN_KEY || kind == TICKET && length > 0 {
            return true;
        }
        at += 4 + usize::from(length);
    }
    false
}

/// The first record that is to be read, left where it is.
fn peek_record(stream: &TcpStream) -> Vec<u8> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let amount = stream.peek(&mut buffer).unwrap();
        let whole = 5 + usize::from(u16::from_be_bytes([buffer[3], buffer[4]]));
        if amount == 0 || amount >= 5 && amount >= whole {
            return buffer[..amount].to_vec();
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A server that answers one request on each connection, and resumes no session.
fn resuming_nothing(config: ServerConfig, refusal: Refusal) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(config);
    thread::spawn(move || {
        let mut held = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let hello = peek_record(&stream);
            if !hello.is_empty() && asks_to_resume(&hello) {
                match refusal {
                    // A fatal handshake_failure.
                    Refusal::Alert => stream.write_all(b"\x15\x03\x03\0\x02\x02\x28").unwrap(),
                    Refusal::End => {}
                    Refusal::Silence => held.push(stream),
                }
                continue;
            }
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            if let Some(body) = read_request(&mut stream) {
                stream.write_all(answer(&body).as_bytes()).unwrap();
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
        }
    });
    address
}

#[test]
fn a_server_that_resumes_no_session_and_does_not_say_so_costs_no_fetch_but_the_one_it_keeps_waiting()
 {
    let authority = Authority::new();
    for version in BOTH {
        for refusal in [Refusal::Alert, Refusal::End, Refusal::Silence] {
            let config = authority.certify(&NAMES).server_config(&[version]);
            let url = format!("https://{}", resuming_nothing(config, refusal));
            let mut settings = bounded(&url, Duration::from_millis(500));
            settings.set_ca_file(authority.file()).unwrap();
            let client = client(&settings);
            let results: Vec<_> = (0..6).map(|_| fetch(&client).map(drop)).collect();
            let statuses = results.iter().map(|it| it.as_ref().err().map(|error| error.status));
            let waited = (refusal == Refusal::Silence).then_some(Status::Timeout);
            // The one that succeeds by a whole handshake is left a session for the next.
            let expected = [None, waited, None, waited, None, waited];
            assert_eq!(statuses.collect::<Vec<_>>(), expected, "{version:?}, {refusal:?}");
        }
    }
}

#[test]
fn a_certificate_that_is_refused_is_looked_at_once_even_if_a_session_was_resumed_before() {
    let authority = Authority::new();
    let good = authority.certify(&NAMES).server_config(&BOTH);
    let bad = authority.certify(&["other.test"]).server_config(&BOTH);
    let (good, bad) = (Arc::new(good), Arc::new(bad));
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let config = if number == 0 { &good } else { &bad };
            let connection = ServerConnection::new(Arc::clone(config)).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, stream);
            if let Some(body) = read_request(&mut stream) {
                stream.write_all(answer(&body).as_bytes()).unwrap();
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
        }
    });
    let client = client(&trusting(&authority, &url));
    fetch(&client).unwrap();
    is_final_tls_failure(&failure(&client), "not valid for name");
    assert_eq!(accepted.load(Ordering::SeqCst), 2);
}

#[test]
fn a_kept_connection_that_ends_by_an_alert_is_replaced_within_the_attempt() {
    let authority = Authority::new();
    for version in BOTH {
        let config = authority.certify(&NAMES).server_config(&[version]);
        let server = TlsServer::start_with(config, |number, mut stream| {
            if number > 1 {
                return serve(&Default::default(), stream);
            }
            let body = read_request(&mut stream).unwrap();
            stream.write_all(answer(&body).as_bytes()).unwrap();
            read_request(&mut stream).unwrap();
            // What is no record at all makes the server send a fatal alert of its own.
            let _ = stream
                .conn
                .read_tls(&mut &b"\x17\x03\x03\0\x20 this cannot be decrypted at all"[..]);
            assert!(stream.conn.process_new_packets().is_err());
            while stream.conn.wants_write() {
                stream.conn.write_tls(&mut stream.sock).unwrap();
            }
            let _ = stream.sock.read_to_end(&mut Vec::new());
        });
        let client = client(&trusting(&authority, &server.named_url()));
        fetch(&client).unwrap();
        let fetched = fetch(&client).unwrap_or_else(|error| panic!("{version:?}: {error}"));
        assert!(!fetched.timings.reused);
        assert_eq!(client.metrics().stale_repeats.value(), 1);
    }
}

#[test]
fn new_keys_before_every_answer_cost_no_fetch() {
    let authority = Authority::new();
    let config = authority.certify(&NAMES).server_config(&[&TLS13]);
    let server = TlsServer::start_with(config, |_, mut stream| {
        while let Some(body) = read_request(&mut stream) {
            if stream.conn.refresh_traffic_keys().is_err() {
                return;
            }
            stream.write_all(answer(&body).as_bytes()).unwrap();
        }
    });
    let client = client(&trusting(&authority, &server.named_url()));
    for number in 0..100 {
        fetch(&client).unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    println!("{} connections", client.metrics().connections_opened.value());
}

#[test]
fn a_connection_with_a_part_of_a_record_on_it_is_not_used_again() {
    let authority = Authority::new();
    for version in BOTH {
        let config = authority.certify(&NAMES).server_config(&[version]);
        let (told, sent) = std::sync::mpsc::channel();
        let told = std::sync::Mutex::new(told);
        let server = TlsServer::start_with(config, move |number, mut stream| {
            let body = read_request(&mut stream).unwrap();
            stream.write_all(answer(&body).as_bytes()).unwrap();
            if number == 1 {
                // An answer that nobody asked for, in two halves with the next request between them.
                let extra = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
                let mut record = Vec::new();
                stream.conn.writer().write_all(extra.as_bytes()).unwrap();
                while stream.conn.wants_write() {
                    stream.conn.write_tls(&mut record).unwrap();
                }
                stream.sock.write_all(&record[..20]).unwrap();
                told.lock().unwrap().send(()).unwrap();
                let _ = stream.sock.read(&mut [0]);
                let _ = stream.sock.write_all(&record[20..]);
            }
            serve(&Default::default(), stream);
        });
        let client = client(&trusting(&authority, &server.named_url()));
        fetch(&client).unwrap();
        sent.recv().unwrap();
        fetch(&client).unwrap();
        assert_eq!(client.metrics().connections_closed(CloseReason::Unclean), 1, "{version:?}");
    }
}

#[test]
fn a_connection_closed_in_order_while_idle_is_nobodys_error() {
    let authority = Authority::new();
    for version in BOTH {
        let identity = authority.certify(&NAMES);
        let (told, closed) = std::sync::mpsc::channel();
        let told = std::sync::Mutex::new(told);
        let server =
            TlsServer::start_with(identity.server_config(&[version]), move |number, mut stream| {
                if number > 1 {
                    return serve(&Default::default(), stream);
                }
                let body = read_request(&mut stream).unwrap();
                stream.write_all(answer(&body).as_bytes()).unwrap();
                stream.conn.send_close_notify();
                stream.flush().unwrap();
                told.lock().unwrap().send(()).unwrap();
                let _ = stream.sock.read_to_end(&mut Vec::new());
            });
        let client = client(&trusting(&authority, &server.named_url()));
        fetch(&client).unwrap();
        closed.recv().unwrap();
        fetch(&client).unwrap();
        let metrics = client.metrics();
        assert_eq!(metrics.connections_closed(CloseReason::Peer), 1, "seen before it was used");
        assert_eq!(metrics.stale_repeats.value(), 0);
        assert_eq!(metrics.attempts.value(), 2);
    }
}

#[test]
fn a_connection_that_ends_on_its_second_request_is_replaced_within_the_attempt() {
    let authority = Authority::new();
    for (version, in_order) in [(&TLS12, true), (&TLS12, false), (&TLS13, true), (&TLS13, false)] {
        let identity = authority.certify(&NAMES);
        let server =
            TlsServer::start_with(identity.server_config(&[version]), move |number, mut stream| {
                if number > 1 {
                    return serve(&Default::default(), stream);
                }
                let body = read_request(&mut stream).unwrap();
                stream.write_all(answer(&body).as_bytes()).unwrap();
                read_request(&mut stream).unwrap();
                if in_order {
                    stream.conn.send_close_notify();
                    stream.flush().unwrap();
                }
            });
        let client = client(&trusting(&authority, &server.named_url()));
        fetch(&client).unwrap();
        let fetched = fetch(&client).unwrap();
        assert!(!fetched.timings.reused, "what served was a new connection");
        let metrics = client.metrics();
        assert_eq!((metrics.stale_repeats.value(), metrics.attempts.value()), (1, 2));
        assert_eq!(metrics.connections_reused.value(), 0);
    }
}

#[test]
fn an_extra_answer_behind_the_first_is_never_anyones() {
    let authority = Authority::new();
    const EXTRA: &str = "HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{\"x\":{\"key\":\"no\"}";
    // In the same record, in another of the same flight, and in one that comes a moment later.
    for (version, records) in [(&TLS12, 1), (&TLS12, 2), (&TLS13, 1), (&TLS13, 2)] {
        let identity = authority.certify(&NAMES);
        let server =
            TlsServer::start_with(identity.server_config(&[version]), move |_, mut stream| {
                while let Some(body) = read_request(&mut stream) {
                    let (first, second) = (answer(&body), EXTRA);
                    // Two writes into the session are two records; they leave in one write below.
                    if records == 1 {
                        stream
                            .conn
                            .writer()
                            .write_all(format!("{first}{second}").as_bytes())
                            .unwrap();
                    } else {
                        stream.conn.writer().write_all(first.as_bytes()).unwrap();
                        stream.conn.writer().write_all(second.as_bytes()).unwrap();
                    }
                    let mut flight = Vec::new();
                    while stream.conn.wants_write() {
                        stream.conn.write_tls(&mut flight).unwrap();
                    }
                    stream.sock.write_all(&flight).unwrap();
                }
            });
        let client = client(&trusting(&authority, &server.named_url()));
        for _ in 0..20 {
            fetch(&client).unwrap(); // asserts that it is the answer to its own request
        }
        let metrics = client.metrics();
        assert_eq!(metrics.connections_opened.value(), 20, "none serves twice");
        assert_eq!(metrics.connections_closed(CloseReason::Unclean), 20);
        assert_eq!(metrics.connections_reused.value(), 0);
    }
}

#[test]
fn a_message_of_the_handshake_that_comes_late_does_not_make_a_connection_unclean() {
    let authority = Authority::new();
    let mut config = authority.certify(&NAMES).server_config(&[&TLS13]);
    config.send_tls13_tickets = 0;
    let (told, sent) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let server = TlsServer::start_with(config, move |_, mut stream| {
        while let Some(body) = read_request(&mut stream) {
            stream.write_all(answer(&body).as_bytes()).unwrap();
            // rustls sends its tickets with the handshake alone. A key update stands in for a late
            // one: it too is a message of the handshake that comes behind the answer.
            stream.conn.refresh_traffic_keys().unwrap();
            stream.flush().unwrap();
            told.lock().unwrap().send(()).unwrap();
        }
    });
    let client = client(&trusting(&authority, &server.named_url()));
    for _ in 0..5 {
        fetch(&client).unwrap();
        sent.recv().unwrap();
    }
    assert_eq!(client.metrics().connections_opened.value(), 1);
    assert_eq!(client.metrics().connections_reused.value(), 4);
}

#[test]
fn a_record_that_was_tampered_with_is_a_tls_failure() {
    let authority = Authority::new();
    let identity = authority.certify(&NAMES);
    let server = TlsServer::start_with(identity.server_config(&BOTH), |_, mut stream| {
        read_request(&mut stream).unwrap();
        stream.sock.write_all(&[0x17, 3, 3, 0, 32]).unwrap();
        stream.sock.write_all(&[0; 32]).unwrap();
        let _ = stream.sock.read_to_end(&mut Vec::new());
    });
    let client = client(&trusting(&authority, &server.named_url()));
    is_final_tls_failure(&failure(&client), "decrypt");
}

#[test]
fn a_large_user_and_a_large_answer_pass_whole() {
    let authority = Authority::new();
    let payload = "x".repeat(3 << 20);
    let body = format!("{{\"a\":{{\"key\":\"on\",\"payload\":\"{payload}\"}}}}");
    let identity = authority.certify(&NAMES);
    let server = TlsServer::start_with(identity.server_config(&BOTH), move |_, mut stream| {
        while let Some(user) = read_request(&mut stream) {
            assert!(user.len() > 1 << 20);
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body.as_bytes()).unwrap();
        }
    });
    let client = client(&trusting(&authority, &server.named_url()));
    for _ in 0..3 {
        let fetched = client.fetch(&support::large_user(1 << 20), &FetchOptions::default());
        let variants = fetched.result.unwrap();
        let read = variants.get("a").unwrap().payload_json().unwrap();
        assert_eq!(read.as_str().len(), payload.len() + 2);
    }
    assert_eq!(client.metrics().connections_opened.value(), 1);
}

#[test]
fn a_ca_file_that_cannot_be_used_is_named_when_the_client_is_created() {
    let directory = std::env::temp_dir().join(format!("exp-ca-files-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let authority = Authority::new();
    let good = std::fs::read_to_string(authority.file()).unwrap();
    let (first, last) = good.split_at(good.len() / 2);
    for (name, content) in [
        ("missing.pem", None),
        ("empty.pem", Some(String::new())),
        ("text.pem", Some("this is no certificate".to_owned())),
        ("key.pem", Some(rcgen::KeyPair::generate().unwrap().serialize_pem())),
        ("cut.pem", Some(first.to_owned())),
        ("damaged.pem", Some(format!("{first}!!!!{last}"))),
        (
            "not-x509.pem",
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned()),
        ),
    ] {
        let path = directory.join(name);
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let path = path.to_str().unwrap();
        let mut settings = Config::default();
        settings.set_ca_file(path).unwrap();
        let error = Client::new("key", &settings).expect_err(name);
        assert_eq!(error.status, Status::InvalidArgument, "{name}: {error}");
        assert!(error.message.contains(path), "{name}: {error}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_ca_file_may_hold_several_authorities_and_is_read_once() {
    let (one, other) = (Authority::new(), Authority::new());
    let both = [&one, &other].map(|it| std::fs::read_to_string(it.file()).unwrap()).join("\n");
    let file = std::env::temp_dir().join(format!("exp-ca-both-{}.pem", std::process::id()));
    std::fs::write(&file, format!("# a comment\n{both}")).unwrap();
    for authority in [&one, &other] {
        let server = TlsServer::start(authority.certify(&NAMES).server_config(&BOTH));
        let mut settings = trusting(authority, &server.named_url());
        settings.set_ca_file(file.to_str().unwrap()).unwrap();
        let client = client(&settings);
        std::fs::rename(&file, file.with_extension("moved")).unwrap();
        fetch(&client).unwrap();
        std::fs::rename(file.with_extension("moved"), &file).unwrap();
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_port_where_nothing_listens_is_a_network_failure() {
    let url = MockService::refused_url().replace("http:", "https:");
    let error = failure(&client(&config(&url)));
    assert_eq!(error.status, Status::Network, "{error}");
    assert!(error.message.contains("could not connect to"), "{error}");
}

#[test]
fn a_slow_handshake_counts_for_the_phase_tls() {
    // Accepts, and sends nothing until the client has been seen to wait.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let mut settings = config(&format!("https://{address}"));
    settings.set_fetch_timeout(100).unwrap();
    let client = Arc::new(client(&settings));
    let fetched = client.fetch(&User::new(), &FetchOptions::default());
    let error = fetched.result.unwrap_err();
    assert_eq!((error.status, error.phase), (Status::Timeout, Some(Phase::Tls)), "{error}");
    assert!(fetched.timings.spent(Phase::Tls) >= Duration::from_millis(50));
    assert_eq!(client.metrics().timeouts(Phase::Tls), 1);
    wait_until("the connection is closed", || {
        client.metrics().connections_closed(CloseReason::Failed) == 1
    });
    drop(listener);
}

// The file of authorities.

/// A client that trusts what this file holds, for a server by the name of its certificate.
fn trusting_file(name: &str, pem: &[u8], server: &TlsServer) -> Result<Client, Error> {
    let file = std::env::temp_dir().join(format!("exp-{name}-{}.pem", std::process::id()));
    std::fs::write(&file, pem).unwrap();
    let mut settings = config(&server.named_url());
    settings.set_ca_file(file.to_str().unwrap()).unwrap();
    resolve_to(&mut settings, &[LOCALHOST]);
    let client = Client::new("key", &settings);
    std::fs::remove_file(&file).unwrap();
    client
}

#[test]
fn a_byte_order_mark_hides_no_certificate() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.certify(&NAMES).server_config(&BOTH));
    let pem = std::fs::read(authority.file()).unwrap();
    let marked = [b"\xef\xbb\xbf", &pem[..]].concat();
    fetch(&trusting_file("mark", &marked, &server).unwrap()).unwrap();
}

#[test]
fn a_ca_file_is_read_as_editors_and_tools_write_it() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.certify(&NAMES).server_config(&BOTH));
    let own = std::fs::read_to_string(authority.file()).unwrap();
    let other = std::fs::read_to_string(Authority::new().file()).unwrap();
    let spaced = own.replace("-----\n", "-----  \n");
    for (name, pem) in [
        ("comments", format!("# one\nsubject=CN = x\n{other}\n\n# another\n{own}# the end")),
        ("lines of Windows", own.replace('\n', "\r\n")),
        ("no line end at its end", own.trim_end().to_owned()),
        ("spaces at the ends of lines", spaced),
        ("a mark in the middle", format!("{other}\u{feff}{own}")),
        ("an old label", own.replace(" CERTIFICATE", " X509 CERTIFICATE")),
        (
            "a key and a request beside it",
            format!(
                "{}{own}",
                other
                    .replace(" CERT", " PRIVATE KEY CERT")
                    .replace("CERTIFICATE-", "-")
                    .replace("KEY -", "KEY-")
            ),
        ),
    ] {
        let client = trusting_file("written", pem.as_bytes(), &server);
        let client = client.unwrap_or_else(|error| panic!("{name}: {error}"));
        fetch(&client).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn no_certificate_of_a_ca_file_is_passed_over_in_silence() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.certify(&NAMES).server_config(&BOTH));
    let own = std::fs::read_to_string(authority.file()).unwrap();
    let other = std::fs::read_to_string(Authority::new().file()).unwrap();
    let end = "-----END CERTIFICATE-----";
    for (name, pem) in [
        ("trusted", format!("{other}{}", own.replace(" CERT", " TRUSTED CERT"))),
        ("indented", format!("{other}{}", own.replace("-----BEGIN", "  -----BEGIN"))),
        ("glued", format!("{}{own}", other.trim_end())),
        ("without an end", format!("{}{own}", other.replace(end, ""))),
    ] {
        let error = trusting_file("passed-over", pem.as_bytes(), &server).expect_err(name);
        assert_eq!(error.status, Status::InvalidArgument, "{name}");
    }
}

#[test]
fn a_certificate_of_a_ca_file_that_cannot_be_used_is_warned_of() {
    let authority = Authority::new();
    let good = std::fs::read_to_string(authority.file()).unwrap();
    let damaged = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    let file = std::env::temp_dir().join(format!("exp-damaged-{}.pem", std::process::id()));
    std::fs::write(&file, format!("{damaged}{good}")).unwrap();
    let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let mut settings = config("https://service.test");
    settings.set_ca_file(file.to_str().unwrap()).unwrap();
    settings.set_log(
        Level::Warn,
        Arc::new(move |_, line: &str| sink.lock().unwrap().push(line.to_owned())),
    );
    let _client = Client::new("key", &settings).unwrap();
    std::fs::remove_file(&file).unwrap();
    let lines = lines.lock().unwrap();
    assert!(
        lines.len() == 1 && lines[0].contains("1 of its certificates cannot be used"),
        "{lines:?}"
    );
}

#[test]
fn a_certificate_that_the_ca_file_names_is_trusted_as_itself() {
    let as_authority = |params: &mut rcgen::CertificateParams| {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    };
    let issued = Authority::new().certify(&NAMES);
    for (name, identity) in [
        ("leaf", Identity::self_signed(&NAMES)),
        ("authority", Identity::self_signed_as(&NAMES, as_authority)),
        ("issued", issued),
    ] {
        let server = TlsServer::start(identity.server_config(&BOTH));
        let client = trusting_file(name, identity.pem().as_bytes(), &server).unwrap();
        fetch(&client).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_certificate_that_is_trusted_as_itself_needs_its_name_its_dates_and_its_key() {
    let as_authority = |params: &mut rcgen::CertificateParams| {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    };
    let both = |params: &mut rcgen::CertificateParams| {
        as_authority(params);
        expired(params);
    };
    for (name, identity, reason) in [
        ("name", Identity::self_signed_as(&["other.test"], as_authority), "not valid for name"),
        ("dates", Identity::self_signed_as(&NAMES, both), "expired"),
    ] {
        let server = TlsServer::start(identity.server_config(&BOTH));
        let client = trusting_file(name, identity.pem().as_bytes(), &server).unwrap();
        is_final_tls_failure(&failure(&client), reason);
    }
    // Another one of the same names and the same kind is not the one that is named.
    let named = Identity::self_signed_as(&NAMES, as_authority);
    let shown = Identity::self_signed_as(&NAMES, as_authority);
    let server = TlsServer::start(shown.server_config(&BOTH));
    let client = trusting_file("other", named.pem().as_bytes(), &server).unwrap();
    assert_eq!(failure(&client).status, Status::Tls);
}
