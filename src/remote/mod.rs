//! Remote evaluation: fetches of variants from the service, as a client has them running in one process.

pub mod connections;
mod decode;
pub mod options;
pub mod pending;
pub mod session;
mod vardata;
