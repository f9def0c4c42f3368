//! Asynchronous fetches.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::abi::failure::{Failure, Report, exp_error};
use super::abi::guard;
use super::abi::handle::{Handle, Object, Out, borrowed, hold};
use super::abi::settings::snapshot;
use super::abi::status::exp_status;
use super::client::{exp_client, fetched_by, inside};
use super::completions::exp_completions;
use super::options::{UserData, exp_fetch_options};
use super::user::exp_user;
use super::variants::exp_variants;
use crate::client;
use crate::config;
use crate::machine::catch::outside;
use crate::machine::clock;
use crate::remote::pending::{NoOutcome, Pending, Sink};
use crate::rules::deadline::Deadline;
use crate::rules::error::{Error, Status};
use crate::tag::Tag;

/// One asynchronous fetch. Freeing it does not end the fetch; see exp_pending_cancel.
pub struct exp_pending {
    _opaque: [u8; 0],
}

impl Object for exp_pending {
    type Body = Arc<Pending>;
    const TAG: Tag = Tag::PENDING;
    const NAME: &'static str = "exp_pending";
    const ARGUMENT: &'static str = "pending";
}

/// Receives the result of an asynchronous fetch: on EXP_OK a set; otherwise NULL, the empty set,
/// and an error. Both are borrowed for the call; keep them with exp_variants_retain and
/// exp_error_retain.
pub type exp_fetch_callback = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        status: exp_status,
        variants: *const exp_variants,
        error: *const exp_error,
    ),
>;

/// Starts to fetch the variants of a user, and does not wait for them. If this returns EXP_OK,
/// `callback` runs exactly once, with the status, message and detail that exp_fetch_v2 would have;
/// otherwise never.
/// It runs on a thread of the library, never on this one, except that a fetch started in a callback
/// may get its own on the same thread, after that callback has returned. It may run before this
/// returns, but only after *pending_out is written. At most one callback more than the pool has
/// connections runs at once. One that blocks delays others; it changes their status only while as
/// many block as the pool has connections.
/// `user` and `options` as for exp_fetch_v2, but the interrupt hook is not used. `callback` must
/// not be NULL. `pending_out` may be NULL; otherwise the caller owns *pending_out, to cancel the
/// fetch or to wait for it. Anytime; reads `user` and `options` like a Getter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT, EXP_ERR_CLOSED, EXP_ERR_QUEUE_FULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_fetch_v2_async(
    client: *mut exp_client,
    user: *const exp_user,
    options: *const exp_fetch_options,
    callback: exp_fetch_callback,
    user_data: *mut c_void,
    pending_out: *mut *mut exp_pending,
    error_out: *mut *mut exp_error,
) -> exp_status {
    let data = UserData(user_data);
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        start(client, user, options, data, Out::new(pending_out), Out::new(error_out), |client| {
            let callback = callback.ok_or_else(|| super::abi::handle::null("callback"))?;
            let client = Arc::clone(client);
            let notify = move |fetched| notify(&client, callback, data, fetched);
            Ok(Sink::Callback(Box::new(notify)))
        })
    }
}

/// Starts to fetch the variants of a user, and does not wait for them. When the fetch has finished,
/// it appears in `completions`, which must not be NULL; no callback is called for it. Otherwise as
/// exp_fetch_v2_async. exp_pending_user_data returns `user_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_fetch_v2_submit(
    client: *mut exp_client,
    user: *const exp_user,
    options: *const exp_fetch_options,
    completions: *mut exp_completions,
    user_data: *mut c_void,
    pending_out: *mut *mut exp_pending,
    error_out: *mut *mut exp_error,
) -> exp_status {
    let data = UserData(user_data);
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        start(client, user, options, data, Out::new(pending_out), Out::new(error_out), |_| {
            let completions = hold(completions.cast_const())?;
            if completions.body.is_inherited() {
                return Err(Error::invalid_argument(
                    "completions was created before a fork; create another in this process",
                ));
            }
            Ok(Sink::Completions(Arc::clone(&completions.body)))
        })
    }
}

/// Ends the fetch with EXP_ERR_CANCELED, whether it waits for a connection, runs, or waits for its
/// next attempt. It is still delivered, once. Does nothing if the fetch has its result already.
/// NULL is ignored. Anytime; does not wait for the end. Not in a signal handler; use
/// exp_cancel_fire there. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_pending_cancel(pending: *mut exp_pending) -> exp_status {
    guard::status(|| {
        if pending.is_null() {
            return Ok(());
        }
        // SAFETY: the contract of the boundary (mod.rs).
        unsafe { hold(pending.cast_const()) }?.body.cancel();
        Ok(())
    })
}

