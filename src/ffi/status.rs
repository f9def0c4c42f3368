//! The numbers of the statuses.

use std::ffi::{CStr, c_char};

use super::guard;
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

/// Returns the name of a status, such as "EXP_ERR_TIMEOUT"; "EXP_ERR_UNKNOWN" for an unknown
/// number. Static, never NULL. Anytime.
#[unsafe(no_mangle)]
pub extern "C" fn exp_status_name(status: i32) -> *const c_char {
    guard::value(c"EXP_ERR_UNKNOWN".as_ptr(), || Ok(name(status).as_ptr()))
}

fn name(status: i32) -> &'static CStr {
    match status {
        0 => c"EXP_OK",
        1 => c"EXP_ERR_INVALID_ARGUMENT",
        2 => c"EXP_ERR_TIMEOUT",
        3 => c"EXP_ERR_NETWORK",
        4 => c"EXP_ERR_TLS",
        5 => c"EXP_ERR_HTTP_STATUS",
        6 => c"EXP_ERR_INVALID_RESPONSE",
        7 => c"EXP_ERR_CANCELED",
        8 => c"EXP_ERR_CLOSED",
        9 => c"EXP_ERR_QUEUE_FULL",
        10 => c"EXP_ERR_INTERNAL",
        _ => c"EXP_ERR_UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_number_and_its_name() {
        for (position, status) in Status::ALL.into_iter().enumerate() {
            let number = exp_status::from(status) as i32;
            assert_eq!(number, position as i32 + 1);
            assert_eq!(name(number).to_str().unwrap(), format!("{:?}", exp_status::from(status)));
            let core = format!("EXP_ERR_{}", status.name().to_ascii_uppercase());
            assert_eq!(name(number).to_str().unwrap(), core);
        }
        assert_eq!(name(11), c"EXP_ERR_UNKNOWN");
    }
}
