//! What the service answers when not told otherwise.

mod support;

use std::collections::BTreeSet;

use mock_service::{MockService, Script};
use serde_json::{Value, json};
use support::{Client, Response, USER};

fn variants(user: &str) -> Value {
    let service = MockService::start(Script::service());
    Client::of(&service).post(user).response().json()
}

fn asked(request: &str) -> Response {
    let service = MockService::start(Script::service());
    Client::of(&service).send(request).response()
}

#[test]
fn the_same_user_gets_the_same_variants() {
    let variants_of_u = variants(USER);
    assert_eq!(variants_of_u, variants(USER));
    assert_eq!(variants_of_u["demo-greeting"]["payload"]["text"], "Grüß Gott, 世界 🌍");
    assert_eq!(variants_of_u["demo-color"]["metadata"]["experimentKey"], "exp-1");
}

#[test]
fn users_differ_and_an_off_variant_has_no_value() {
    let service = MockService::start(Script::service());
    let mut client = Client::of(&service);
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    for number in 0..32 {
        let user = json!({"user_id": format!("user-{number}")}).to_string();
        let variants = client.post(&user).response().json();
        for (seen, flag) in seen.iter_mut().zip(["demo-color", "demo-checkout"]) {
            let variant = &variants[flag];
            let off = variant["key"] == "off";
            assert_eq!(variant["value"], if off { Value::Null } else { variant["key"].clone() });
            assert_eq!(variant["metadata"]["default"], off);
            seen.insert(variant["key"].to_string());
        }
    }
    assert_eq!(seen.map(|seen| seen.len()), [3, 2]);
    assert_eq!(service.connections_accepted(), 1);
}

#[test]
fn the_nonce_comes_back_as_it_was_written() {
    for nonce in ["18446744073709551615", "1.50", r#""a\u0062""#, "{\"x\": []}", "null"] {
        let user = format!(r#"{{"user_id":"u","user_properties":{{"nonce":{nonce}}}}}"#);
        let service = MockService::start(Script::service());
        let body = Client::of(&service).post(&user).response().body;
        let echo = format!(r#""demo-nonce":{{"key":"on","payload":{nonce},"value":"on"}}"#);
        assert!(body.contains(&echo), "{body}");
    }
}

#[test]
fn without_a_nonce_it_is_the_user_id() {
    assert_eq!(variants(USER)["demo-nonce"]["payload"], "u");
    assert_eq!(variants(r#"{"user_properties":null}"#)["demo-nonce"]["payload"], "");
}

#[test]
fn the_flag_keys_restrict_the_answer() {
    let service = MockService::start(Script::service());
    let mut client = Client::of(&service);
    let mut with = |keys: &str| {
        let headers = format!("authorization: Api-Key k\r\nx-amp-exp-flag-keys: {keys}\r\n");
        client.post_with(&headers, USER).response()
    };
    // ["demo-nonce","é"] and [].
    let variants = with("WyJkZW1vLW5vbmNlIiwiw6kiXQ").json();
    assert_eq!(variants.as_object().map(|object| object.len()), Some(1));
    assert_eq!(variants["demo-nonce"]["key"], "on");
    assert_eq!(with("W10").body, "{}");
    assert_eq!(with("!").status(), 400);
}

#[test]
fn any_base_path_is_the_service() {
    let post = |path: &str| {
        asked(&format!(
            "POST {path} HTTP/1.1\r\nAuthorization: Api-Key k\r\nContent-Length: 2\r\n\r\n{{}}"
        ))
    };
    assert_eq!(post("/base/path/sdk/v2/vardata").status(), 200);
    assert_eq!(post("/sdk/v2/vardata?v=0").status(), 200);
    assert_eq!(post("/sdk/v2/flags").status(), 404);
}

#[test]
fn a_user_in_a_header_is_one_too() {
    // {"user_id":"ü~?"} in the standard alphabet with padding, and in the other without.
    for user in ["eyJ1c2VyX2lkIjoiw7x+PyJ9", "eyJ1c2VyX2lkIjoiw7x-PyJ9"] {
        let response = asked(&format!(
            "GET /sdk/v2/vardata HTTP/1.1\r\nAuthorization: Api-Key k\r\nX-Amp-Exp-User: {user}\r\n\r\n"
        ));
        assert_eq!(response.json()["demo-nonce"]["payload"], "ü~?");
    }
}

#[test]
fn what_the_service_cannot_answer_it_refuses() {
    let service = MockService::start(Script::service());
    let mut client = Client::of(&service);
    for headers in ["", "Authorization: Api-Key \r\n", "Authorization: Bearer k\r\n"] {
        assert_eq!(client.post_with(headers, USER).response().status(), 401, "{headers}");
    }
    for user in ["", "{", "[]", "null", "\"u\""] {
        assert_eq!(client.post(user).response().status(), 400, "{user}");
    }
    let put = "PUT /sdk/v2/vardata HTTP/1.1\r\nAuthorization: Api-Key k\r\n\r\n";
    assert_eq!(client.send(put).response().status(), 405);
}
