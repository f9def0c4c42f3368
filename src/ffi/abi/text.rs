//! Strings in and out.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::{slice, str};

use super::handle::null;
use crate::rules::error::Error;

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
