//! The names of the statuses.

use std::ffi::{CStr, c_char};

use super::abi::guard;

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
    use crate::ffi::abi::status::exp_status;
    use crate::rules::error::Status;

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
