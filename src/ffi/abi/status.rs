//! The numbers of the statuses.

use crate::rules::error::Status;

/// The result of a call. Numbers are fixed and never reused. The library retries no failure that is
/// final.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum exp_status {
    EXP_OK = 0,
    /// An argument or a setting is invalid; the message names it. Final.
    EXP_ERR_INVALID_ARGUMENT = 1,
    /// A time limit expired; the message says which, and what the call was waiting for.
    EXP_ERR_TIMEOUT = 2,
    /// The host name was not found, or the connection failed, was closed, or was refused by a proxy
    /// (final if it responded with 407).
    EXP_ERR_NETWORK = 3,
    /// The certificate was rejected, or TLS failed otherwise. Final.
    EXP_ERR_TLS = 4,
    /// The service responded with a status other than 200; see exp_error_http_status. Final for
    /// 4xx, except 429.
    EXP_ERR_HTTP_STATUS = 5,
    /// The response is truncated, too large, or not valid HTTP or JSON.
    EXP_ERR_INVALID_RESPONSE = 6,
    /// You canceled the fetch: by exp_pending_cancel, an exp_cancel or an interrupt hook. Final.
    EXP_ERR_CANCELED = 7,
    /// The client is closing or closed. Final.
    EXP_ERR_CLOSED = 8,
    /// Too many asynchronous fetches are pending, or no thread can be started for them. Final.
    EXP_ERR_QUEUE_FULL = 9,
    /// A defect in the library; please report the message. Final.
    EXP_ERR_INTERNAL = 10,
}

impl From<Status> for exp_status {
    fn from(status: Status) -> Self {
        match status {
            Status::InvalidArgument => exp_status::EXP_ERR_INVALID_ARGUMENT,
            Status::Timeout => exp_status::EXP_ERR_TIMEOUT,
            Status::Network => exp_status::EXP_ERR_NETWORK,
            Status::Tls => exp_status::EXP_ERR_TLS,
            Status::HttpStatus => exp_status::EXP_ERR_HTTP_STATUS,
            Status::InvalidResponse => exp_status::EXP_ERR_INVALID_RESPONSE,
            Status::Canceled => exp_status::EXP_ERR_CANCELED,
            Status::Closed => exp_status::EXP_ERR_CLOSED,
            Status::QueueFull => exp_status::EXP_ERR_QUEUE_FULL,
            Status::Internal => exp_status::EXP_ERR_INTERNAL,
        }
    }
}
