//! What user and variants need of raw JSON: reading the members of an object as they were sent,
//! dropping insignificant whitespace, bounding the depth, writing strings.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::invalid::{Invalid, Kind};

/// How deep JSON may be nested. The parser goes through raw values without recursion and without a
/// limit; this one spares whoever reads them after us.
pub const MAX_DEPTH: usize = 128;

/// Whether valid JSON is nested deeper than `limit`.
pub fn is_deeper_than(json: &str, limit: usize) -> bool {
    // A level takes two bytes and an opening bracket, so that the exact count is hardly ever needed.
    json.len() > 2 * limit && opening_brackets(json) > limit && depth(json) > limit
}

/// At least as many as there are levels: brackets inside strings count too.
fn opening_brackets(json: &str) -> usize {
    // `[` and `{` differ in this bit alone. Chunks that a byte can count are what the compiler
    // turns into vector code.
    let in_chunk =
        |chunk: &[u8]| chunk.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum::<u8>();
    json.as_bytes().chunks(u8::MAX as usize).map(|chunk| in_chunk(chunk) as usize).sum()
}

fn depth(json: &str) -> usize {
    let bytes = json.as_bytes();
    let (mut at, mut depth, mut deepest) = (0, 0usize, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at),
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
                at += 1;
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            _ => at += 1,
        }
    }
    deepest
}

/// The index behind the closing quote of the string that opens at `open`, or the end if there is none.
fn end_of_string(bytes: &[u8], open: usize) -> usize {
    closing_quote(bytes, open).map_or(bytes.len(), |quote| quote + 1)
}

fn closing_quote(bytes: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Where the value ends that `json` begins with, as far as its quotes and brackets tell: none if `json`
/// ends before it does.
pub fn end_of_value(json: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0usize);
    loop {
        match json.get(at)? {
            b'"' => at = closing_quote(json, at)? + 1,
            b'[' | b'{' => {
                depth += 1;
                at += 1;
            }
            b']' | b'}' if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            _ if depth > 0 => {
                at += 1;
                continue;
            }
            _ => {
                let ends = |byte: &u8| is_whitespace(*byte) || is_structural(*byte);
                return Some(json.iter().position(ends).unwrap_or(json.len()));
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Appends valid JSON without the whitespace between its tokens. Numbers and strings stay as they
/// are, byte for byte.
pub fn push_compact(out: &mut String, json: &str) {
    if is_compact(json) {
        return out.push_str(json);
    }
    let bytes = json.as_bytes();
    let (mut at, mut copied) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at),
            b' ' | b'\n' | b'\r' | b'\t' => {
                out.push_str(&json[copied..at]);
                at += 1;
                copied = at;
            }
            _ => at += 1,
        }
    }
    out.push_str(&json[copied..]);
}

/// Whether valid JSON has no whitespace around its tokens. It may say no where all of it is inside
/// strings, next to what looks like a token.
pub fn is_compact(json: &str) -> bool {
    let bytes = json.as_bytes();
    // Without an early way out the compiler makes vector code of it, and of what follows.
    if !bytes.iter().fold(false, |found, &byte| found | is_whitespace(byte)) {
        return true;
    }
    // Of two tokens next to each other, one is a bracket, a comma or a colon.
    let ends = bytes.first().into_iter().chain(bytes.last());
    !ends.copied().any(is_whitespace)
        && !bytes.iter().zip(&bytes[1..]).fold(false, |found, (&a, &b)| {
            found | (is_whitespace(a) & is_structural(b)) | (is_structural(a) & is_whitespace(b))
        })
}

/// Nothing else in valid JSON is as low.
fn is_whitespace(byte: u8) -> bool {
    byte <= b' '
}

fn is_structural(byte: u8) -> bool {
    // `[` and `{`, `]` and `}` differ in this bit alone.
    let brace = byte | 0x20;
    (brace == b'{') | (brace == b'}') | (byte == b',') | (byte == b':')
}

/// Appends `text` as a JSON string.
pub fn push_string(out: &mut String, text: &str) {
    out.push('"');
    if needs_escapes(text) {
        push_escaped(out, text);
    } else {
        out.push_str(text);
    }
    out.push('"');
}

/// At most this many bytes are appended by `push_string`.
pub fn string_bytes(text: &str) -> usize {
    let longest_escape = "\\u0000".len();
    if needs_escapes(text) { longest_escape * text.len() + 2 } else { text.len() + 2 }
}

/// `text` as it stands between the quotes of a JSON string.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !needs_escapes(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    push_escaped(&mut out, text);
    Cow::Owned(out)
}

fn needs_escapes(text: &str) -> bool {
    text.bytes().fold(false, |found, byte| found | is_escaped(byte))
}

