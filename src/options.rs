//! What one fetch asks for beside its user.

use std::sync::Arc;

use crate::cancel::{Cancel, Hook};
use crate::deadline::Limit;

/// Options of one fetch. What is unset is not sent, and the service's own default holds.
#[derive(Clone)]
pub struct FetchOptions {
    /// Whether the service records the assignment.
    pub tracks_assignment: Option<bool>,
    /// Whether the service records an exposure.
    pub tracks_exposure: Option<bool>,
    /// The flags to evaluate; none: all of them.
    pub flag_keys: Vec<String>,
    /// A bound on this fetch, beside the client's own.
    pub deadline: Limit,
    pub cancel: Option<Arc<Cancel>>,
    pub interrupt: Option<Arc<Hook>>,
}

impl Default for FetchOptions {
    fn default() -> Self {
        FetchOptions {
            tracks_assignment: None,
            tracks_exposure: None,
            flag_keys: Vec::new(),
            deadline: Limit::None,
            cancel: None,
            interrupt: None,
        }
    }
}
