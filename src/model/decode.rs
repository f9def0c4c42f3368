//! Reads the body of an answer, which is kept: in one pass, or in two if it is unusual.

use std::borrow::Cow;
use std::fmt;
use std::str::Utf8Error;
use std::sync::Arc;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::checkpoint::{Checkpoint, Stopped};
use super::index::{Index, Unindexed};
use super::invalid::{Invalid, Kind};
use super::json::{self, MAX_DEPTH};
use super::large::{LARGE, PIECE, Reader};
use super::text::{Span, Texts};
use super::variant::{Answer, SUBJECT, Spans, Variant, Variants};

/// What became of a body.
#[derive(Debug)]
pub struct Decoded {
    pub variants: Variants,
    /// How many entries were left out because they are no objects.
    pub skipped: usize,
}

/// Why nothing became of it.
#[derive(Debug)]
pub enum Undecoded {
    Invalid(Invalid),
    /// Somebody ended it.
    Stopped,
}

impl From<Invalid> for Undecoded {
    fn from(invalid: Invalid) -> Self {
        Undecoded::Invalid(invalid)
    }
}

impl From<Stopped> for Undecoded {
    fn from(_: Stopped) -> Self {
        Undecoded::Stopped
    }
}

impl Variants {
    /// Reads the body of an answer: one JSON object that has an object for each flag.
    ///
    /// Entries that are no objects are left out and counted, as if they had not been sent. Of
    /// several entries for one flag the last one counts, and so it does for fields.
    pub fn decode(body: Vec<u8>, checkpoint: Checkpoint) -> Result<Decoded, Undecoded> {
        let piece = (body.len() >= LARGE).then_some(PIECE);
        Variants::decode_by(body, piece, checkpoint)
    }

    /// In pieces of that size, or in one go.
    fn decode_by(
        body: Vec<u8>,
        piece: Option<usize>,
        mut checkpoint: Checkpoint,
    ) -> Result<Decoded, Undecoded> {
        let body = text(body, &mut checkpoint)?;
        let mut decoder = Decoder::new(body.len(), &mut checkpoint)?;
        match piece {
            None => decoder.read(&body)?,
            Some(piece) => decoder.read_in_pieces(&body, piece)?,
        }
        let Decoder { texts, mut entries, skipped, .. } = decoder;
        debug_assert!(texts.bytes() <= body.len());
        let sent = entries.len() + skipped;
        let by_flag_key = keep_last_of_each(&mut entries, &texts, &mut checkpoint)?;
        let is_answer = entries.len() == sent;
        let variants = variants(Answer::new(body, texts), entries, &mut checkpoint)?;
        Ok(Decoded { variants: Variants::new(variants, by_flag_key, is_answer), skipped })
    }
}

