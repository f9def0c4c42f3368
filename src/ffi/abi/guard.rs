//! What the functions of the boundary return when their bodies fail, by an error or by a panic. Nor does
//! pthread_cancel(3) end one half-way.

use super::failure::{Failure, exp_error};
use super::handle::Out;
use super::status::exp_status;
use crate::machine::catch::catch;
use crate::machine::sys::uncanceled;
use crate::rules::error::Error;

/// Runs the body of a function that tells its failures by an error object.
pub fn report(error_out: Out<exp_error>, body: impl FnOnce() -> Result<(), Failure>) -> exp_status {
    let failure = match uncanceled(|| catch(body)) {
        Ok(Ok(())) => return exp_status::EXP_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => panic.into(),
    };
    let status = failure.error.status.into();
    error_out.set(failure);
    status
}

/// Runs the body of a function that tells its failures by the status alone.
pub fn status(body: impl FnOnce() -> Result<(), Error>) -> exp_status {
    match uncanceled(|| catch(body)) {
        Ok(Ok(())) => exp_status::EXP_OK,
        Ok(Err(error)) | Err(error) => error.status.into(),
    }
}

/// Runs the body of a function that has nothing to tell its failures by, and makes system calls or
/// calls the host.
pub fn action<T>(otherwise: T, body: impl FnOnce() -> Result<T, Error>) -> T {
    uncanceled(|| value(otherwise, body))
}

/// Runs the body of a function that has nothing to tell its failures by, and does nothing that is a
/// cancellation point.
pub fn value<T>(otherwise: T, body: impl FnOnce() -> Result<T, Error>) -> T {
    match catch(body) {
        Ok(Ok(value)) => value,
        Ok(Err(_)) | Err(_) => otherwise,
    }
}
