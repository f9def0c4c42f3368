//! The seam to the operating system: every system call that std does not offer, behind safe
//! functions. Linux is what is compiled and run; another system gets its own version of this room.
//!
//! Waits here are measured by `Instant::now` and not by `crate::machine::clock`: the kernel knows no simulated
//! time, and `clock` itself is built on this room. With `ffi/`, the only place where `unsafe` is allowed.
#![allow(unsafe_code)]

mod event;
mod fork;
mod poll;
mod socket;
mod thread;
mod time;
mod wake;

use std::io;

pub use self::event::EventFd;
pub use self::fork::{Descriptors, Enlisted, Ours, fork_generation};
pub use self::poll::{Interest, MAX_SOURCES, wait_ready};
pub use self::socket::{Lookup, begin_connect, look_up, receive, send};
pub use self::thread::{join_until, spawn, stay_uncanceled, uncanceled};
#[cfg(feature = "count-gaps")]
pub use self::time::thread_time;
pub use self::time::{boot_time, monotonic_time};
pub use self::wake::{Latch, LatchGuard, futex_wait, futex_wake, keeping_errno};

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
