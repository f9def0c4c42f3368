//! The head of an answer: its status, and what the fields say of its body, of the connection and of
//! the next attempt. Pure: bytes come in. httparse reads the grammar; what it means is decided here.

use std::time::Duration;

use httparse::{Header, ParserConfig, Status};

use super::framing::{Framing, Refusal};
use crate::rules::retry;

/// The smallest line of a head has four bytes, so that this is what fits into the input buffer.
const MAX_FIELDS: usize = super::stream::INPUT_BYTES / 4;

/// Enough for nearly every answer; kept on the stack.
const USUAL_FIELDS: usize = 32;

/// A head that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    /// Where the body ends; a refusal if that cannot be told.
    pub framing: Result<Framing, Refusal>,
    /// Whether the connection goes on after the answer, and its end is told in exactly one way. If
    /// it is not, what follows may be a part of the body (RFC 9112, section 6.3).
    pub reuse: Reuse,
    /// How long the service says that it keeps the connection unused.
    pub keeps: Option<Duration>,
    pub coding: Coding,
    /// How long to leave the service alone.
    pub retry_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    Yes,
    /// The service ends the connection after the answer.
    Ends,
    /// Where the answer ends is told in more than one way.
    Doubtful,
}

/// How the body is encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coding {
    #[default]
    Identity,
    Gzip,
    /// In a way that was not offered.
    Other,
}

/// What stands at the beginning of `input`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Not a whole head yet.
    Partial,
    /// An interim answer of so many bytes, to be passed over (RFC 9110, section 15.2).
    Interim(usize),
    /// The head of the answer, and its length.
    Final(Head, usize),
}

impl Head {
    /// Reads the head at the beginning of `input`, in which a minor version of HTTP/1 that is not
    /// known becomes 1.1, as RFC 9110, section 2.5, asks for.
    pub fn parse(input: &mut [u8]) -> Result<Parsed, Refusal> {
        // Empty lines before it are passed over (RFC 9112, section 2.2).
        let start = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        if let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'2'..=b'9', ..] =
            &mut input[start..]
        {
            *minor = b'1';
        }
        let mut fields = [httparse::EMPTY_HEADER; USUAL_FIELDS];
        match read(&mut fields, input)? {
            Some(parsed) => Ok(parsed),
            None => read_many(input),
        }
    }
}

/// On its own, so that what it keeps on the stack is not every fetch's.
#[cold]
#[inline(never)]
fn read_many(input: &[u8]) -> Result<Parsed, Refusal> {
    let mut fields = vec![httparse::EMPTY_HEADER; MAX_FIELDS];
    Ok(read(&mut fields, input)?.unwrap_or(Parsed::Partial))
}

/// `None` if there are more fields than room for them.
fn read<'a>(fields: &mut [Header<'a>], input: &'a [u8]) -> Result<Option<Parsed>, Refusal> {
    let mut response = httparse::Response::new(fields);
    // A folded line is to be read as one (RFC 9112, section 5.2).
    let read = ParserConfig::default()
        .allow_obsolete_multiline_headers_in_responses(true)
        .parse_response(&mut response, input);
    match read {
        Ok(Status::Partial) => Ok(Some(Parsed::Partial)),
        Ok(Status::Complete(length)) => understand(&response, length).map(Some),
        Err(httparse::Error::TooManyHeaders) => Ok(None),
        Err(error) => Err(refusal(error)),
    }
}

fn refusal(error: httparse::Error) -> Refusal {
    match error {
        httparse::Error::Version | httparse::Error::Token => "it is not HTTP/1.1",
        httparse::Error::Status => "its status line is invalid",
        httparse::Error::HeaderName => "a header name is invalid",
        httparse::Error::HeaderValue => "a header value is invalid",
        httparse::Error::NewLine => "a header line does not end in CR LF",
        httparse::Error::TooManyHeaders => "it has too many headers",
    }
}

fn understand(response: &httparse::Response<'_, '_>, length: usize) -> Result<Parsed, Refusal> {
    let status = response.code.unwrap_or_default();
    match status {
        0..=99 => return Err("its status code is invalid"),
        101 => return Err("it switches to another protocol, which was not requested"),
        100..=199 => return Ok(Parsed::Interim(length)),
        _ => {}
    }
    let is_http_1_0 = response.version == Some(0);
    let mut fields = Fields::default();
    response.headers.iter().for_each(|header| fields.take(header));
    let framing = fields.framing(status);
    let doubtful = fields.is_framed_twice(is_http_1_0) || fields.announces_a_body_of_none(status);
    let ends =
        fields.close || is_http_1_0 && !fields.keep_alive || framing == Ok(Framing::UntilClose);
    let head = Head {
        status,
        framing,
        reuse: match (ends, doubtful) {
            (true, _) => Reuse::Ends,
            (false, true) => Reuse::Doubtful,
            (false, false) => Reuse::Yes,
        },
        keeps: fields.keeps,
        coding: fields.coding,
        retry_after: fields.retry_after.and_then(|after| retry::retry_after(after, fields.date)),
    };
    Ok(Parsed::Final(head, length))
}

