//! A mock of the evaluation service: answers as the service does, or as a [`Script`] tells it,
//! with any fault a network can have, and remembers what it was sent.
//!
//! ```
//! use mock_service::{Answer, MockService, Script, Step};
//!
//! let service = MockService::start(Script::answers([
//!     Answer::reply(429, &[("Retry-After", "1")], "slow down"),
//!     Answer::service().delayed(20).then(Step::Close),
//! ]));
//! assert!(service.url().starts_with("http://127.0.0.1:"));
//! assert_eq!(service.connections_open(), 0);
//! ```
//!
//! The map, from the outside in:
//!
//! - `service`: the handle that tests hold, and the accept loop;
//! - `connection`: one connection, from its opening to its end;
//! - `stage`: what these share;
//! - `script`: what the service is told to play; `bytes`: how a script spells bytes;
//! - `request`: reading one request; `record`: what was seen;
//! - `variants`: what the service answers when not told otherwise; `response`: putting it in HTTP;
//! - `unreachable`: addresses at which nothing ever answers;
//! - `socket`: the few things std cannot say to a socket.

mod bytes;
mod connection;
mod record;
mod request;
mod response;
mod script;
mod service;
mod socket;
mod stage;
mod unreachable;
mod variants;

pub use bytes::Bytes;
pub use record::Record;
pub use request::Request;
pub use script::{After, Answer, Keep, Script, Step};
pub use service::MockService;
pub use unreachable::BlackHole;
