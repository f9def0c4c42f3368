//! What an answer of the service comes to: its variants, or why it has none.

use crate::machine::gaps::{self, Work};
use crate::model::{Checkpoint, Undecoded, Variants};
use crate::rules::error::{Error, Status};
use crate::rules::fetch::TOO_LONG_TO_DECODE;
use crate::rules::metrics::Metrics;
use crate::rules::timings::Phase;

/// Decodes the body of an answer as long as `go_on` says so. Tells how many entries were left out.
pub fn decode(
    body: Vec<u8>,
    metrics: &Metrics,
    mut go_on: impl FnMut() -> bool,
) -> Result<(Variants, usize), Error> {
    let mut asked = |bytes| {
        gaps::did(Work::Decoded, bytes);
        gaps::look();
        go_on()
    };
    let decoded = Variants::decode(body, Checkpoint::while_told(&mut asked));
    let decoded = decoded.map_err(|undecoded| match undecoded {
        Undecoded::Stopped => Error::timeout(Phase::Body, TOO_LONG_TO_DECODE),
        Undecoded::Invalid(invalid) => {
            Error::new(Status::InvalidResponse, format!("unusable response: {invalid}"))
        }
    })?;
    metrics.entries_skipped.add(decoded.skipped as u64);
    Ok((decoded.variants, decoded.skipped))
}
