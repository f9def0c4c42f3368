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
//! | [`remote`] | remote evaluation: the fetches of a client in one process, and who has which connection |
//! | [`transport`] | one exchange over one connection: HTTP/1.1, TLS, proxies, names |
//! | [`config`] | the settings of a client |
//! | [`model`] | users and variants |
//! | [`machine`] | system calls, locks, threads, clocks, cancellation, log lines |
//! | [`rules`] | decisions and arithmetic, which are pure: one fetch, whose turn it is, retries, deadlines |
//! | [`tag`] | the mark on objects that C holds |
#![deny(unsafe_code)]

pub mod client;
pub mod config;
pub mod ffi;
pub mod machine;
pub mod model;
pub mod remote;
pub mod rules;
pub mod tag;
#[cfg(not(feature = "simulation"))]
pub mod transport;
#[cfg(feature = "simulation")]
#[path = "../tests/simulation/transport.rs"]
pub mod transport;
