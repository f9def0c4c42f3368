//! Bodies of answers: the same flags, keys, values, payloads and metadata as a tree has, by the rules
//! of decoding, and texts that C can read.
#![no_main]

use std::collections::HashSet;

use experiment::model::{Decoded, Checkpoint, Text, Undecoded, Variant, Variants};
use experiment_fuzz::json::{self, Members, Unread};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fuzz_target!(|body: &[u8]| {
    let decoded = Variants::decode(body.to_vec(), Checkpoint::while_told(&mut |_| true));
    match (json::members(body), decoded) {
        (Ok(members), Ok(decoded)) => compare(&members, &decoded),
        (Err(Unread::Beyond), Ok(decoded)) => read(&decoded.variants),
        (Err(_), Err(Undecoded::Invalid(invalid))) => {
            assert!(!invalid.to_string().contains(['\n', '\0']), "one line");
        }
        (expected, found) => panic!("{expected:?}, but {found:?}"),
    }
});

/// What can be read of any set.
fn read(variants: &Variants) {
    let flags: HashSet<&str> = variants.iter().map(|variant| variant.flag_key().as_str()).collect();
    assert_eq!(flags.len(), variants.len(), "one variant for each flag");
    for variant in variants {
        let found = variants.get(variant.flag_key().as_str()).expect("it is found by its flag");
        assert!(std::ptr::eq(found, variant));
        c_string(variant.flag_key());
        let texts =
            [variant.key(), variant.value(), variant.payload_json(), variant.metadata_json()];
        texts.into_iter().flatten().for_each(c_string);
        for compact in [variant.payload_json(), variant.metadata_json()].into_iter().flatten() {
            assert!(json::is_compact(compact.as_str()), "{}", compact.as_str());
        }
    }
    assert!(variants.at(variants.len()).is_none());
    c_string(variants.json());
    assert!(json::is_compact(variants.json().as_str()));
    let again = Variants::decode(variants.json().as_bytes().to_vec(), Checkpoint::unhurried());
    let again = again.expect("what it writes it reads");
    assert_eq!((again.variants.len(), again.skipped), (variants.len(), 0));
    assert_eq!(again.variants.json().as_str(), variants.json().as_str());
    let deployed = variants.filter_deployed();
    assert!(deployed.iter().all(|variant| deployed.get(variant.flag_key().as_str()).is_some()));
    assert_eq!(variants.share().json().as_str(), variants.json().as_str());
}

fn c_string(text: Text<'_>) {
    // SAFETY: that this byte is there, and is NUL, is what is promised; the sanitizer sees to it.
    assert_eq!(unsafe { *text.as_ptr().add(text.as_str().len()) }, 0);
}

fn compare(members: &Members, Decoded { variants, skipped }: &Decoded) {
    let mut expected: Vec<(&str, &Map<String, Value>)> = Vec::new();
    for (flag, value) in members {
        if let Value::Object(fields) = value {
            expected.retain(|(earlier, _)| earlier != flag);
            expected.push((flag, fields));
        }
    }
    assert_eq!(*skipped, members.iter().filter(|(_, value)| !value.is_object()).count());
    assert_eq!(variants.len(), expected.len());
    for (variant, (flag, fields)) in variants.iter().zip(&expected) {
        assert_eq!(variant.flag_key().as_str(), *flag);
        check_text(variant.key(), fields.get("key"));
        check_text(variant.value(), fields.get("value"));
        check_json(variant.payload_json(), fields.get("payload"));
        check_json(variant.metadata_json(), fields.get("metadata"));
    }
    read(variants);
    let whole: Map<String, Value> = expected
        .iter()
        .map(|(flag, fields)| ((*flag).to_owned(), Value::Object((*fields).clone())))
        .collect();
    assert_eq!(json::value(variants.json().as_str()), Some(Value::Object(whole)));
    check_deployed(variants, &expected);
}

fn check_text(found: Option<Text<'_>>, sent: Option<&Value>) {
    match sent {
        Some(Value::String(text)) => assert_eq!(found.as_deref(), Some(text.as_str())),
        sent => check_json(found, sent),
    }
}

fn check_json(found: Option<Text<'_>>, sent: Option<&Value>) {
    let sent = sent.filter(|value| !value.is_null());
    assert_eq!(found.map(|text| json::value(text.as_str()).expect("JSON")).as_ref(), sent);
}

fn check_deployed(variants: &Variants, expected: &[(&str, &Map<String, Value>)]) {
    let is_deployed = |fields: &Map<String, Value>| {
        let says = |name: &str, wanted: bool| {
            let metadata = fields.get("metadata").and_then(Value::as_object);
            metadata.and_then(|metadata| metadata.get(name)) == Some(&Value::Bool(wanted))
        };
        !says("default", true) && !says("deployed", false)
    };
    let deployed = variants.filter_deployed();
    let flags = deployed.iter().map(Variant::flag_key).map(Text::as_str);
    let wanted = expected.iter().filter(|(_, fields)| is_deployed(fields)).map(|(flag, _)| *flag);
    assert!(flags.eq(wanted));
}
