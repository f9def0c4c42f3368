//! The service's answer: which variant of each flag the user gets.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::invalid::{Invalid, Kind};
use super::json::{self, MAX_DEPTH};
use super::text::{Span, Text, Texts};
use crate::logger::Logger;
use crate::tag::Tag;

const SUBJECT: &str = "the answer";

/// Up to so many variants, looking at each is faster than searching.
const SCANNED: usize = 8;

/// The variants of one answer, in the server's order. Cheap to read from any thread.
#[derive(Default)]
pub struct Variants {
    variants: Vec<Variant>,
    /// Positions in `variants`, in the order of `json::compare_names`.
    by_flag_key: Vec<u32>,
    /// The whole set, NUL-terminated, once somebody asked for it.
    json: OnceLock<String>,
}

/// What `Variants::decode` made of a body.
#[derive(Debug)]
pub struct Decoded {
    pub variants: Variants,
    /// How many entries were left out because they are no objects.
    pub skipped: usize,
}

/// The variant of one flag. It reaches its texts without its set, so that a pointer to it is all
/// that C needs.
#[derive(Clone)]
#[repr(C)]
pub struct Variant {
    tag: Tag,
    answer: Arc<Answer>,
    spans: Spans,
}

/// What the variants of one answer share.
struct Answer {
    /// As it was sent; the JSON form is made from it.
    body: String,
    texts: Texts,
    /// Who is told of a misused pointer to one of its variants. Weak: variants outlive their
    /// client, and must not keep its log sink from being dropped.
    logger: OnceLock<Weak<Logger>>,
}

#[derive(Clone, Copy)]
struct Spans {
    flag_key: Span,
    key: Option<Span>,
    value: Option<Span>,
    payload: Option<Span>,
    metadata: Option<Span>,
}

impl Variants {
    /// The set without variants. Allocates nothing.
    pub const fn empty() -> Self {
        Variants { variants: Vec::new(), by_flag_key: Vec::new(), json: OnceLock::new() }
    }

    /// Reads the body of an answer: one JSON object that has an object for each flag.
    ///
    /// Entries that are no objects are left out and counted, as if they had not been sent. Of
    /// several entries for one flag the last one counts, and so it does for fields.
    pub fn decode(body: Vec<u8>) -> Result<Decoded, Invalid> {
        let body = String::from_utf8(body).map_err(|error| {
            let valid_bytes = error.utf8_error().valid_up_to();
            Invalid::new(SUBJECT, Kind::NotUtf8 { valid_bytes })
        })?;
        let mut decoder = Decoder::new(body.len())?;
        decoder.read(&body)?;
        let Decoder { texts, entries, skipped, .. } = decoder;
        let variants =
            Variants::of(Arc::new(Answer { body, texts, logger: OnceLock::new() }), entries)?;
        Ok(Decoded { variants, skipped })
    }

    fn of(answer: Arc<Answer>, mut entries: Vec<Spans>) -> Result<Self, Invalid> {
        let flag_key = |spans: &Spans| answer.texts.bytes_of(spans.flag_key);
        let by_flag_key = json::keep_last_of_each(&mut entries, |a, b| {
            json::compare_names(flag_key(a), flag_key(b))
        });
        let mut variants = Vec::new();
        reserve(&mut variants, entries.len())?;
        variants.extend(entries.into_iter().map(|spans| Variant::new(answer.clone(), spans)));
        Ok(Variants { variants, by_flag_key, json: OnceLock::new() })
    }

    /// Sets, once, who is told of a misused pointer to one of these variants.
    pub fn report_misuse_to(&self, logger: &Arc<Logger>) {
        if let Some(variant) = self.variants.first() {
            variant.answer.logger.get_or_init(|| Arc::downgrade(logger));
        }
    }

