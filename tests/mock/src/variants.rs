//! What the service answers when not told otherwise: a handful of variants, the same for the same
//! user every time.

use std::collections::BTreeMap;
use std::env;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::request::Request;
use crate::response::well_formed;
use crate::script::JSON;

type Object = BTreeMap<String, Box<RawValue>>;

/// A response to the request, in the bytes that go out.
pub(crate) fn answer(request: &Request) -> Vec<u8> {
    match variants(request) {
        Ok(variants) => {
            let body = serde_json::to_vec(&variants).expect("JSON can be written");
            well_formed(200, &[JSON], &body)
        }
        Err((status, why)) => {
            well_formed(status, &[("Content-Type", "text/plain")], why.as_bytes())
        }
    }
}

fn variants(request: &Request) -> Result<Object, (u16, &'static str)> {
    let path = request.path.split('?').next().unwrap_or_default();
    if !path.ends_with("/sdk/v2/vardata") {
        return Err((404, "no such path"));
    }
    let key = request.header("Authorization").and_then(|value| value.strip_prefix("Api-Key "));
    if key.is_none_or(str::is_empty) {
        return Err((401, "no API key"));
    }
    let user = user(request)?;
    let mut variants = variants_of(&user);
    if let Some(wanted) = request.header("X-Amp-Exp-Flag-Keys") {
        let wanted = flag_keys(wanted).ok_or((400, "X-Amp-Exp-Flag-Keys is no list of flags"))?;
        variants.retain(|flag, _| wanted.contains(flag));
    }
    Ok(variants)
}

fn user(request: &Request) -> Result<Object, (u16, &'static str)> {
    let user = match request.method.as_str() {
        "POST" => Some(request.body.0.clone()),
        "GET" => request.header("X-Amp-Exp-User").and_then(from_base64),
        _ => return Err((405, "POST, or GET")),
    };
    let user = user.and_then(|user| serde_json::from_slice(&user).ok());
    user.ok_or((400, "the user is no JSON object"))
}

fn variants_of(user: &Object) -> Object {
    let id: String = field(user, "user_id").unwrap_or_default();
    let variants = [
        ("demo-color", color(&id)),
        ("demo-checkout", checkout(&id)),
        ("demo-greeting", greeting()),
    ];
    let raw = |value: &Value| to_raw_value(value).expect("JSON can be written");
    let mut variants: Object =
        variants.iter().map(|(flag, variant)| (flag.to_string(), raw(variant))).collect();
    variants.insert("demo-nonce".into(), nonce(user, &id));
    variants
}

fn color(id: &str) -> Value {
    let colors = [("red", "#d22"), ("green", "#2a2"), ("blue", "#22d")];
    let (name, code) = colors[stable_hash(id, "demo-color") % colors.len()];
    json!({
        "key": name,
        "value": name,
        "payload": {"code": code},
        "metadata": {
            "default": false, "deployed": true, "experimentKey": "exp-1", "flagType": "experiment",
            "flagVersion": 3, "segmentName": "All Other Users",
        },
    })
}

fn checkout(id: &str) -> Value {
    if stable_hash(id, "demo-checkout").is_multiple_of(2) {
        let metadata = json!({"default": false, "deployed": true, "flagType": "release"});
        json!({"key": "on", "value": "on", "metadata": metadata})
    } else {
        json!({"key": "off", "metadata": {"default": true, "deployed": true}})
    }
}

fn greeting() -> Value {
    let payload = json!({
        "text": "Grüß Gott, 世界 🌍", "lines": ["a\n\"b\"", ""], "weight": 0.5, "none": null,
    });
    let metadata = json!({"default": false, "deployed": true, "flagType": "release"});
    json!({"key": "on", "value": "on", "payload": payload, "metadata": metadata})
}

/// Returns what only this one request can know, so that a crossed answer shows.
fn nonce(user: &Object, id: &str) -> Box<RawValue> {
    let text = |text: &str| to_raw_value(text).expect("a string can be written");
    let own = || field::<Object>(user, "user_properties")?.remove("nonce");
    let payload = match env::var("DEMO_NONCE") {
        Ok(nonce) => text(&nonce),
        Err(_) => own().unwrap_or_else(|| text(id)),
    };
    let variant =
        BTreeMap::from([("key", text("on")), ("payload", payload), ("value", text("on"))]);
    to_raw_value(&variant).expect("JSON can be written")
}

fn field<T: serde::de::DeserializeOwned>(user: &Object, name: &str) -> Option<T> {
    serde_json::from_str(user.get(name)?.get()).ok()
}

/// FNV-1a: the same on every machine, for ever.
fn stable_hash(id: &str, flag: &str) -> usize {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = flag.bytes().chain(id.bytes()).fold(0x811c_9dc5, step);
    // The low bits alone are poor.
    ((hash >> 16) ^ hash) as usize & 0xffff
}

fn flag_keys(header: &str) -> Option<Vec<String>> {
    serde_json::from_slice(&from_base64(header)?).ok()
}

/// Either alphabet, with padding or without: the SDKs differ.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}
