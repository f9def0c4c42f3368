//! What only a network of one's own can show: packets that vanish on their way, and a name server
//! that never answers the C library's own lookup.
//!
//! The test runs itself again in namespaces of its own. Where they are not allowed it fails: it would
//! prove nothing.

mod support;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use experiment::client::Client;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::rules::error::Status;
use experiment::rules::timings::Phase;
use mock_service::{MockService, Script};
use support::{bounded, client, fetch, named_url, namespaces, on_time};

const BOUND: Duration = Duration::from_millis(200);
const INSIDE: &str = "EXP_TEST_INSIDE";

/// Everything sent to 10.9.0.0/24 leaves by the loopback device, comes back by it, and is no
/// address of this machine: it is dropped, and nobody is told.
const SET_UP: &str = "ip link set lo up && ip route add 10.9.0.0/24 dev lo && \
    mount --bind \"$EXP_TEST_RESOLV\" /etc/resolv.conf && exec \"$0\" --exact the_network --nocapture";

#[test]
fn the_network() {
    if std::env::var_os(INSIDE).is_some() {
        packets_that_vanish();
        return a_name_server_that_does_not_answer();
    }
    let mut unshare = namespaces::unshare().unwrap_or_else(|refused| panic!("{refused}"));
    let resolv = std::env::temp_dir().join(format!("exp-resolv-{}", std::process::id()));
    std::fs::write(&resolv, "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n").unwrap();
    let output = unshare
        .args(["sh", "-c", SET_UP])
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, "1")
        .env("EXP_TEST_RESOLV", &resolv)
        .output()
        .unwrap();
    std::fs::remove_file(resolv).unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}");
    assert!(output.status.success(), "inside:\n{out}\n{err}");
    assert!(out.contains("inside: done"), "{out}");
}

fn is_timeout(client: &Client, phase: Phase) {
    let fetched = on_time(BOUND, || client.fetch(&User::new(), &FetchOptions::default()));
    let error = fetched.result.unwrap_err();
    assert_eq!((error.status, error.phase), (Status::Timeout, Some(phase)), "{error}");
}

fn packets_that_vanish() {
    let client = client(&bounded("http://10.9.0.2:80", BOUND));
    for _ in 0..3 {
        is_timeout(&client, Phase::Connect);
    }
    assert_eq!(support::net::connecting_to(80), 0);
    println!("inside: packets vanished");
}

fn a_name_server_that_does_not_answer() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 53)).unwrap();
    let service = MockService::start(Script::service());
    let client = client(&bounded(&named_url("http", "service.test", service.address()), BOUND));
    for _ in 0..3 {
        is_timeout(&client, Phase::Resolve);
    }
    let abandoned = client.metrics().lookups_abandoned.value();
    assert!(
        (3..=4).contains(&abandoned),
        "each fetch began a lookup that was left behind, up to four"
    );
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let answering = thread::spawn(move || answer_names(&socket, &stop));
    // Also those who were asked in vain are answered now, which frees their threads.
    support::wait_until("a name is found", || fetch(&client).is_ok());
    over.store(true, Ordering::Relaxed);
    answering.join().unwrap();
    println!("inside: done");
}

/// Says of every name that it is this machine.
fn answer_names(socket: &UdpSocket, stop: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut query = [0; 512];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut query) else { continue };
        let name_bytes = query[12..length].iter().position(|&byte| byte == 0).unwrap() + 1;
        let question = &query[12..12 + name_bytes + 4];
        let wants_v4 = question[name_bytes..name_bytes + 2] == [0, 1];
        let mut answer = query[..2].to_vec();
        answer.extend([0x81, 0x80, 0, 1, 0, u8::from(wants_v4), 0, 0, 0, 0]);
        answer.extend(question);
        if wants_v4 {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
        }
        socket.send_to(&answer, from).unwrap();
    }
}
