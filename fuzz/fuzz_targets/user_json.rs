//! Users: made from JSON, then changed by every setter, and written as a tree says that they should
//! be. The input is parts that NUL separates: the JSON, then for each setter its letter and texts.
#![no_main]

use experiment::model::{Invalid, User};
use experiment_fuzz::json::{self, Unread};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

const LIBRARY: &str = "fuzz/1";

/// What the user should be; nothing once a value came that a tree does not hold.
type Model = Option<Map<String, Value>>;

fuzz_target!(|input: &[u8]| {
    let Ok(input) = std::str::from_utf8(input) else { return };
    if input.contains(json::TOKEN) {
        return;
    }
    let mut parts = input.split('\0');
    let (mut user, mut model) = begin(parts.next().unwrap_or_default());
    while let (Some(setter), Some(name), Some(text)) = (parts.next(), parts.next(), parts.next()) {
        let before = encoded(&user);
        let result = match setter {
            "t" => set_text(&mut user, &mut model, name, text),
            "j" => set_json(&mut user, &mut model, name, text),
            "p" => set_property(&mut user, &mut model, name, text),
            "g" => add_group(&mut user, &mut model, name, text),
            _ => continue,
        };
        if let Err(invalid) = result {
            assert!(!invalid.to_string().contains(['\n', '\0']), "one line");
            assert_eq!(encoded(&user), before, "a refused value leaves the user as it was");
        }
        check(&user, &model);
    }
});

fn encoded(user: &User) -> String {
    let bytes = user.encode(LIBRARY).expect("there is memory for it");
    String::from_utf8(bytes).expect("it is text")
}

fn begin(json: &str) -> (User, Model) {
    let made = User::from_json(json);
    let (user, model) = match (json::members(json.as_bytes()), made) {
        (Ok(members), Ok(user)) => {
            let mut model = Map::new();
            members.into_iter().for_each(|(name, value)| put(&mut model, name, value));
            (user, Some(model))
        }
        (Err(Unread::Beyond), Ok(user)) => (user, None),
        (Err(_), Err(_)) => (User::new(), Some(Map::new())),
        (expected, found) => panic!("{expected:?}, but {found:?}"),
    };
    check(&user, &model);
    (user, model)
}

/// Null is absent, and so is an empty library.
fn put(model: &mut Map<String, Value>, name: String, value: Value) {
    if value.is_null() || name == "library" && value == "" {
        model.remove(&name);
    } else {
        model.insert(name, value);
    }
}

fn check(user: &User, model: &Model) {
    let written = encoded(user);
    assert!(json::is_compact(&written), "{written}");
    let again = User::from_json(&written).expect("what it writes it reads");
    let again = encoded(&again);
    assert_eq!(
        encoded(&User::from_json(&again).unwrap()),
        again,
        "and writes the same from then on"
    );
    let Some(mut model) = model.clone() else { return };
    model.entry("library").or_insert_with(|| LIBRARY.into());
    let model = Some(Value::Object(model));
    assert_eq!(json::value(&written), model, "{written}");
    assert_eq!(json::value(&again), model, "{again}");
}

fn set_text(user: &mut User, model: &mut Model, name: &str, text: &str) -> Result<(), Invalid> {
    user.set_text(name, text).expect("any text");
    if let Some(model) = model {
        put(model, name.to_owned(), text.into());
    }
    Ok(())
}

fn set_json(user: &mut User, model: &mut Model, name: &str, json: &str) -> Result<(), Invalid> {
    let result = user.set_json(name, json);
    match (json::value(json), &result) {
        (Some(value), Ok(())) => {
            if let Some(model) = model {
                put(model, name.to_owned(), value);
            }
        }
        (None, Ok(())) => *model = None,
        (None, Err(_)) => {}
        (Some(value), Err(invalid)) => panic!("{invalid}: {value}"),
    }
    result
}

fn set_property(user: &mut User, model: &mut Model, name: &str, json: &str) -> Result<(), Invalid> {
    let result = user.set_property_json(name, json);
    let Some(fields) = model else { return result };
    let properties = fields.get("user_properties");
    let can = properties.is_none_or(Value::is_object);
    match (json::value(json), &result) {
        (Some(value), Ok(())) if can => {
            let properties = fields.entry("user_properties").or_insert_with(|| Map::new().into());
            properties.as_object_mut().expect("it can").insert(name.to_owned(), value);
        }
        (None, Ok(())) => *model = None,
        (None, Err(_)) => {}
        (Some(_), Err(_)) if !can => {}
        (value, result) => panic!("{value:?}: {result:?}"),
    }
    result
}

fn add_group(user: &mut User, model: &mut Model, kind: &str, name: &str) -> Result<(), Invalid> {
    let result = user.add_group(kind, name);
    let Some(fields) = model else { return result };
    let can = fields.get("groups").is_none_or(Value::is_object);
    assert_eq!(result.is_ok(), can, "{result:?}");
    if can {
        let groups = fields.entry("groups").or_insert_with(|| Map::new().into());
        let groups = groups.as_object_mut().expect("it can");
        let names = groups.entry(kind).or_insert_with(|| Value::Array(Vec::new()));
        // A single name may stand without its array.
        if *names != name {
            if !names.is_array() {
                *names = vec![names.take()].into();
            }
            let names = names.as_array_mut().expect("an array");
            if !names.iter().any(|known| known == name) {
                names.push(name.into());
            }
        }
    }
    result
}
