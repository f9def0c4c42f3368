//! What time it is: asked here alone, but by `sys`, so that a simulation can answer.

use std::time::{Duration, Instant};

use crate::machine::sys;

/// The time that bounds are measured by. It stands still while the machine sleeps.
pub fn now() -> Instant {
    Instant::now()
}

/// How long the machine has slept since it was started.
pub fn slept() -> Duration {
    // In this order, so that it is never more than it was.
    let boot = sys::boot_time();
    boot.saturating_sub(sys::monotonic_time())
}

/// A moment by a clock that goes on while the machine sleeps: what ages are measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootInstant(Duration);

impl BootInstant {
    pub fn now() -> Self {
        BootInstant(sys::boot_time())
    }

    /// How much later this is than `earlier`; zero if it is not.
    pub fn since(self, earlier: BootInstant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub fn elapsed(self) -> Duration {
        BootInstant::now().since(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_ages_goes_on_with_the_other_one() {
        let (began, at) = (BootInstant::now(), now());
        while now() - at < Duration::from_millis(5) {}
        assert!(began.elapsed() >= Duration::from_millis(5));
        assert_eq!(began.since(BootInstant::now()), Duration::ZERO);
        let slept = slept();
        assert!(super::slept() - slept < Duration::from_secs(1), "it does not sleep meanwhile");
    }
}
