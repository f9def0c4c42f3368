//! What one fetch asks for beside its user.

use std::sync::Arc;

use crate::machine::cancel::{Cancel, Hook};
use crate::rules::deadline::Limit;
use crate::rules::error::Error;

/// Options of one fetch. What is unset is not sent, and the service's own default holds.
#[derive(Clone)]
pub struct FetchOptions {
    /// Whether the service records the assignment.
    pub tracks_assignment: Option<bool>,
    /// Whether the service records an exposure.
    pub tracks_exposure: Option<bool>,
    /// The flags to evaluate; none: all of them.
    pub flag_keys: FlagKeys,
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
            flag_keys: FlagKeys::default(),
            deadline: Limit::None,
            cancel: None,
            interrupt: None,
        }
    }
}

/// Keys of flags, as many as one header can hold.
#[derive(Clone, Debug, Default)]
pub struct FlagKeys(Vec<String>);

impl FlagKeys {
    /// Bytes of all keys together, as a JSON array. In base64 they take a third more, which is beyond
    /// what most servers take in one header.
    pub const MAX_BYTES: usize = 8 << 10;

    /// Adds a key, or says that there is no room for it.
    pub fn add(&mut self, key: &str) -> Result<(), Error> {
        let bytes: usize = self.0.iter().map(|key| json_bytes(key)).sum();
        if bytes + json_bytes(key) > FlagKeys::MAX_BYTES {
            return Err(Error::invalid_argument(format!(
                "flag_key: all keys of a fetch together must not have more than {} bytes; \
                 fetch without keys and pick what you need",
                FlagKeys::MAX_BYTES
            )));
        }
        self.0.push(key.to_owned());
        Ok(())
    }

    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

/// What a key takes in the array at most: escapes of six bytes (also for what is not ASCII, see
/// `remote/vardata.rs`), its quotes and a comma.
fn json_bytes(key: &str) -> usize {
    let bytes = |char: char| match char {
        ' '..='}' if char != '"' && char != '\\' => 1,
        char => 6 * char.len_utf16(),
    };
    key.chars().map(bytes).sum::<usize>() + 3
}
