//! The service's answer: which variant of each flag the user gets.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use super::checkpoint::Checkpoint;
use super::index::Index;
use super::json;
use super::text::{Span, Text, Texts};
use crate::machine::logger::Logger;
use crate::tag::Tag;

/// What messages call the JSON that variants come from.
pub(super) const SUBJECT: &str = "its body";

/// The variants of one answer, in the server's order. Cheap to read from any thread.
pub struct Variants {
    variants: Vec<Variant>,
    by_flag_key: Index,
    /// All that the answer has, and nothing in it was left out.
    is_answer: bool,
    /// The whole set, NUL-terminated, once somebody asked for it.
    json: OnceLock<String>,
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
pub(super) struct Answer {
    /// As it was sent; the JSON form is made from it.
    body: String,
    texts: Texts,
    /// Who is told of a misused pointer to one of its variants. Weak: variants outlive their
    /// client, and must not keep its log sink from being dropped.
    logger: OnceLock<Weak<Logger>>,
}

impl Answer {
    pub(super) fn new(body: String, texts: Texts) -> Arc<Self> {
        Arc::new(Answer { body, texts, logger: OnceLock::new() })
    }
}

/// Where the texts of one entry are.
#[derive(Clone, Copy)]
pub(super) struct Spans {
    pub flag_key: Span,
    pub key: Option<Span>,
    pub value: Option<Span>,
    pub payload: Option<Span>,
    pub metadata: Option<Span>,
}

impl Default for Variants {
    fn default() -> Self {
        Variants::empty()
    }
}

impl Variants {
    /// The set without variants. Allocates nothing.
    pub const fn empty() -> Self {
        Variants {
            variants: Vec::new(),
            by_flag_key: Index::EMPTY,
            is_answer: false,
            json: OnceLock::new(),
        }
    }

    /// `is_answer` if these are all that stands in the answer.
    pub(super) fn new(variants: Vec<Variant>, by_flag_key: Index, is_answer: bool) -> Self {
        Variants { variants, by_flag_key, is_answer, json: OnceLock::new() }
    }

    /// Sets, once, who is told of a misused pointer to one of these variants.
    pub fn report_misuse_to(&self, logger: &Arc<Logger>) {
        if let Some(variant) = self.variants.first() {
            variant.answer.logger.get_or_init(|| Arc::downgrade(logger));
        }
    }

    /// The same variants once more; their texts are shared.
    pub fn share(&self) -> Variants {
        Variants::new(self.variants.clone(), self.by_flag_key.clone(), self.is_answer)
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
        self.by_flag_key.find(flag_key, |at| self.variants[at].flag_key_bytes())
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
        Text::new(self.json.get_or_init(|| self.as_sent().unwrap_or_else(|| self.written())))
    }

    /// The answer itself, where it is what would be written.
    fn as_sent(&self) -> Option<String> {
        let answer = &self.variants.first().filter(|_| self.is_answer)?.answer;
        json::is_compact(&answer.body).then(|| [&answer.body, "\0"].concat())
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
        let flag_key_at = |at: usize| variants[at].flag_key_bytes();
        let index = Index::of(variants.len(), flag_key_at, |_| {}, &mut Checkpoint::unhurried());
        let by_flag_key = index.unwrap_or_else(|_| Index::scanning(variants.len()));
        Variants::new(variants, by_flag_key, false)
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
    pub(super) fn new(answer: Arc<Answer>, spans: Spans) -> Self {
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

    /// Not the default, and deployed. A missing or non-boolean member counts as `default` = false,
    /// `deployed` = true.
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