/// A body as text. To look whether a large one is text takes long by itself, and is done in pieces.
fn text(body: Vec<u8>, checkpoint: &mut Checkpoint) -> Result<String, Undecoded> {
    if body.len() <= Checkpoint::INTERVAL {
        return String::from_utf8(body).map_err(|error| not_utf8(error.utf8_error(), 0));
    }
    let mut text = String::new();
    text.try_reserve_exact(body.len()).map_err(|_| out_of_memory(body.len()))?;
    while text.len() < body.len() {
        let rest = &body[text.len()..];
        let piece = &rest[..rest.len().min(Checkpoint::INTERVAL)];
        let valid = match str::from_utf8(piece) {
            Ok(valid) => valid,
            // A character that does not end in this piece begins the next.
            Err(error) if error.error_len().is_none() && piece.len() < rest.len() => {
                str::from_utf8(&piece[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(error) => return Err(not_utf8(error, text.len())),
        };
        text.push_str(valid);
        checkpoint.spent(valid.len())?;
    }
    Ok(text)
}

fn not_utf8(error: Utf8Error, before: usize) -> Undecoded {
    let valid_bytes = before + error.valid_up_to();
    Invalid::new(SUBJECT, Kind::NotUtf8 { valid_bytes }).into()
}

/// Drops all but the last of the entries for each flag. Returns where those are that are left.
fn keep_last_of_each(
    entries: &mut Vec<Spans>,
    texts: &Texts,
    checkpoint: &mut Checkpoint,
) -> Result<Index, Undecoded> {
    loop {
        let flag_key_at = |at: usize| texts.bytes_of(entries[at].flag_key);
        let (mut earlier, mut has_room) = (Vec::new(), true);
        let remember = |at: usize| {
            has_room &= earlier.try_reserve(1).is_ok();
            if has_room {
                earlier.push(at);
            }
        };
        let index = Index::of(entries.len(), flag_key_at, remember, checkpoint);
        let index = index.map_err(|why| match why {
            Unindexed::Stopped => Undecoded::Stopped,
            Unindexed::OutOfMemory => out_of_memory(entries.len() * size_of::<u32>()).into(),
        })?;
        if earlier.is_empty() {
            return Ok(index);
        }
        // Positions change, so that the others are entered once more.
        let mut kept = Vec::new();
        if !has_room || kept.try_reserve_exact(entries.len()).is_err() {
            return Err(out_of_memory(entries.len() * size_of::<usize>()).into());
        }
        kept.resize(entries.len(), true);
        earlier.into_iter().for_each(|at| kept[at] = false);
        let mut left = 0;
        for at in 0..entries.len() {
            checkpoint.spent(size_of::<Spans>())?;
            if kept[at] {
                entries[left] = entries[at];
                left += 1;
            }
        }
        entries.truncate(left);
    }
}

fn variants(
    answer: Arc<Answer>,
    entries: Vec<Spans>,
    checkpoint: &mut Checkpoint,
) -> Result<Vec<Variant>, Undecoded> {
    let mut variants = Vec::new();
    // Where `Vec` would abort: an answer may be large.
    let reserved = variants.try_reserve_exact(entries.len());
    reserved.map_err(|_| out_of_memory(entries.len() * size_of::<Variant>()))?;
    for spans in entries {
        checkpoint.spent(size_of::<Variant>())?;
        variants.push(Variant::new(Arc::clone(&answer), spans));
    }
    Ok(variants)
}

fn out_of_memory(bytes: usize) -> Invalid {
    Invalid::new(SUBJECT, Kind::OutOfMemory { bytes })
}

/// Reads a body, the parser calling back for each entry.
pub(super) struct Decoder<'w, 'a> {
    pub texts: Texts,
    entries: Vec<Spans>,
    skipped: usize,
    checkpoint: &'w mut Checkpoint<'a>,
    /// The second pass, which takes what the first one may leave to it.
    careful: bool,
    /// Why the pass was stopped, if it was not the parser that did it.
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Invalid(Kind),
    Stopped,
}

impl<'w, 'a> Decoder<'w, 'a> {
    /// The texts of a body never need more room than the body: escapes are longer than what they
    /// stand for, and each text's NUL has the quotes or the colon that are left out.
    fn new(body_bytes: usize, checkpoint: &'w mut Checkpoint<'a>) -> Result<Self, Invalid> {
        if body_bytes > Texts::MAX_BYTES {
            let limit = Texts::MAX_BYTES;
            return Err(Invalid::new(SUBJECT, Kind::TooLarge { bytes: body_bytes, limit }));
        }
        let texts = Texts::with_capacity(body_bytes).map_err(|_| out_of_memory(body_bytes))?;
        Ok(Decoder {
            texts,
            entries: Vec::new(),
            skipped: 0,
            checkpoint,
            careful: false,
            fault: None,
        })
    }

    fn read(&mut self, body: &str) -> Result<(), Undecoded> {
        let mut read = parse(body, &mut *self);
        // A key or a value that is no string takes a second pass; and something that no entry would
        // have, like 1e999, may stand where none is wanted.
        if self.fault.is_none() && read.as_ref().is_err_and(|error| !error.is_eof()) {
            read = self.read_again(body);
        }
        let Err(error) = read else { return Ok(()) };
        Err(match self.fault {
            Some(Fault::Stopped) => Undecoded::Stopped,
            Some(Fault::Invalid(kind)) => Invalid::visiting(SUBJECT, kind, error).into(),
            None => Invalid::parsing(SUBJECT, error).into(),
        })
    }

    /// A large body, in pieces.
    fn read_in_pieces(&mut self, body: &str, piece: usize) -> Result<(), Undecoded> {
        Reader::new(self, body, piece).read().map_err(|fault| match fault {
            Fault::Stopped => Undecoded::Stopped,
            Fault::Invalid(kind) => Invalid::new(SUBJECT, kind).into(),
        })
    }

    /// An entry that is small.
    pub fn small_entry(&mut self, json: &str, flag_key: Span) -> Result<Option<Spans>, Fault> {
        let before = self.texts.bytes();
        for careful in [false, true] {
            self.careful = careful;
            let mut parser = serde_json::Deserializer::from_str(json);
            let read = if careful {
                <&RawValue>::deserialize(&mut parser).and_then(|value| {
                    self.check(value, 1)?;
                    let is_object = value.get().starts_with('{');
                    if is_object { self.entry_of(value, flag_key) } else { Ok(None) }
                })
            } else {
                Entry { decoder: self, flag_key }.deserialize(&mut parser)
            };
            if let Ok(entry) = read.and_then(|entry| parser.end().map(|()| entry)) {
                return Ok(entry);
            }
            if let Some(fault) = self.fault {
                return Err(fault);
            }
            self.texts.rewind(before);
        }
        Err(Fault::Invalid(Kind::NotJson))
    }

    /// From the beginning, and with a look at each entry before its value is read.
    fn read_again(&mut self, body: &str) -> serde_json::Result<()> {
        self.texts.clear();
        self.entries.clear();
        self.skipped = 0;
        self.careful = true;
        parse(body, LookAhead(self))
    }

    /// Reads the entry that is an object.
    fn entry_of<E: Error>(&mut self, value: &RawValue, flag_key: Span) -> Result<Option<Spans>, E> {
        let mut parser = serde_json::Deserializer::from_str(value.get());
        let entry = Entry { decoder: self, flag_key }.deserialize(&mut parser);
        // The grammar has been looked at, so that it is a text that is none. Where it stands in the
        // entry is not where it stands in the body.
        entry.map_err(|_| self.refuse(Kind::NotJson, json::LONE_SURROGATE))
    }

    fn entry_ended<E: Error>(&mut self, flag_key: Span, entry: Option<Spans>) -> Result<(), E> {
        let taken = self.take_entry(flag_key, entry);
        taken.map_err(|fault| self.refused(fault, "out of memory"))
    }

    /// Takes an entry in, or leaves it out if it came to nothing.
    pub fn take_entry(&mut self, flag_key: Span, entry: Option<Spans>) -> Result<(), Fault> {
        let Some(entry) = entry else {
            self.texts.take_back(flag_key);
            self.skipped += 1;
            return Ok(());
        };
        if self.entries.try_reserve(1).is_err() {
            let bytes = self.entries.len() * size_of::<Spans>();
            return Err(Fault::Invalid(Kind::OutOfMemory { bytes }));
        }
        self.entries.push(entry);
        Ok(())
    }

    fn begin_entry<E: Error>(&mut self, flag_key: &str) -> Result<Span, E> {
        self.spent(flag_key.len() + size_of::<Spans>())?;
        Ok(self.texts.add(|out| out.push_str(flag_key)))
    }

    /// Refuses what was just read, unless something in it was refused already.
    fn refuse<E: Error>(&mut self, kind: Kind, words: &str) -> E {
        self.refused(Fault::Invalid(kind), words)
    }

    fn refused<E: Error>(&mut self, fault: Fault, words: &str) -> E {
        self.fault.get_or_insert(fault);
        E::custom(words)
    }

    /// So much of the body has been read.
    pub fn spend(&mut self, bytes: usize) -> Result<(), Fault> {
        self.checkpoint.spent(bytes).map_err(|Stopped| Fault::Stopped)
    }

    fn spent<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.spend(bytes).map_err(|fault| self.refused(fault, "stopped"))
    }

    /// A value that stands `levels` deep in the body.
    pub fn check_depth(&mut self, value: &RawValue, levels: usize) -> Result<(), Fault> {
        self.spend(value.get().len())?;
        let is_too_deep = json::is_deeper_than(value.get(), MAX_DEPTH.saturating_sub(levels));
        if is_too_deep { Err(Fault::Invalid(Kind::TooDeep)) } else { Ok(()) }
    }

    fn check<E: Error>(&mut self, value: &RawValue, levels: usize) -> Result<(), E> {
        self.check_depth(value, levels).map_err(|fault| self.refused(fault, "stopped, or too deep"))
    }

    /// The next value of an entry, whatever it is.
    fn next_value<'de, M: MapAccess<'de>>(
        &mut self,
        map: &mut M,
    ) -> Result<&'de RawValue, M::Error> {
        let value = map.next_value()?;
        self.check(value, 2)?;
        Ok(value)
    }

    /// The JSON text of the next value; nothing for null.
    fn next_json<'de, M: MapAccess<'de>>(&mut self, map: &mut M) -> Result<Option<Span>, M::Error> {
        let value = self.next_value(map)?;
        Ok(self.add_json(value))
    }

    /// The text of the next value, or the JSON text of what is no string; nothing for null.
    fn next_text<'de, M: MapAccess<'de>>(&mut self, map: &mut M) -> Result<Option<Span>, M::Error> {
        if !self.careful {
            return map.next_value_seed(StringOrNull(self));
        }
        let value = self.next_value(map)?;
        let added = self.add_text(value);
        added.ok_or_else(|| self.refuse(Kind::NotJson, json::LONE_SURROGATE))
    }

    /// The text of a string, or the JSON text of what is none; nothing for null. None at all if the
    /// string is no text.
    pub fn add_text(&mut self, value: &RawValue) -> Option<Option<Span>> {
        if !value.get().starts_with('"') {
            return Some(self.add_json(value));
        }
        let text = json::text_of(value.get())?;
        Some(Some(self.texts.add(|out| out.push_str(&text))))
    }

    pub fn add_json(&mut self, value: &RawValue) -> Option<Span> {
        let json = value.get();
        (json != "null").then(|| self.texts.add(|out| json::push_compact(out, json)))
    }
}

/// The body: an object of entries.
impl<'de> Visitor<'de> for &mut Decoder<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(flag_key) = map.next_key_seed(Name)? {
            let flag_key = self.begin_entry(&flag_key)?;
            let entry = map.next_value_seed(Entry { decoder: self, flag_key })?;
            self.entry_ended(flag_key, entry)?;
        }
        Ok(())
    }
}

