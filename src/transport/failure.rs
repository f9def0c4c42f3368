//! How an exchange fails below, and what its caller is told.

use std::io;
use std::time::Duration;

use super::control::{Ended, Report};
use crate::error::{Error, Status};
use crate::schedule::Bound;
use crate::timings::Phase;

/// Why there is no body to decode.
#[derive(Debug)]
pub enum Failure {
    /// ureq, or the socket below it, gave up.
    Exchange(ureq::Error),
    /// Another status than 200.
    Status { code: u16, retry_after: Option<Duration> },
    /// The answer is complete and cannot be used: the reason.
    Answer(&'static str),
    /// The body is larger than it may be.
    TooLarge,
    /// There is no memory for the body.
    OutOfMemory,
}

impl Failure {
    /// Whether the connection simply ended, as one does that was kept for too long.
    pub fn is_end_of_connection(&self) -> bool {
        matches!(self, Failure::Exchange(ureq::Error::Io(error)) if is_end(error.kind()))
    }

    /// What the caller is told. `timeout` is the attempt's own bound, `max_bytes` the body's.
    pub fn into_error(
        self,
        report: &Report,
        timeout: Bound,
        max_bytes: u64,
        server: &str,
    ) -> Error {
        match report.ended {
            Some(Ended::TimedOut(phase)) => return timed_out(phase, timeout, server),
            Some(Ended::Canceled) => return Error::canceled(),
            Some(Ended::Cut) => return Error::closed(),
            None => {}
        }
        match self {
            Failure::Exchange(error) => exchange_failed(error, report, server),
            Failure::Status { code, retry_after } => Error::http_status(code, retry_after),
            Failure::Answer(why) => unusable(server, why),
            Failure::TooLarge => too_large(server, max_bytes),
            Failure::OutOfMemory => unusable(server, "there is no memory for it"),
        }
    }
}

const CUT: &str = "its body was cut: the connection ended before it was complete";

fn timed_out(phase: Phase, timeout: Bound, server: &str) -> Error {
    Error::timeout(
        phase,
        format!("no complete answer from {server} within {timeout}: {}", phase.activity()),
    )
}

fn exchange_failed(error: ureq::Error, report: &Report, server: &str) -> Error {
    use ureq::Error as E;
    match error {
        E::Io(error) => io_failed(&error, report, server),
        E::Rustls(error) => tls_failed(&error, server),
        E::Tls(why) => Error::new(Status::Tls, format!("TLS with {server} failed: {why}")),
        E::TlsRequired => Error::new(Status::Tls, format!("TLS with {server} failed")),
        E::BodyStalled => unusable(server, CUT),
        E::LargeResponseHeader(..) => unusable(server, "its head is larger than 16 KiB"),
        E::Protocol(why) => unusable(server, &format!("it is not HTTP/1.1 as it should be: {why}")),
        E::ConnectProxyFailed(why) => proxy_failed(&why, server),
        E::HostNotFound => Error::new(Status::Network, format!("{server} has no address")),
        error => Error::new(Status::Network, format!("the exchange with {server} failed: {error}")),
    }
}

fn proxy_failed(why: &str, server: &str) -> Error {
    // The status stands in the text alone, once as a number and once for its (missing) name.
    let status = why.strip_prefix("proxy server responded ").and_then(|it| it.split('/').next());
    let message = match status {
        Some("407") => format!(
            "the proxy wants other credentials for a connection to {server}: \
             check the user and password in proxy_url, or in the environment's variable"
        ),
        Some(status) => format!("the proxy made no connection to {server}: it answered {status}"),
        None => format!("the proxy made no connection to {server}: {why}"),
    };
    // The same credentials will not do later either, and may lock the account.
    Error { retryable: status != Some("407"), ..Error::new(Status::Network, message) }
}

fn io_failed(error: &io::Error, report: &Report, server: &str) -> Error {
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return tls_failed(error, server);
    }
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
        return Error::new(Status::Network, format!("the exchange with {server} failed: {error}"));
    }
    let phase = report.phase;
    if is_end(error.kind()) && phase == Phase::Body && error.kind() == io::ErrorKind::UnexpectedEof
    {
        return unusable(server, CUT);
    }
    let what = match phase {
        Phase::Resolve => format!("the host of {server} could not be looked up"),
        Phase::Connect => format!("no connection to {server}"),
        Phase::Tls => format!("the connection to {server} broke in the TLS handshake"),
        _ => format!("the connection to {server} broke while {}", phase.activity()),
    };
    Error::new(Status::Network, format!("{what}: {error}"))
}

fn tls_failed(error: &rustls::Error, server: &str) -> Error {
    Error::new(
        Status::Tls,
        format!("TLS with {server} failed: {error}; check the certificate, ca_file and server_url"),
    )
}

fn too_large(server: &str, max_bytes: u64) -> Error {
    unusable(server, &format!("its body is larger than {max_bytes} bytes (max_response_bytes)"))
}

fn unusable(server: &str, why: &str) -> Error {
    Error::new(Status::InvalidResponse, format!("the answer of {server} cannot be used: {why}"))
}

fn is_end(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
    )
}
