//! A JSON object under construction, kept as it will be written, so that writing it is copying it.

use std::ops::Range;

use super::invalid::{Invalid, Kind};
use super::json::{self, MAX_DEPTH};
use super::user::{MAX_USER_BYTES, SUBJECT};

/// A value on its way into an object.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Text(&'a str),
    /// Valid JSON.
    Json(&'a str),
}

impl Value<'_> {
    /// At most this many bytes are appended by `push_to`.
    fn most_bytes(self) -> usize {
        match self {
            Value::Text(text) => json::string_bytes(text),
            Value::Json(json) => json.len(),
        }
    }

    fn push_to(self, out: &mut String) {
        match self {
            Value::Text(text) => json::push_string(out, text),
            Value::Json(json) => json::push_compact(out, json),
        }
    }

    /// The value as compact JSON.
    pub fn into_json(self) -> Result<String, Invalid> {
        let mut out = String::new();
        reserve(&mut out, self.most_bytes())?;
        self.push_to(&mut out);
        Ok(out)
    }
}

/// Fails where `String` would abort: what is known of a user may be large.
pub fn reserve(out: &mut String, bytes: usize) -> Result<(), Invalid> {
    out.try_reserve(bytes).map_err(|_| out_of_memory(bytes))
}

fn out_of_memory(bytes: usize) -> Invalid {
    Invalid::new(SUBJECT, Kind::OutOfMemory { bytes })
}

pub fn too_large(bytes: usize) -> Invalid {
    Invalid::new(SUBJECT, Kind::TooLarge { bytes, limit: MAX_USER_BYTES })
}

/// The members of a JSON object, in the order in which their names came.
#[derive(Clone, Default)]
pub struct Object {
    /// `"name":value,"name":value`
    text: String,
    members: Vec<Member>,
}

/// Where a member lies in the text: its name, quotes included, from `start` to `colon`, its value
/// from there to `end`.
#[derive(Clone, Copy)]
struct Member {
    start: usize,
    colon: usize,
    end: usize,
}

impl Member {
    /// Without the quotes.
    fn name(self) -> Range<usize> {
        self.start + 1..self.colon - 1
    }

    fn value(self) -> Range<usize> {
        self.colon + 1..self.end
    }
}

impl Object {
    /// Reads a JSON object; of several members with one name the last counts.
    pub fn from_json(json: &str, subject: &'static str) -> Result<Self, Invalid> {
        let mut object = Object::default();
        for (name, value) in json::members(json, MAX_DEPTH, subject)? {
            object.add(&name, Value::Json(value))?;
        }
        Ok(object)
    }

    /// The members, between the braces.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value of that name, as compact JSON.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.position(&json::escaped(name)).map(|at| &self.text[self.members[at].value()])
    }

    pub fn has(&self, name: &str) -> bool {
        self.position(&json::escaped(name)).is_some()
    }

    /// Users have a few dozen members; looking at each is faster than an index would be.
    fn position(&self, escaped_name: &str) -> Option<usize> {
        self.members.iter().position(|member| self.text[member.name()] == *escaped_name)
    }

    /// Adds a member whose name is new.
    pub fn add(&mut self, name: &str, value: Value) -> Result<(), Invalid> {
        let member = self.append(name, value)?;
        self.members.push(member);
        Ok(())
    }

    /// Gives `name` that value, in its old place if it has one. The text may grow by `room` bytes;
    /// an error leaves it as it was.
    pub fn set(&mut self, name: &str, value: Value, room: usize) -> Result<(), Invalid> {
        let before = self.text.len();
        let new = self.append(name, value)?;
        if let Some(at) = self.position(&self.text[new.name()]) {
            let value = self.text.split_off(new.value().start);
            self.text.truncate(before);
            return self.replace(at, &value, room);
        }
        if let Err(too_large) = check_room(self.text.len() - before, room) {
            self.text.truncate(before);
            return Err(too_large);
        }
        self.members.push(new);
        Ok(())
    }

    /// Writes a member to the end of the text; `members` does not know it yet.
    fn append(&mut self, name: &str, value: Value) -> Result<Member, Invalid> {
        let punctuation = ",:".len();
        reserve(&mut self.text, json::string_bytes(name) + value.most_bytes() + punctuation)?;
        self.members.try_reserve(1).map_err(|_| out_of_memory(size_of::<Member>()))?;
        if !self.text.is_empty() {
            self.text.push(',');
        }
        let start = self.text.len();
        json::push_string(&mut self.text, name);
        let colon = self.text.len();
        self.text.push(':');
        value.push_to(&mut self.text);
        Ok(Member { start, colon, end: self.text.len() })
    }

    fn replace(&mut self, at: usize, value: &str, room: usize) -> Result<(), Invalid> {
        let old = self.members[at].value();
        check_room(value.len().saturating_sub(old.len()), room)?;
        let growth = value.len().wrapping_sub(old.len());
        self.text.replace_range(old, value);
        self.members[at].end = self.members[at].end.wrapping_add(growth);
        self.shift(at + 1, growth);
        Ok(())
    }

    /// Drops the member of that name, if there is one.
    pub fn remove(&mut self, name: &str) {
        let Some(at) = self.position(&json::escaped(name)) else {
            return;
        };
        let member = self.members.remove(at);
        // One comma goes with it: the one in front, or the one behind the first member.
        let gone = match at {
            0 => 0..self.text.len().min(member.end + 1),
            _ => member.start - 1..member.end,
        };
        self.shift(at, gone.len().wrapping_neg());
        self.text.drain(gone);
    }

    /// Moves the members from `first` on; `by` wraps around to move them to the front.
    fn shift(&mut self, first: usize, by: usize) {
        for member in &mut self.members[first..] {
            member.start = member.start.wrapping_add(by);
            member.colon = member.colon.wrapping_add(by);
            member.end = member.end.wrapping_add(by);
        }
    }
}

