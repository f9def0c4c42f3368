//! Where a host finds the asynchronous fetches that are over.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use super::abi::guard;
use super::abi::handle::{Object, give, hold};
use super::abi::status::exp_status;
use super::pending::exp_pending;
use crate::config;
use crate::machine::clock;
use crate::machine::completions::Completions;
use crate::remote::pending::Pending;
use crate::rules::deadline::Deadline;
use crate::rules::error::{Error, Status};
use crate::tag::Tag;

/// A queue of finished asynchronous fetches, in the order in which they finished. Any number of
/// clients and threads may share one.
pub struct exp_completions {
    _opaque: [u8; 0],
}

impl Object for exp_completions {
    type Body = Arc<Completions<Arc<Pending>>>;
    const TAG: Tag = Tag::COMPLETIONS;
    const NAME: &'static str = "exp_completions";
    const ARGUMENT: &'static str = "completions";
}

/// Creates an empty queue; the caller owns it. NULL if no file descriptor is left. Anytime.
#[unsafe(no_mangle)]
pub extern "C" fn exp_completions_new() -> *mut exp_completions {
    guard::action(ptr::null_mut(), || {
        let completions = Completions::new().map_err(|error| {
            Error::new(Status::Internal, format!("no file descriptor can be created: {error}"))
        })?;
        Ok(give(completions))
    })
}

/// Returns a file descriptor for poll(2), epoll(7) and the like: readable while the queue is not
/// empty. It belongs to the queue: do not read, write or close it. -1 for NULL, and in a process
/// forked after the queue was created. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_completions_fd(completions: *mut exp_completions) -> c_int {
    guard::value(-1, || {
        // SAFETY: the contract of the boundary (mod.rs).
        Ok(unsafe { hold(completions.cast_const()) }?.body.fd())
    })
}

/// Removes the first fetch from the queue and returns it; NULL if the queue is empty. The caller
/// owns this reference, in addition to the one that it may have from the start, whose address
/// differs; compare exp_pending_user_data to tell fetches apart. Anytime; does not block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_completions_next(
    completions: *mut exp_completions,
) -> *mut exp_pending {
    guard::action(ptr::null_mut(), || {
        // SAFETY: the contract of the boundary (mod.rs).
        let pending = unsafe { hold(completions.cast_const()) }?.body.next();
        Ok(pending.map_or(ptr::null_mut(), give))
    })
}

/// Waits until the queue is not empty. timeout_millis is 0 to 86400000, or EXP_NO_LIMIT. Anytime.
/// EXP_OK, EXP_ERR_TIMEOUT, EXP_ERR_INVALID_ARGUMENT; EXP_ERR_CANCELED in a process forked after
/// the queue was created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_completions_wait(
    completions: *mut exp_completions,
    timeout_millis: u64,
) -> exp_status {
    guard::status(|| {
        // SAFETY: the contract of the boundary (mod.rs).
        let completions = unsafe { hold(completions.cast_const()) }?;
        let limit = config::limit("timeout_millis", timeout_millis)?;
        if completions.body.is_inherited() {
            return Err(Error::canceled());
        }
        match completions.body.wait(Deadline::after(clock::now(), limit)) {
            true => Ok(()),
            false => Err(Error::new(Status::Timeout, "no fetch has finished yet")),
        }
    })
}
