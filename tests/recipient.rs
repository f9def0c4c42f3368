//! What HTTP/1.1 tells a recipient to take and to refuse, section by section: one table. Each answer is
//! read whole and in single bytes, over a connection that is then used again or closed, and whatever it
//! comes to, the next fetch gets its own answer.

mod common;

use common::*;
use experiment::client::Client;
use experiment::rules::error::Status;
use mock_service::{Answer, MockService, Script, Step};

/// What an answer comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Variants, and the connection serves the next fetch.
    Kept,
    /// Variants, and the next fetch has a connection of its own.
    Closed,
    /// `EXP_ERR_HTTP_STATUS`.
    Status(u16),
    /// `EXP_ERR_INVALID_RESPONSE`.
    Invalid,
    /// `EXP_ERR_NETWORK`.
    Network,
}
use Outcome::{Closed, Invalid, Kept, Network, Status as Http};

/// The section, what it is about, the answer, and what it comes to. `$` stands for the end of a line
/// (CR LF), and a `!` at the end for the end of the connection.
type Case = (&'static str, &'static str, &'static str, Outcome);

#[rustfmt::skip]
const CASES: &[Case] = &[
    // RFC 9112, section 2: Message
    ("9112 2.1", "a plain answer", "HTTP/1.1 200 OK$Content-Length: 2$${}", Kept),
    ("9112 2.2", "an empty line before the status line", "$HTTP/1.1 200 OK$Content-Length: 2$${}", Kept),
    ("9112 2.2", "lines of the head that end in LF", "HTTP/1.1 200 OK\nContent-Length: 2\n\n{}", Kept),
    ("9112 2.2", "a bare CR in a field", "HTTP/1.1 200 OK$a: b\rc$Content-Length: 2$${}", Invalid),
    ("9112 2.2", "a status line that ends in CR", "HTTP/1.1 200 OK\rContent-Length: 2$${}", Invalid),
    ("9112 2.2", "whitespace before the first field", "HTTP/1.1 200 OK$ a: b$Content-Length: 2$${}", Invalid),
    ("9112 2.3", "an older minor version", "HTTP/1.0 200 OK$Content-Length: 2$${}", Closed),
    ("9110 2.5", "a later minor version", "HTTP/1.9 200 OK$Content-Length: 2$${}", Kept),
    ("9110 2.5", "another major version", "HTTP/3.0 200 OK$Content-Length: 2$${}", Invalid),
    ("9110 2.5", "a later minor version behind an empty line", "$HTTP/1.9 200 OK$Content-Length: 2$${}", Kept),
    ("9112 2.3", "a name in lower case", "http/1.1 200 OK$Content-Length: 2$${}", Invalid),
    // RFC 9112, section 4: Status Line
    ("9112 4", "no reason, but its space", "HTTP/1.1 200 $Content-Length: 2$${}", Kept),
    ("9112 4", "no reason and no space", "HTTP/1.1 200$Content-Length: 2$${}", Kept),
    ("9112 4", "a reason that is no ASCII", "HTTP/1.1 200 \u{fc}ber$Content-Length: 2$${}", Kept),
    ("9112 4", "a NUL in a reason", "HTTP/1.1 200 O\0K$Content-Length: 2$${}", Invalid),
    ("9112 4", "two spaces before the status", "HTTP/1.1  200 OK$Content-Length: 2$${}", Invalid),
    ("9112 4", "a status of two digits", "HTTP/1.1 20 OK$Content-Length: 2$${}", Invalid),
    ("9112 4", "a status of four digits", "HTTP/1.1 2000 OK$Content-Length: 2$${}", Invalid),
    ("9112 4", "a status that is no number", "HTTP/1.1 2x0 OK$Content-Length: 2$${}", Invalid),
    ("9110 15", "a status beyond 599", "HTTP/1.1 799 X$Content-Length: 2$${}", Http(799)),
    ("9110 15", "a status below 100", "HTTP/1.1 099 X$Content-Length: 2$${}", Invalid),
    ("9110 15", "a status of no known meaning", "HTTP/1.1 471 X$Content-Length: 2$${}", Http(471)),
    // RFC 9112, section 5: Field Syntax
    ("9112 5.1", "no whitespace around a value", "HTTP/1.1 200 OK$Content-Length:2$${}", Kept),
    ("9112 5.1", "whitespace around a value", "HTTP/1.1 200 OK$Content-Length: \t2 \t$${}", Kept),
    ("9112 5.1", "whitespace before the colon", "HTTP/1.1 200 OK$Content-Length : 2$${}", Invalid),
    ("9112 5", "a line without a colon", "HTTP/1.1 200 OK$nonsense$Content-Length: 2$${}", Invalid),
    ("9112 5", "an empty name", "HTTP/1.1 200 OK$: x$Content-Length: 2$${}", Invalid),
    ("9112 5.2", "a folded field", "HTTP/1.1 200 OK$a: b$  c$Content-Length:$ 2$${}", Kept),
    ("9112 5.2", "a folded line of blanks alone", "HTTP/1.1 200 OK$a: b$ \t$Content-Length: 2$${}", Kept),
    ("9112 5.2", "a folded coding", "HTTP/1.1 200 OK$Transfer-Encoding:$\tchunked$$2${}$0$$", Kept),
    ("9112 5.2", "a length that is folded in two", "HTTP/1.1 200 OK$Content-Length: 1$ 0$${}", Invalid),
    ("9112 5.2", "a coding that is folded in two", "HTTP/1.1 200 OK$Transfer-Encoding: chun$ ked$$2${}$0$$!", Invalid),
    ("9110 5.1", "a name in any case", "HTTP/1.1 200 OK$CONTENT-length: 2$${}", Kept),
    ("9110 5.5", "an empty value", "HTTP/1.1 200 OK$Server:$Content-Length: 2$${}", Kept),
    ("9110 5.5", "a value beyond ASCII", "HTTP/1.1 200 OK$a: \u{e9}$Content-Length: 2$${}", Kept),
    ("9110 5.5", "a NUL in a value", "HTTP/1.1 200 OK$a: \0$Content-Length: 2$${}", Invalid),
    ("9110 5.5", "a NUL in a name", "HTTP/1.1 200 OK$a\0: b$Content-Length: 2$${}", Invalid),
    ("9110 5.6.3", "a tab behind a coding", "HTTP/1.1 200 OK$Transfer-Encoding: chunked\t$$2${}$0$$", Kept),
    ("9110 5.6.1.2", "empty members of a list", "HTTP/1.1 200 OK$Connection: ,, x ,$Content-Length: 2$${}", Kept),
    // RFC 9112, section 6: Message Body
    ("9112 6.1", "chunked in any case", "HTTP/1.1 200 OK$Transfer-Encoding: CHUNKED$$2${}$0$$", Kept),
    ("9112 6.1", "a length beside chunks", "HTTP/1.1 200 OK$Content-Length: 9$Transfer-Encoding: chunked$$2${}$0$$", Closed),
    ("9112 6.1", "chunks in HTTP/1.0", "HTTP/1.0 200 OK$Connection: keep-alive$Transfer-Encoding: chunked$$2${}$0$$", Closed),
    ("9112 6.1", "a coding before chunked", "HTTP/1.1 200 OK$Transfer-Encoding: gzip, chunked$$2${}$0$$", Invalid),
    ("9112 6.1", "chunked twice", "HTTP/1.1 200 OK$Transfer-Encoding: chunked, chunked$$2${}$0$$", Invalid),
    ("9112 6.1", "chunked twice in two lines", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$Transfer-Encoding: chunked$$2${}$0$$", Invalid),
    ("9112 6.1", "chunked with a parameter", "HTTP/1.1 200 OK$Transfer-Encoding: chunked;q=1$$2${}$0$$", Invalid),
    ("9112 6.1", "chunked before another coding", "HTTP/1.1 200 OK$Transfer-Encoding: chunked, gzip$$2${}$0$$!", Invalid),
    ("9112 6.1", "identity beside a length", "HTTP/1.1 200 OK$Transfer-Encoding: identity$Content-Length: 2$${}", Closed),
    ("9112 6.1", "identity alone", "HTTP/1.1 200 OK$Transfer-Encoding: identity$${}!", Closed),
    ("9112 6.1", "an unknown coding", "HTTP/1.1 200 OK$Transfer-Encoding: xchunked$$2${}$0$$!", Invalid),
    ("9112 6.1", "no body, though it says chunked", "HTTP/1.1 204 X$Transfer-Encoding: chunked$$", Http(204)),
    ("9112 6.3", "no body with 204", "HTTP/1.1 204 X$Content-Length: 9$$", Http(204)),
    ("9112 6.3", "no body with 304", "HTTP/1.1 304 X$Content-Length: 9$$", Http(304)),
    ("9112 6.3", "the same length twice", "HTTP/1.1 200 OK$Content-Length: 2$Content-Length: 2$${}", Closed),
    ("9112 6.3", "the same length in a list", "HTTP/1.1 200 OK$Content-Length: 2, 2$${}", Closed),
    ("9112 6.3", "two lengths", "HTTP/1.1 200 OK$Content-Length: 2$Content-Length: 3$${}", Invalid),
    ("9112 6.3", "two lengths in a list", "HTTP/1.1 200 OK$Content-Length: 2, 3$${}", Invalid),
    ("9112 6.3", "a length and an empty one", "HTTP/1.1 200 OK$Content-Length: 2$Content-Length:$${}", Invalid),
    ("9112 6.3", "a list with an empty member", "HTTP/1.1 200 OK$Content-Length: 2,$${}", Invalid),
    ("9112 6.3", "two spellings of one length", "HTTP/1.1 200 OK$Content-Length: 2, 02$${}", Closed),
    ("9110 8.6", "a length with a sign", "HTTP/1.1 200 OK$Content-Length: +2$${}", Invalid),
    ("9110 8.6", "a negative length", "HTTP/1.1 200 OK$Content-Length: -2$${}", Invalid),
    ("9110 8.6", "a hexadecimal length", "HTTP/1.1 200 OK$Content-Length: 0x2$${}", Invalid),
    ("9110 8.6", "an empty length", "HTTP/1.1 200 OK$Content-Length: $${}", Invalid),
    ("9110 8.6", "a length with a blank in it", "HTTP/1.1 200 OK$Content-Length: 0 2$${}", Invalid),
    ("9110 8.6", "a length that overflows", "HTTP/1.1 200 OK$Content-Length: 18446744073709551618$${}", Invalid),
    ("9110 8.6", "a length with leading zeros", "HTTP/1.1 200 OK$Content-Length: 0002$${}", Kept),
    ("9112 6.3", "a body that ends with the connection", "HTTP/1.1 200 OK$${}!", Closed),
    ("9112 8", "a body that ends before its length", "HTTP/1.1 200 OK$Content-Length: 3$${}!", Invalid),
    ("9112 8", "chunks that end before the last", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$2${}$!", Invalid),
    ("9112 8", "a last chunk without its end", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$2${}$0$!", Invalid),
    ("9112 8", "a head that ends with the connection", "HTTP/1.1 200 OK$Content-Le!", Network),
    ("9112 8", "no answer at all", "!", Network),
    // RFC 9112, section 7: Transfer Codings
    ("9112 7.1", "a size in upper case", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$A$[1,2,3,4]\n$0$$", Invalid),
    ("9112 7.1", "leading zeros of a size", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$0000000000000000000002${}$00$$", Kept),
    ("9112 7.1", "a size that overflows", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$10000000000000002${}$0$$", Invalid),
    ("9112 7.1", "a size with a sign", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$+2${}$0$$", Invalid),
    ("9112 7.1", "a size with 0x", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$0x2${}$0$$", Invalid),
    ("9112 7.1", "no size", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$${}$0$$", Invalid),
    ("9112 7.1", "a chunk longer than its size", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$1${}$0$$", Invalid),
    ("9112 7.1", "a size line that ends in LF", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$2\n{}$0$$", Invalid),
    ("9112 7.1", "a size line that ends in CR", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$2\r{}$0$$", Invalid),
    ("9112 7.1", "chunk data that end in LF", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$2${}\n0$$", Invalid),
    ("9112 7.1.1", "an extension", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$2;a=b${}$0;c$$", Kept),
    ("9112 7.1.1", "an extension over 20 bytes", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$2;name=a-value-that-is-longer-than-it-need-be${}$0$$", Kept),
    ("9112 7.1.1", "a quoted extension", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$2;a=\"b;c\"${}$0$$", Kept),
    ("9112 7.1.1", "whitespace around an extension", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$2 ; a = b${}$0$$", Kept),
    ("9112 7.1.2", "trailer fields", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$2${}$0$Content-Length: 9$a: b$$", Kept),
    ("9112 7.1.2", "a trailer that ends in LF", "HTTP/1.1 200 OK$Transfer-Encoding: chunked$$2${}$0$a: b\n$", Invalid),
    // RFC 9112, section 9: Connection Management
    ("9112 9.3", "keep-alive in HTTP/1.0", "HTTP/1.0 200 OK$Connection: Keep-Alive$Content-Length: 2$${}", Kept),
    ("9112 9.3", "keep-alive in HTTP/1.0 without a length", "HTTP/1.0 200 OK$Connection: keep-alive$${}!", Closed),
    ("9112 9.3", "keep-alive and close", "HTTP/1.1 200 OK$Connection: keep-alive$Connection: Close$Content-Length: 2$${}", Closed),
    ("9112 9.6", "an announced close", "HTTP/1.1 200 OK$Connection: x, CLOSE$Content-Length: 2$${}", Closed),
    ("9112 9.6", "an option that only begins so", "HTTP/1.1 200 OK$Connection: closed, close2$Content-Length: 2$${}", Kept),
    ("9112 9.2", "bytes behind the answer", "HTTP/1.1 200 OK$Content-Length: 2$${}x", Closed),
    ("9112 9.2", "a second answer behind the first", "HTTP/1.1 200 OK$Content-Length: 2$${}HTTP/1.1 200 OK$Content-Length: 2$${}", Closed),
    // RFC 9110, section 8: Representation
    ("9110 8.4", "an empty content coding", "HTTP/1.1 200 OK$Content-Encoding:$Content-Length: 2$${}", Kept),
    ("9110 8.4", "identity", "HTTP/1.1 200 OK$Content-Encoding: identity$Content-Length: 2$${}", Kept),
    ("9110 8.4", "a coding that was not offered", "HTTP/1.1 200 OK$Content-Encoding: br$Content-Length: 2$${}", Invalid),
    ("9110 8.4", "deflate", "HTTP/1.1 200 OK$Content-Encoding: deflate$Content-Length: 2$${}", Invalid),
    ("9110 8.4", "gzip of which nothing comes", "HTTP/1.1 200 OK$Content-Encoding: gzip$Content-Length: 0$$", Invalid),
    ("9110 8.4", "gzip that is none", "HTTP/1.1 200 OK$Content-Encoding: gzip$Content-Length: 2$${}", Invalid),
    ("9110 8.3", "another content type", "HTTP/1.1 200 OK$Content-Type: text/html$Content-Length: 2$${}", Kept),
    // RFC 9110, section 15: Status Codes
    ("9110 15.2", "an interim answer", "HTTP/1.1 100 Continue$$HTTP/1.1 200 OK$Content-Length: 2$${}", Kept),
    ("9110 15.2", "an interim answer with fields", "HTTP/1.1 100 Continue$a: b$Content-Length: 7$$HTTP/1.1 200 OK$Content-Length: 2$${}", Kept),
    ("9110 15.2", "interim answers of any status", "HTTP/1.1 103 X$Link: <a>$$HTTP/1.1 199 X$$HTTP/1.1 200 OK$Content-Length: 2$${}", Kept),
    ("9110 15.2", "an interim answer after which nothing comes", "HTTP/1.1 100 Continue$$!", Network),
    ("9110 15.2.2", "a switch of protocols", "HTTP/1.1 101 X$Upgrade: h2c$$", Invalid),
    ("9110 15.3", "a 2xx that is not 200", "HTTP/1.1 206 X$Content-Length: 2$${}", Http(206)),
    ("9110 15.3.6", "a reset of content", "HTTP/1.1 205 X$Content-Length: 0$$", Http(205)),
    ("9110 15.4", "a redirect", "HTTP/1.1 307 X$Location: /$Content-Length: 0$$", Http(307)),
    ("9110 15.5", "a 4xx", "HTTP/1.1 418 X$Content-Length: 2$${}", Http(418)),
    ("9110 15.6", "a 5xx in chunks with trailers", "HTTP/1.1 503 X$Transfer-Encoding: chunked$$2${}$0$a: b$$", Http(503)),
];

fn bytes(text: &str) -> Vec<u8> {
    text.trim_end_matches('!').replace('$', "\r\n").into_bytes()
}

fn answer(text: &str, in_single_bytes: bool) -> Answer {
    let steps: Vec<Step> = match in_single_bytes {
        true => bytes(text).into_iter().map(|byte| Step::send(vec![byte])).collect(),
        false => vec![Step::send(bytes(text))],
    };
    let answer = Answer::steps(steps);
    if text.ends_with('!') { answer.then(Step::Close) } else { answer }
}

fn outcome(client: &Client) -> Outcome {
    match fetch(client).result {
        Ok(variants) => {
            assert!(variants.is_empty());
            Kept
        }
        Err(error) => match error.status {
            Status::HttpStatus => Http(error.http_status.unwrap()),
            Status::InvalidResponse => Invalid,
            Status::Network => Network,
            status => panic!("{status:?}: {error}"),
        },
    }
}

#[test]
fn each_answer_comes_to_what_its_section_says_and_the_next_fetch_to_its_own() {
    let mut wrong = Vec::new();
    for &(section, what, text, expected) in CASES {
        for in_single_bytes in [false, true] {
            // What is late by a moment is met by the next request, and cannot be told apart.
            if in_single_bytes && section == "9112 9.2" {
                continue;
            }
            let service = MockService::start(Script::answers([answer(text, in_single_bytes)]));
            let client = Settings { fetch_timeout: 2000, ..Settings::default() }.client(&service);
            let mut came = outcome(&client);
            // What was kept has nothing on it that would be taken for the next answer.
            service.set_script(Script::service());
            good(&client);
            if came == Kept && service.connections_accepted() == 2 {
                came = Closed;
            }
            if came != expected {
                wrong.push(format!("RFC {section}, {what}: {came:?} in place of {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
