//! The C boundary: the only room that names `c_char`.
//!
//! Every function of `include/experiment.h`, which is generated from this room, is here under its
//! C name, a plain function of a line or three. What they have in common is in `abi/`, which knows none
//! of the objects:
//!
//! - `guard.rs`: no panic gets out, none is printed;
//! - `handle.rs`: objects as C holds them, and out parameters;
//! - `text.rs`: strings in and out;
//! - `settings.rs`: objects that are set up step by step and remember the first refusal;
//! - `failure.rs`, `status.rs`, `facts.rs`: what is told of a failure, and of any fetch.
//!
//! Each object has a file, and `free.rs`, above them, frees all of them.
//!
//! Three rules make the `unsafe` here short. An object is an [`Arc`](std::sync::Arc) whose first
//! word is its tag, and what C can reach at once from several threads is `Sync`; the one `&mut` of
//! this room, in `settings.rs`, ends within its setter. Whoever blocks or calls the host holds a
//! reference of its own, and no borrow of settings. And each unsafe block relies on the contract
//! below and nothing else: a pointer is NULL or leads to what the signature says or to another live
//! object of this library, texts and outs are valid for the call.
//!
//! Documentation of public items is written for readers of C: cbindgen copies it to the header,
//! which opens with this contract:
//!
//! ```text
#![doc = include_str!("contract.txt")]
//! ```
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]
// The documentation is for readers of C, who write [optional] things in brackets.
#![allow(rustdoc::broken_intra_doc_links)]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

// In the order in which the header has them.
mod version;

mod status;

mod config;

mod user;

mod options;

mod cancel;

mod client;

mod pending;

mod completions;

mod variants;

mod error;

mod text;

mod free;

mod abi;

#[cfg(feature = "test-panic")]
mod test_panic;

pub use abi::facts::exp_phase;
pub use abi::failure::exp_error;
pub use abi::status::exp_status;
pub use cancel::*;
pub use client::*;
pub use completions::*;
pub use config::*;
pub use error::*;
pub use free::exp_free;
pub use options::*;
pub use pending::*;
pub use status::*;
#[cfg(feature = "test-panic")]
pub use test_panic::*;
pub use text::*;
pub use user::*;
pub use variants::*;
pub use version::*;
