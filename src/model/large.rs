//! Reads the body of a large answer in pieces, with a look at the clock between any two of them: a
//! value may be as large as the body, and the parser reads one in one go.
//!
//! What is small is left to the parser, which knows the grammar. What is larger than a piece is taken
//! apart here: objects and arrays into their elements, texts into runs of characters that the parser
//! reads as texts of their own.

use std::borrow::Cow;

use serde::de::DeserializeSeed;
use serde_json::value::RawValue;

use super::decode::{Decoder, Fault, Name};
use super::invalid::Kind;
use super::json::{self, MAX_DEPTH};
use super::text::Span;
use super::variant::Spans;

/// From this size on a body is read in pieces.
pub const LARGE: usize = 256 << 10;

/// What is read in one go then. The names of an entry's fields are shorter, also with escapes.
pub const PIECE: usize = 64 << 10;

type Result<T> = std::result::Result<T, Fault>;

const NOT_JSON: Fault = Fault::Invalid(Kind::NotJson);
const CUT: Fault = Fault::Invalid(Kind::Cut);

/// What becomes of a value that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Its JSON is added to the texts.
    Keep,
    Skip,
}

/// A place in a body, on its way to the end.
pub struct Reader<'d, 'w, 'a, 'b> {
    decoder: &'d mut Decoder<'w, 'a>,
    body: &'b str,
    at: usize,
    piece: usize,
    /// A piece of a text, in quotes.
    quoted: String,
}

impl<'d, 'w, 'a, 'b> Reader<'d, 'w, 'a, 'b> {
    pub fn new(decoder: &'d mut Decoder<'w, 'a>, body: &'b str, piece: usize) -> Self {
        Reader { decoder, body, at: 0, piece, quoted: String::new() }
    }

    /// The body: an object of entries.
    pub fn read(&mut self) -> Result<()> {
        self.skip_space()?;
        if self.peek()? != b'{' {
            let rest = &self.body[self.at..];
            let is_other = rest.starts_with(['[', '"', '-'])
                || rest.starts_with(|first: char| first.is_ascii_digit())
                || ["true", "false", "null"].iter().any(|word| rest.starts_with(word));
            return Err(if is_other { Fault::Invalid(Kind::NotAnObject) } else { NOT_JSON });
        }
        self.at += 1;
        let mut first = true;
        while self.has_more(first, b'}')? {
            first = false;
            let flag_key = self.flag_key()?;
            self.colon()?;
            let entry = self.entry(flag_key)?;
            self.decoder.take_entry(flag_key, entry)?;
        }
        self.skip_space()?;
        if self.at == self.body.len() { Ok(()) } else { Err(NOT_JSON) }
    }

    fn flag_key(&mut self) -> Result<Span> {
        self.decoder.spend(size_of::<Spans>())?;
        if let Some(name) = self.small_name()? {
            return Ok(self.decoder.texts.add(|out| out.push_str(&name)));
        }
        self.large_text()
    }

    fn entry(&mut self, flag_key: Span) -> Result<Option<Spans>> {
        if let Some(value) = self.small()? {
            return self.decoder.small_entry(value, flag_key);
        }
        if self.peek()? != b'{' {
            self.copy(1, Use::Skip)?;
            return Ok(None);
        }
        self.at += 1;
        let mut entry = Spans { flag_key, key: None, value: None, payload: None, metadata: None };
        let mut first = true;
        while self.has_more(first, b'}')? {
            first = false;
            let name = self.small_name()?;
            if name.is_none() {
                // None of those below, but it must be a text.
                let name = self.large_text()?;
                self.decoder.texts.take_back(name);
            }
            self.colon()?;
            match name.as_deref() {
                Some("key") => entry.key = self.text()?,
                Some("value") => entry.value = self.text()?,
                Some("payload") => entry.payload = self.json()?,
                Some("metadata") => entry.metadata = self.json()?,
                _ => self.copy(2, Use::Skip)?,
            }
        }
        Ok(Some(entry))
    }

    /// The text of a value, or the JSON of what is no string; nothing for null.
    fn text(&mut self) -> Result<Option<Span>> {
        if let Some(value) = self.small()? {
            let value = raw(value)?;
            self.decoder.check_depth(value, 2)?;
            return self.decoder.add_text(value).ok_or(NOT_JSON);
        }
        if self.peek()? == b'"' { self.large_text().map(Some) } else { self.large_json().map(Some) }
    }

    /// The JSON of a value; nothing for null.
    fn json(&mut self) -> Result<Option<Span>> {
        if let Some(value) = self.small()? {
            let value = raw(value)?;
            self.decoder.check_depth(value, 2)?;
            return Ok(self.decoder.add_json(value));
        }
        self.large_json().map(Some)
    }

