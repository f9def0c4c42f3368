//! Texts that C can read in place: all in one allocation, each with a NUL behind it.

use std::collections::TryReserveError;
use std::num::NonZeroU32;
use std::ops::Deref;

/// A text whose bytes in memory are followed by a NUL, so that its address is a C string. It may
/// hold NULs of its own, which is why it knows its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    terminated: &'a str,
}

impl<'a> Text<'a> {
    /// The text in front of the NUL that ends `terminated`.
    pub(super) fn new(terminated: &'a str) -> Self {
        debug_assert!(terminated.ends_with('\0'));
        Text { terminated }
    }

    pub fn as_str(self) -> &'a str {
        &self.terminated[..self.terminated.len() - 1]
    }

    /// The address of the first byte; the byte after the last is NUL.
    pub fn as_ptr(self) -> *const u8 {
        self.terminated.as_ptr()
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

/// Where a text lies in its `Texts`.
#[derive(Clone, Copy)]
pub(super) struct Span {
    start: u32,
    /// Behind the NUL, hence never zero, and an absent span takes no more room than a present one.
    end: NonZeroU32,
}

/// Many texts, one allocation.
pub(super) struct Texts(String);

impl Texts {
    /// Spans count in 32 bits.
    pub const MAX_BYTES: usize = u32::MAX as usize;

    pub fn with_capacity(bytes: usize) -> Result<Texts, TryReserveError> {
        let mut texts = String::new();
        texts.try_reserve_exact(bytes)?;
        Ok(Texts(texts))
    }

    /// Adds the text that `write` appends. All texts together must stay within `MAX_BYTES`.
    pub fn add(&mut self, write: impl FnOnce(&mut String)) -> Span {
        let start = self.begin();
        self.extend(write);
        self.end(start)
    }

    /// Begins a text that is added in pieces.
    pub fn begin(&self) -> usize {
        self.0.len()
    }

    pub fn push(&mut self, piece: &str) {
        self.0.push_str(piece);
    }

    pub fn extend(&mut self, write: impl FnOnce(&mut String)) {
        write(&mut self.0);
    }

    /// Ends the text that began there.
    pub fn end(&mut self, start: usize) -> Span {
        self.0.push('\0');
        let end = u32::try_from(self.0.len()).ok().and_then(NonZeroU32::new);
        Span { start: start as u32, end: end.expect("texts are bounded by their source") }
    }

    /// Forgets what was added since there were so many bytes.
    pub fn rewind(&mut self, bytes: usize) {
        self.0.truncate(bytes);
    }

    /// Forgets the text that was added last.
    pub fn take_back(&mut self, last: Span) {
        self.0.truncate(last.start as usize);
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The text's bytes, without the NUL. Cheaper than the text where it is only compared.
    pub fn bytes_of(&self, span: Span) -> &[u8] {
        &self.0.as_bytes()[span.start as usize..span.end.get() as usize - 1]
    }

    pub fn get(&self, span: Span) -> Text<'_> {
        Text::new(&self.0[span.start as usize..span.end.get() as usize])
    }

    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts_of(all: &[&str]) -> (Texts, Vec<Span>) {
        let mut texts = Texts::with_capacity(16).unwrap();
        let spans = all.iter().map(|text| texts.add(|out| out.push_str(text))).collect();
        (texts, spans)
    }

    #[test]
    fn every_text_is_followed_by_a_nul() {
        let (texts, spans) = texts_of(&["", "a", "é\0日", ""]);
        for (span, expected) in spans.into_iter().zip(["", "a", "é\0日", ""]) {
            let text = texts.get(span);
            assert_eq!(text, expected);
            let offset = text.as_ptr() as usize - texts.0.as_ptr() as usize;
            assert_eq!(texts.0.as_bytes()[offset + text.len()], 0);
        }
    }

    #[test]
    fn taking_back_forgets_the_last_text_alone() {
        let (mut texts, spans) = texts_of(&["kept", "gone"]);
        texts.take_back(spans[1]);
        assert_eq!(texts.get(spans[0]), "kept");
        assert_eq!(texts.bytes(), "kept".len() + 1);
    }

    #[test]
    fn an_absent_span_takes_no_more_room() {
        assert_eq!(size_of::<Option<Span>>(), 8);
    }
}
