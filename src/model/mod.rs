//! The words of the domain: the user who is asked about, and the variants that come back.
//!
//! Pure: text goes in, values and text come out; no I/O, no clock. One concession to C: a [`Variant`]
//! is lent to it in place, so it begins with a tag and knows the logger that misuse is reported to.
//!
//! - [`User`]: what is known of a user, and how it is written for the service (`user.rs`, on the
//!   `Object` of `object.rs`).
//! - [`Variants`], [`Variant`]: the service's answer (`variant.rs`), whose texts are [`Text`]s that
//!   C can read in place (`text.rs`). How a body is read is in `decode.rs`, and in `large.rs` if it is
//!   large; how a flag is found in `index.rs`, and who may end work that takes long in `checkpoint.rs`.
//! - [`Invalid`]: what was wrong with a piece of JSON (`invalid.rs`).
//! - `json.rs`: what all of them need of raw JSON.

mod checkpoint;
mod decode;
mod index;
mod invalid;
mod json;
mod large;
mod object;
mod text;
mod user;
mod variant;

pub use checkpoint::Checkpoint;
pub use decode::{Decoded, Undecoded};
pub use invalid::{Invalid, Kind};
pub use json::MAX_DEPTH;
pub use text::Text;
pub use user::{MAX_USER_BYTES, User};
pub use variant::{Variant, Variants};
