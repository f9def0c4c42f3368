//! Decisions and arithmetic: what comes next, and when. Pure: the time comes in as an argument, and nothing
//! waits, locks or asks the system.

pub mod deadline;
pub mod dispatch;
pub mod error;
pub mod fetch;
pub mod metrics;
pub mod pool;
pub mod retry;
pub mod schedule;
pub mod timings;
