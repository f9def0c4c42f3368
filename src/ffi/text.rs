//! Strings in and out.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::{ptr, slice, str};

use super::guard;
use super::handle::{Object, find, null};
use crate::rules::error::Error;
use crate::tag::Tag;

/// A text that the host passes: NUL-terminated, or counted.
#[derive(Clone, Copy)]
pub struct Chars<'a> {
    start: *const c_char,
    /// Without one, a NUL ends it.
    length: Option<usize>,
    host: PhantomData<&'a [u8]>,
}

impl<'a> Chars<'a> {
    /// # Safety
    ///
    /// `start` is NULL, or a NUL-terminated string that does not change during `'a`.
    pub unsafe fn terminated(start: *const c_char) -> Self {
        Chars { start, length: None, host: PhantomData }
    }

    /// # Safety
    ///
    /// `start` is NULL, or leads to `length` bytes that do not change during `'a`.
    pub unsafe fn counted(start: *const c_char, length: usize) -> Self {
        Chars { start, length: Some(length), host: PhantomData }
    }

    /// The text, or none for NULL.
    pub fn optional(self, argument: &str) -> Result<Option<&'a str>, Error> {
        let Some(bytes) = self.bytes(argument)? else { return Ok(None) };
        str::from_utf8(bytes).map(Some).map_err(|error| {
            let valid = error.valid_up_to();
            Error::invalid_argument(format!("{argument} is not UTF-8 after byte {valid}"))
        })
    }

    /// The text; NULL is an error.
    pub fn required(self, argument: &str) -> Result<&'a str, Error> {
        self.optional(argument)?.ok_or_else(|| null(argument))
    }

    /// The bytes, whether they are UTF-8 or not; NULL is an error.
    pub fn required_bytes(self, argument: &str) -> Result<&'a [u8], Error> {
        self.bytes(argument)?.ok_or_else(|| null(argument))
    }

    fn bytes(self, argument: &str) -> Result<Option<&'a [u8]>, Error> {
        let refused = |why| Err(Error::invalid_argument(format!("{argument} {why}")));
        match self.length {
            None | Some(0) if self.start.is_null() => Ok(None),
            Some(_) if self.start.is_null() => refused("is NULL, but its length is not 0"),
            Some(length) if length > isize::MAX as usize => refused("has an impossible length"),
            // SAFETY: by the contract of `counted`; the length is one that a slice can have.
            Some(length) => Ok(Some(unsafe { slice::from_raw_parts(self.start.cast(), length) })),
            // SAFETY: by the contract of `terminated`.
            None => Ok(Some(unsafe { CStr::from_ptr(self.start) }.to_bytes())),
        }
    }
}

/// A text of ours that C can read.
pub struct Terminated(Box<str>);

impl From<String> for Terminated {
    fn from(mut text: String) -> Self {
        text.push('\0');
        Terminated(text.into_boxed_str())
    }
}

impl Terminated {
    pub fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }

    /// Without the NUL that ends it.
    pub fn len(&self) -> usize {
        self.0.len() - 1
    }
}

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
