//! A panic inside the library: what the host gets, and that nothing is printed.
#![cfg(feature = "test-panic")]

use std::env;
use std::ffi::CStr;
use std::panic;
use std::process::Command;
use std::ptr;

use experiment::ffi::*;

/// Set for the child that has its standard error looked at.
const CHILD: &str = "EXPERIMENT_TEST_PANICS";

#[test]
fn a_panic_is_an_error_and_silent_and_the_hosts_own_are_neither() {
    if env::var_os(CHILD).is_some() {
        return panic_twice();
    }
    for backtrace in ["0", "1", "full"] {
        let name = "a_panic_is_an_error_and_silent_and_the_hosts_own_are_neither";
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .env("RUST_BACKTRACE", backtrace)
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}");
        assert!(!printed.contains("a test"), "{printed}");
        assert_eq!(printed.matches("the host's own").count(), 1, "{printed}");
    }
}

fn panic_twice() {
    for _ in 0..2 {
        let mut error = ptr::null_mut();
        // SAFETY: `error` can be written to, and is freed once.
        unsafe {
            assert_eq!(exp_test_panic(&mut error), exp_status::EXP_ERR_INTERNAL);
            assert_eq!(exp_error_status(error), exp_status::EXP_ERR_INTERNAL);
            let message = CStr::from_ptr(exp_error_message(error)).to_str().unwrap();
            assert!(message.contains("a test of two lines (at src/ffi/test_panic.rs"), "{message}");
            exp_free(error.cast());
            assert_eq!(exp_test_panic(ptr::null_mut()), exp_status::EXP_ERR_INTERNAL);
        }
    }
    panic::catch_unwind(|| panic!("the host's own")).unwrap_err();
}

#[test]
fn a_call_in_the_middle_of_a_panic_of_the_hosts_is_answered() {
    struct Calls;
    impl Drop for Calls {
        fn drop(&mut self) {
            // SAFETY: the error's out may be NULL.
            let status = unsafe { exp_test_panic(ptr::null_mut()) };
            assert_eq!(status, exp_status::EXP_ERR_INTERNAL);
        }
    }
    panic::catch_unwind(|| {
        let _calls = Calls;
        panic!("the host's own");
    })
    .unwrap_err();
}
