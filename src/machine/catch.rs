//! No panic gets out, and none is printed.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::machine::sys;
use crate::rules::error::{Error, Status};

thread_local! {
    /// Whether the code that runs on this thread is ours, called by the host.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic of ours happened.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs code of ours; a panic becomes an error.
pub fn catch<T>(body: impl FnOnce() -> T) -> Result<T, Error> {
    if cfg!(feature = "simulation") {
        return Ok(body()); // there a panic is what a test has found
    }
    install_hook();
    let outer = INSIDE.replace(true);
    // What a panic leaves half-done is behind locks, whose users know (see `crate::machine::sync`).
    let result = catch_unwind(AssertUnwindSafe(body));
    INSIDE.set(outer);
    result.map_err(|payload| defect(payload.as_ref()))
}

/// Runs code of the host's, whose panics, if it is written in Rust, are its own affair. It cannot be
/// canceled (pthread_cancel) there either, as that would unwind through ours.
pub fn outside<T>(callback: impl FnOnce() -> T) -> T {
    let inner = INSIDE.replace(false);
    let result = callback();
    sys::stay_uncanceled();
    INSIDE.set(inner);
    result
}

/// Makes panics under our guard silent; all others go to the hook that was there before.
///
/// Whoever comes second does not wait for the first, as it would in a child forked meanwhile.
fn install_hook() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    // In a panic of the host's the hook cannot be changed, and need not be until the next call.
    if INSTALLED.load(Ordering::Relaxed) || std::thread::panicking() {
        return;
    }
    if INSTALLED.swap(true, Ordering::Relaxed) {
        return;
    }
    let previous = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if INSIDE.get() {
            let place = panic.location().map(ToString::to_string);
            // At the end of a thread there is no place for it any more.
            let _ = PLACE.try_with(|kept| kept.replace(place));
        } else {
            previous(panic);
        }
    }));
}

/// What the caller is told of a panic: one line.
fn defect(payload: &(dyn Any + Send)) -> Error {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text");
    let place = PLACE.try_with(RefCell::take).ok().flatten();
    let place = place.unwrap_or_else(|| "an unknown place".to_owned());
    let message = format!("a defect in libexperiment, please report it: {text} (at {place})");
    Error::new(Status::Internal, message.replace(char::is_control, " "))
}