/// Whether a text may grow so much.
pub fn check_room(growth: usize, room: usize) -> Result<(), Invalid> {
    if growth > room {
        return Err(too_large(MAX_USER_BYTES - room + growth));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object_of(members: &[(&str, &str)]) -> Object {
        let mut object = Object::default();
        for (name, json) in members {
            object.set(name, Value::Json(json), usize::MAX).unwrap();
        }
        object
    }

    #[test]
    fn members_keep_the_order_in_which_their_names_came() {
        let object = object_of(&[("b", "1"), ("a", "2"), ("b", "[3, 4]"), ("c", "5")]);
        assert_eq!(object.text(), r#""b":[3,4],"a":2,"c":5"#);
    }

    #[test]
    fn a_replaced_value_may_be_shorter_longer_or_equal() {
        let mut object = object_of(&[("a", "10"), ("b", "20"), ("c", "30")]);
        for (json, text) in [
            ("1", r#""a":10,"b":1,"c":30"#),
            ("100000", r#""a":10,"b":100000,"c":30"#),
            ("200000", r#""a":10,"b":200000,"c":30"#),
        ] {
            object.set("b", Value::Json(json), usize::MAX).unwrap();
            assert_eq!(object.text(), text);
            assert_eq!(object.value("c"), Some("30"));
        }
    }

    #[test]
    fn removing_leaves_no_stray_comma() {
        let full = object_of(&[("a", "1"), ("b", "2"), ("c", "3")]);
        for (name, rest) in
            [("a", r#""b":2,"c":3"#), ("b", r#""a":1,"c":3"#), ("c", r#""a":1,"b":2"#)]
        {
            let mut object = full.clone();
            object.remove(name);
            assert_eq!(object.text(), rest);
            object.set("d", Value::Text("4"), usize::MAX).unwrap();
            assert_eq!(object.text(), format!(r#"{rest},"d":"4""#));
        }
        let mut single = object_of(&[("a", "1")]);
        single.remove("a");
        single.remove("a");
        assert_eq!(single.text(), "");
    }

    #[test]
    fn names_that_need_escapes_are_found_again() {
        let mut object = object_of(&[("a\"\n", "1")]);
        object.set("a\"\n", Value::Text("\u{1}"), usize::MAX).unwrap();
        assert_eq!(object.text(), r#""a\"\n":"\u0001""#);
        assert_eq!(object.value("a\"\n"), Some(r#""\u0001""#));
    }

    #[test]
    fn what_has_no_room_leaves_the_object_as_it_was() {
        let mut object = object_of(&[("a", "1"), ("b", "2")]);
        let before = object.text().to_owned();
        assert!(object.set("c", Value::Json("3"), 5).is_err());
        assert!(object.set("a", Value::Json("123"), 1).is_err());
        assert_eq!(object.text(), before);
        object.set("c", Value::Json("3"), 6).unwrap();
        object.set("a", Value::Json("123"), 2).unwrap();
        assert_eq!(object.text(), r#""a":123,"b":2,"c":3"#);
    }
}
