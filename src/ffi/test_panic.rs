//! A function that panics, for the tests of the guard; in no build that is shipped.

use super::abi::failure::exp_error;
use super::abi::guard;
use super::abi::handle::Out;
use super::abi::status::exp_status;

/// cbindgen:ignore
#[unsafe(no_mangle)]
pub unsafe extern "C" fn exp_test_panic(error_out: *mut *mut exp_error) -> exp_status {
    // SAFETY: the contract of the boundary (mod.rs).
    guard::report(unsafe { Out::new(error_out) }, || panic!("a test\nof two lines"))
}
