//! Strings that the library makes for the host.

use std::ffi::c_char;
use std::ptr;

use super::abi::guard;
use super::abi::handle::{Object, find};
use super::abi::text::Terminated;
use crate::tag::Tag;

/// A string that a function created for you.
pub struct exp_text {
    _opaque: [u8; 0],
}

impl Object for exp_text {
    type Body = Terminated;
    const TAG: Tag = Tag::TEXT;
    const NAME: &'static str = "exp_text";
    const ARGUMENT: &'static str = "text";
}

/// Returns the string, borrowed; NULL for NULL. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_text_value(text: *const exp_text) -> *const c_char {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(text, ptr::null(), Terminated::as_ptr) }
}

/// Returns its length in bytes; 0 for NULL. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_text_length(text: *const exp_text) -> usize {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { read(text, 0, Terminated::len) }
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn read<T: Copy>(
    text: *const exp_text,
    otherwise: T,
    get: impl FnOnce(&Terminated) -> T,
) -> T {
    guard::value(otherwise, || {
        // SAFETY: by this function's contract.
        Ok(unsafe { find(text) }?.map_or(otherwise, |text| get(&text.body)))
    })
}
