//! Work that may take long, and that somebody may want to end.

/// Asks, every so much work, whether to go on.
pub struct Checkpoint<'a> {
    go_on: Option<&'a mut dyn FnMut(usize) -> bool>,
    /// Bytes until it is asked again.
    left: usize,
}

/// Somebody wanted the work to end.
#[derive(Debug)]
pub struct Stopped;

impl<'a> Checkpoint<'a> {
    /// Some 100 µs of work: small answers, which are most, are not worth a look at the clock.
    pub(super) const INTERVAL: usize = 32 << 10;

    /// `go_on` is told how many bytes have been worked on since it was asked last.
    pub fn while_told(go_on: &'a mut dyn FnMut(usize) -> bool) -> Self {
        Checkpoint { go_on: Some(go_on), left: Checkpoint::INTERVAL }
    }

    /// To the end, whatever happens.
    pub const fn unhurried() -> Self {
        Checkpoint { go_on: None, left: 0 }
    }

    /// So many bytes have been worked on.
    pub fn spent(&mut self, bytes: usize) -> Result<(), Stopped> {
        let Some(go_on) = &mut self.go_on else { return Ok(()) };
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
            return Ok(());
        }
        let worked = Checkpoint::INTERVAL - self.left + bytes;
        self.left = Checkpoint::INTERVAL;
        if go_on(worked) { Ok(()) } else { Err(Stopped) }
    }
}
