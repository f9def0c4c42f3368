//! A stand-in for the library, that panics and catches it, as the library does for its callers.
//! packaging/check-panics links it in the way of the library, to see that this still works then.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicI32, Ordering};

static DROPPED: AtomicI32 = AtomicI32::new(0);

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

fn panic_below(depth: u32) -> u32 {
    let _guard = Guard;
    if depth == 0 { panic!("on purpose") } else { panic_below(depth - 1) + 1 }
}

/// Panics eight frames down; how many destructors have run when it is caught.
#[unsafe(no_mangle)]
pub extern "C" fn exp_caught() -> i32 {
    DROPPED.store(0, Ordering::SeqCst);
    match catch_unwind(|| panic_below(std::hint::black_box(7))) {
        Ok(_) => -1,
        Err(_) => DROPPED.load(Ordering::SeqCst),
    }
}

/// The same on a thread of its own.
#[unsafe(no_mangle)]
pub extern "C" fn exp_caught_on_thread() -> i32 {
    std::thread::spawn(|| exp_caught()).join().unwrap_or(-1)
}
