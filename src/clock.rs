//! What time it is: asked here alone, so that a simulation can answer.

use std::time::Instant;

/// The time that bounds are measured by.
pub fn now() -> Instant {
    Instant::now()
}
