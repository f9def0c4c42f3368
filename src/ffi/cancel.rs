//! The switch that ends fetches.

use std::sync::Arc;

use super::guard;
use super::handle::{Object, give, hold};
use crate::cancel::Cancel;
use crate::tag::Tag;

/// A switch that ends the fetches that carry it, now and from now on. See
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

/// A switch of yours, not fired. NULL only after a defect. Anytime.
#[unsafe(no_mangle)]
pub extern "C" fn exp_cancel_new() -> *mut exp_cancel {
    guard::value(std::ptr::null_mut(), || Ok(give(Cancel::new())))
}

/// Ends every fetch that carries the switch, with EXP_ERR_CANCELED; it stays fired. NULL does
/// nothing. Anytime; does not wait for the fetches to end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_cancel_fire(cancel: *mut exp_cancel) {
    guard::value((), || {
        // SAFETY: the contract of the boundary (mod.rs).
        unsafe { hold(cancel.cast_const()) }?.body.fire();
        Ok(())
    });
}