    fn large_json(&mut self) -> Result<Span> {
        let start = self.decoder.texts.begin();
        self.copy(2, Use::Keep)?;
        Ok(self.decoder.texts.end(start))
    }

    fn large_text(&mut self) -> Result<Span> {
        let start = self.decoder.texts.begin();
        self.pieces(|decoder, piece| {
            decoder.texts.push(&text_of(piece)?);
            Ok(())
        })?;
        Ok(self.decoder.texts.end(start))
    }

    /// Goes past a value that stands `levels` deep in the body.
    fn copy(&mut self, levels: usize, what: Use) -> Result<()> {
        // What ends each object and array that is open.
        let mut open: Vec<u8> = Vec::new();
        loop {
            let opened = self.copy_or_open(levels + open.len(), what)?;
            open.extend(opened);
            let mut first = opened.is_some();
            loop {
                let Some(&close) = open.last() else { return Ok(()) };
                if !self.has_more(first, close)? {
                    self.keep(what, if close == b'}' { "}" } else { "]" });
                    open.pop();
                    first = false;
                    continue;
                }
                if !first {
                    self.keep(what, ",");
                }
                if close == b'}' {
                    self.copy_name(what)?;
                }
                break;
            }
        }
    }

    /// Goes past a value, or into it if it is an object or an array that is large; then tells what
    /// ends it.
    fn copy_or_open(&mut self, levels: usize, what: Use) -> Result<Option<u8>> {
        if let Some(value) = self.small()? {
            let value = raw(value)?;
            self.decoder.check_depth(value, levels)?;
            if what == Use::Keep {
                self.decoder.texts.extend(|out| json::push_compact(out, value.get()));
            }
            return Ok(None);
        }
        let (open, close) = match self.peek()? {
            b'{' => ("{", b'}'),
            b'[' => ("[", b']'),
            b'"' => return self.copy_string(what).map(|()| None),
            _ => return self.copy_number(what).map(|()| None),
        };
        if levels >= MAX_DEPTH {
            return Err(Fault::Invalid(Kind::TooDeep));
        }
        self.keep(what, open);
        self.at += 1;
        Ok(Some(close))
    }

    fn copy_name(&mut self, what: Use) -> Result<()> {
        if self.peek()? != b'"' {
            return Err(NOT_JSON);
        }
        match self.small()? {
            Some(name) => {
                let name = raw(name)?;
                self.keep(what, name.get());
            }
            None => self.copy_string(what)?,
        }
        self.colon()?;
        self.keep(what, ":");
        Ok(())
    }

    fn copy_string(&mut self, what: Use) -> Result<()> {
        self.keep(what, "\"");
        self.pieces(|decoder, piece| {
            let piece = raw(piece)?.get();
            if what == Use::Keep {
                decoder.texts.push(&piece[1..piece.len() - 1]);
            }
            Ok(())
        })?;
        self.keep(what, "\"");
        Ok(())
    }

    /// A number whose digits do not end in one piece: `-`, digits, a fraction, an exponent.
    fn copy_number(&mut self, what: Use) -> Result<()> {
        self.copy_byte(what, |byte| byte == b'-');
        if !self.copy_byte(what, |byte| byte == b'0') {
            self.copy_digits(what)?;
        }
        if self.copy_byte(what, |byte| byte == b'.') {
            self.copy_digits(what)?;
        }
        if self.copy_byte(what, |byte| byte | 0x20 == b'e') {
            self.copy_byte(what, |byte| byte == b'+' || byte == b'-');
            self.copy_digits(what)?;
        }
        Ok(())
    }

    fn copy_byte(&mut self, what: Use, is_it: impl Fn(u8) -> bool) -> bool {
        let is_there = self.body.as_bytes().get(self.at).is_some_and(|&byte| is_it(byte));
        if is_there {
            self.keep(what, &self.body[self.at..=self.at]);
            self.at += 1;
        }
        is_there
    }

    fn copy_digits(&mut self, what: Use) -> Result<()> {
        let start = self.at;
        loop {
            let rest = &self.body[self.at..];
            let piece = &rest.as_bytes()[..rest.len().min(self.piece)];
            let digits = piece.iter().take_while(|byte| byte.is_ascii_digit()).count();
            self.keep(what, &rest[..digits]);
            self.at += digits;
            self.decoder.spend(digits)?;
            if digits < self.piece {
                return if self.at > start { Ok(()) } else { Err(NOT_JSON) };
            }
        }
    }

