//! Options of one fetch.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::abi::failure::exp_error;
use super::abi::guard;
use super::abi::handle::{Object, find, give};
use super::abi::settings::{Settings, rejection, set};
use super::abi::status::exp_status;
use super::abi::text::Chars;
use super::cancel::exp_cancel;
use crate::config;
use crate::machine::cancel::Hook;
use crate::machine::catch::outside;
use crate::remote::options::FetchOptions;
use crate::rules::error::Error;
use crate::tag::Tag;

/// Options for fetches. Any number of fetches may use the same options, also concurrently.
pub struct exp_fetch_options {
    _opaque: [u8; 0],
}

impl Object for exp_fetch_options {
    type Body = Settings<FetchOptions>;
    const TAG: Tag = Tag::FETCH_OPTIONS;
    const NAME: &'static str = "exp_fetch_options";
    const ARGUMENT: &'static str = "options";
}

/// A choice that may be left to the service.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum exp_choice {
    /// Not chosen: the service decides.
    EXP_UNSET = -1,
    EXP_FALSE = 0,
    EXP_TRUE = 1,
}

/// Decides whether the fetch on this thread goes on: 0 to continue, anything else to end it with
/// EXP_ERR_CANCELED.
pub type exp_interrupt_hook = Option<unsafe extern "C" fn(user_data: *mut c_void) -> i32>;

/// Creates options in which nothing is chosen; the caller owns them. NULL only after a defect.
/// Anytime.
#[unsafe(no_mangle)]
pub extern "C" fn exp_fetch_options_new() -> *mut exp_fetch_options {
    guard::value(std::ptr::null_mut(), || Ok(give(FetchOptions::default().into())))
}

/// Returns the first refusal of a value, borrowed; NULL if no value was refused. A fetch with these
/// options fails with it. Getter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_fetch_options_error(
    options: *const exp_fetch_options,
) -> *const exp_error {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { rejection(options) }
}

/// Chooses whether the service records the assignment: EXP_TRUE, EXP_FALSE or EXP_UNSET (the
/// default). Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_fetch_options_set_tracks_assignment(
    options: *mut exp_fetch_options,
    choice: i32,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        set(options, |options| {
            options.tracks_assignment = optional_bool("tracks_assignment", choice)?;
            Ok(())
        })
    }
}

/// Chooses whether the service records an exposure: EXP_TRUE, EXP_FALSE or EXP_UNSET (the default).
/// Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_fetch_options_set_tracks_exposure(
    options: *mut exp_fetch_options,
    choice: i32,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        set(options, |options| {
            options.tracks_exposure = optional_bool("tracks_exposure", choice)?;
            Ok(())
        })
    }
}

/// Adds a flag to evaluate; without any, all flags are evaluated. Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_fetch_options_add_flag_key(
    options: *mut exp_fetch_options,
    flag_key: *const c_char,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { add_flag_key(options, Chars::terminated(flag_key)) }
}

/// The same, with an explicit length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_fetch_options_add_flag_key_n(
    options: *mut exp_fetch_options,
    flag_key: *const c_char,
    length: usize,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe { add_flag_key(options, Chars::counted(flag_key, length)) }
}

/// # Safety
///
/// The contract of the boundary.
unsafe fn add_flag_key(options: *mut exp_fetch_options, flag_key: Chars) -> exp_status {
    // SAFETY: by this function's contract.
    unsafe { set(options, |options| options.flag_keys.add(flag_key.required("flag_key")?)) }
}

/// Limits the fetch as a whole, from the call to its return, in addition to the client's own
/// deadline: 0 to 86400000, or EXP_NO_LIMIT (the default). Setter. EXP_OK,
/// EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_fetch_options_set_deadline_millis(
    options: *mut exp_fetch_options,
    millis: u64,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        set(options, |options| {
            options.deadline = config::limit("deadline_millis", millis)?;
            Ok(())
        })
    }
}

/// Sets the token that cancels the fetch; NULL removes it. The options hold a reference of their
/// own; the caller still owns `cancel`. Setter. EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_fetch_options_set_cancel(
    options: *mut exp_fetch_options,
    cancel: *mut exp_cancel,
) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        set(options, |options| {
            options.cancel = find(cancel.cast_const())?.map(|cancel| Arc::clone(&cancel.body));
            Ok(())
        })
    }
}

/// Sets a hook that can interrupt a blocking fetch; NULL removes it. It runs on the thread of the
/// fetch, every 50 ms while that waits, and whenever a signal interrupts its wait for the network.
/// user_data remains the caller's, and must live as long as fetches with these options run. Setter.
/// EXP_OK, EXP_ERR_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_fetch_options_set_interrupt(
    options: *mut exp_fetch_options,
    interrupted: exp_interrupt_hook,
    user_data: *mut c_void,
) -> exp_status {
    let interrupt = interrupted.map(|hook| asking(hook, UserData(user_data)));
    // SAFETY: the contract of the boundary (mod.rs).
    unsafe {
        set(options, |options| {
            options.interrupt = interrupt;
            Ok(())
        })
    }
}

fn asking(hook: unsafe extern "C" fn(*mut c_void) -> i32, user_data: UserData) -> Arc<Hook> {
    // SAFETY: the host promised that its hook can be called with its user_data.
    Arc::new(move || outside(|| unsafe { hook(user_data.get()) }) != 0)
}

/// What the host gets back with its callbacks.
#[derive(Clone, Copy)]
pub struct UserData(pub *mut c_void);

// SAFETY: the library only passes it along; by contract, the host stands getting it on any thread.
unsafe impl Send for UserData {}
// SAFETY: as for `Send`.
unsafe impl Sync for UserData {}

impl UserData {
    /// A method, so that closures capture the whole value, which is `Send`, and not the pointer.
    pub fn get(self) -> *mut c_void {
        self.0
    }
}

/// Checks a choice that need not be made.
fn optional_bool(name: &str, choice: i32) -> Result<Option<bool>, Error> {
    if choice == exp_choice::EXP_UNSET as i32 {
        return Ok(None);
    }
    bool_of(choice).map(Some).ok_or_else(|| {
        Error::invalid_argument(format!(
            "{name} must be EXP_TRUE (1), EXP_FALSE (0) or EXP_UNSET (-1), but is {choice}"
        ))
    })
}

/// Checks a choice that has to be made.
pub fn required_bool(name: &str, choice: i32) -> Result<bool, Error> {
    bool_of(choice).ok_or_else(|| {
        Error::invalid_argument(format!(
            "{name} must be EXP_TRUE (1) or EXP_FALSE (0), but is {choice}"
        ))
    })
}

fn bool_of(choice: i32) -> Option<bool> {
    match choice {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}
