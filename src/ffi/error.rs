//! What a failure tells.

use std::ffi::c_char;
use std::ptr;

use super::abi::facts::exp_phase;
use super::abi::failure::{Failure, Report, exp_error};
use super::abi::guard;
use super::abi::handle::{find, give, give_reference, hold};
use super::abi::status::exp_status;
use crate::tag::Tag;

/// Returns the status that the call returned; EXP_OK for NULL. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_error_status(error: *const exp_error) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    let status = unsafe { read(error, None, |report| Some(report.error().status.into())) };
    let otherwise =
        if error.is_null() { exp_status::EXP_OK } else { exp_status::EXP_ERR_INVALID_ARGUMENT };
    status.unwrap_or(otherwise)
}

/// Returns one line that says what happened and what to do, without the API key and without any
/// data of the user; NULL for NULL. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_error_message(error: *const exp_error) -> *const c_char {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(error, ptr::null(), |report| report.message.as_ptr()) }
}

/// Returns the length of the message in bytes. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_error_message_length(error: *const exp_error) -> usize {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(error, 0, |report| report.message.len()) }
}

/// Returns the HTTP status of the last response; 0 if there was none. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_error_http_status(error: *const exp_error) -> i32 {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(error, 0, |report| report.error().http_status.map_or(0, i32::from)) }
}

/// Returns the number of attempts, the first included, even if it got no connection; 0 if the call
/// failed before the first. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_error_attempts(error: *const exp_error) -> u32 {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(error, 0, |report| report.failure.facts.attempts) }
}

/// Returns 1 if the same call may succeed later: after timeouts, network failures (except when a
/// proxy responded with 407), unusable responses, and every HTTP status but 4xx, from which 429 is
/// excepted. Otherwise 0. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_error_is_retryable(error: *const exp_error) -> i32 {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(error, 0, |report| report.error().retryable.into()) }
}

/// Returns how long the service asked to wait before the next request (Retry-After); 0 if it did
/// not. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_error_retry_after_millis(error: *const exp_error) -> u64 {
    let millis = |report: &Report| {
        let wait = report.error().retry_after.unwrap_or_default();
        u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
    };
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(error, 0, millis) }
}

/// Returns what the fetch was doing when its time ran out; EXP_PHASE_NONE if it failed otherwise.
/// Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_error_phase(error: *const exp_error) -> exp_phase {
    let none = exp_phase::EXP_PHASE_NONE;
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(error, none, |report| report.error().phase.map_or(none, Into::into)) }
}

/// Returns the microseconds spent in a phase (EXP_PHASE_...), over all attempts; 0 for any other
/// number. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_error_phase_micros(error: *const exp_error, phase: i32) -> u64 {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(error, 0, |report| report.failure.facts.phase_micros(phase)) }
}

/// Returns 1 if the last attempt used a kept-alive connection, otherwise 0. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_error_connection_reused(error: *const exp_error) -> i32 {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(error, 0, |report| report.failure.facts.connection_reused()) }
}

/// Returns a new reference to the same error, not necessarily at the same address; the caller owns
/// it. NULL for NULL. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_error_retain(error: *const exp_error) -> *mut exp_error {
    guard::value(ptr::null_mut(), || {
        // SAFETY: the contract of the boundary (mod.rs).
        let handle = unsafe { hold(error) }?;
        if handle.tag() == Tag::ERROR {
            return Ok(give_reference(handle));
        }
        let Failure { error, facts } = &handle.body.failure;
        Ok(give(Failure { error: error.clone(), facts: facts.clone() }.into()))
    })
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn read<T: Copy>(
    error: *const exp_error,
    otherwise: T,
    get: impl FnOnce(&Report) -> T,
) -> T {
    guard::value(otherwise, || {
        // SAFETY: by this function's contract.
        Ok(unsafe { find(error) }?.map_or(otherwise, |error| get(&error.body)))
    })
}
