//! Bytes as JSON can carry them: text where they are text, hexadecimal digits where they are not.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// Any bytes. In JSON: a string, or `{"hex": "00ff"}` for what is no UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Spelling", into = "Spelling")]
pub struct Bytes(pub Vec<u8>);

#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = r#"bytes are a string or {"hex": "00ff"}"#)]
enum Spelling {
    Text(String),
    Hex { hex: String },
}

impl TryFrom<Spelling> for Bytes {
    type Error = String;

    fn try_from(spelling: Spelling) -> Result<Bytes, String> {
        match spelling {
            Spelling::Text(text) => Ok(Bytes(text.into_bytes())),
            Spelling::Hex { hex } => from_hex(hex.as_bytes())
                .map(Bytes)
                .ok_or_else(|| format!("no pairs of hexadecimal digits: {hex}")),
        }
    }
}

impl From<Bytes> for Spelling {
    fn from(bytes: Bytes) -> Spelling {
        match String::from_utf8(bytes.0) {
            Ok(text) => Spelling::Text(text),
            Err(error) => {
                Spelling::Hex { hex: error.as_bytes().iter().map(|b| format!("{b:02x}")).collect() }
            }
        }
    }
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => Some((value(high)? * 16 + value(low)?) as u8),
        _ => None,
    };
    digits.chunks(2).map(byte).collect()
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Bytes {
        Bytes(text.into())
    }
}

impl From<String> for Bytes {
    fn from(text: String) -> Bytes {
        Bytes(text.into_bytes())
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Bytes {
        Bytes(bytes.into())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back_and_forth(json: &str) -> (Vec<u8>, String) {
        let bytes: Bytes = serde_json::from_str(json).expect("the test writes valid bytes");
        let again = serde_json::to_string(&bytes).expect("bytes can always be written");
        (bytes.0, again)
    }

    #[test]
    fn text_is_text_and_the_rest_is_hexadecimal() {
        assert_eq!(back_and_forth(r#""é""#), ("é".into(), r#""é""#.into()));
        assert_eq!(
            back_and_forth(r#"{"hex":"00FF7f"}"#),
            (vec![0, 255, 127], r#"{"hex":"00ff7f"}"#.into())
        );
    }

    #[test]
    fn half_a_byte_is_refused() {
        for json in [r#"{"hex":"0"}"#, r#"{"hex":"0g"}"#, "17"] {
            assert!(serde_json::from_str::<Bytes>(json).is_err(), "{json}");
        }
    }
}
