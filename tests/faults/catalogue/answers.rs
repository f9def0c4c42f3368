//! Heads of answers.

use mock_service::Step;

use super::{EVER, GOOD, GOOD_BODY, GOOD_HEAD, drawn, send, steps};
use crate::fault::{Dice, Fault, Gets, INVALID, NETWORK};

const KIND: &str = "Head of the answer";
const FIRST_BYTE: Gets = Gets::TimesOut("first_byte");

pub fn heads() -> Vec<Fault> {
    let mut faults = stalled();
    faults.extend(malformed());
    faults.extend(unusual());
    faults
}

fn stalled() -> Vec<Fault> {
    let long = format!("HTTP/1.1 200 OK\r\nX-Long: {}", "x".repeat(10_000));
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n";
    let part = |dice: &mut Dice| GOOD_HEAD[..1 + dice.below(GOOD_HEAD.len() - 2)].to_owned();
    vec![
        steps(KIND, "no answer at all", FIRST_BYTE, [Step::Hold]),
        steps(KIND, "a head that drips", FIRST_BYTE, [Step::drip(long, 20)]),
        drawn(KIND, "a head that stops within, drawn where", FIRST_BYTE, move |dice| {
            vec![send(part(dice)), Step::Hold]
        }),
        drawn(KIND, "a head that is closed within, drawn where", NETWORK, move |dice| {
            vec![send(part(dice)), Step::Close]
        }),
        drawn(KIND, "a head that is reset within, drawn where", NETWORK, move |dice| {
            vec![send(part(dice)), Step::Reset]
        }),
        steps(KIND, "103 without end", FIRST_BYTE, [Step::repeat(hint, EVER)]),
        steps(KIND, "102 with fields without end", FIRST_BYTE, {
            [Step::repeat("HTTP/1.1 102 Processing\r\nX: y\r\nZ: z\r\n\r\n".repeat(1000), EVER)]
        }),
        steps(KIND, "100 without end, one each 10 ms", FIRST_BYTE, {
            let one = [send("HTTP/1.1 100 Continue\r\n\r\n"), Step::WaitMillis(10)];
            (0..1000).flat_map(|_| one.clone()).collect::<Vec<_>>()
        }),
    ]
}

fn malformed() -> Vec<Fault> {
    let rubbish = |dice: &mut Dice| {
        let mut bytes: Vec<u8> = (0..1 + dice.below(2000)).map(|_| dice.below(256) as u8).collect();
        bytes.extend(b"\r\n\r\n");
        bytes
    };
    let with = |header: &str| format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\n{GOOD_BODY}");
    let invalid =
        |name: &str, answer: String| steps(KIND, name, INVALID, [send(answer), Step::Close]);
    let many = (0..2000).map(|i| format!("X-{i}: y\r\n")).collect::<String>();
    vec![
        drawn(KIND, "random bytes, drawn", INVALID, move |dice| {
            vec![send(rubbish(dice)), Step::Close]
        }),
        invalid("HTTP/0.9: a body without a head", GOOD_BODY.to_owned() + "\r\n"),
        invalid("a version that is none", GOOD.replace("HTTP/1.1", "HTTP/7.3")),
        invalid("HTTP/2 in text", GOOD.replace("HTTP/1.1", "HTTP/2")),
        steps(
            KIND,
            "TLS where HTTP is spoken",
            INVALID,
            [send(b"\x15\x03\x03\x00\x02\x02\x28\r\n\r\n".to_vec()), Step::Close],
        ),
        invalid("a status that is no number", GOOD.replace("200", "2OO")),
        invalid("a status of two digits", GOOD.replace("200", "20")),
        invalid("a header without a colon", with("Content-Length 21")),
        invalid("a header with a NUL", with("X: a\0b\r\nContent-Length: 21")),
        invalid(
            "a header whose name has a space",
            with("Content Length: 21\r\nContent-Length: 21"),
        ),
        invalid("two lengths that differ", with("Content-Length: 21\r\nContent-Length: 20")),
        invalid("a negative length", with("Content-Length: -21")),
        invalid("a length that is no number", with("Content-Length: 0x15")),
        invalid("a length beyond 64 bits", with("Content-Length: 99999999999999999999999")),
        invalid("a length of 2^64 - 1", with("Content-Length: 18446744073709551615")),
        invalid(
            "17 KB of headers",
            with(&format!("X: {}\r\nContent-Length: 21", "x".repeat(17 << 10))),
        ),
        steps(
            KIND,
            "10 MB of one header",
            INVALID,
            [
                send("HTTP/1.1 200 OK\r\nX: "),
                Step::repeat("x".repeat(1000), 10_000),
                send("\r\n\r\n"),
            ],
        ),
        steps(
            KIND,
            "10 MB of headers",
            INVALID,
            [
                send("HTTP/1.1 200 OK\r\n"),
                Step::repeat("X: y\r\n".repeat(1000), 1700),
                send("\r\n\r\n"),
            ],
        ),
        invalid("2000 headers", with(&format!("{many}Content-Length: 21"))),
        invalid(
            "64 KB of headers",
            with(&format!("X: {}\r\nContent-Length: 21", "x".repeat(65_536))),
        ),
    ]
}

fn unusual() -> Vec<Fault> {
    let with = |header: &str| format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\n{GOOD_BODY}");
    let hints = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n";
    let well = |name: &str, answer: String| steps(KIND, name, Gets::Variants, [send(answer)]);
    let pieces = |dice: &mut Dice| {
        let mut rest = GOOD;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + dice.below(rest.len()));
            steps.extend([send(piece), Step::WaitMillis(dice.below(10) as u64)]);
            rest = after;
        }
        steps
    };
    vec![
        well("folded headers", with("X: a\r\n folded\r\nContent-Length: 21")),
        well("129 headers", with(&format!("{}Content-Length: 21", "X-Many: y\r\n".repeat(128)))),
        well("an empty Content-Encoding", with("Content-Encoding:\r\nContent-Length: 21")),
        well("identity and nothing", with("Content-Encoding: identity,\r\nContent-Length: 21")),
        steps(
            KIND,
            "100 with fields before the answer",
            Gets::Own,
            [send("HTTP/1.1 100 Continue\r\nX: y\r\nContent-Length: 21\r\n\r\n"), Step::Service],
        ),
        well("HTTP/1.0", GOOD.replace("HTTP/1.1", "HTTP/1.0")),
        steps(KIND, "100 and 103 before the answer", Gets::Own, [send(hints), Step::Service]),
        well("lines that end in LF alone", GOOD.replace("\r\n", "\n")),
        well("two lengths that are the same", with("Content-Length: 21\r\nContent-Length: 21")),
        well("an answer without a reason", GOOD.replace(" OK", "")),
        well(
            "15 KB of headers",
            with(&format!("X: {}\r\nContent-Length: 21", "x".repeat(15 << 10))),
        ),
        well("folded headers", with("X: a\r\n folded\r\nContent-Length: 21")),
        well("a type that is not JSON", with("Content-Type: text/html\r\nContent-Length: 21")),
        drawn(KIND, "an answer in pieces, drawn how many and when", Gets::Variants, pieces)
            .bound_millis(2000),
        steps(
            KIND,
            "101: another protocol",
            INVALID,
            [
                send(
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
                ),
                Step::Hold,
            ],
        ),
    ]
}
