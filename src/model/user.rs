//! What is known of a user, and how it is written for the service.

use std::fmt;

use serde_json::value::RawValue;

use super::invalid::Invalid;
use super::json::{self, MAX_DEPTH};
use super::object::{self, Object, Value};

/// How large a user may be, as JSON.
pub const MAX_USER_BYTES: usize = 8 << 20;

pub(super) const SUBJECT: &str = "the user";

const USER_PROPERTIES: &str = "user_properties";
const GROUPS: &str = "groups";
const LIBRARY: &str = "library";

/// The fields of a user: any JSON under any name. Names and values are kept as they will be written.
///
/// A field that is null is absent. Setting a field again replaces it in its place. Every method
/// that fails leaves the user as it was.
#[derive(Clone, Default)]
pub struct User {
    /// All fields but the two below.
    fields: Object,
    user_properties: Nested,
    groups: Nested,
}

/// A field that is set as a whole or member by member.
#[derive(Clone, Default)]
enum Nested {
    #[default]
    Absent,
    /// Compact JSON of any type.
    Whole(String),
    Members(Object),
}

impl User {
    /// The user of whom nothing is known.
    pub fn new() -> Self {
        User::default()
    }

    /// Takes the members of a JSON object as fields; of several with one name the last counts.
    pub fn from_json(json: &str) -> Result<User, Invalid> {
        check_size(json.len())?;
        let mut user = User::new();
        for (name, value) in json::members(json, MAX_DEPTH - 1, SUBJECT)? {
            if is_absent(&name, Value::Json(value)) {
                continue;
            }
            match user.nested(&name) {
                Some(nested) => *nested = Nested::Whole(Value::Json(value).into_json()?),
                None => user.fields.add(&name, Value::Json(value))?,
            }
        }
        Ok(user)
    }

    /// Sets a field to a text.
    pub fn set_text(&mut self, field: &str, value: &str) -> Result<(), Invalid> {
        check_size(field.len().saturating_add(value.len()))?;
        self.set(field, Value::Text(value))
    }

    /// Sets a field to any JSON value; null makes it absent.
    pub fn set_json(&mut self, field: &str, json: &str) -> Result<(), Invalid> {
        check_size(field.len().saturating_add(json.len()))?;
        let value = json::one_value(json, MAX_DEPTH - 1, "the field's value")?;
        self.set(field, Value::Json(value))
    }

    /// Sets a member of `user_properties` to any JSON value, null included. Refused if that field
    /// was set to something that is no object.
    pub fn set_property_json(&mut self, name: &str, json: &str) -> Result<(), Invalid> {
        check_size(name.len().saturating_add(json.len()))?;
        let value = json::one_value(json, MAX_DEPTH - 2, "the property's value")?;
        let room = self.room();
        self.user_properties.members("user_properties of the user")?.set(
            name,
            Value::Json(value),
            room,
        )
    }

    /// Puts the user into one more group of a type, once: `groups` is `{"type":["name",…]}`.
    /// Refused if that field was set to something that is no object.
    pub fn add_group(&mut self, group_type: &str, name: &str) -> Result<(), Invalid> {
        check_size(group_type.len().saturating_add(name.len()))?;
        let room = self.room();
        let groups = self.groups.members("groups of the user")?;
        match with_name(groups.value(group_type), name)? {
            Some(names) => groups.set(group_type, Value::Json(&names), room),
            None => Ok(()),
        }
    }

    fn set(&mut self, field: &str, value: Value) -> Result<(), Invalid> {
        let room = self.room();
        if let Some(nested) = self.nested(field) {
            return nested.set(value, room);
        }
        if is_absent(field, value) {
            self.fields.remove(field);
            return Ok(());
        }
        self.fields.set(field, value, room)
    }

    fn nested(&mut self, field: &str) -> Option<&mut Nested> {
        match field {
            USER_PROPERTIES => Some(&mut self.user_properties),
            GROUPS => Some(&mut self.groups),
            _ => None,
        }
    }

