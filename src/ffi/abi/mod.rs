//! What the objects of the boundary are made of: handles, texts, failures, statuses. It knows none of them.

pub mod facts;
pub mod failure;
pub mod guard;
pub mod handle;
pub mod settings;
pub mod status;
pub mod text;