fn is_escaped(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

fn push_escaped(out: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for part in text.split_inclusive(|char| u8::try_from(char).is_ok_and(is_escaped)) {
        let Some(last) = part.bytes().next_back().filter(|last| is_escaped(*last)) else {
            out.push_str(part);
            continue;
        };
        out.push_str(&part[..part.len() - 1]);
        match last {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            control => {
                out.push_str("\\u00");
                out.push(HEX[usize::from(control >> 4)] as char);
                out.push(HEX[usize::from(control & 15)] as char);
            }
        }
    }
}

/// A string that the grammar allows and that stands for no text.
pub const LONE_SURROGATE: &str = "lone surrogate in a string";

/// The text that a JSON string stands for. `None` if that is no text: half of a surrogate pair.
pub fn text_of(string: &str) -> Option<Cow<'_, str>> {
    if string.contains('\\') {
        serde_json::from_str(string).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(&string[1..string.len() - 1]))
    }
}

/// One valid JSON value without the whitespace around it, nested at most `depth` deep.
pub fn one_value<'j>(
    json: &'j str,
    depth: usize,
    subject: &'static str,
) -> Result<&'j str, Invalid> {
    let value: &RawValue = serde_json::from_str(json).map_err(|e| Invalid::parsing(subject, e))?;
    if is_deeper_than(value.get(), depth) {
        return Err(Invalid::new(subject, Kind::TooDeep));
    }
    Ok(value.get())
}

/// Calls `member` with each name, still a JSON string, and value of a JSON object, both as they
/// were sent.
pub fn each_member<'j>(
    json: &'j str,
    subject: &'static str,
    member: impl FnMut(&'j str, &'j str),
) -> Result<(), Invalid> {
    let mut parser = serde_json::Deserializer::from_str(json);
    parser
        .deserialize_map(EachMember(member))
        .and_then(|()| parser.end())
        .map_err(|error| Invalid::parsing(subject, error))
}

struct EachMember<F>(F);

impl<'j, F: FnMut(&'j str, &'j str)> Visitor<'j> for EachMember<F> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'j>>(mut self, mut map: M) -> Result<(), M::Error> {
        while let Some((name, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            (self.0)(name.get(), value.get());
        }
        Ok(())
    }
}

/// The members of a JSON object with their names as text and their values as they were sent, each
/// nested at most `depth` deep. Of several with one name the last is left.
pub fn members<'j>(
    json: &'j str,
    depth: usize,
    subject: &'static str,
) -> Result<Vec<(Cow<'j, str>, &'j str)>, Invalid> {
    let mut members = Vec::new();
    let mut fault = None;
    each_member(json, subject, |name, value| match text_of(name) {
        None => fault = Some(lone_surrogate(subject)),
        _ if is_deeper_than(value, depth) => fault = Some(Invalid::new(subject, Kind::TooDeep)),
        Some(name) => members.push((name, value)),
    })?;
    keep_last_of_each(&mut members, |a, b| compare_names(a.0.as_bytes(), b.0.as_bytes()));
    fault.map_or(Ok(members), Err)
}

fn lone_surrogate(subject: &'static str) -> Invalid {
    Invalid::visiting(subject, Kind::NotJson, Error::custom(LONE_SURROGATE))
}

/// The order in which names are looked up: lengths first, since they mostly settle it.
pub fn compare_names(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Drops all but the last of the items that compare as equal, and returns the positions of those
/// that are left, in the order of `compare`.
pub fn keep_last_of_each<T>(items: &mut Vec<T>, compare: impl Fn(&T, &T) -> Ordering) -> Vec<u32> {
    let sorted = sorted_positions(items.len(), &|a, b| compare(&items[a], &items[b]));
    let mut kept = vec![true; items.len()];
    for pair in sorted.windows(2) {
        let [earlier, later] = [pair[0] as usize, pair[1] as usize];
        kept[earlier] = compare(&items[earlier], &items[later]) != Ordering::Equal;
    }
    if kept.iter().all(|&kept| kept) {
        return sorted;
    }
    let mut kept = kept.into_iter();
    items.retain(|_| kept.next() == Some(true));
    sorted_positions(items.len(), &|a, b| compare(&items[a], &items[b]))
}

/// The positions of `count` items in the order of `compare`; equal items keep the order in which
/// they came. (One function for all kinds of items: sorting is much code.)
pub fn sorted_positions(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<u32> {
    let mut positions: Vec<u32> = (0..count as u32).collect();
    positions.sort_unstable_by(|&a, &b| compare(a as usize, b as usize).then(a.cmp(&b)));
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitespace_around_any_token_is_seen_and_dropped() {
        let tokens = ["{", "\"a b\"", ":", "[", "1", ",", "\"c\"", ",", "true", "]", "}"];
        let compact = tokens.concat();
        assert!(is_compact(&compact), "words in strings are no tokens");
        for at in 0..=tokens.len() {
            for space in [" ", "\n", "\r\n\t "] {
                let json = [&tokens[..at].concat(), space, &tokens[at..].concat()].concat();
                assert!(!is_compact(&json), "{json:?}");
                let mut out = String::new();
                push_compact(&mut out, &json);
                assert_eq!(out, compact, "{json:?}");
            }
        }
    }

    #[test]
    fn whitespace_inside_strings_is_kept_whatever_stands_beside_it() {
        for json in
            [r#"{"a":"b, c : d [ e"}"#, r#"[" ","\" "]"#, r#"" x ""#, "1", "", r#"["é 日"]"#]
        {
            let mut out = String::new();
            push_compact(&mut out, json);
            assert_eq!(out, json);
        }
    }
}