    /// Takes the string that begins here apart, and has each piece, in quotes, read by `each`.
    fn pieces(&mut self, mut each: impl FnMut(&mut Decoder, &str) -> Result<()>) -> Result<()> {
        self.at += 1;
        loop {
            let (end, is_last) = self.piece_end()?;
            self.quoted.clear();
            self.quoted.push('"');
            self.quoted.push_str(&self.body[self.at..end]);
            self.quoted.push('"');
            self.decoder.spend(self.quoted.len())?;
            each(self.decoder, &self.quoted)?;
            self.at = end;
            if is_last {
                self.at += 1;
                return Ok(());
            }
        }
    }

    /// Where a piece of a string ends: at its closing quote, or between two characters, of which an
    /// escape is one, and so are the two escapes of a surrogate pair.
    fn piece_end(&self) -> Result<(usize, bool)> {
        let bytes = self.body.as_bytes();
        let mut end = self.at;
        while end < self.at + self.piece || !self.body.is_char_boundary(end) {
            match bytes.get(end).ok_or(CUT)? {
                b'"' => return Ok((end, true)),
                b'\\' => end += escape_bytes(&bytes[end..]),
                _ => end += 1,
            }
        }
        // An escape that the body ends in.
        if end > bytes.len() { Err(CUT) } else { Ok((end, false)) }
    }

    /// The value that begins here, if it ends in a piece. Its brackets are in pairs; what else is
    /// right about it, the parser says.
    fn small(&mut self) -> Result<Option<&'b str>> {
        let start = self.at;
        let rest = &self.body.as_bytes()[start..];
        let window = &rest[..rest.len().min(self.piece)];
        let end = json::end_of_value(window);
        self.decoder.spend(end.unwrap_or(window.len()))?;
        match end {
            // At the very end of a window a number or a word may go on behind it.
            Some(end)
                if end < window.len()
                    || window.len() == rest.len()
                    || matches!(window[0], b'"' | b'{' | b'[') =>
            {
                self.at += end;
                let whole = self.body.get(start..self.at);
                whole.filter(|value| !value.is_empty()).map(Some).ok_or(NOT_JSON)
            }
            None if window.len() == rest.len() => Err(CUT),
            _ => Ok(None),
        }
    }

    /// The text of a name that is small.
    fn small_name(&mut self) -> Result<Option<Cow<'b, str>>> {
        if self.peek()? != b'"' {
            return Err(NOT_JSON);
        }
        let Some(name) = self.small()? else { return Ok(None) };
        text_of(name).map(Some)
    }

    /// Whether there is another element, after the opening bracket or after an element; goes to it,
    /// or past the closing bracket.
    fn has_more(&mut self, first: bool, close: u8) -> Result<bool> {
        self.skip_space()?;
        match self.peek()? {
            byte if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ if first => Ok(true),
            b',' => {
                self.at += 1;
                self.skip_space()?;
                if self.peek()? == close { Err(NOT_JSON) } else { Ok(true) }
            }
            _ => Err(NOT_JSON),
        }
    }

    fn colon(&mut self) -> Result<()> {
        self.skip_space()?;
        if self.peek()? != b':' {
            return Err(NOT_JSON);
        }
        self.at += 1;
        self.skip_space()
    }

    fn skip_space(&mut self) -> Result<()> {
        loop {
            let rest = &self.body.as_bytes()[self.at..];
            let piece = &rest[..rest.len().min(self.piece)];
            let space = piece.iter().take_while(|byte| b" \n\r\t".contains(byte)).count();
            self.at += space;
            if space < self.piece {
                return Ok(());
            }
            self.decoder.spend(space)?;
        }
    }

    fn peek(&self) -> Result<u8> {
        self.body.as_bytes().get(self.at).copied().ok_or(CUT)
    }

    fn keep(&mut self, what: Use, json: &str) {
        if what == Use::Keep {
            self.decoder.texts.push(json);
        }
    }
}

fn raw(json: &str) -> Result<&RawValue> {
    serde_json::from_str(json).map_err(|_| NOT_JSON)
}

fn text_of(string: &str) -> Result<Cow<'_, str>> {
    let mut parser = serde_json::Deserializer::from_str(string);
    Name.deserialize(&mut parser).map_err(|_| NOT_JSON)
}

/// The bytes of the escape that `bytes` begin with, and of the second one if it is the first of a
/// surrogate pair.
fn escape_bytes(bytes: &[u8]) -> usize {
    match bytes {
        [_, b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', _, _, b'\\', b'u', ..] => {
            12
        }
        [_, b'u', ..] => 6,
        _ => 2,
    }
}
