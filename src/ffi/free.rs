//! Freeing objects, of whatever type: the one function that knows all of them.

use std::ffi::c_void;
use std::sync::Arc;

use super::abi::failure::exp_error;
use super::abi::guard;
use super::abi::handle::{Handle, Object, tag_of};
use super::cancel::exp_cancel;
use super::client::exp_client;
use super::completions::exp_completions;
use super::config::exp_config;
use super::options::exp_fetch_options;
use super::pending::exp_pending;
use super::text::exp_text;
use super::user::exp_user;
use super::variants::{self, exp_variants};
use crate::tag::Tag;

/// Releases one reference to an object of any type. NULL and borrowed objects are ignored; freeing
/// an exp_variant is also logged if its client still exists and has a log callback.
/// When a client is freed, it begins to close: new fetches are refused, those that wait end with
/// EXP_ERR_CLOSED, those that run go on; its memory is released with the last of them. A finalizer
/// of yours may run inside. Any thread; does not block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_free(object: *mut c_void) {
    guard::action((), || {
        if !object.is_null() {
            // SAFETY: the contract of the boundary (mod.rs).
            unsafe { free(object) }
        }
        Ok(())
    })
}

/// # Safety
///
/// `object` leads to a live object of this library, and if it is not borrowed, the host owns a
/// reference to it.
unsafe fn free(object: *mut c_void) {
    // SAFETY: by this function's contract, in all of them; each tag is borne by handles of one kind.
    unsafe {
        match tag_of(object) {
            Some(Tag::CONFIG) => give_up::<exp_config>(object),
            Some(Tag::CLIENT) => give_up::<exp_client>(object),
            Some(Tag::USER) => give_up::<exp_user>(object),
            Some(Tag::FETCH_OPTIONS) => give_up::<exp_fetch_options>(object),
            Some(Tag::VARIANTS) => give_up::<exp_variants>(object),
            Some(Tag::ERROR) => give_up::<exp_error>(object),
            Some(Tag::PENDING) => give_up::<exp_pending>(object),
            Some(Tag::COMPLETIONS) => give_up::<exp_completions>(object),
            Some(Tag::CANCEL) => give_up::<exp_cancel>(object),
            Some(Tag::TEXT) => give_up::<exp_text>(object),
            Some(Tag::VARIANT) => variants::log_freed(object.cast()),
            _ => {}
        }
    }
}

/// # Safety
///
/// `object` leads to a live handle of that kind, and the host owns a reference to it.
unsafe fn give_up<O: Object>(object: *mut c_void) {
    // SAFETY: the host's reference came from `Arc::into_raw`.
    let handle = unsafe { Arc::from_raw(object.cast::<Handle<O>>()) };
    O::given_up(&handle.body);
}