/// The body again: values are read only if they are objects.
struct LookAhead<'d, 'w, 'a>(&'d mut Decoder<'w, 'a>);

impl<'de> Visitor<'de> for LookAhead<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let LookAhead(decoder) = self;
        while let Some(flag_key) = map.next_key_seed(Name)? {
            let flag_key = decoder.begin_entry(&flag_key)?;
            let value: &RawValue = map.next_value()?;
            decoder.check(value, 1)?;
            let is_object = value.get().starts_with('{');
            let entry = if is_object { decoder.entry_of(value, flag_key)? } else { None };
            decoder.entry_ended(flag_key, entry)?;
        }
        Ok(())
    }
}

fn parse<'de>(body: &'de str, visitor: impl Visitor<'de, Value = ()>) -> serde_json::Result<()> {
    let mut parser = serde_json::Deserializer::from_str(body);
    parser.deserialize_map(visitor).and_then(|()| parser.end())
}

/// The name of a member, borrowed from the body unless it has escapes.
pub(super) struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Self::Value, D::Error> {
        parser.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

/// A string's text; nothing for null. Anything else is an error, and left to the second pass.
struct StringOrNull<'d, 'w, 'a>(&'d mut Decoder<'w, 'a>);

impl<'de> DeserializeSeed<'de> for StringOrNull<'_, '_, '_> {
    type Value = Option<Span>;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Self::Value, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StringOrNull<'_, '_, '_> {
    type Value = Option<Span>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or null")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        self.0.spent(text.len())?;
        Ok(Some(self.0.texts.add(|out| out.push_str(text))))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// One entry of the body: an object of fields, or something to be left out.
