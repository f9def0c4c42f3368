//! The numbers of the statuses.

use std::ffi::{CStr, c_char};

use super::guard;
use crate::error::Status;

/// What came of a call. The numbers are fixed and never used again for something else.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum exp_status {
    EXP_OK = 0,
    /// An argument or a setting is not what it must be; the message names it. Final.
    EXP_ERR_INVALID_ARGUMENT = 1,
    /// A time limit expired: waiting for a connection or for the answer. The message tells which.
    EXP_ERR_TIMEOUT = 2,
    /// The connection could not be made, or ended.
    EXP_ERR_NETWORK = 3,
    /// The certificate or the protocol was refused. Final.
    EXP_ERR_TLS = 4,
    /// The service answered with another status than 200: exp_error_http_status.
    EXP_ERR_HTTP_STATUS = 5,
    /// The answer is not valid HTTP or JSON.
    EXP_ERR_INVALID_RESPONSE = 6,
    /// You ended it, by an exp_cancel or an interrupt hook. Final.
    EXP_ERR_CANCELED = 7,
    /// The client is closing. Final.
    EXP_ERR_CLOSED = 8,
    /// Too many fetches are pending. Final.
    EXP_ERR_QUEUE_FULL = 9,
    /// A defect in the library was caught; the message is worth a report. Final.
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

/// The name of a status, like "EXP_ERR_TIMEOUT"; "EXP_ERR_UNKNOWN" for an unknown number.
/// Static, never NULL. Anytime.
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
