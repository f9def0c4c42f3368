//! libexperiment: bounded fetches of feature-flag variants from Amplitude Experiment.
#![deny(unsafe_code)]

pub mod cancel;
pub mod config;
pub mod deadline;
pub mod error;
pub mod logger;
pub mod metrics;
pub mod options;
pub mod pool;
pub mod retry;
pub mod schedule;
pub mod sync;
pub mod sys;
pub mod timings;
pub mod transport;
