//! What the targets share.

pub mod json;
pub mod service;
