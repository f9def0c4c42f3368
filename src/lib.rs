//! libexperiment: bounded fetches of feature-flag variants from Amplitude Experiment.
//!
//! A fetch goes through this crate from top to bottom of this list, and a module knows those below it;
//! only the threads of asynchronous fetches, once started, work for the session above them.
//! (`docs/architecture.md` follows one fetch from the C call to the socket.)
//!
//! | module | what it is for |
//! |---|---|
//! | [`ffi`] | the C boundary: types in and out; its functions are the header |
//! | [`client`] | the client, across forks: one session per process |
//! | [`session`] | what a client has running in one process; drives a fetch on its caller's thread, or on a worker |
//! | [`executor`], [`pending`], [`completions`] | asynchronous fetches: their threads, each of them, and where they are found when over |
//! | [`connections`] | the one lock: who leases which connection, who waits, who is woken |
//! | [`dispatch`] | what waits for what, threads and asynchronous fetches alike, as a state machine |
//! | [`fetch`] | one fetch as a state machine: what comes next |
//! | [`pool`] | whose turn it is, as a state machine |
//! | [`transport`] | one exchange over one connection: HTTP/1.1, TLS, proxies, names |
//! | [`retry`], [`schedule`] | whether another attempt is worth it, and the arithmetic of time |
//! | [`model`] | users and variants |
//! | [`config`], [`options`], [`error`], [`timings`] | what is asked for, and what is told |
//! | [`cancel`], [`alarm`], [`deadline`] | what ends a fetch early, and when it ends at the latest |
//! | [`metrics`], [`logger`], [`contain`] | what can be seen from outside, and the panics that cannot |
//! | [`gaps`] | how much is done between two looks at the clock, for a test |
//! | [`sync`], [`clock`], [`sys`], [`tag`] | locks and threads, time, system calls, and the mark on objects that C holds |
#![deny(unsafe_code)]

pub mod alarm;
pub mod cancel;
pub mod client;
#[cfg(not(feature = "simulation"))]
pub mod clock;
#[cfg(feature = "simulation")]
#[path = "../tests/simulation/clock.rs"]
pub mod clock;
pub mod completions;
pub mod config;
pub mod connections;
pub mod contain;
pub mod deadline;
pub mod dispatch;
pub mod error;
pub mod executor;
pub mod fetch;
pub mod ffi;
pub mod gaps;
pub mod logger;
pub mod metrics;
pub mod model;
pub mod options;
pub mod pending;
pub mod pool;
pub mod retry;
pub mod schedule;
pub mod session;
pub mod sync;
pub mod sys;
pub mod tag;
pub mod timings;
#[cfg(not(feature = "simulation"))]
pub mod transport;
#[cfg(feature = "simulation")]
#[path = "../tests/simulation/transport.rs"]
pub mod transport;
