//! Work that may take long, and that somebody may want to end.

use crate::machine::gaps::{self, Work};

/// Asks, every so much work, whether to go on.
pub struct Pace<'a> {
    go_on: Option<&'a mut dyn FnMut() -> bool>,
    /// Bytes until it is asked again.
    left: usize,
}

/// Somebody wanted the work to end.
#[derive(Debug)]
pub struct Stopped;

impl<'a> Pace<'a> {
    /// Some 100 µs of work: small answers, which are most, are not worth a look at the clock.
    pub(super) const INTERVAL: usize = 32 << 10;

    pub fn while_told(go_on: &'a mut dyn FnMut() -> bool) -> Self {
        Pace { go_on: Some(go_on), left: Pace::INTERVAL }
    }

    /// To the end, whatever happens.
    pub const fn unhurried() -> Self {
        Pace { go_on: None, left: 0 }
    }

    /// So many bytes have been worked on.
    #[cfg_attr(feature = "count-gaps", track_caller)]
    pub fn spent(&mut self, bytes: usize) -> Result<(), Stopped> {
        gaps::did(Work::Decoded, bytes);
        let Some(go_on) = &mut self.go_on else { return Ok(()) };
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
            return Ok(());
        }
        self.left = Pace::INTERVAL;
        gaps::look();
        if go_on() { Ok(()) } else { Err(Stopped) }
    }
}
