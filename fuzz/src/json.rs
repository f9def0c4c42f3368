//! JSON as serde_json's tree reads it: a second opinion on the library's own readers.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

/// The members of an object in their order, those that come again included.
pub type Members = Vec<(String, Value)>;

/// Why there are none.
#[derive(Debug, PartialEq)]
pub enum Unread {
    /// It is no JSON, or no object.
    Invalid,
    /// The grammar allows it, a tree does not hold it: a number beyond any float, half of a surrogate
    /// pair, more levels than are good for a stack. The library's readers keep such values as they are.
    Beyond,
}

/// A name that the tree does not take for one.
pub const TOKEN: &str = "$serde_json::private::";

pub fn members(json: &[u8]) -> Result<Members, Unread> {
    match std::str::from_utf8(json) {
        Err(_) => return Err(Unread::Invalid),
        Ok(json) if json.contains(TOKEN) => return Err(Unread::Beyond),
        Ok(_) => {}
    }
    match serde_json::from_slice(json) {
        Ok(Object(members)) => Ok(members),
        Err(error) if is_beyond(&error.to_string()) => Err(Unread::Beyond),
        Err(_) => Err(Unread::Invalid),
    }
}

pub fn value(json: &str) -> Option<Value> {
    serde_json::from_str(json).ok()
}

fn is_beyond(message: &str) -> bool {
    let beyond = [
        "number out of range",
        "recursion limit exceeded",
        "lone leading surrogate in hex escape",
        "unexpected end of hex escape", // of the second half of a pair
    ];
    beyond.iter().any(|words| message.starts_with(words))
}

/// Whether there is whitespace outside strings.
pub fn is_compact(json: &str) -> bool {
    let mut in_string = false;
    let mut escaped = false;
    json.bytes().all(|byte| {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b' ' | b'\t' | b'\n' | b'\r' => return in_string,
            _ => {}
        }
        true
    })
}

struct Object(Members);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(parser: D) -> Result<Self, D::Error> {
        parser.deserialize_map(ObjectVisitor).map(Object)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members, M::Error> {
        let mut members = Members::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}
