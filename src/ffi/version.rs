//! The version of the library, from Cargo.toml alone; build.rs makes the macros of the header.

use std::ffi::{CStr, c_char};

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version holds no NUL"),
    };

const NUMBER: u32 = part(env!("CARGO_PKG_VERSION_MAJOR")) << 16
    | part(env!("CARGO_PKG_VERSION_MINOR")) << 8
    | part(env!("CARGO_PKG_VERSION_PATCH"));

const fn part(text: &str) -> u32 {
    match u8::from_str_radix(text, 10) {
        Ok(part) => part as u32,
        Err(_) => panic!("each part of the version has one byte in the version's number"),
    }
}

/// Returns the version of the library at run time, such as "1.2.3"; EXP_VERSION_STRING is the
/// version of this header. Static, never NULL. Anytime.
#[unsafe(no_mangle)]
pub extern "C" fn exp_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Returns the same version as a number, 0xMMmmpp; compare with EXP_VERSION_NUMBER. Anytime.
#[unsafe(no_mangle)]
pub extern "C" fn exp_version_number() -> u32 {
    NUMBER
}
