//! libexperiment: bounded fetches of feature-flag variants from Amplitude Experiment.
#![deny(unsafe_code)]

pub mod deadline;
pub mod model;
pub mod tag;
