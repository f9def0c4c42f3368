//! Where a host finds the asynchronous fetches that are over.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use super::guard;
use super::handle::{Object, give, hold};
use super::pending::exp_pending;
use super::status::exp_status;
use crate::clock;
use crate::completions::Completions;
use crate::config;
use crate::deadline::Deadline;
use crate::error::{Error, Status};
use crate::pending::Pending;
use crate::tag::Tag;

/// A queue of asynchronous fetches that are over, in the order in which they ended. Used by any
/// number of clients and threads.
pub struct exp_completions {
    _opaque: [u8; 0],
}

impl Object for exp_completions {
    type Body = Arc<Completions<Arc<Pending>>>;
    const TAG: Tag = Tag::COMPLETIONS;
    const NAME: &'static str = "exp_completions";
    const ARGUMENT: &'static str = "completions";
}

/// Creates an empty queue; the caller owns it. NULL if the process has no descriptor left. Anytime.
#[unsafe(no_mangle)]
pub extern "C" fn exp_completions_new() -> *mut exp_completions {
    guard::action(ptr::null_mut(), || {
        let completions = Completions::new().map_err(|error| {
            Error::new(Status::Internal, format!("no descriptor can be made: {error}"))
        })?;
        Ok(give(completions))
    })
}

/// A descriptor for poll(2), epoll(7) and their kin: readable while the queue is not empty. It
/// belongs to the queue: do not read, write or close it. -1 for NULL, and in a process forked after
/// the queue was created, where it is the parent's. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_completions_fd(completions: *mut exp_completions) -> c_int {
    guard::value(-1, || {
        // SAFETY: the contract of the boundary (mod.rs).
        Ok(unsafe { hold(completions.cast_const()) }?.body.fd())
    })
}

/// Takes the fetch that ended first out of the queue. The caller owns the reference, whether it
/// kept the one from the start or not; it is not at the same address, so tell fetches apart by
/// exp_pending_user_data. NULL if the queue is empty. Anytime; waits for nothing.
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

/// Waits until the queue is not empty. 0 to 86400000, or EXP_NO_LIMIT. Anytime. EXP_OK,
/// EXP_ERR_TIMEOUT, EXP_ERR_INVALID_ARGUMENT; EXP_ERR_CANCELED in a process
/// forked after the queue was created.
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
            false => Err(Error::new(Status::Timeout, "no fetch has ended yet")),
        }
    })
}