    /// The bytes of all fields.
    fn size(&self) -> usize {
        self.fields.text().len() + self.user_properties.text().len() + self.groups.text().len()
    }

    /// By how many bytes the fields may grow.
    fn room(&self) -> usize {
        MAX_USER_BYTES.saturating_sub(self.size())
    }

    /// The user as the service reads it: compact JSON, with `default_library` as the library unless
    /// one was set that is not empty.
    pub fn encode(&self, default_library: &str) -> Result<Vec<u8>, Invalid> {
        const PUNCTUATION: usize = 64;
        let mut out = String::new();
        let bytes = self.size() + json::string_bytes(default_library) + PUNCTUATION;
        object::reserve(&mut out, bytes)?;
        out.push('{');
        out.push_str(self.fields.text());
        self.user_properties.push_to(&mut out, USER_PROPERTIES);
        self.groups.push_to(&mut out, GROUPS);
        if !self.fields.has(LIBRARY) {
            push_name(&mut out, LIBRARY);
            json::push_string(&mut out, default_library);
        }
        out.push('}');
        debug_assert!(out.len() <= bytes);
        Ok(out.into_bytes())
    }
}

/// Says how much there is, never what: it is personal data.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({} bytes)", self.size())
    }
}

fn check_size(bytes: usize) -> Result<(), Invalid> {
    if bytes > MAX_USER_BYTES { Err(object::too_large(bytes)) } else { Ok(()) }
}

/// Null stands for an absent field, and so does an empty library, which the default one replaces.
fn is_absent(field: &str, value: Value) -> bool {
    match value {
        Value::Text(text) => field == LIBRARY && text.is_empty(),
        Value::Json(json) => json == "null" || (field == LIBRARY && json == "\"\""),
    }
}

/// The group names with one more, or `None` if it is among them. A value that is no array counts
/// as the first name, as some callers write `{"type":"name"}`.
fn with_name(names: Option<&str>, name: &str) -> Result<Option<String>, Invalid> {
    let elements = match names {
        Some(array) if array.starts_with('[') => &array[1..array.len() - 1],
        Some(single) => single,
        None => "",
    };
    let mut out = String::new();
    object::reserve(&mut out, elements.len() + json::string_bytes(name) + "[,]".len())?;
    out.push('[');
    out.push_str(elements);
    out.push(']');
    if has_name(&out, name)? {
        return Ok(None);
    }
    out.pop();
    if !elements.is_empty() {
        out.push(',');
    }
    json::push_string(&mut out, name);
    out.push(']');
    Ok(Some(out))
}

fn has_name(names: &str, name: &str) -> Result<bool, Invalid> {
    let names: Vec<&RawValue> =
        serde_json::from_str(names).map_err(|error| Invalid::parsing(SUBJECT, error))?;
    let is_name =
        |json: &str| json.starts_with('"') && json::text_of(json).as_deref() == Some(name);
    Ok(names.iter().any(|element| is_name(element.get())))
}

impl Nested {
    fn is_absent(&self) -> bool {
        match self {
            Nested::Absent => true,
            Nested::Whole(_) => false,
            Nested::Members(members) => members.text().is_empty(),
        }
    }

    fn text(&self) -> &str {
        match self {
            Nested::Absent => "",
            Nested::Whole(json) => json,
            Nested::Members(members) => members.text(),
        }
    }

    fn set(&mut self, value: Value, room: usize) -> Result<(), Invalid> {
        let json = value.into_json()?;
        object::check_room(json.len().saturating_sub(self.text().len()), room)?;
        *self = if json == "null" { Nested::Absent } else { Nested::Whole(json) };
        Ok(())
    }

    /// The members, so that they can be added to.
    fn members(&mut self, subject: &'static str) -> Result<&mut Object, Invalid> {
        match self {
            Nested::Members(_) => {}
            Nested::Absent => *self = Nested::Members(Object::default()),
            Nested::Whole(json) => *self = Nested::Members(Object::from_json(json, subject)?),
        }
        match self {
            Nested::Members(members) => Ok(members),
            _ => unreachable!("the members were just put there"),
        }
    }

