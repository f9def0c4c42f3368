//! The switch that ends fetches.

use std::sync::Arc;

use super::abi::guard;
use super::abi::handle::{Object, give, peek};
use crate::machine::cancel::Cancel;
use crate::machine::sys;
use crate::tag::Tag;

/// A cancellation token. Firing it ends every fetch that carries it, running or yet to start. See
/// exp_fetch_options_set_cancel.
pub struct exp_cancel {
    _opaque: [u8; 0],
}

impl Object for exp_cancel {
    type Body = Arc<Cancel>;
    const TAG: Tag = Tag::CANCEL;
    const NAME: &'static str = "exp_cancel";
    const ARGUMENT: &'static str = "cancel";
}

/// Creates a token that has not fired; the caller owns it. NULL only after a defect. Anytime.
#[unsafe(no_mangle)]
pub extern "C" fn exp_cancel_new() -> *mut exp_cancel {
    guard::value(std::ptr::null_mut(), || Ok(give(Cancel::new())))
}

/// Ends every fetch that carries the token, with EXP_ERR_CANCELED; it stays fired. NULL is ignored.
/// Anytime; does not wait for the fetches to end. The only function that may be called in a signal
/// handler, even in one that interrupts a call of this library: it is async-signal-safe and
/// preserves errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_cancel_fire(cancel: *mut exp_cancel) {
    // No guard: it has a thread-local, whose memory is made when a thread first asks for it. Nothing
    // here panics; and no reference is taken, as the last one may not be given up in a handler.
    // SAFETY: the contract of the boundary (mod.rs).
    if let Some(cancel) = unsafe { peek(cancel.cast_const()) } {
        sys::keeping_errno(|| cancel.body.fire());
    }
}
