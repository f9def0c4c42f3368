//! What a service can play to keep a fetch for ever: for the tests of its bounds, and for the
//! program that measures them.

use std::io::Write;

use experiment::rules::timings::Phase;
use flate2::Compression;
use flate2::write::GzEncoder;
use mock_service::{Answer, Script, Step};

/// One way to keep a fetch for ever.
pub struct Stall {
    pub name: &'static str,
    /// Where the fetch is when its time is over.
    pub phase: Phase,
    pub script: Script,
    /// The size of the user, beyond its name.
    pub user_bytes: usize,
}

fn stall(name: &'static str, phase: Phase, steps: impl IntoIterator<Item = Step>) -> Stall {
    Stall { name, phase, script: Script::answers([Answer::steps(steps)]), user_bytes: 0 }
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const GZIP: &str = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n";
const OPEN_ENDED: &str = "HTTP/1.1 200 OK\r\n\r\n";
const EVER: u64 = u64::MAX;

pub fn silence() -> Stall {
    stall("silence after the request", Phase::FirstByte, [Step::Hold])
}

pub fn dripped_head() -> Stall {
    let head = format!("HTTP/1.1 200 OK\r\nX-Long: {}", "x".repeat(10_000));
    stall("dripped head", Phase::FirstByte, [Step::drip(head, 50)])
}

pub fn dripped_body() -> Stall {
    let body = "x".repeat(1000);
    stall("dripped body", Phase::Body, [Step::send(HEAD), Step::drip(body, 50)])
}

pub fn dripped_chunks() -> Stall {
    let body = "1\r\n \r\n".repeat(200);
    stall("dripped chunks", Phase::Body, [Step::send(CHUNKED), Step::drip(body, 50)])
}

pub fn body_that_stops() -> Stall {
    stall("a body that stops", Phase::Body, [Step::send(HEAD), Step::send("{"), Step::Hold])
}

pub fn endless_body_without_length() -> Stall {
    stall("a body without a length or end", Phase::Body, [Step::send(OPEN_ENDED), Step::Hold])
}

pub fn endless_early_hints() -> Stall {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n";
    stall("endless 103", Phase::FirstByte, [Step::repeat(hint, EVER)])
}

pub fn flood() -> Stall {
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    stall("flood", Phase::Body, [Step::send(CHUNKED), Step::repeat(chunk, EVER)])
}

/// Data that unpacks to nothing, for ever: it fills no buffer and meets no limit.
pub fn endless_empty_gzip() -> Stall {
    let nothing = gzip(b"");
    stall("endless empty gzip", Phase::Body, [Step::send(GZIP), Step::repeat(nothing, EVER)])
}

/// Little data that unpacks to very much.
pub fn gzip_bomb() -> Stall {
    let bomb = gzip(&vec![b' '; 1 << 20]);
    stall("gzip bomb", Phase::Body, [Step::send(GZIP), Step::repeat(bomb, EVER)])
}

pub fn unread_user() -> Stall {
    let answer = Answer::steps([Step::Hold]).after_head();
    Stall {
        name: "a large user is not read",
        phase: Phase::Send,
        script: Script::answers([answer]),
        user_bytes: 7 << 20, // more than the buffers on both sides hold
    }
}

/// All that a server can do with its answer.
pub fn all() -> Vec<Stall> {
    vec![
        silence(),
        dripped_head(),
        dripped_body(),
        dripped_chunks(),
        body_that_stops(),
        endless_body_without_length(),
        endless_early_hints(),
        flood(),
        endless_empty_gzip(),
        gzip_bomb(),
        unread_user(),
    ]
}

pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}
