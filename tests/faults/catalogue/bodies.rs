//! Bodies of answers, and the JSON in them.

use mock_service::{Answer, Step};
use serde_json::json;

use super::{EVER, GOOD, GOOD_BODY, GOOD_HEAD, answers, drawn, send, steps};
use crate::fault::{Dice, Fault, Gets, INVALID, NETWORK};
use crate::support::stall::gzip;

const KIND: &str = "Body of the answer";
const BODY: Gets = Gets::TimesOut("body");
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const CHUNKS: &str = "a\r\n{\"flag\":{\"\r\nb;ext=1\r\nkey\":\"on\"}}\r\n0\r\n\r\n";
const OPEN_ENDED: &str = "HTTP/1.1 200 OK\r\n\r\n";
const LARGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";

pub fn bodies() -> Vec<Fault> {
    [lengths(), stalled(), chunks(), encodings()].into_iter().flatten().collect()
}

fn lengths() -> Vec<Fault> {
    let part = |dice: &mut Dice| GOOD_BODY[..dice.below(GOOD_BODY.len())].to_owned();
    let nobodys = r#"{"demo-nonce":{"key":"on","payload":"nobody"}}"#;
    let another = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{nobodys}", nobodys.len());
    vec![
        drawn(KIND, "a body that is closed within, drawn where", INVALID, move |dice| {
            vec![send(GOOD_HEAD), send(part(dice)), Step::Close]
        }),
        drawn(KIND, "a body that is reset within, drawn where", NETWORK, move |dice| {
            vec![send(GOOD_HEAD), send(part(dice)), Step::WaitMillis(20), Step::Reset]
        }),
        steps(
            KIND,
            "a body shorter than its length, where its JSON is whole",
            INVALID,
            [send(LARGE), send(GOOD_BODY), Step::Close],
        ),
        steps(
            KIND,
            "a body longer than its length",
            Gets::Variants,
            [send(format!("{GOOD}}}}}x"))],
        ),
        steps(
            KIND,
            "a second answer to the same request",
            Gets::Variants,
            [send(GOOD.to_owned() + &another)],
        ),
        steps(
            KIND,
            "an empty body",
            INVALID,
            [send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")],
        ),
        steps(
            KIND,
            "an empty body that ends with its connection",
            INVALID,
            [send(OPEN_ENDED), Step::Close],
        ),
        steps(
            KIND,
            "a body that ends with its connection",
            Gets::Variants,
            [send(OPEN_ENDED), send(GOOD_BODY), Step::Close],
        ),
        steps(
            KIND,
            "1 GB, announced",
            INVALID,
            [
                send("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n"),
                Step::repeat(" ".repeat(1 << 16), 1 << 14),
            ],
        ),
        steps(
            KIND,
            "1 GB, not announced",
            INVALID,
            [send(OPEN_ENDED), Step::repeat(" ".repeat(1 << 16), 1 << 14), Step::Close],
        ),
    ]
}

fn stalled() -> Vec<Fault> {
    let flood = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    vec![
        steps(KIND, "a body that drips", BODY, [send(LARGE), Step::drip(" ".repeat(1000), 20)]),
        steps(KIND, "a body that stops", BODY, [send(LARGE), send("{"), Step::Hold]),
        steps(
            KIND,
            "a body without length or end",
            BODY,
            [send(OPEN_ENDED), send("{"), Step::Hold],
        ),
        steps(KIND, "a flood without end", BODY, [send(CHUNKED), Step::repeat(flood, EVER)])
            .settings(json!({"max_response_bytes": 1 << 30})),
        steps(
            KIND,
            "empty gzip without end",
            BODY,
            [
                send("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"),
                Step::repeat(gzip(b""), EVER),
            ],
        ),
        steps(
            KIND,
            "chunks that drip",
            BODY,
            [send(CHUNKED), Step::drip("1\r\n \r\n".repeat(200), 20)],
        ),
        steps(KIND, "a chunk that stops", BODY, [send(CHUNKED), send("15\r\n{"), Step::Hold]),
        steps(
            KIND,
            "trailers without end, as fast as they are taken",
            BODY,
            [
                send(CHUNKED),
                send(CHUNKS.trim_end_matches("\r\n")),
                send("\r\n"),
                Step::repeat("X: y\r\n".repeat(1000), EVER),
            ],
        ),
        steps(
            KIND,
            "an extension of a chunk without end",
            INVALID,
            [send(CHUNKED), send("1;"), Step::repeat("x".repeat(1000), EVER)],
        ),
        steps(
            KIND,
            "chunks with extensions without end",
            BODY,
            [send(CHUNKED), Step::repeat("1;a=b;c=\"d\"\r\n \r\n".repeat(1000), EVER)],
        ),
        steps(
            KIND,
            "empty blocks of gzip without end",
            BODY,
            [
                send("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"),
                send(b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec()),
                Step::repeat(b"\0\0\0\xff\xff".repeat(1000), EVER),
            ],
        ),
        late(KIND, "7 MB in one text of escapes, whole when the time is nearly over", || {
            format!(r#"{{"flag":{{"key":"{}"}}}}"#, r"\u00e9".repeat(1_200_000))
        }),
        late(KIND, "138 000 variants, whole when the time is nearly over", || {
            let variant = |i| format!(r#""flag-{i}":{{"key":"on","value":"on","payload":{i}}}"#);
            format!("{{{}}}", (0..138_000).map(variant).collect::<Vec<_>>().join(","))
        }),
        steps(
            KIND,
            "trailers without end",
            BODY,
            [
                send(CHUNKED),
                send(CHUNKS.trim_end_matches("\r\n")),
                send("\r\n"),
                Step::drip("X: y\r\n".repeat(200), 20),
            ],
        ),
    ]
}

/// Its last byte comes so late that there is hardly time left to read it.
fn late(kind: &'static str, name: &str, body: impl Fn() -> String) -> Fault {
    let body = body();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let (most, last) = body.split_at(body.len() - 1);
    let late = [send(head), send(most), Step::WaitMillis(250), send(last)];
    steps(kind, name, Gets::Either(&["EXP_OK", "EXP_ERR_TIMEOUT"]), late).bound_millis(300)
}

fn chunks() -> Vec<Fault> {
    let invalid = |name: &str, chunks: &str| {
        steps(KIND, name, INVALID, [send(CHUNKED), send(chunks), Step::Close])
    };
    // At once, though the server waits for more.
    let refused = |name: &str, chunks: &str| {
        steps(KIND, name, INVALID, [send(CHUNKED), send(chunks), Step::Hold])
    };
    let well =
        |name: &str, chunks: &str| steps(KIND, name, Gets::Variants, [send(CHUNKED), send(chunks)]);
    let part = |dice: &mut Dice| CHUNKS[..dice.below(CHUNKS.len() - 2)].to_owned();
    vec![
        drawn(KIND, "chunks that are closed within, drawn where", INVALID, move |dice| {
            vec![send(CHUNKED), send(part(dice)), Step::Close]
        }),
        invalid("chunks without the last", "15\r\n{\"flag\":{\"key\":\"on\"}}\r\n"),
        invalid(
            "a chunk size that is no number",
            "xyz\r\n{\"flag\":{\"key\":\"on\"}}\r\n0\r\n\r\n",
        ),
        invalid("a negative chunk size", "-15\r\n{\"flag\":{\"key\":\"on\"}}\r\n0\r\n\r\n"),
        invalid("a chunk size beyond 64 bits", "ffffffffffffffff5\r\n{}\r\n0\r\n\r\n"),
        refused("a chunk size with a sign", "+15\r\n{\"flag\":{\"key\":\"on\"}}\r\n0\r\n\r\n"),
        refused("lines of chunks that end in LF alone", "15\n{\"flag\":{\"key\":\"on\"}}\n0\n\n"),
        refused("lines of chunks that end in CR alone", "15\r{\"flag\":{\"key\":\"on\"}}\r0\r\r"),
        refused("a trailer of 17 KB", &format!("0\r\nX: {}\r\n\r\n", "x".repeat(17 << 10))),
        well(
            "extensions of chunks",
            "15;a=b;c=\"d; e\" ;f\r\n{\"flag\":{\"key\":\"on\"}}\r\n0;g\r\n\r\n",
        ),
        invalid("a chunk longer than its size", "14\r\n{\"flag\":{\"key\":\"on\"}}\r\n0\r\n\r\n"),
        steps(
            KIND,
            "trailers",
            Gets::Variants,
            [
                send(CHUNKED),
                send(CHUNKS.trim_end_matches("\r\n")),
                send("\r\nX-Trailer: y\r\n\r\n"),
            ],
        ),
        steps(
            KIND,
            "chunks beside a length",
            Gets::Variants,
            [
                send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"),
                send(CHUNKS),
            ],
        ),
        steps(
            KIND,
            "one chunk for each byte",
            Gets::Variants,
            [
                send(CHUNKED),
                send(GOOD_BODY.chars().map(|it| format!("1\r\n{it}\r\n")).collect::<String>()),
                send("0\r\n\r\n"),
            ],
        ),
    ]
}

fn encodings() -> Vec<Fault> {
    let good = gzip(GOOD_BODY.as_bytes());
    let encoded = |encoding: &str, body: &[u8]| {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {length}\r\n\r\n"
        );
        send([head.as_bytes(), body].concat())
    };
    let mut spoilt = good.clone();
    let checksum = spoilt.len() - 8;
    spoilt[checksum] ^= 1;
    let whole = good.clone();
    vec![
        steps(KIND, "gzip", Gets::Variants, [encoded("gzip", &good)]),
        steps(KIND, "gzip with a wrong checksum", INVALID, [encoded("gzip", &spoilt)]),
        drawn(KIND, "gzip that is cut, drawn where", INVALID, move |dice| {
            vec![encoded("gzip", &whole[..1 + dice.below(whole.len() - 1)])]
        }),
        steps(KIND, "gzip that is none", INVALID, [encoded("gzip", GOOD_BODY.as_bytes())]),
        steps(KIND, "a bomb of gzip", INVALID, [encoded("gzip", &gzip(&vec![b' '; 64 << 20]))]),
        steps(
            KIND,
            "a bomb of gzip of many members",
            INVALID,
            [encoded("gzip", &gzip(&vec![b' '; 1 << 20]).repeat(64))],
        ),
        steps(
            KIND,
            "deflate, which was not asked for",
            INVALID,
            [encoded("deflate", GOOD_BODY.as_bytes())],
        ),
        steps(
            KIND,
            "brotli, which was not asked for",
            INVALID,
            [encoded("br", b"\x0b\x0a\x80{}\x03")],
        ),
    ]
}

pub fn json() -> Vec<Fault> {
    const KIND: &str = "JSON";
    const LONG: usize = 7_000_000;
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    let body = |name: &str, gets: Gets, body: &[u8]| {
        answers(KIND, name, gets, vec![Answer::reply(200, &[], body.to_vec())])
    };
    let large = |before: &str, unit: &str, after: &str| {
        let value = unit.repeat(LONG / unit.len());
        format!(r#"{{"flag":{{"key":"on","payload":{before}{value}{after}}}}}"#)
    };
    let invalid = |name: &str, text: &str| body(name, INVALID, text.as_bytes());
    let well = |name: &str, text: &str| body(name, Gets::Variants, text.as_bytes());
    vec![
        invalid("null", "null"),
        invalid("a list", "[]"),
        invalid("a text", "\"flag\""),
        invalid("a number", "1"),
        invalid("JSON that is cut", &GOOD_BODY[..15]),
        invalid("something after the JSON", &format!("{GOOD_BODY}]")),
        invalid("HTML", "<html><body>It works!</body></html>"),
        invalid("a byte order mark", &format!("\u{feff}{GOOD_BODY}")),
        invalid("half a surrogate pair", r#"{"flag":{"key":"\ud800"}}"#),
        invalid("a control character in a text", "{\"flag\":{\"key\":\"a\nb\"}}"),
        invalid("NaN", r#"{"flag":{"key":"on","payload":NaN}}"#),
        body("bytes that are no UTF-8", INVALID, b"{\"flag\":{\"key\":\"\xff\"}}"),
        invalid("nested 129 deep", &nested(128)),
        invalid("nested 100 000 deep", &nested(100_000)),
        invalid("brackets of 7 MB that nobody closes", &format!("{{\"a\":{}", "[".repeat(LONG))),
        well("a payload nested 120 deep", &{
            let (open, close) = ("[".repeat(120), "]".repeat(120));
            format!(r#"{{"flag":{{"key":"on","payload":{open}{close}}}}}"#)
        }),
        well("a text of 7 MB", &large("\"x", "x", "\"")),
        well("a number of 7 MB", &large("1", "0", "")),
        // What Go makes of them takes it a second where others work beside it.
        well("a list of 3 500 000 values", &large("[1", ",1", "]")).bound_millis(5000),
        invalid("larger than the limit", &format!("{GOOD_BODY}{}", " ".repeat(3000)))
            .settings(json!({"max_response_bytes": 2000})),
        well("no variants", "{}"),
        well("an entry that is no object", r#"{"a":1,"flag":{"key":"on"},"b":null}"#),
        well("a variant without a key", r#"{"flag":{"value":"on"}}"#),
        well("a value that is no text", r#"{"flag":{"key":"on","value":{"a":[1,null]}}}"#),
        well("fields that nobody knows", r#"{"flag":{"key":"on","later":{"a":1}}}"#),
        well("two variants of one flag", r#"{"flag":{"key":"on"},"flag":{"key":"off"}}"#),
        well(
            "numbers beyond 64 bits",
            r#"{"flag":{"key":"on","payload":1e999,"metadata":{"a":99999999999999999999}}}"#,
        ),
    ]
}
