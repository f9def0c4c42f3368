//! What the service is sent, byte for byte.

mod common;

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use common::*;
use experiment::client::Client;
use experiment::config::Config;
use experiment::machine::logger::Level;
use experiment::model::User;
use experiment::remote::options::{FetchOptions, FlagKeys};
use experiment::rules::error::Status;
use mock_service::{MockService, Request, Script};

/// The request of one good fetch.
fn request(user: &User, options: &FetchOptions) -> Request {
    let service = MockService::start(Script::service());
    let fetched = client(&service).fetch(user, options);
    variants(&fetched);
    let request = service.requests().remove(0);
    assert_eq!(request.problem, None);
    request
}

fn header(options: &FetchOptions, name: &str) -> Option<String> {
    request(&user(1), options).header(name).map(str::to_owned)
}

#[test]
fn the_head_is_this_to_the_byte() {
    let service = MockService::start(Script::service());
    let mut user = User::new();
    user.set_text("user_id", "u").unwrap();
    variants(&client(&service).fetch(&user, &FetchOptions::default()));
    let request = service.requests().remove(0);
    let body = r#"{"user_id":"u","library":"libexperiment/0.1.0"}"#;
    assert_eq!(std::str::from_utf8(&request.body).unwrap(), body);
    let head = format!(
        "POST /sdk/v2/vardata?v=0 HTTP/1.1\r\n\
         host: {}\r\n\
         authorization: Api-Key test-key\r\n\
         content-type: application/json;charset=utf-8\r\n\
         accept: application/json\r\n\
         accept-encoding: gzip\r\n\
         user-agent: libexperiment/0.1.0\r\n\
         content-length: {}\r\n\
         \r\n",
        service.address(),
        body.len()
    );
    assert_eq!(std::str::from_utf8(&request.head).unwrap(), head);
}

#[test]
fn these_headers_are_sent_and_no_others() {
    let options = FetchOptions {
        tracks_assignment: Some(true),
        tracks_exposure: Some(true),
        flag_keys: flag_keys(&["demo-nonce"]),
        ..FetchOptions::default()
    };
    let request = request(&user(1), &options);
    let mut names: Vec<String> =
        request.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "accept",
            "accept-encoding",
            "authorization",
            "content-length",
            "content-type",
            "host",
            "user-agent",
            "x-amp-exp-exposure-track",
            "x-amp-exp-flag-keys",
            "x-amp-exp-track",
        ]
    );
}

#[test]
fn tracking_is_sent_as_told_and_not_at_all_when_nothing_was_told() {
    let sent = |told: Option<bool>| told.map(|tracks| if tracks { "track" } else { "no-track" });
    for tracks_assignment in [None, Some(false), Some(true)] {
        for tracks_exposure in [None, Some(false), Some(true)] {
            let options =
                FetchOptions { tracks_assignment, tracks_exposure, ..FetchOptions::default() };
            let request = request(&user(1), &options);
            assert_eq!(request.header("X-Amp-Exp-Track"), sent(tracks_assignment));
            assert_eq!(request.header("X-Amp-Exp-Exposure-Track"), sent(tracks_exposure));
            assert_eq!(request.header("X-Amp-Exp-Flag-Keys"), None);
        }
    }
}

fn flags(keys: &[&str]) -> FetchOptions {
    FetchOptions { flag_keys: flag_keys(keys), ..FetchOptions::default() }
}

#[test]
fn flag_keys_are_base64_without_padding_of_a_compact_json_array_in_ascii() {
    for (keys, sent) in [
        (&["flag-a", "flag-b"][..], "WyJmbGFnLWEiLCJmbGFnLWIiXQ"),
        (&["a", "é"], "WyJhIiwiXHUwMGU5Il0"),
        (&[""], "WyIiXQ"),
        (&["a\r\nX-Evil: 1"], "WyJhXHJcblgtRXZpbDogMSJd"),
        // Where the alphabets of base64 differ, unless they are escapes.
        (
            &["??>??>~~~"],
            "WyJcdTAwM2ZcdTAwM2ZcdTAwM2VcdTAwM2ZcdTAwM2ZcdTAwM2VcdTAwN2VcdTAwN2VcdTAwN2UiXQ",
        ),
    ] {
        assert_eq!(header(&flags(keys), "X-Amp-Exp-Flag-Keys").as_deref(), Some(sent));
    }
}

#[test]
fn an_empty_list_of_flag_keys_is_the_same_as_none() {
    assert_eq!(header(&flags(&[]), "X-Amp-Exp-Flag-Keys"), None);
}

#[test]
fn flag_keys_restrict_the_answer() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    let fetched = fetch_with(&client, &flags(&["demo-nonce", "demo-color"]));
    assert_eq!(variants(&fetched).len(), 2);
    assert!(variants(&good(&client)).len() > 2, "and that one alone");
}