struct Entry<'d, 'w, 'a> {
    decoder: &'d mut Decoder<'w, 'a>,
    flag_key: Span,
}

impl<'de> DeserializeSeed<'de> for Entry<'_, '_, '_> {
    type Value = Option<Spans>;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Self::Value, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_, '_, '_> {
    type Value = Option<Spans>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let Entry { decoder, flag_key } = self;
        let mut entry = Spans { flag_key, key: None, value: None, payload: None, metadata: None };
        while let Some(name) = map.next_key_seed(Name)? {
            match &*name {
                "key" => entry.key = decoder.next_text(&mut map)?,
                "value" => entry.value = decoder.next_text(&mut map)?,
                "payload" => entry.payload = decoder.next_json(&mut map)?,
                "metadata" => entry.metadata = decoder.next_json(&mut map)?,
                _ => drop(decoder.next_value(&mut map)?),
            }
        }
        Ok(Some(entry))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut elements: S) -> Result<Self::Value, S::Error> {
        while let Some(element) = elements.next_element()? {
            self.decoder.check(element, 2)?;
        }
        Ok(None)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_asking(body: &str, mut go_on: impl FnMut() -> bool) -> Result<Decoded, Undecoded> {
        Variants::decode(body.as_bytes().to_vec(), Checkpoint::while_told(&mut |_| go_on()))
    }

    #[test]
    fn decoding_ends_when_told_wherever_it_is() {
        let entries: Vec<_> = (0..20_000).map(|i| format!(r#""{i}":{{"key":"on"}}"#)).collect();
        let skipped: Vec<_> = (0..20_000).map(|i| format!(r#""{i}":[1,2]"#)).collect();
        for body in [entries, skipped] {
            let body = format!("{{{}}}", body.join(","));
            let mut asked = 0;
            decode_asking(&body, || {
                asked += 1;
                true
            })
            .unwrap();
            assert!(asked > 10, "it is asked on the way");
            for end in 0..asked {
                let mut asked = 0;
                let decoded = decode_asking(&body, || {
                    asked += 1;
                    asked <= end
                });
                assert!(matches!(decoded, Err(Undecoded::Stopped)));
                assert_eq!(asked, end + 1, "it is not asked again");
            }
        }
    }

    #[test]
    fn a_large_answer_is_text_or_is_told_where_it_stops_being_text() {
        for before in Checkpoint::INTERVAL - 20..Checkpoint::INTERVAL + 4 {
            let flag = "é日".repeat(Checkpoint::INTERVAL);
            let body = format!(r#"{{{}"{flag}":{{"key":"on"}}}}"#, " ".repeat(before));
            let Decoded { variants, .. } = decode_asking(&body, || true).unwrap();
            assert_eq!(variants.at(0).unwrap().flag_key(), flag.as_str());

            let mut body = body.into_bytes();
            body.truncate(before + 10);
            let valid_bytes = str::from_utf8(&body).map_or_else(|e| e.valid_up_to(), str::len);
            body.push(0xff);
            body.resize(3 * Checkpoint::INTERVAL, b' ');
            let Err(Undecoded::Invalid(error)) = Variants::decode(body, Checkpoint::unhurried())
            else {
                panic!("text after {before} bytes");
            };
            assert_eq!(error.kind(), Kind::NotUtf8 { valid_bytes });
        }
    }

    #[test]
    fn what_stands_in_place_of_an_entry_refuses_no_other() {
        for other in ["1e999", r#""\ud800""#, "-0", "[1e999]", "[[]]", "null", r#"{"value":1e999}"#]
        {
            let body = format!(r#"{{"other":{other},"flag":{{"key":"on"}}}}"#);
            let Decoded { variants, skipped } = decode_asking(&body, || true).unwrap();
            assert_eq!(variants.get("flag").unwrap().key().unwrap(), "on", "{other}");
            assert_eq!(variants.len() + skipped, 2, "{other}");
        }
        for broken in ["1e", r#""\u12""#, "[1e999", "nul", "1e999 1"] {
            let body = format!(r#"{{"other":{broken},"flag":{{"key":"on"}}}}"#);
            let error = decode_asking(&body, || true).unwrap_err();
            assert!(matches!(error, Undecoded::Invalid(_)), "{broken}");
        }
    }

    #[test]
    fn what_stands_in_place_of_an_entry_changes_nothing_about_how_deep_others_may_be() {
        for other in ["0", "1e999"] {
            let decoded = |depth| {
                let payload = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
                let flag = format!(r#"{{"key":"on","payload":{payload}}}"#);
                decode_asking(&format!(r#"{{"other":{other},"flag":{flag}}}"#), || true)
            };
            assert_eq!(decoded(MAX_DEPTH - 2).unwrap().variants.len(), 1, "{other}");
            let Err(Undecoded::Invalid(error)) = decoded(MAX_DEPTH - 1) else { panic!("{other}") };
            assert_eq!(error.kind(), Kind::TooDeep, "{other}");
        }
    }

    /// What a body came to, told apart as far as a caller can.
    fn summary(decoded: Result<Decoded, Undecoded>) -> String {
        match decoded {
            Ok(Decoded { variants, skipped }) => {
                let all = variants.iter().map(|it| {
                    let texts = [it.key(), it.value(), it.payload_json(), it.metadata_json()];
                    format!(
                        "{:?} {:?}",
                        it.flag_key().as_str(),
                        texts.map(|it| it.map(|it| it.as_str().to_owned()))
                    )
                });
                format!("{:?} {skipped} {}", all.collect::<Vec<_>>(), variants.json().as_str())
            }
            Err(Undecoded::Stopped) => "stopped".to_owned(),
            // Of two things that are wrong with a body, the one that is found first is told.
            Err(Undecoded::Invalid(_)) => "invalid".to_owned(),
        }
    }

    /// A number below `end` that is as good as random (SplitMix64).
    fn below(state: &mut u64, end: usize) -> usize {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((z ^ (z >> 27)) % end as u64) as usize
    }

    fn push_value(out: &mut String, state: &mut u64, depth: usize) {
        const LEAVES: [&str; 16] = [
            "null",
            "true",
            "-0.5e+17",
            "0",
            "1e999",
            "12345678901234567890123",
            r#""""#,
            r#""a b, c""#,
            r#""\u0041\n\"\\""#,
            r#""\ud83d\ude00 é日""#,
            r#""\ud800""#,
            r#""\udc00x""#,
            r#""key""#,
            r#" [ ] "#,
            "{}",
            r#""\ud83d\u0041""#,
        ];
        match below(state, if depth > 4 { 4 } else { 8 }) {
            0..=3 => out.push_str(LEAVES[below(state, LEAVES.len())]),
            4..=5 => {
                out.push('[');
                for at in 0..below(state, 4) {
                    out.push_str(if at > 0 { ", " } else { "" });
                    push_value(out, state, depth + 1);
                }
                out.push(']');
            }
            _ => push_object(out, state, depth),
        }
    }

    fn push_object(out: &mut String, state: &mut u64, depth: usize) {
        const NAMES: [&str; 8] = [
            r#""key""#,
            r#""value""#,
            r#""payload""#,
            r#""metadata""#,
            r#""\u006bey""#,
            r#""other""#,
            r#""é\n""#,
            r#""a longer name than the others""#,
        ];
        out.push('{');
        for at in 0..below(state, 5) {
            out.push_str(if at > 0 { "," } else { "" });
            out.push_str(NAMES[below(state, NAMES.len())]);
            out.push_str([":", " : ", ":\n"][below(state, 3)]);
            push_value(out, state, depth + 1);
        }
        out.push('}');
    }

    #[test]
    fn a_body_is_the_same_in_pieces_of_any_size_as_in_one_go() {
        let mut state = 7;
        let mut good = 0;
        for _ in 0..20_000 {
            let mut body = String::new();
            push_object(&mut body, &mut state, 0);
            let mut body = body.into_bytes();
            match below(&mut state, 6) {
                0 => body.truncate(below(&mut state, body.len())),
                1 => {
                    let at = below(&mut state, body.len());
                    body[at] = b"\"{}[],:\\0ue- x\x01"[below(&mut state, 15)];
                }
                _ => {}
            }
            let piece = 12 + below(&mut state, 40);
            let whole = Variants::decode_by(body.clone(), None, Checkpoint::unhurried());
            good += u32::from(whole.is_ok());
            let pieces = Variants::decode_by(body.clone(), Some(piece), Checkpoint::unhurried());
            let text = String::from_utf8_lossy(&body);
            assert_eq!(summary(whole), summary(pieces), "{text} in pieces of {piece}");
        }
        assert!(good > 5_000, "{good}");
    }

    #[test]
    fn nothing_in_pieces_may_be_deeper_than_in_one_go() {
        for depth in MAX_DEPTH - 4..MAX_DEPTH + 2 {
            let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            for body in [
                format!(r#"{{"flag":{{"key":"on","payload":{nested}}}}}"#),
                format!(r#"{{"flag":{{"key":"on","other":{nested}}}}}"#),
                format!(r#"{{"flag":{nested}}}"#),
            ] {
                let whole = Variants::decode_by(body.clone().into(), None, Checkpoint::unhurried());
                for piece in [1, 7, 150, 300] {
                    let pieces = Variants::decode_by(
                        body.clone().into(),
                        Some(piece),
                        Checkpoint::unhurried(),
                    );
                    assert_eq!(whole.is_ok(), pieces.is_ok(), "{depth} in pieces of {piece}");
                }
            }
        }
    }

    /// However a large body is made up, little is done between two looks at the clock.
    #[test]
    fn there_is_a_look_at_the_clock_within_every_large_thing() {
        const BYTES: usize = 4 << 20;
        let long = |unit: &str| unit.repeat(BYTES / unit.len());
        let bodies = [
            ("an escaped value", format!(r#"{{"f":{{"value":"{}"}}}}"#, long("\\u0041"))),
            ("a plain value", format!(r#"{{"f":{{"value":"{}"}}}}"#, long("a"))),
            ("a key", format!(r#"{{"f":{{"key":"{}"}}}}"#, long("é"))),
            ("a flag's key", format!(r#"{{"{}":{{"key":"on"}}}}"#, long("\\n"))),
            ("flags' keys", format!(r#"{{"{0}":{{"key":"on"}},"{0}":{{}}}}"#, long("n"))),
            ("a payload", format!(r#"{{"f":{{"payload":[{}1]}}}}"#, long("{ },"))),
            ("a text in a payload", format!(r#"{{"f":{{"payload":[["{}"]]}}}}"#, long(" ,"))),
            ("metadata", format!(r#"{{"f":{{"metadata":{{"a":[{}1]}}}}}}"#, long("12,"))),
            ("what is unknown", format!(r#"{{"f":{{"other":[{}1]}}}}"#, long("[[]],"))),
            ("an unknown name", format!(r#"{{"f":{{"{}":1}}}}"#, long("\\\""))),
            ("what is no entry", format!(r#"{{"f":[{}1]}}"#, long("[],"))),
            ("a text that is no entry", format!(r#"{{"f":"{}"}}"#, long("\\t"))),
            ("a number", format!(r#"{{"f":{{"value":{}}}}}"#, long("1"))),
            ("space", format!(r#"{{{}"f":{{"key":"on"}}}}"#, long(" "))),
            ("entries", format!(r#"{{{}"f":{{}}}}"#, long(r#""a":{},"#))),
        ];
        for (what, body) in bodies {
            let (mut looks, mut last, mut longest) = (0, std::time::Instant::now(), 0);
            let decoded = decode_asking(&body, || {
                looks += 1;
                longest = longest.max(last.elapsed().as_millis());
                last = std::time::Instant::now();
                true
            });
            decoded.unwrap();
            println!("{what}: {looks} looks, {longest} ms between two of them at most");
            // One for each piece of the check for UTF-8, and one for each piece of what is read.
            assert!(looks >= 2 * (BYTES / PIECE) - 4, "{what}: {looks}");
        }
    }

    #[test]
    fn a_small_answer_is_decoded_without_asking() {
        let decoded = decode_asking(r#"{"flag":{"key":"on"}}"#, || panic!("asked"));
        assert_eq!(decoded.unwrap().variants.len(), 1);
    }
}