/// What the fields say that matter.
#[derive(Default)]
struct Fields<'a> {
    length: Option<u64>,
    /// How often a length was told.
    lengths: usize,
    /// What cannot be read as a length.
    refusal: Option<Refusal>,
    /// Transfer codings, without `identity`: how many, and whether the last is `chunked`.
    transfer_codings: usize,
    chunked: bool,
    /// Lines of Transfer-Encoding.
    transfer_lines: usize,
    coding: Coding,
    close: bool,
    keep_alive: bool,
    keeps: Option<Duration>,
    retry_after: Option<&'a str>,
    date: Option<&'a str>,
}

impl<'a> Fields<'a> {
    fn take(&mut self, header: &Header<'a>) {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        // By length first: most names are none of these.
        match header.name.len() {
            14 if is("content-length") => {
                header.value.split(|&byte| byte == b',').for_each(|it| self.take_length(it));
            }
            17 if is("transfer-encoding") => {
                self.transfer_lines += 1;
                for coding in members(header.value) {
                    if !coding.eq_ignore_ascii_case(b"identity") {
                        self.transfer_codings += 1;
                        self.chunked = coding.eq_ignore_ascii_case(b"chunked");
                    }
                }
            }
            16 if is("content-encoding") => {
                self.coding = members(header.value).fold(self.coding, Coding::and);
            }
            10 if is("connection") => {
                for option in members(header.value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            10 if is("keep-alive") => self.keeps = members(header.value).find_map(kept_for),
            11 if is("retry-after") => self.retry_after = std::str::from_utf8(header.value).ok(),
            4 if is("date") => self.date = std::str::from_utf8(header.value).ok(),
            _ => {}
        }
    }

    /// A number, or the same one several times (RFC 9110, section 8.6).
    fn take_length(&mut self, value: &[u8]) {
        let digits = std::str::from_utf8(value.trim_ascii()).unwrap_or_default();
        // A sign is none of a length's, though Rust's parser takes one.
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        self.lengths += 1;
        match digits.parse().ok().filter(|_| is_number) {
            None => self.refusal = Some("its Content-Length is not a number"),
            Some(length) if self.length.is_some_and(|other| other != length) => {
                self.refusal = Some("it has conflicting values of Content-Length");
            }
            length => self.length = length,
        }
    }

    /// Where the body ends (RFC 9112, section 6.3).
    fn framing(&self, status: u16) -> Result<Framing, Refusal> {
        match (status, self.transfer_codings, self.length) {
            (204 | 304, ..) => Ok(Framing::Length(0)),
            (_, 1, _) if self.chunked => Ok(Framing::CHUNKED),
            (_, 1.., _) => Err("it uses a transfer coding that was not requested"),
            _ if self.refusal.is_some() => Err(self.refusal.unwrap_or_default()),
            (_, 0, Some(length)) => Ok(Framing::Length(length)),
            (_, 0, None) => Ok(Framing::UntilClose),
        }
    }

    /// Whether a body is announced where none can be. A server that says so may well send it.
    fn announces_a_body_of_none(&self, status: u16) -> bool {
        matches!(status, 204 | 304) && (self.length > Some(0) || self.transfer_codings > 0)
    }

    /// Whether the end of the body is told in more than one way, or in one that others may not know.
    fn is_framed_twice(&self, is_http_1_0: bool) -> bool {
        self.lengths > 1
            || self.transfer_lines > 1
            || self.transfer_lines > 0
                && (self.lengths > 0 || self.transfer_codings == 0 || is_http_1_0)
    }
}

impl Coding {
    /// With one more coding over it.
    fn and(self, coding: &[u8]) -> Coding {
        let is = |name: &[u8]| coding.eq_ignore_ascii_case(name);
        match self {
            _ if is(b"identity") => self,
            Coding::Identity if is(b"gzip") || is(b"x-gzip") => Coding::Gzip,
            _ => Coding::Other,
        }
    }
}

/// What a member of Keep-Alive says of the time (RFC 2068, section 19.7.1.1): `timeout=5`.
fn kept_for(member: &[u8]) -> Option<Duration> {
    let (name, value) = std::str::from_utf8(member).ok()?.split_once('=')?;
    let is_time = name.trim().eq_ignore_ascii_case("timeout");
    let seconds = value.trim().trim_matches('"');
    let is_number = seconds.bytes().all(|byte| byte.is_ascii_digit());
    is_time.then_some(seconds)?.parse().ok().filter(|_| is_number).map(Duration::from_secs)
}

/// The members of a list, the empty ones passed over (RFC 9110, section 5.6.1).
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(input: &str) -> Result<Parsed, Refusal> {
        Head::parse(&mut input.as_bytes().to_vec())
    }

    #[track_caller]
    fn head(input: &str) -> Head {
        match parse(input) {
            Ok(Parsed::Final(head, length)) => {
                assert_eq!(length, input.len(), "{input:?}");
                head
            }
            other => panic!("{input:?}: {other:?}"),
        }
    }

    fn with(fields: &str) -> Head {
        head(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"))
    }

    #[test]
    fn a_head_is_partial_until_its_empty_line() {
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), Ok(Parsed::Partial), "{end}");
        }
        assert_eq!(head(whole).framing, Ok(Framing::Length(2)));
    }

    #[test]
    fn interim_answers_are_passed_over_with_their_fields_but_not_a_switch_of_protocols() {
        for code in [100, 102, 103, 199] {
            let interim = format!("HTTP/1.1 {code} X\r\nLink: </a>\r\nContent-Length: 3\r\n\r\n");
            let parsed = parse(&format!("{interim}HTTP/1.1"));
            assert_eq!(parsed, Ok(Parsed::Interim(interim.len())), "{code}");
        }
        assert!(parse("HTTP/1.1 101 X\r\n\r\n").is_err());
    }

    #[test]
    fn the_end_of_a_body_is_told_by_the_rules_of_rfc_9112() {
        let length = Framing::Length;
        for (fields, framing, reuse) in [
            ("", Framing::UntilClose, Reuse::Ends),
            ("Content-Length: 5\r\n", length(5), Reuse::Yes),
            ("Content-Length:5 \t\r\n", length(5), Reuse::Yes),
            ("Content-Length: 5, 5\r\n", length(5), Reuse::Doubtful),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", length(5), Reuse::Doubtful),
            ("Transfer-Encoding: Chunked\r\n", Framing::CHUNKED, Reuse::Yes),
            ("Transfer-Encoding: , chunked,\r\n", Framing::CHUNKED, Reuse::Yes),
            ("Transfer-Encoding: identity\r\n", Framing::UntilClose, Reuse::Ends),
            ("Transfer-Encoding: identity\r\nContent-Length: 5\r\n", length(5), Reuse::Doubtful),
            (
                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                Framing::CHUNKED,
                Reuse::Doubtful,
            ),
            ("Content-Length: 5\r\nConnection: x, Close\r\n", length(5), Reuse::Ends),
            ("Content-Length: 5\r\nConnection: keep-alive\r\n", length(5), Reuse::Yes),
        ] {
            let head = with(fields);
            assert_eq!((head.framing, head.reuse), (Ok(framing), reuse), "{fields:?}");
        }
    }

    #[test]
    fn framing_that_can_be_read_in_two_ways_is_refused() {
        for fields in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5, 6\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: \r\n",
            "Content-Length: 5,\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, gzip\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
        ] {
            assert!(with(fields).framing.is_err(), "{fields:?}");
        }
    }

    #[test]
    fn an_answer_of_http_1_0_ends_its_connection_unless_it_says_otherwise() {
        let head = |fields: &str| head(&format!("HTTP/1.0 200 OK\r\n{fields}\r\n"));
        assert_eq!(head("Content-Length: 5\r\n").reuse, Reuse::Ends);
        let kept = "Content-Length: 5\r\nConnection: keep-alive\r\n";
        assert_eq!(head(kept).reuse, Reuse::Yes);
        let chunked = "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n";
        assert_eq!(head(chunked).reuse, Reuse::Doubtful);
    }

    #[test]
    fn a_later_minor_version_is_read_as_1_1_and_another_major_one_is_refused() {
        for before in ["", "\r\n", "\n\r\n"] {
            let head = head(&format!("{before}HTTP/1.7 204 OK\r\n\r\n"));
            assert_eq!(head.framing, Ok(Framing::Length(0)), "{before:?}");
        }
        for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/1.x", "http/1.1", "ICY"] {
            assert!(parse(&format!("{version} 200 OK\r\n\r\n")).is_err(), "{version}");
        }
    }

    #[test]
    fn a_status_without_a_body_has_none() {
        for code in [204, 304] {
            for (fields, reuse) in [
                ("", Reuse::Yes),
                ("Content-Length: 0\r\n", Reuse::Yes),
                ("Content-Length: 5\r\n", Reuse::Doubtful),
                ("Transfer-Encoding: chunked\r\n", Reuse::Doubtful),
            ] {
                let head = head(&format!("HTTP/1.1 {code} X\r\n{fields}\r\n"));
                assert_eq!(head.framing, Ok(Framing::Length(0)), "{code} {fields}");
                assert_eq!(head.reuse, reuse, "{code} {fields}");
            }
        }
    }

    #[test]
    fn status_lines_are_read_with_and_without_a_reason() {
        for line in ["HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.1 200 All is \u{e9}"] {
            assert_eq!(head(&format!("{line}\r\n\r\n")).status, 200, "{line}");
        }
        assert_eq!(head("HTTP/1.1 999 X\r\n\r\n").status, 999);
        for line in ["HTTP/1.1 99 X", "HTTP/1.1 2000 X", "HTTP/1.1 -20 X", "HTTP/1.1 099 X"] {
            assert!(parse(&format!("{line}\r\n\r\n")).is_err(), "{line}");
        }
    }

    #[test]
    fn content_codings_are_a_list_with_empty_members() {
        for (fields, coding) in [
            ("", Coding::Identity),
            ("Content-Encoding:\r\n", Coding::Identity),
            ("Content-Encoding: , ,\r\n", Coding::Identity),
            ("Content-Encoding: identity\r\n", Coding::Identity),
            ("Content-Encoding: gzip,\r\n", Coding::Gzip),
            ("Content-Encoding: ,X-GZip\r\n", Coding::Gzip),
            ("Content-Encoding: identity, gzip\r\n", Coding::Gzip),
            ("Content-Encoding: identity\r\nContent-Encoding: gzip\r\n", Coding::Gzip),
            ("Content-Encoding: gzip, gzip\r\n", Coding::Other),
            ("Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n", Coding::Other),
            ("Content-Encoding: br\r\n", Coding::Other),
        ] {
            assert_eq!(with(fields).coding, coding, "{fields:?}");
        }
    }

    #[test]
    fn as_many_fields_are_read_as_fit_into_a_head() {
        let fields = "a:\r\n".repeat(MAX_FIELDS - 10);
        assert_eq!(with(&format!("{fields}Content-Length: 7\r\n")).framing, Ok(Framing::Length(7)));
    }

    #[test]
    fn a_folded_field_is_one_field() {
        let head = with("Content-Length:\r\n 5\r\nConnection: x,\r\n\tclose\r\n");
        assert_eq!((head.framing, head.reuse), (Ok(Framing::Length(5)), Reuse::Ends));
    }

    #[test]
    fn what_is_not_the_grammar_of_a_field_is_refused() {
        for field in ["no colon", "Name : x", ": x", "a\u{0}: x", "a: x\u{0}", "a: x\ry"] {
            assert!(parse(&format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n")).is_err(), "{field:?}");
        }
    }

    #[test]
    fn a_service_may_say_for_how_long_it_keeps_a_connection() {
        for (field, seconds) in [
            ("Keep-Alive: timeout=5", Some(5)),
            ("Keep-Alive: max=100, Timeout = 15", Some(15)),
            ("keep-alive: timeout=\"7\",max=2", Some(7)),
            ("Keep-Alive: timeout=0", Some(0)),
            ("Keep-Alive: timeout=+5", None),
            ("Keep-Alive: timeout=", None),
            ("Keep-Alive: max=100", None),
            ("Keep-Alive: 300", None),
            ("Keep-Alive: timeout=99999999999999999999", None),
        ] {
            let head = with(&format!("{field}\r\nContent-Length: 0\r\n"));
            assert_eq!(head.keeps, seconds.map(Duration::from_secs), "{field}");
            assert_eq!(head.reuse, Reuse::Yes, "{field}");
        }
    }

    #[test]
    fn retry_after_is_measured_against_the_answers_own_date() {
        let head = with(
            "Retry-After: Mon, 01 Jan 2029 00:00:09 GMT\r\n\
             Date: Mon, 01 Jan 2029 00:00:02 GMT\r\nContent-Length: 0\r\n",
        );
        assert_eq!(head.retry_after, Some(Duration::from_secs(7)));
    }
}