#[test]
fn the_body_is_the_user_as_compact_json_in_utf8_and_its_length_is_told() {
    let json = r#" { "user_id" : "ü\n" , "device_id": null, "groups": {"org": ["a","b"]},
        "cohort_ids": ["x", "y"], "group_cohort_ids": {"org": {"a": ["z"]}},
        "user_properties": {"n": 1.50, "big": 123456789012345678901234567890, "deep": [[{}]]},
        "unknown": true } "#;
    let request = request(&User::from_json(json).unwrap(), &FetchOptions::default());
    let body = std::str::from_utf8(&request.body).unwrap();
    assert_eq!(request.header("Content-Length"), Some(body.len().to_string().as_str()));
    for member in [
        "\"user_id\":\"ü\\n\"",
        r#""groups":{"org":["a","b"]}"#,
        r#""cohort_ids":["x","y"]"#,
        r#""group_cohort_ids":{"org":{"a":["z"]}}"#,
        r#""user_properties":{"n":1.50,"big":123456789012345678901234567890,"deep":[[{}]]}"#,
        r#""unknown":true"#,
        r#""library":"libexperiment/0.1.0""#,
    ] {
        assert!(body.contains(member), "{member} in {body}");
    }
    assert!(!body.contains("device_id"), "an absent field is left out: {body}");
    serde_json::from_str::<serde_json::Value>(body).expect("the body is JSON");
}

