//! libexperiment: bounded fetches of feature-flag variants from Amplitude Experiment.
#![deny(unsafe_code)]

pub mod cancel;
pub mod client;
pub mod config;
pub mod deadline;
pub mod error;
pub mod fetch;
pub mod ffi;
pub mod logger;
pub mod metrics;
pub mod model;
pub mod options;
pub mod pool;
pub mod retry;
pub mod schedule;
pub mod sync;
pub mod sys;
pub mod tag;
pub mod timings;
pub mod transport;
