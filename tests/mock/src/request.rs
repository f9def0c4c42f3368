//! Reading one request, strictly: what a good client would not send is named as a problem.

use std::io::{BufRead, Read};
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::bytes::Bytes;

/// Room for a head of any size a client might be caught sending, and an end to reading garbage.
const LARGEST_HEAD: u64 = 1 << 20;
const LARGEST_BODY: usize = 64 << 20;

/// A request as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Request {
    /// Its place among all requests, in the order in which their heads arrived, from 1.
    pub number: usize,
    /// The connection it came on, counted in the order of acceptance, from 1.
    pub connection: usize,
    /// When its head had arrived, since the service started. In JSON: `at_millis`.
    #[serde(rename = "at_millis", serialize_with = "as_millis")]
    pub at: Duration,
    /// The method.
    pub method: String,
    /// The path and query as sent.
    pub path: String,
    /// The headers in order, names as sent, values without the blanks around them.
    pub headers: Vec<(String, String)>,
    /// The exact bytes of the head up to and with its blank line; of a malformed request, all that
    /// was read.
    pub head: Bytes,
    /// The exact bytes of the body, as far as it has arrived.
    pub body: Bytes,
    /// What is wrong with the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Request {
    /// The value of the first header of this name, in any case.
    pub fn header(&self, wanted: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.as_str())
    }

    /// Reads the next head. `None` when the peer left before it began.
    pub(crate) fn read_head(from: &mut impl BufRead) -> Option<Request> {
        let mut request = Request::default();
        match read_head_bytes(from, &mut request.head.0) {
            Ok(()) => request.problem = request.parse_head().err(),
            Err(_) if request.head.is_empty() => return None,
            Err(problem) => request.problem = Some(problem),
        }
        Some(request)
    }

    fn parse_head(&mut self) -> Result<(), String> {
        let head = String::from_utf8_lossy(&self.head).into_owned();
        let mut lines = head.split_terminator("\r\n");
        self.parse_request_line(lines.next().unwrap_or_default())?;
        for line in lines.take_while(|line| !line.is_empty()) {
            self.headers.push(parse_header(line)?);
        }
        self.body_length().map(|_| ())
    }

    fn parse_request_line(&mut self, line: &str) -> Result<(), String> {
        let parts: Vec<&str> = line.split(' ').collect();
        match parts[..] {
            [method, path, "HTTP/1.1"] if path.starts_with('/') => {
                self.method = method.into();
                self.path = path.into();
                Ok(())
            }
            _ => Err(format!("no request line: {line}")),
        }
    }

    fn body_length(&self) -> Result<usize, String> {
        if self.header("Transfer-Encoding").is_some() {
            return Err("a body without Content-Length".into());
        }
        match self.header("Content-Length").map(str::parse) {
            None => Ok(0),
            Some(Ok(length)) if length <= LARGEST_BODY => Ok(length),
            Some(_) => Err("no acceptable Content-Length".into()),
        }
    }

    /// Reads the body that the head announces, or as much of it as comes.
    pub(crate) fn read_body(&mut self, from: &mut impl BufRead) {
        let length = self.body_length().unwrap_or(0);
        let read = from.take(length as u64).read_to_end(&mut self.body.0);
        if let Err(error) = read {
            self.problem = Some(error.to_string());
        } else if self.body.len() < length {
            self.problem = Some("ended within the body".into());
        }
    }

    /// Whether the client wants the connection closed after the answer.
    pub(crate) fn is_last(&self) -> bool {
        let connection = self.header("Connection");
        connection.is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

fn read_head_bytes(from: &mut impl BufRead, head: &mut Vec<u8>) -> Result<(), String> {
    // A client that speaks TLS to us would wait for an answer to bytes that never end in a line.
    let garbage = from.fill_buf().map_err(|error| error.to_string())?;
    if garbage.first().is_some_and(|byte| !byte.is_ascii_uppercase()) {
        head.extend_from_slice(garbage);
        return Err("no HTTP".into());
    }
    let mut from = from.take(LARGEST_HEAD);
    loop {
        let start = head.len();
        let read = from.read_until(b'\n', head);
        read.map_err(|error| error.to_string())?;
        match &head[start..] {
            b"\r\n" => return Ok(()),
            [.., b'\r', b'\n'] => {}
            [.., b'\n'] => return Err("a line of the head does not end in CR LF".into()),
            _ if from.limit() == 0 => return Err("the head is too large".into()),
            _ => return Err("ended within the head".into()),
        }
    }
}

fn parse_header(line: &str) -> Result<(String, String), String> {
    match line.split_once(':') {
        Some((name, value)) if !name.is_empty() && !name.contains([' ', '\t']) => {
            Ok((name.into(), value.trim_matches([' ', '\t']).into()))
        }
        _ => Err(format!("no header: {line}")),
    }
}

fn as_millis<S: Serializer>(at: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(at.as_micros() as f64 / 1000.0)
}
