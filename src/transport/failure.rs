//! How an exchange fails below, and what its caller is told.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use super::exchange_state::{Ended, ExchangeState, Peer};
use super::framing::Refusal;
use super::stream::is_end;
use crate::rules::error::{Error, Status};
use crate::rules::schedule::Bound;
use crate::rules::timings::Phase;

/// Why there is no body to decode.
#[derive(Debug)]
pub enum Failure {
    /// The connection failed, or TLS over it, or the exchange is to stop.
    Io(io::Error),
    /// Another status than 200.
    Status { code: u16, retry_after: Option<Duration> },
    /// What came cannot be used: the reason.
    Answer(Refusal),
    /// The body is larger than it may be.
    TooLarge,
    /// There is no memory for the body.
    OutOfMemory,
    /// The proxy made no connection, and said so by this status.
    ProxyStatus(u16),
    /// The proxy's answer cannot be used: the reason.
    ProxyAnswer(Refusal),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()) {
            Some(Refused(refusal)) => Failure::Answer(refusal),
            None => Failure::Io(error),
        }
    }
}

/// A refusal on its way through `io::Read`.
#[derive(Debug)]
pub struct Refused(Refusal);

impl Refused {
    pub fn error(refusal: Refusal) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, Refused(refusal))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl StdError for Refused {}

/// What messages name.
#[derive(Debug)]
pub struct Names {
    /// The service: host and port.
    pub server: String,
    /// The proxy on the way to it: host and port, nothing of its credentials.
    pub proxy: Option<String>,
}

impl Names {
    fn peer(&self, peer: Peer) -> String {
        match (&self.proxy, peer) {
            (Some(proxy), Peer::Proxy) => format!("the proxy {proxy}"),
            _ => self.server.clone(),
        }
    }

    fn proxy(&self) -> &str {
        self.proxy.as_deref().unwrap_or_default()
    }
}

impl Failure {
    /// Whether the connection ended, as one does that was kept for too long. With TLS it may end by an
    /// alert, or by what is no good record any more; if there is more to it, a fresh one will show.
    pub fn is_end_of_connection(&self) -> bool {
        self.tls().is_some() || matches!(self, Failure::Io(error) if is_end(error.kind()))
    }

    /// Whether it is the peer's certificate that was refused.
    pub fn is_of_certificate(&self) -> bool {
        matches!(self.tls(), Some(rustls::Error::InvalidCertificate(_)))
    }

    fn tls(&self) -> Option<&rustls::Error> {
        match self {
            Failure::Io(error) => of_tls(error),
            _ => None,
        }
    }

    /// What the caller is told. `timeout` is the attempt's own bound, `max_bytes` the body's.
    pub fn into_error(
        self,
        state: &ExchangeState,
        timeout: Bound,
        max_bytes: u64,
        names: &Names,
    ) -> Error {
        // A status that came in time is the outcome, whatever happened after it.
        if let Failure::Status { code, retry_after } = self {
            return Error::http_status(code, retry_after);
        }
        match state.ended() {
            Some(Ended::TimedOut(phase)) => return timed_out(phase, state.peer, timeout, names),
            Some(Ended::Canceled) => return Error::canceled(),
            Some(Ended::Cut) => return Error::closed(),
            None => {}
        }
        match self {
            Failure::Io(error) => io_failed(&error, state, names),
            Failure::Status { code, retry_after } => Error::http_status(code, retry_after),
            Failure::Answer(why) => unusable(names, why),
            Failure::TooLarge => too_large(names, max_bytes),
            Failure::OutOfMemory => unusable(names, "there is no memory for its body"),
            Failure::ProxyStatus(code) => proxy_refused(code, names),
            Failure::ProxyAnswer(why) => Error::new(
                Status::Network,
                format!("the proxy {} did not connect to {}: {why}", names.proxy(), names.server),
            ),
        }
    }
}

fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

const CUT: Refusal = "the connection closed before the body was complete";

fn timed_out(phase: Phase, peer: Peer, timeout: Bound, names: &Names) -> Error {
    let through = match (&names.proxy, peer) {
        (Some(proxy), Peer::Proxy) => format!(" (the proxy {proxy})"),
        (Some(proxy), Peer::Service) => format!(" (through the proxy {proxy})"),
        (None, _) => String::new(),
    };
    Error::timeout(
        phase,
        format!(
            "no complete response from {} within {timeout}: {}{through}",
            names.server,
            phase.activity()
        ),
    )
}

fn proxy_refused(code: u16, names: &Names) -> Error {
    let (proxy, server) = (names.proxy(), &names.server);
    if code != 407 {
        return Error::new(
            Status::Network,
            format!("the proxy {proxy} did not connect to {server}: it responded with {code}"),
        );
    }
    let message = format!(
        "the proxy {proxy} rejected the credentials for {server} (407): check the user and \
         password in proxy_url, or in the environment variable"
    );
    // The same credentials will not do later either, and may lock the account.
    Error { retryable: false, ..Error::new(Status::Network, message) }
}

fn io_failed(error: &io::Error, state: &ExchangeState, names: &Names) -> Error {
    let (phase, peer) = (state.phase(), names.peer(state.peer));
    if let Some(error) = of_tls(error) {
        return tls_failed(error, &peer);
    }
    if phase == Phase::Body && error.kind() == io::ErrorKind::UnexpectedEof {
        return unusable(names, CUT);
    }
    let what = match phase {
        Phase::Resolve => format!("could not look up the host of {peer}"),
        Phase::Connect => format!("could not connect to {peer}"),
        Phase::Tls => format!("the connection to {peer} broke in the TLS handshake"),
        _ => format!("the connection to {peer} broke while {}", phase.activity()),
    };
    Error::new(Status::Network, format!("{what}: {error}"))
}

fn tls_failed(error: &rustls::Error, peer: &str) -> Error {
    Error::new(
        Status::Tls,
        format!("TLS with {peer} failed: {error}; check the certificate, ca_file and server_url"),
    )
}

fn too_large(names: &Names, max_bytes: u64) -> Error {
    unusable(names, &format!("its body is larger than {max_bytes} bytes (max_response_bytes)"))
}

fn unusable(names: &Names, why: &str) -> Error {
    Error::new(Status::InvalidResponse, format!("unusable response from {}: {why}", names.server))
}