#[test]
fn the_empty_user_is_sent_as_its_library_alone() {
    let request = request(&User::new(), &FetchOptions::default());
    assert_eq!(&request.body[..], br#"{"library":"libexperiment/0.1.0"}"#);
}

#[test]
fn the_users_own_library_wins_over_the_configured_one_and_that_over_ours() {
    let service = MockService::start(Script::service());
    let mut config = Settings::default().config(&service.url());
    config.set_library("libexperiment-python/0.1.0").unwrap();
    let client = client_of(&config);
    fetch(&client);
    let mut own = user(1);
    own.set_text("library", "mine/1").unwrap();
    client.fetch(&own, &FetchOptions::default());
    let bodies: Vec<String> = service
        .requests()
        .iter()
        .map(|request| String::from_utf8(request.body.to_vec()).unwrap())
        .collect();
    assert!(bodies[0].contains(r#""library":"libexperiment-python/0.1.0""#), "{}", bodies[0]);
    assert!(bodies[1].contains(r#""library":"mine/1""#), "{}", bodies[1]);
    assert_eq!(bodies[1].matches("library").count(), 1, "{}", bodies[1]);
}

#[test]
fn the_user_is_unchanged_after_the_fetch() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    let user = user(5);
    let before = user.encode("another/1").unwrap();
    for _ in 0..2 {
        variants(&client.fetch(&user, &FetchOptions::default()));
    }
    assert_eq!(user.encode("another/1").unwrap(), before);
    let requests = service.requests();
    assert_eq!(requests[0].body, requests[1].body);
    assert_eq!(requests[0].head, requests[1].head);
}

#[test]
fn a_retry_sends_the_same_request_again() {
    use mock_service::Answer;
    let answers = [Answer::reply(500, &[], "no"), Answer::service()];
    let service = MockService::start(Script::answers(answers));
    let client = Settings { retries: 1, ..Settings::default() }.client(&service);
    let options = FetchOptions { tracks_exposure: Some(true), ..flags(&["demo-nonce"]) };
    let fetched = client.fetch(&user(77), &options);
    assert_eq!(nonce_of(variants(&fetched)), Some(77));
    let requests = service.requests();
    assert_eq!((&requests[0].head, &requests[0].body), (&requests[1].head, &requests[1].body));
}

#[test]
fn a_base_path_is_kept_and_slashes_at_its_end_make_no_difference() {
    for (base, path) in [
        ("", "/sdk/v2/vardata?v=0"),
        ("/", "/sdk/v2/vardata?v=0"),
        ("/base/path", "/base/path/sdk/v2/vardata?v=0"),
        ("/base/path/", "/base/path/sdk/v2/vardata?v=0"),
    ] {
        let service = MockService::start(Script::service());
        let client = Settings::default().client_at(&format!("{}{base}", service.url()));
        good(&client);
        assert_eq!(service.requests()[0].path, path);
    }
}

#[test]
fn a_host_is_sent_as_it_was_configured() {
    let service = MockService::start(Script::service());
    let port = service.address().port();
    let client = Settings::default().client_at(&format!("http://localhost:{port}"));
    good(&client);
    let host = format!("localhost:{port}");
    assert_eq!(service.requests()[0].header("Host"), Some(host.as_str()));
}

#[test]
fn keys_and_urls_too_long_for_any_server_are_refused_as_arguments() {
    let mut keys = FlagKeys::default();
    let refused = (0..2000).find_map(|i| keys.add(&format!("a-flag-of-usual-length-{i}")).err());
    let config = Settings::default().config("http://127.0.0.1:1");
    let key = Client::new(&"k".repeat(12_000), &config).unwrap_err();
    let url = Config::default().set_server_url(&format!("http://host/{}", "p".repeat(9000)));
    for error in [refused.unwrap(), key, url.unwrap_err()] {
        assert_eq!(error.status, Status::InvalidArgument, "{error}");
    }
}

#[test]
fn as_many_flag_keys_as_are_accepted_are_sent_whole() {
    let service = MockService::start(Script::service());
    let mut options = FetchOptions::default();
    while options.flag_keys.add("a-flag-of-usual-length").is_ok() {}
    assert!(fetch_with(&client(&service), &options).result.is_ok());
    let sent = service.requests()[0].header("X-Amp-Exp-Flag-Keys").map(str::to_owned).unwrap();
    let json = URL_SAFE_NO_PAD.decode(sent).unwrap();
    let keys: Vec<String> = serde_json::from_slice(&json).unwrap();
    assert_eq!(keys, options.flag_keys.as_slice());
    assert!(json.len() > FlagKeys::MAX_BYTES * 9 / 10, "{} bytes are hardly many", json.len());
}

fn flag_keys(keys: &[&str]) -> FlagKeys {
    let mut flag_keys = FlagKeys::default();
    keys.iter().for_each(|key| flag_keys.add(key).unwrap());
    flag_keys
}

/// Everything that a client logs, at every level.
fn logged(url: &str, act: impl FnOnce(&Client)) -> Vec<(Level, String)> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let lines = Arc::clone(&lines);
        move |level: Level, line: &str| lines.lock().unwrap().push((level, line.to_owned()))
    };
    let mut config = Settings::default().config(url);
    config.set_log(Level::Debug, Arc::new(sink));
    let client = Client::new("top-secret", &config).unwrap();
    act(&client);
    assert!(!format!("{client:?} {config_url}", config_url = url).contains("top-secret"));
    let lines = lines.lock().unwrap();
    lines.clone()
}

#[test]
fn a_user_over_8000_bytes_is_sent_whole_with_one_warning_that_names_its_size() {
    let service = MockService::start(Script::service());
    let mut large = user(3);
    large.set_text("carrier", &"x".repeat(20_000)).unwrap();
    let lines = logged(&service.url(), |client| {
        for _ in 0..3 {
            variants(&client.fetch(&large, &FetchOptions::default()));
        }
    });
    let size = service.requests()[0].body.len();
    assert!(size > 20_000);
    let warnings: Vec<&String> =
        lines.iter().filter(|(level, _)| *level <= Level::Warn).map(|(_, line)| line).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(&size.to_string()), "{warnings:?}");
}

#[test]
fn a_user_of_8000_bytes_is_no_reason_to_warn() {
    let service = MockService::start(Script::service());
    let mut user = User::new();
    user.set_text("carrier", "").unwrap();
    let rest = 8000 - user.encode("libexperiment/0.1.0").unwrap().len();
    user.set_text("carrier", &"x".repeat(rest)).unwrap();
    let lines = logged(&service.url(), |client| {
        variants(&client.fetch(&user, &FetchOptions::default()));
    });
    assert_eq!(service.requests()[0].body.len(), 8000);
    assert!(lines.iter().all(|(level, _)| *level > Level::Warn), "{lines:?}");
}

#[test]
fn neither_the_key_nor_anything_of_the_user_is_logged_or_told() {
    use mock_service::Answer;
    let answers = [
        Answer::reply(401, &[], "no"),
        Answer::json(200, "[1]"),
        raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{").then(mock_service::Step::Close),
        raw("rubbish\r\n\r\n").then(mock_service::Step::Close),
        Answer::service(),
    ];
    let service = MockService::start(Script::answers(answers));
    let mut messages = Vec::new();
    let lines = logged(&service.url(), |client| {
        let mut user = user(4);
        user.set_text("city", "Gotham").unwrap();
        for _ in 0..5 {
            let fetched = client.fetch(&user, &FetchOptions::default());
            messages.push(format!("{:?}", fetched.result));
        }
    });
    assert!(!lines.is_empty());
    for line in lines.iter().map(|(_, line)| line).chain(&messages) {
        for secret in ["top-secret", "Gotham", "user-4"] {
            assert!(!line.contains(secret), "{line}");
        }
    }
}