    /// The same variants once more; their texts are shared.
    pub fn share(&self) -> Variants {
        Variants {
            variants: self.variants.clone(),
            by_flag_key: self.by_flag_key.clone(),
            json: OnceLock::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.variants.len()
    }

    pub fn is_empty(&self) -> bool {
        self.variants.is_empty()
    }

    /// The variant of that flag; there is none for bytes that are no text. Allocates nothing.
    pub fn get(&self, flag_key: impl AsRef<[u8]>) -> Option<&Variant> {
        self.position(flag_key.as_ref()).map(|position| &self.variants[position])
    }

    fn position(&self, flag_key: &[u8]) -> Option<usize> {
        if self.variants.len() <= SCANNED {
            return self.variants.iter().position(|variant| variant.flag_key_bytes() == flag_key);
        }
        let found = self.by_flag_key.binary_search_by(|&position| {
            json::compare_names(self.variants[position as usize].flag_key_bytes(), flag_key)
        });
        found.ok().map(|index| self.by_flag_key[index] as usize)
    }

    /// The variant at that place in the server's order.
    pub fn at(&self, index: usize) -> Option<&Variant> {
        self.variants.get(index)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Variant> {
        self.variants.iter()
    }

    /// The set as one compact JSON object: every variant as the server sent it, with the fields
    /// that this library does not know. Made when first asked for.
    pub fn json(&self) -> Text<'_> {
        Text::new(self.json.get_or_init(|| self.written()))
    }

    fn written(&self) -> String {
        let mut out = String::from("{");
        for (variant, object) in self.iter().zip(self.objects()) {
            if out.len() > 1 {
                out.push(',');
            }
            json::push_string(&mut out, &variant.flag_key());
            out.push(':');
            json::push_compact(&mut out, object);
        }
        out.push_str("}\0");
        out
    }

    /// The object of each variant as it stands in the body, found by reading the body again: most
    /// sets are never asked for their JSON, so decoding does not pay for it.
    fn objects(&self) -> Vec<&str> {
        let mut objects = vec!["{}"; self.len()];
        let Some(first) = self.variants.first() else {
            return objects;
        };
        let again = json::each_member(&first.answer.body, SUBJECT, |flag_key, value| {
            let position =
                json::text_of(flag_key).and_then(|flag_key| self.position(flag_key.as_bytes()));
            if let (Some(position), true) = (position, value.starts_with('{')) {
                objects[position] = value;
            }
        });
        debug_assert!(again.is_ok(), "the body was read before");
        objects
    }

    /// The variants that the deprecated `fetch` of the SDKs returns: those that are not default and
    /// are deployed.
    pub fn filter_deployed(&self) -> Variants {
        let variants: Vec<Variant> = self.iter().filter(|v| v.is_deployed()).cloned().collect();
        let flag_key = |i: usize| variants[i].flag_key_bytes();
        let by_flag_key = json::sorted_positions(variants.len(), &|a, b| {
            json::compare_names(flag_key(a), flag_key(b))
        });
        Variants { variants, by_flag_key, json: OnceLock::new() }
    }
}

impl<'a> IntoIterator for &'a Variants {
    type Item = &'a Variant;
    type IntoIter = std::slice::Iter<'a, Variant>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Payloads are the host's business and may be large.
impl fmt::Debug for Variants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Variants({})", self.len())
    }
}

impl Variant {
    fn new(answer: Arc<Answer>, spans: Spans) -> Self {
        Variant { tag: Tag::VARIANT, answer, spans }
    }

    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// Who is told of a misused pointer to it, as long as that is there.
    pub fn misuse_logger(&self) -> Option<Arc<Logger>> {
        self.answer.logger.get().and_then(Weak::upgrade)
    }

    /// The flag that it is the variant of.
    pub fn flag_key(&self) -> Text<'_> {
        self.answer.texts.get(self.spans.flag_key)
    }

    fn flag_key_bytes(&self) -> &[u8] {
        self.answer.texts.bytes_of(self.spans.flag_key)
    }

    /// The variant's own key; JSON text if it is no string.
    pub fn key(&self) -> Option<Text<'_>> {
        self.text(self.spans.key)
    }

    /// The variant's value; JSON text if it is no string.
    pub fn value(&self) -> Option<Text<'_>> {
        self.text(self.spans.value)
    }

    /// The payload as compact JSON.
    pub fn payload_json(&self) -> Option<Text<'_>> {
        self.text(self.spans.payload)
    }

    /// The metadata as compact JSON.
    pub fn metadata_json(&self) -> Option<Text<'_>> {
        self.text(self.spans.metadata)
    }

    fn text(&self, span: Option<Span>) -> Option<Text<'_>> {
        span.map(|span| self.answer.texts.get(span))
    }

    /// Not the default, and deployed. What the metadata does not say with a boolean, it does not
    /// say: not the default, deployed.
    fn is_deployed(&self) -> bool {
        let Some(metadata) = self.metadata_json().filter(|json| json.starts_with('{')) else {
            return true;
        };
        let (mut default, mut deployed) = (false, true);
        let read =
            json::each_member(metadata.as_str(), SUBJECT, |name, value| {
                match json::text_of(name).as_deref() {
                    Some("default") => default = value == "true",
                    Some("deployed") => deployed = value != "false",
                    _ => {}
                }
            });
        debug_assert!(read.is_ok(), "the metadata was read before");
        !default && deployed
    }
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Variant").field(&self.flag_key().as_str()).finish()
    }
}

/// Fails where `Vec` would abort: an answer may be large.
fn reserve<T>(items: &mut Vec<T>, more: usize) -> Result<(), Invalid> {
    items.try_reserve_exact(more).map_err(|_| out_of_memory(more * size_of::<T>()))
}

