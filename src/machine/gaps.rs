//! How much a fetch does between two looks at its bounds, for `make test-gaps`: time of its thread's
//! processor, and bytes. Without the feature `count-gaps`, which is never shipped, all of it is empty.

#[cfg(feature = "count-gaps")]
mod count;

#[cfg(feature = "count-gaps")]
pub use self::count::{Gap, did, fetch, look, outside, totals, worst};

/// What bytes are worked on for.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Taken from the system.
    Received,
    /// Handed to the system.
    Sent,
    Decrypted,
    Encrypted,
    /// Heads and framing read.
    Framed,
    /// Taken into a body, unpacked or not.
    Body,
    Decoded,
    /// A user or a request written.
    Encoded,
}

/// Nothing of a count.
#[cfg(not(feature = "count-gaps"))]
pub struct Nothing;

/// This thread is inside a fetch until the guard is dropped.
#[cfg(not(feature = "count-gaps"))]
#[inline(always)]
pub fn fetch() -> Nothing {
    Nothing
}

/// What runs until the guard is dropped is the host's, and counts for nothing.
#[cfg(not(feature = "count-gaps"))]
#[inline(always)]
pub fn outside() -> Nothing {
    Nothing
}

/// The deadline, the switch and the hook are looked at here.
#[cfg(not(feature = "count-gaps"))]
#[inline(always)]
pub fn look() {}

/// So many bytes were worked on.
#[cfg(not(feature = "count-gaps"))]
#[inline(always)]
pub fn did(_: Work, _: usize) {}