/// Waits until the fetch has finished and its callback, if it has one, has returned; within that
/// callback, returns EXP_OK. timeout_millis is 0 to 86400000, or EXP_NO_LIMIT. Anytime. EXP_OK,
/// EXP_ERR_TIMEOUT, EXP_ERR_INVALID_ARGUMENT; EXP_ERR_CANCELED in a process forked after the fetch
/// was started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_pending_wait(
    pending: *mut exp_pending,
    timeout_millis: u64,
) -> exp_status {
    guard::status(|| {
        // SAFETY: the contract of the boundary (mod.rs).
        let pending = unsafe { hold(pending.cast_const()) }?;
        let limit = config::limit("timeout_millis", timeout_millis)?;
        if pending.body.is_inherited() {
            return Err(Error::canceled());
        }
        match pending.body.wait(Deadline::after(clock::now(), limit)) {
            true => Ok(()),
            false => Err(Error::new(Status::Timeout, "the fetch has not finished yet")),
        }
    })
}

/// Takes the result of a fetch that was found in its completions: its status, and on EXP_OK a set,
/// which the caller owns. It can be taken once. `variants_out` must not be NULL. Anytime. The
/// status of the fetch; EXP_ERR_INVALID_ARGUMENT if the fetch has not finished, or its result was
/// taken or passed to a callback; EXP_ERR_CANCELED in a process forked after the fetch was started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_pending_take(
    pending: *mut exp_pending,
    variants_out: *mut *mut exp_variants,
    error_out: *mut *mut exp_error,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    let (out, error_out) = unsafe { (Out::new(variants_out), Out::new(error_out)) };
    guard::report(error_out, || {
        // SAFETY: the contract of the boundary (mod.rs).
        let pending = unsafe { hold(pending.cast_const()) }?;
        let out = out.required("variants_out")?;
        let fetched = pending.body.take().map_err(no_outcome)?;
        out.set(fetched_by(pending.body.logger(), fetched)?);
        Ok(())
    })
}

/// Returns the user_data that the fetch was started with; NULL for NULL. Anytime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_pending_user_data(pending: *const exp_pending) -> *mut c_void {
    guard::value(ptr::null_mut(), || {
        // SAFETY: the contract of the boundary (mod.rs).
        Ok(ptr::with_exposed_provenance_mut(unsafe { hold(pending) }?.body.token))
    })
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn start(
    client: *mut exp_client,
    user: *const exp_user,
    options: *const exp_fetch_options,
    user_data: UserData,
    pending_out: Out<exp_pending>,
    error_out: Out<exp_error>,
    sink: impl FnOnce(&Arc<Handle<exp_client>>) -> Result<Sink, Error>,
) -> exp_status {
    guard::report(error_out, || {
        // SAFETY: by this function's contract.
        let (client, user, options) =
            unsafe { (hold(client.cast_const())?, snapshot(user)?, snapshot(options)?) };
        let token = user_data.get().expose_provenance();
        let pending = client.body.prepare(&user, &options, token, sink(&client)?)?;
        // Written before anyone can be told, and taken back if nobody will be.
        let handed_out = pending_out.set_and_keep(Arc::clone(&pending));
        client.body.start(&pending).inspect_err(|_| handed_out.take_back())?;
        Ok(())
    })
}

/// Calls the host, with what the fetch came to lent to it.
fn notify(
    client: &Arc<Handle<exp_client>>,
    callback: unsafe extern "C" fn(*mut c_void, exp_status, *const exp_variants, *const exp_error),
    user_data: UserData,
    fetched: client::Fetched,
) {
    let fetched = fetched_by(client.body.logger(), fetched);
    let _ = inside(client, || match fetched {
        Ok(fetched) => {
            let variants = Handle::<exp_variants>::new(Tag::BORROWED_VARIANTS, fetched);
            // SAFETY: the host promised that its callback can be called with its user_data; the
            // set is alive until it returns.
            outside(|| unsafe {
                callback(user_data.get(), exp_status::EXP_OK, borrowed(&variants), ptr::null());
            });
        }
        Err(failure) => {
            let status = failure.error.status.into();
            let error = Handle::<exp_error>::new(Tag::BORROWED_ERROR, Report::from(failure));
            // SAFETY: as above, for the error.
            outside(|| unsafe {
                callback(user_data.get(), status, ptr::null(), borrowed(&error));
            });
        }
    });
}

fn no_outcome(why: NoOutcome) -> Failure {
    Failure::from(match why {
        NoOutcome::NotYet => Error::invalid_argument("the fetch has not finished yet"),
        NoOutcome::Given => Error::invalid_argument(
            "the result of the fetch was taken before, or passed to its callback",
        ),
        NoOutcome::Inherited => Error::canceled(),
    })
}
