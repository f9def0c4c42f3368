//! What the library needs of the machine: system calls, locks, threads, clocks, cancellation, log lines.

pub mod alarm;
pub mod cancel;
pub mod catch;
#[cfg(not(feature = "simulation"))]
pub mod clock;
#[cfg(feature = "simulation")]
#[path = "../../tests/simulation/clock.rs"]
pub mod clock;
pub mod completions;
pub mod executor;
pub mod gaps;
pub mod life;
pub mod logger;
pub mod sync;
pub mod sys;
