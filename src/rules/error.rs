//! What can go wrong with a fetch, in the terms the caller acts on.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use crate::rules::timings::Phase;

/// The class of a failure. The C status of the same name adds a number to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    InvalidArgument,
    Timeout,
    Network,
    Tls,
    HttpStatus,
    InvalidResponse,
    Canceled,
    Closed,
    QueueFull,
    Internal,
}

impl Status {
    pub const ALL: [Status; 10] = [
        Status::InvalidArgument,
        Status::Timeout,
        Status::Network,
        Status::Tls,
        Status::HttpStatus,
        Status::InvalidResponse,
        Status::Canceled,
        Status::Closed,
        Status::QueueFull,
        Status::Internal,
    ];

    /// Its name in metrics and log lines.
    pub fn name(self) -> &'static str {
        match self {
            Status::InvalidArgument => "invalid_argument",
            Status::Timeout => "timeout",
            Status::Network => "network",
            Status::Tls => "tls",
            Status::HttpStatus => "http_status",
            Status::InvalidResponse => "invalid_response",
            Status::Canceled => "canceled",
            Status::Closed => "closed",
            Status::QueueFull => "queue_full",
            Status::Internal => "internal",
        }
    }
}

/// A failed call: its status, one line that says what to do, and what is known beside it.
///
/// The message holds no API key and nothing of the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    pub status: Status,
    pub message: Cow<'static, str>,
    /// Where a timeout struck.
    pub phase: Option<Phase>,
    /// The status of the answer, when there was one.
    pub http_status: Option<u16>,
    /// How long the service asked to be left alone.
    pub retry_after: Option<Duration>,
    /// Whether the same fetch may succeed if it is tried again.
    pub retryable: bool,
}

impl Error {
    pub fn new(status: Status, message: impl Into<Cow<'static, str>>) -> Self {
        let retryable =
            matches!(status, Status::Timeout | Status::Network | Status::InvalidResponse);
        Error {
            status,
            message: message.into(),
            phase: None,
            http_status: None,
            retry_after: None,
            retryable,
        }
    }

    pub fn invalid_argument(message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(Status::InvalidArgument, message)
    }

    /// A bound that passed while the fetch was in `phase`.
    pub fn timeout(phase: Phase, message: impl Into<Cow<'static, str>>) -> Self {
        Error { phase: Some(phase), ..Error::new(Status::Timeout, message) }
    }

    /// An answer with another status than 200. Worth another attempt are 429 and what is no 4xx.
    pub fn http_status(code: u16, retry_after: Option<Duration>) -> Self {
        let hint = match code {
            401 | 403 => "; check the API key (it must be a server deployment key) and the zone",
            429 => "; the service asks for fewer requests",
            300..=399 => "; redirects are not followed: check server_url",
            _ => "",
        };
        Error {
            http_status: Some(code),
            retry_after,
            retryable: !(400..500).contains(&code) || code == 429,
            ..Error::new(
                Status::HttpStatus,
                format!("the service responded with HTTP status {code}{hint}"),
            )
        }
    }

    pub fn canceled() -> Self {
        Error::new(Status::Canceled, "the fetch was canceled by its caller")
    }

    pub fn closed() -> Self {
        Error::new(Status::Closed, "the client is closed; create a new one to fetch again")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_network_failures_and_unreadable_bodies_are_retryable_and_nothing_else_is() {
        let retryable: Vec<Status> =
            Status::ALL.into_iter().filter(|&status| Error::new(status, "").retryable).collect();
        assert_eq!(retryable, [Status::Timeout, Status::Network, Status::InvalidResponse]);
    }

    #[test]
    fn every_http_status_but_a_4xx_is_retryable_and_429_too() {
        for code in [100, 201, 204, 301, 304, 429, 500, 502, 503, 599] {
            assert!(Error::http_status(code, None).retryable, "{code}");
        }
        for code in [400, 401, 403, 404, 408, 413, 428, 430, 499] {
            assert!(!Error::http_status(code, None).retryable, "{code}");
        }
    }
}
