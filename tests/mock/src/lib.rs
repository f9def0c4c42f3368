//! The mock evaluation service.