fn out_of_memory(bytes: usize) -> Invalid {
    Invalid::new(SUBJECT, Kind::OutOfMemory { bytes })
}

/// Reads a body in one pass, the parser calling back for each entry.
struct Decoder {
    texts: Texts,
    entries: Vec<Spans>,
    skipped: usize,
    /// Why the pass was stopped, if it was not the parser that did it.
    fault: Option<Kind>,
}

impl Decoder {
    /// The texts of a body never need more room than the body: escapes are longer than what they
    /// stand for, and each text's NUL has the quotes or the colon that are left out.
    fn new(body_bytes: usize) -> Result<Self, Invalid> {
        if body_bytes > Texts::MAX_BYTES {
            let limit = Texts::MAX_BYTES;
            return Err(Invalid::new(SUBJECT, Kind::TooLarge { bytes: body_bytes, limit }));
        }
        let texts = Texts::with_capacity(body_bytes).map_err(|_| out_of_memory(body_bytes))?;
        Ok(Decoder { texts, entries: Vec::new(), skipped: 0, fault: None })
    }

    fn read(&mut self, body: &str) -> Result<(), Invalid> {
        let mut parser = serde_json::Deserializer::from_str(body);
        let read = parser.deserialize_map(&mut *self).and_then(|()| parser.end());
        debug_assert!(self.texts.bytes() <= body.len());
        read.map_err(|error| match self.fault {
            Some(kind) => Invalid::visiting(SUBJECT, kind, error),
            None => Invalid::parsing(SUBJECT, error),
        })
    }

    /// Stops the pass.
    fn stop<E: Error>(&mut self, kind: Kind, words: &str) -> E {
        self.fault = Some(kind);
        E::custom(words)
    }

    fn add_entry<E: Error>(&mut self, entry: Spans) -> Result<(), E> {
        if self.entries.try_reserve(1).is_err() {
            let bytes = self.entries.len() * size_of::<Spans>();
            return Err(self.stop(Kind::OutOfMemory { bytes }, "out of memory"));
        }
        self.entries.push(entry);
        Ok(())
    }

    /// A value inside an entry: the body and the entry are two levels themselves.
    fn check_depth<E: Error>(&mut self, value: &RawValue) -> Result<(), E> {
        if json::is_deeper_than(value.get(), MAX_DEPTH - 2) {
            return Err(self.stop(Kind::TooDeep, "too deep"));
        }
        Ok(())
    }

    /// A string's text.
    fn add_string<E: Error>(&mut self, string: &str) -> Result<Span, E> {
        match json::text_of(string) {
            Some(text) => Ok(self.texts.add(|out| out.push_str(&text))),
            None => Err(self.stop(Kind::NotJson, json::LONE_SURROGATE)),
        }
    }

    /// A string's text, or the JSON text of what is no string; nothing for null.
    fn add_text<E: Error>(&mut self, value: &RawValue) -> Result<Option<Span>, E> {
        if value.get().starts_with('"') {
            self.add_string(value.get()).map(Some)
        } else {
            Ok(self.add_json(value))
        }
    }

    /// JSON text; nothing for null.
    fn add_json(&mut self, value: &RawValue) -> Option<Span> {
        let json = value.get();
        (json != "null").then(|| self.texts.add(|out| json::push_compact(out, json)))
    }
}

/// The body: an object of entries.
impl<'de> Visitor<'de> for &mut Decoder {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(flag_key) = map.next_key::<&RawValue>()? {
            let flag_key = self.add_string(flag_key.get())?;
            match map.next_value_seed(Entry { decoder: self, flag_key })? {
                Some(entry) => self.add_entry(entry)?,
                None => {
                    self.texts.take_back(flag_key);
                    self.skipped += 1;
                }
            }
        }
        Ok(())
    }
}

/// One entry of the body: an object of fields, or something to be left out.
struct Entry<'a> {
    decoder: &'a mut Decoder,
    flag_key: Span,
}

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = Option<Spans>;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Self::Value, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = Option<Spans>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let Entry { decoder, flag_key } = self;
        let mut entry = Spans { flag_key, key: None, value: None, payload: None, metadata: None };
        while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            decoder.check_depth(value)?;
            match json::text_of(name.get()).as_deref() {
                Some("key") => entry.key = decoder.add_text(value)?,
                Some("value") => entry.value = decoder.add_text(value)?,
                Some("payload") => entry.payload = decoder.add_json(value),
                Some("metadata") => entry.metadata = decoder.add_json(value),
                _ => {}
            }
        }
        Ok(Some(entry))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut elements: S) -> Result<Self::Value, S::Error> {
        while let Some(element) = elements.next_element()? {
            self.decoder.check_depth(element)?;
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