    fn push_to(&self, out: &mut String, name: &str) {
        if self.is_absent() {
            return;
        }
        push_name(out, name);
        match self {
            Nested::Members(members) => {
                out.push('{');
                out.push_str(members.text());
                out.push('}');
            }
            _ => out.push_str(self.text()),
        }
    }
}

/// Begins a member of an object whose text so far is `out`; the name needs no escapes.
fn push_name(out: &mut String, name: &str) {
    out.push_str(if out.ends_with('{') { "\"" } else { ",\"" });
    out.push_str(name);
    out.push_str("\":");
}

#[cfg(test)]
mod tests {
    use super::super::invalid::Kind;
    use super::*;

    fn encoded(user: &User) -> String {
        String::from_utf8(user.encode("lib/1").unwrap()).unwrap()
    }

    /// How the user is written, less the library.
    fn fields(user: &User) -> String {
        let all = encoded(user);
        let fields =
            all.strip_suffix(r#""library":"lib/1"}"#).expect("the default library ends it");
        format!("{}}}", fields.strip_suffix(',').unwrap_or(fields))
    }

    fn from_json(json: &str) -> User {
        User::from_json(json).unwrap()
    }

    fn refusal(json: &str) -> Kind {
        User::from_json(json).unwrap_err().kind()
    }

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn an_empty_user_is_written_with_the_library_alone() {
        assert_eq!(encoded(&User::new()), r#"{"library":"lib/1"}"#);
        assert_eq!(encoded(&from_json(" {} ")), r#"{"library":"lib/1"}"#);
    }

    #[test]
    fn fields_are_written_compact_and_in_order() {
        let mut user = User::new();
        user.set_text("user_id", "u\"1\" é\n").unwrap();
        user.set_json("cohort_ids", " [ \"a b\" , 1.0 ]").unwrap();
        user.set_text("country", "").unwrap();
        let expected = r#"{"user_id":"u\"1\" é\n","cohort_ids":["a b",1.0],"country":""}"#;
        assert_eq!(fields(&user), expected);
    }

    #[test]
    fn any_name_and_any_number_survive() {
        let mut user = User::new();
        user.set_json("\u{0}\"日\\", "12345678901234567890123").unwrap();
        user.set_json("", "-0.10E+400").unwrap();
        let expected = r#"{"\u0000\"日\\":12345678901234567890123,"":-0.10E+400}"#;
        assert_eq!(fields(&user), expected);
        assert_eq!(fields(&from_json(expected)), expected);
    }

    #[test]
    fn unknown_keys_of_the_json_are_kept() {
        let user = from_json("{ \"new\" : { \"a\" : [ ] } , \"user_id\" : \"u\" }");
        assert_eq!(fields(&user), r#"{"new":{"a":[]},"user_id":"u"}"#);
    }

    #[test]
    fn of_duplicate_keys_the_last_counts() {
        let user = from_json(r#"{"a":1,"b":2,"\u0061":3,"groups":{"x":1},"groups":{"y":2}}"#);
        assert_eq!(fields(&user), r#"{"b":2,"a":3,"groups":{"y":2}}"#);
        assert_eq!(fields(&from_json(r#"{"a":1,"a":null}"#)), "{}");
    }

    #[test]
    fn null_is_absent() {
        let user = from_json(r#"{"user_id":null,"user_properties":null,"groups":null}"#);
        assert_eq!(fields(&user), "{}");
        let mut user = from_json(r#"{"a":1,"b":2,"groups":{"x":["y"]}}"#);
        user.set_json("a", " null ").unwrap();
        user.set_json("groups", "null").unwrap();
        assert_eq!(fields(&user), r#"{"b":2}"#);
    }

    #[test]
    fn a_field_set_again_is_replaced_in_its_place() {
        let mut user = from_json(r#"{"a":1,"b":2}"#);
        user.set_text("a", "longer than before").unwrap();
        user.set_text("c", "3").unwrap();
        assert_eq!(fields(&user), r#"{"a":"longer than before","b":2,"c":"3"}"#);
    }

    #[test]
    fn the_callers_library_wins_unless_it_is_empty() {
        let mut user = User::new();
        user.set_text("library", "mine/2").unwrap();
        assert_eq!(encoded(&user), r#"{"library":"mine/2"}"#);
        user.set_text("library", "").unwrap();
        assert_eq!(encoded(&user), r#"{"library":"lib/1"}"#);
        assert_eq!(encoded(&from_json(r#"{"library":""}"#)), r#"{"library":"lib/1"}"#);
        assert_eq!(encoded(&from_json(r#"{"library":"m"}"#)), r#"{"library":"m"}"#);
    }

    #[test]
    fn properties_are_collected_and_keep_their_order() {
        let mut user = User::new();
        user.set_property_json("plan", " \"pro\" ").unwrap();
        user.set_property_json("seats", "5").unwrap();
        user.set_property_json("gone", "null").unwrap();
        user.set_property_json("plan", "[1, 2]").unwrap();
        let expected = r#"{"user_properties":{"plan":[1,2],"seats":5,"gone":null}}"#;
        assert_eq!(fields(&user), expected);
    }

    #[test]
    fn properties_from_json_can_be_extended() {
        let mut user = from_json(r#"{"user_properties": {"a": 1, "b": 2, "a": 3}}"#);
        user.set_property_json("b", "4").unwrap();
        user.set_property_json("c", "5").unwrap();
        assert_eq!(fields(&user), r#"{"user_properties":{"b":4,"a":3,"c":5}}"#);
    }

    #[test]
    fn properties_that_are_no_object_are_kept_and_not_extended() {
        let mut user = from_json(r#"{"user_properties":[1],"groups":"g"}"#);
        let refused = user.set_property_json("a", "1").unwrap_err();
        assert_eq!(refused.to_string(), "user_properties of the user is not a JSON object");
        assert_eq!(user.add_group("t", "n").unwrap_err().kind(), Kind::NotAnObject);
        assert_eq!(fields(&user), r#"{"user_properties":[1],"groups":"g"}"#);
    }

    #[test]
    fn a_group_is_added_once() {
        let mut user = User::new();
        for name in ["a", "b\"", "a", "b\""] {
            user.add_group("team", name).unwrap();
        }
        user.add_group("org", "").unwrap();
        assert_eq!(fields(&user), r#"{"groups":{"team":["a","b\""],"org":[""]}}"#);
    }

    #[test]
    fn groups_from_json_can_be_extended() {
        let mut user = from_json(r#"{"groups":{"t":["\u0061", 7, []],"single":"s","none":[]}}"#);
        for (group_type, name) in
            [("t", "a"), ("t", "7"), ("single", "s"), ("single", "r"), ("none", "n")]
        {
            user.add_group(group_type, name).unwrap();
        }
        let expected = r#"{"groups":{"t":["\u0061",7,[],"7"],"single":["s","r"],"none":["n"]}}"#;
        assert_eq!(fields(&user), expected);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for json in ["null", "[]", "\"text\"", "1", "true"] {
            assert_eq!(refusal(json), Kind::NotAnObject, "{json}");
        }
        for json in ["nul!", "{\"a\":01}", "{} x", "{'a':1}", "{\"a\":1,}", "{\"\\ud800\":1}"] {
            assert_eq!(refusal(json), Kind::NotJson, "{json}");
        }
        for json in ["", "{", "{\"a", "{\"a\":1", "{\"a\":[1,"] {
            assert_eq!(refusal(json), Kind::Cut, "{json}");
        }
    }

    #[test]
    fn refusals_say_where_and_never_what() {
        for json in
            ["\"secret\"", "{\"secret\":\"secret\"\n secret}", "{\"secret\":\"sec", "[\"secret\"]"]
        {
            let message = User::from_json(json).unwrap_err().to_string();
            assert!(!message.contains("secret"), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
        let message = User::from_json("{\"a\":1\n secret}").unwrap_err().to_string();
        let expected = "the user is not valid JSON: expected `,` or `}` at line 2 column 2";
        assert_eq!(message, expected);
    }

    #[test]
    fn debug_shows_no_personal_data() {
        let mut user = from_json(r#"{"user_id":"secret","user_properties":{"secret":1}}"#);
        user.add_group("secret", "secret").unwrap();
        assert!(!format!("{user:?}").contains("secret"));
    }

    #[test]
    fn depth_is_bounded_for_the_user_as_a_whole() {
        let field = |depth| format!("{{\"a\":{}}}", nested(depth));
        assert!(User::from_json(&field(MAX_DEPTH - 1)).is_ok());
        assert_eq!(refusal(&field(MAX_DEPTH)), Kind::TooDeep);
        let mut user = User::new();
        user.set_json("a", &nested(MAX_DEPTH - 1)).unwrap();
        user.set_property_json("a", &nested(MAX_DEPTH - 2)).unwrap();
        assert!(User::from_json(&encoded(&user)).is_ok());
        for error in [
            user.set_json("a", &nested(MAX_DEPTH)).unwrap_err(),
            user.set_property_json("a", &nested(MAX_DEPTH - 1)).unwrap_err(),
        ] {
            assert_eq!(error.kind(), Kind::TooDeep);
        }
    }

    #[test]
    fn a_million_levels_are_refused() {
        let deep = nested(1_000_000);
        assert_eq!(refusal(&deep), Kind::NotAnObject);
        assert_eq!(refusal(&format!("{{\"a\":{deep}}}")), Kind::TooDeep);
        assert_eq!(refusal(&format!("{{\"a\":{}", "[".repeat(1_000_000))), Kind::Cut);
        let mut user = User::new();
        assert_eq!(user.set_json("a", &deep).unwrap_err().kind(), Kind::TooDeep);
        assert_eq!(user.set_property_json("a", &deep).unwrap_err().kind(), Kind::TooDeep);
        assert_eq!(fields(&user), "{}");
    }

    #[test]
    fn a_hundred_megabytes_are_refused_before_they_are_read() {
        let huge = "x".repeat(100 << 20);
        let error = User::from_json(&huge).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the user has 104857600 bytes, more than the limit of 8388608"
        );
        let mut user = User::new();
        for refused in [
            user.set_text("a", &huge),
            user.set_text(&huge, "a"),
            user.set_json("a", &huge),
            user.set_property_json("a", &huge),
            user.add_group(&huge, "a"),
        ] {
            assert!(matches!(refused.unwrap_err().kind(), Kind::TooLarge { .. }));
        }
        assert_eq!(fields(&user), "{}");
    }

    #[test]
    fn growth_is_bounded_and_a_refused_value_changes_nothing() {
        let mut user = User::new();
        let half = "x".repeat(MAX_USER_BYTES / 2);
        user.set_text("a", &half).unwrap();
        user.set_text("b", "small").unwrap();
        let before = encoded(&user);
        let quoted = format!("\"{half}\"");
        for refused in [
            user.set_text("b", &half),
            user.set_text("c", &half),
            user.set_text("c", &"\n".repeat(MAX_USER_BYTES / 3)),
            user.set_text("groups", &half),
            user.set_property_json("c", &quoted),
            user.add_group("c", &half),
        ] {
            assert!(matches!(refused.unwrap_err().kind(), Kind::TooLarge { .. }));
            assert!(encoded(&user) == before);
        }
        user.set_text("a", "gives room").unwrap();
        user.set_property_json("c", &quoted).unwrap();
    }

    #[test]
    fn many_fields_do_not_take_quadratic_time() {
        let members: Vec<String> = (0..500_000).map(|n| format!("\"{n}\":0")).collect();
        let json = format!("{{{}}}", members.join(","));
        assert!(fields(&from_json(&json)) == json);
    }

    #[test]
    fn a_copy_is_a_user_of_its_own() {
        let mut user = User::new();
        user.set_text("a", "1").unwrap();
        let copy = user.clone();
        user.set_text("a", "2").unwrap();
        assert_eq!(fields(&copy), r#"{"a":"1"}"#);
    }
}
