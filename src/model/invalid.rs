//! What can be wrong with a piece of JSON.

use std::fmt;

use serde_json::error::Category;

use super::json::MAX_DEPTH;

/// Why a piece of JSON was refused. The message is one line and never quotes the JSON, which may be
/// personal data.
#[derive(Debug)]
pub struct Invalid {
    subject: &'static str,
    kind: Kind,
    /// The parser's own words and position, where it has something to say.
    parser: Option<serde_json::Error>,
}

/// The classes of what can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    NotUtf8 { valid_bytes: usize },
    Cut,
    NotJson,
    NotAnObject,
    TooDeep,
    TooLarge { bytes: usize, limit: usize },
    OutOfMemory { bytes: usize },
}

impl Invalid {
    /// `subject` is what the message speaks of: "the user", "its body".
    pub(super) fn new(subject: &'static str, kind: Kind) -> Self {
        Invalid { subject, kind, parser: None }
    }

    /// What the parser refused. Every parser here accepts either an object or any value, so an error
    /// of type always means that the outermost value is not an object.
    pub(super) fn parsing(subject: &'static str, error: serde_json::Error) -> Self {
        let kind = match error.classify() {
            Category::Eof => Kind::Cut,
            Category::Data => Kind::NotAnObject,
            Category::Syntax | Category::Io => Kind::NotJson,
        };
        Invalid { subject, kind, parser: Some(error) }
    }

    /// What one of this room's visitors refused while the parser was under way.
    pub(super) fn visiting(subject: &'static str, kind: Kind, error: serde_json::Error) -> Self {
        Invalid { subject, kind, parser: Some(error) }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.subject)?;
        match self.kind {
            Kind::NotUtf8 { valid_bytes } => write!(f, " is not UTF-8 after byte {valid_bytes}"),
            Kind::Cut => f.write_str(" is truncated"),
            Kind::NotJson => f.write_str(" is not valid JSON"),
            Kind::NotAnObject => f.write_str(" is not a JSON object"),
            Kind::TooDeep => write!(f, " is nested deeper than {MAX_DEPTH} levels"),
            Kind::TooLarge { bytes, limit } => {
                write!(f, " has {bytes} bytes, more than the limit of {limit}")
            }
            Kind::OutOfMemory { bytes } => {
                write!(f, " does not fit into memory: {bytes} bytes cannot be allocated")
            }
        }?;
        // The parser quotes the value when its type is wrong, and only then.
        match &self.parser {
            Some(words) if matches!(self.kind, Kind::Cut | Kind::NotJson) => write!(f, ": {words}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Invalid {}
