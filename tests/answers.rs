//! What is made of the service's answers: good, strange and unusable ones.

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use experiment::machine::logger::Level;
use experiment::model::Variants;
use experiment::rules::error::{Error, Status};
use mock_service::{Answer, MockService, Script, Step};

/// What a fetch makes of this answer; the next one must be clean.
#[track_caller]
fn outcome(answer: Answer) -> Result<Variants, Error> {
    outcome_with(answer, 8 << 20)
}

#[track_caller]
fn outcome_with(answer: Answer, max_bytes: u64) -> Result<Variants, Error> {
    let service = MockService::start(Script::answers([answer, Answer::service()]));
    let mut config = Settings::default().config(&service.url());
    config.set_max_response_bytes(max_bytes).unwrap();
    let client = client_of(&config);
    let fetched = within(millis(300), || fetch(&client));
    if max_bytes > 1000 {
        good(&client);
        check_books(&client);
    }
    fetched.result
}

#[track_caller]
fn refuse(answer: Answer, words: &str) {
    refuse_with(answer, 8 << 20, words);
}

#[track_caller]
fn refuse_with(answer: Answer, max_bytes: u64, words: &str) {
    let error = outcome_with(answer, max_bytes).expect_err("it cannot be used");
    assert_eq!((error.status, error.retryable), (Status::InvalidResponse, true), "{error}");
    assert!(error.message.contains(words), "{words}: {error}");
    assert!(!error.message.contains('\n'), "{error}");
}

#[track_caller]
fn accept(json: &str) -> Variants {
    outcome(Answer::json(200, json)).expect(json)
}

const SAMPLE: &str = r#"{"a":{"key":"on","value":"é","payload":[1,{"b":"\u00e9"}],"metadata":{}}}"#;

#[test]
fn a_body_that_is_no_json_object_is_an_invalid_response() {
    for (body, words) in [
        ("null", "not a JSON object"),
        ("[]", "not a JSON object"),
        (r#"[{"a":{"key":"on"}}]"#, "not a JSON object"),
        (r#""text""#, "not a JSON object"),
        ("17", "not a JSON object"),
        ("true", "not a JSON object"),
        ("nul", ""),
        ("<html></html>", "not valid JSON"),
        ("{} {}", "not valid JSON"),
        ("{}x", "not valid JSON"),
        ("{'a':1}", "not valid JSON"),
        (r#"{"a":{"key":"on"},}"#, "not valid JSON"),
        (r#"{"a":{"key":NaN}}"#, "not valid JSON"),
        (r#"{"a":{"key":"\ud800"}}"#, "not valid JSON"),
        (
            r#"{"a":{"key":"on"},"b":{"key":"\ud800"}}"#,
            "lone surrogate in a string at line 1 column 39",
        ),
        (r#"{"a":{"\ud800":1}}"#, "lone surrogate"),
        (r#"{"\ud800":{}}"#, "not valid JSON"),
        ("{\"a\":{\"key\":\"\u{1}\"}}", "not valid JSON"),
        ("\u{feff}{}", ""),
    ] {
        refuse(Answer::json(200, body), words);
    }
}

#[test]
fn an_empty_body_is_an_invalid_response() {
    refuse(Answer::reply(200, &[], ""), "");
    refuse(raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "");
    refuse(raw("HTTP/1.1 200 OK\r\n\r\n").then(Step::Close), "");
    refuse(Answer::reply(200, &[], "  "), "");
}

#[test]
fn json_that_is_cut_at_any_place_is_an_invalid_response() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    for end in 0..SAMPLE.len() {
        let cut = &SAMPLE.as_bytes()[..end];
        service.set_script(Script::answers([Answer::reply(200, &[], cut)]));
        let fetched = fetch(&client);
        assert_eq!(error(&fetched).status, Status::InvalidResponse, "cut at {end}");
    }
    service.set_script(Script::answers([Answer::reply(200, &[], SAMPLE)]));
    assert_eq!(variants(&fetch(&client)).len(), 1);
}

#[test]
fn a_body_that_ends_with_its_connection_before_its_length_is_an_invalid_response() {
    for sent in ["", "{", "{}", SAMPLE] {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
        refuse(raw(format!("{head}{sent}")).then(Step::Close), "before the body was complete");
    }
}

#[test]
fn chunks_that_end_with_their_connection_before_the_last_are_an_invalid_response() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for sent in ["", "2", "2\r\n", "2\r\n{", "2\r\n{}", "2\r\n{}\r\n", "2\r\n{}\r\n0"] {
        refuse(raw(format!("{head}{sent}")).then(Step::Close), "");
    }
}

#[test]
fn a_body_without_a_length_is_good_if_its_json_is_whole_and_only_then() {
    let head = "HTTP/1.1 200 OK\r\n\r\n";
    let whole = outcome(raw(format!("{head}{SAMPLE}")).then(Step::Close));
    assert_eq!(whole.expect("it is whole").len(), 1);
    for end in [1, SAMPLE.len() / 2, SAMPLE.len() - 2] {
        refuse(
            raw(format!("{head}{}", &SAMPLE.replace('é', "e")[..end])).then(Step::Close),
            "truncated",
        );
    }
}

#[test]
fn an_http_1_0_answer_is_good_if_its_json_is_whole() {
    let head = "HTTP/1.0 200 OK\r\n";
    let closed = outcome(raw(format!("{head}\r\n{SAMPLE}")).then(Step::Close));
    assert_eq!(closed.expect("it is whole").len(), 1);
    let length = SAMPLE.len();
    let kept = outcome(raw(format!("{head}Content-Length: {length}\r\n\r\n{SAMPLE}")));
    assert_eq!(kept.expect("it is whole").len(), 1);
}

#[test]
fn a_body_in_chunks_of_any_size_is_good() {
    for size in [1, 7, SAMPLE.len()] {
        let mut body = Vec::new();
        for chunk in SAMPLE.as_bytes().chunks(size) {
            body.extend(format!("{:x};ext=1\r\n", chunk.len()).as_bytes());
            body.extend(chunk);
            body.extend(b"\r\n");
        }
        body.extend(b"0\r\nTrailer: x\r\n\r\n");
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let whole = outcome(raw([&head[..], &body].concat()));
        assert_eq!(whole.expect("it is whole").len(), 1, "chunks of {size}");
    }
}

#[test]
fn a_body_that_is_not_utf_8_is_an_invalid_response() {
    for bytes in
        [&b"{\"a\":{\"key\":\"\xff\"}}"[..], b"{\"\xc3\":{}}", b"\xff\xfe{\0}\0", b"{}\x80"]
    {
        refuse(Answer::reply(200, &[], bytes), "not UTF-8");
    }
}

fn nested(depth: usize) -> String {
    let lists = depth - 2;
    format!(r#"{{"a":{{"payload":{}{}}}}}"#, "[".repeat(lists), "]".repeat(lists))
}

#[test]
fn a_body_nested_128_deep_is_good_and_a_deeper_one_is_an_invalid_response() {
    assert_eq!(accept(&nested(128)).len(), 1);
    refuse(Answer::json(200, nested(129)), "128 levels");
    refuse(Answer::json(200, nested(100_000)), "128 levels");
    refuse(Answer::json(200, "[".repeat(200_000)), "");
    refuse(Answer::json(200, r#"{"a":"#.repeat(100_000)), "");
}

#[test]
fn a_body_over_the_size_limit_is_an_invalid_response_however_it_is_sent() {
    const LIMIT: usize = 5000;
    let fill = |length: usize| format!("{}{SAMPLE}", " ".repeat(length - SAMPLE.len()));
    let chunked = |body: &str| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        raw(format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()))
    };
    let endless = |body: &str| raw(format!("HTTP/1.1 200 OK\r\n\r\n{body}")).then(Step::Close);
    let zipped = |body: &str| gzipped(&gzip(body.as_bytes()));
    let plain = |body: &str| Answer::json(200, body);
    let ways: [&dyn Fn(&str) -> Answer; 4] = [&plain, &chunked, &endless, &zipped];
    for (way, answer) in ways.into_iter().enumerate() {
        let whole = outcome_with(answer(&fill(LIMIT)), LIMIT as u64);
        assert_eq!(whole.unwrap_or_else(|error| panic!("way {way}: {error}")).len(), 1);
        refuse_with(answer(&fill(LIMIT + 1)), LIMIT as u64, "5000 bytes (max_response_bytes)");
    }
}

#[test]
fn a_length_beyond_all_bounds_is_refused_before_anything_is_read() {
    for length in ["8388609", "4294967296", "18446744073709551615"] {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{{");
        refuse(Answer::steps([Step::send(head), Step::Hold]), "max_response_bytes");
    }
}

#[test]
fn a_length_that_is_no_number_is_an_error_and_never_a_guess() {
    for length in ["-1", "+2", "0x2", "2, 3", "18446744073709551616", "two", ""] {
        let answer = raw(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{{}}"));
        let error = outcome(answer.then(Step::Close)).expect_err(length);
        assert_eq!((error.status, error.retryable), (Status::InvalidResponse, true), "{length}");
    }
}

#[test]
fn an_endless_body_ends_at_the_size_limit() {
    let head = "HTTP/1.1 200 OK\r\n\r\n{";
    let flood = Answer::steps([Step::send(head), Step::repeat(" ".repeat(1000), 1 << 40)]);
    refuse_with(flood, 100_000, "100000 bytes (max_response_bytes)");
}

// gzip, by hand: blocks that are stored and not compressed.

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |mut crc, byte| {
        crc ^= u32::from(*byte);
        (0..8).fold(crc, |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff".to_vec();
    let length = bytes.len() as u16;
    out.push(1); // the last block, stored
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(bytes);
    out.extend(crc32(bytes).to_le_bytes());
    out.extend((bytes.len() as u32).to_le_bytes());
    out
}

fn gzipped(body: &[u8]) -> Answer {
    Answer::reply(200, &[("Content-Encoding", "gzip")], body)
}

/// Two million spaces and an empty object, in gzip.
const BOMB: &str = include_str!("common/bomb.hex");

#[test]
fn a_body_in_gzip_is_good() {
    let variants = outcome(gzipped(&gzip(SAMPLE.as_bytes()))).expect("it is whole");
    assert_eq!(variants.get("a").unwrap().value().unwrap().as_str(), "é");
}

#[test]
fn gzip_may_hold_several_members_and_an_empty_one_and_nothing_else_behind_them() {
    let (head, tail) = SAMPLE.as_bytes().split_at(SAMPLE.len() / 2);
    for members in [
        vec![gzip(head), gzip(tail)],
        vec![gzip(head), gzip(b""), gzip(tail)],
        vec![gzip(SAMPLE.as_bytes()), gzip(b"")],
    ] {
        let variants = outcome(gzipped(&members.concat())).expect("it is whole");
        assert_eq!(variants.get("a").unwrap().value().unwrap().as_str(), "é");
    }
    for garbage in [&b"x"[..], b"\r\n", b"\x1f\x8b", b"\x1f\x8b\x08\x00 this is no member"] {
        refuse(gzipped(&[&gzip(SAMPLE.as_bytes()), garbage].concat()), "gzip");
    }
}

#[test]
fn gzip_that_is_cut_at_any_place_is_an_invalid_response() {
    let whole = gzip(SAMPLE.as_bytes());
    let service = MockService::start(Script::service());
    let client = client(&service);
    for end in 0..whole.len() {
        service.set_script(Script::answers([gzipped(&whole[..end])]));
        let fetched = fetch(&client);
        let Err(error) = &fetched.result else { panic!("cut at {end} of {}", whole.len()) };
        assert_eq!(error.status, Status::InvalidResponse, "cut at {end}: {error}");
    }
}

#[test]
fn gzip_that_is_damaged_is_an_invalid_response() {
    let whole = gzip(SAMPLE.as_bytes());
    let end = whole.len();
    for (place, what) in [
        (0, "magic"),
        (2, "method"),
        (10, "block"),
        (12, "length"),
        (20, "data"),
        (end - 8, "checksum"),
        (end - 1, "size"),
    ] {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x55;
        let error = outcome(gzipped(&damaged)).expect_err(what);
        assert_eq!((error.status, error.retryable), (Status::InvalidResponse, true), "{what}");
    }
    refuse(gzipped(SAMPLE.as_bytes()), "gzip");
}

#[test]
fn gzip_is_bounded_after_decoding() {
    let digits = BOMB.trim().as_bytes();
    let value = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    let bomb: Vec<u8> = digits.chunks(2).map(|pair| value(pair[0]) * 16 + value(pair[1])).collect();
    refuse_with(gzipped(&bomb), 100_000, "100000 bytes (max_response_bytes)");
    assert!(outcome(gzipped(&bomb)).expect("within 8 MiB").is_empty());
}

#[test]
fn an_encoding_that_was_not_asked_for_is_an_invalid_response() {
    for encoding in ["deflate", "br", "zstd", "gzip, gzip", "GZIP, br", "rubbish"] {
        refuse(Answer::reply(200, &[("Content-Encoding", encoding)], SAMPLE), "");
    }
    let identity = Answer::reply(200, &[("Content-Encoding", "identity")], SAMPLE);
    assert_eq!(outcome(identity).expect("nothing is encoded").len(), 1);
}

#[test]
fn only_200_is_success() {
    for code in [201, 202, 203, 204, 205, 206, 226] {
        let error = outcome(Answer::reply(code, &[], SAMPLE)).expect_err("not 200");
        assert_eq!((error.status, error.http_status), (Status::HttpStatus, Some(code)));
        assert!(error.retryable);
    }
}

#[test]
fn an_empty_object_is_no_variants_and_a_success() {
    assert!(accept("{}").is_empty());
    assert!(accept(" \r\n{ \t} ").is_empty());
}

#[test]
fn a_value_that_is_no_string_becomes_compact_json() {
    for (value, text) in [
        (r#""text""#, Some("text")),
        (r#""""#, Some("")),
        ("true", Some("true")),
        ("false", Some("false")),
        ("0", Some("0")),
        ("1.50", Some("1.50")),
        ("-1e400", Some("-1e400")),
        ("123456789012345678901234567890", Some("123456789012345678901234567890")),
        (r#"[ 1 , "a b" ]"#, Some(r#"[1,"a b"]"#)),
        ("{ \"a\" : { } , \"b\" : null }", Some(r#"{"a":{},"b":null}"#)),
        ("null", None),
    ] {
        let variants = accept(&format!(r#"{{"flag":{{"key":"k","value":{value}}}}}"#));
        let flag = variants.get("flag").unwrap();
        assert_eq!(flag.value().map(|text| text.as_str().to_owned()).as_deref(), text);
    }
}

#[test]
fn nothing_is_derived_from_the_key() {
    let variants = accept(r#"{"flag":{"key":"on"}}"#);
    let flag = variants.get("flag").unwrap();
    assert_eq!(flag.key().unwrap().as_str(), "on");
    assert!(flag.value().is_none() && flag.payload_json().is_none());
    assert!(flag.metadata_json().is_none());
}

#[test]
fn a_variant_without_key_is_accepted() {
    for json in [r#"{"flag":{"value":"on"}}"#, r#"{"flag":{"key":null,"value":"on"}}"#] {
        let variants = accept(json);
        let flag = variants.get("flag").unwrap();
        assert!(flag.key().is_none());
        assert_eq!(flag.value().unwrap().as_str(), "on");
    }
    assert!(accept(r#"{"flag":{}}"#).get("flag").unwrap().value().is_none());
}

#[test]
fn payload_and_metadata_are_kept_as_compact_json() {
    let json =
        r#"{"f":{"payload":{ "a" : [1, 2.0, "x y"], "z": null },"metadata":{"default": true}}}"#;
    let variants = accept(json);
    let flag = variants.get("f").unwrap();
    assert_eq!(flag.payload_json().unwrap().as_str(), r#"{"a":[1,2.0,"x y"],"z":null}"#);
    assert_eq!(flag.metadata_json().unwrap().as_str(), r#"{"default":true}"#);
}

#[test]
fn unknown_fields_are_kept_in_the_json_form() {
    let json = r#"{"flag":{"key":"on","expKey":"e","new":{"x":[1]}}}"#;
    assert_eq!(accept(json).json().as_str(), json);
}

#[test]
fn the_json_form_is_the_set_compact_and_without_what_was_left_out() {
    for (body, json) in [
        (r#"{"a":{"value":"x, y","key":"on"}}"#, r#"{"a":{"value":"x, y","key":"on"}}"#),
        ("{\n\t\"a\" : {\"key\": \"o n\"} }\n", r#"{"a":{"key":"o n"}}"#),
        (r#"{"a":{"n":1},"b":null}"#, r#"{"a":{"n":1}}"#),
        (r#"{"a":{"n":1},"a":{"n":2}}"#, r#"{"a":{"n":2}}"#),
        (r#"{"a":{"n":1},"\u0061":{"n":2}}"#, r#"{"a":{"n":2}}"#),
        (r#"{"a":{"n":1},"b":{"value":7}}"#, r#"{"a":{"n":1},"b":{"value":7}}"#),
        (r#"{}"#, r#"{}"#),
    ] {
        let set = accept(body);
        assert_eq!(set.json().as_str(), json, "{body}");
        assert_eq!(set.share().json().as_str(), json, "{body}");
    }
    let escaped = accept(r#"{"\u0061":{}}"#);
    assert!([r#"{"a":{}}"#, r#"{"\u0061":{}}"#].contains(&escaped.json().as_str()));
}

#[test]
fn the_json_form_of_a_part_has_that_part_alone() {
    let body = r#"{"a":{"key":"on"},"b":{"metadata":{"default":true}},"c":{"metadata":{"deployed":false}}}"#;
    let set = accept(body);
    assert_eq!(set.json().as_str(), body);
    assert_eq!(set.filter_deployed().json().as_str(), r#"{"a":{"key":"on"}}"#);
}

#[test]
fn an_entry_that_is_no_object_is_skipped_with_a_warning_and_counted() {
    let json = r#"{"a":null,"good":{"key":"on"},"b":[],"c":"x","d":1,"e":true,"f":-2.5,"g":[{}]}"#;
    let service = MockService::start(Script::answers([Answer::json(200, json)]));
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let mut config = Settings::default().config(&service.url());
    config.set_log(
        Level::Warn,
        Arc::new(move |_, line: &str| sink.lock().unwrap().push(line.to_owned())),
    );
    let client = client_of(&config);
    for fetches in 1..=2 {
        let fetched = fetch(&client);
        let variants = variants(&fetched);
        assert_eq!((variants.len(), variants.get("a").is_none()), (1, true));
        assert_eq!(variants.json().as_str(), r#"{"good":{"key":"on"}}"#);
        assert_eq!(client.metrics().entries_skipped.value(), 7 * fetches);
    }
    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains('7'), "{lines:?}");
}

#[test]
fn of_duplicate_keys_the_last_wins() {
    let variants = accept(r#"{"a":{"key":"1"},"b":{"key":"2"},"a":{"key":"3","key":"4"}}"#);
    assert_eq!(variants.len(), 2);
    assert_eq!(variants.get("a").unwrap().key().unwrap().as_str(), "4");
    let escaped = accept(r#"{"a":{"key":"1"},"\u0061":{"key":"2"}}"#);
    assert_eq!(escaped.get("a").unwrap().key().unwrap().as_str(), "2");
    assert_eq!(escaped.len(), 1);
}

#[test]
fn names_that_mean_something_elsewhere_are_names() {
    let json = r#"{"__proto__":{"key":"1"},"constructor":{"key":"2"},"":{"key":"3"},"a\u0000b":{"key":"\u0000"}}"#;
    let variants = accept(json);
    assert_eq!(variants.get("").unwrap().key().unwrap().as_str(), "3");
    assert_eq!(variants.get("a\0b").unwrap().key().unwrap().as_str(), "\0");
    assert_eq!(variants.len(), 4);
}

#[test]
fn ten_thousand_variants_are_good() {
    let entries: Vec<String> =
        (0..10_000).map(|i| format!(r#""flag-{i}":{{"key":"k{i}"}}"#)).collect();
    let service = MockService::start(Script::answers([Answer::json(
        200,
        format!("{{{}}}", entries.join(",")),
    )]));
    let fetched = fetch(&client(&service));
    let variants = variants(&fetched);
    assert_eq!(variants.len(), 10_000);
    assert_eq!(variants.get("flag-9999").unwrap().key().unwrap().as_str(), "k9999");
}

// What comes before the body.

#[test]
fn informational_answers_before_the_answer_are_passed_over() {
    for before in [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n",
    ] {
        for steps in [
            vec![Step::send(before), Step::Service],
            vec![Step::send(before), Step::WaitMillis(30), Step::Service],
        ] {
            let service = MockService::start(Script::answers([Answer::steps(steps)]));
            let client = client(&service);
            good(&client);
            good(&client);
        }
    }
}

#[test]
fn a_hundred_informational_answers_do_not_change_the_answer() {
    let steps = [Step::repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100), Step::Service];
    let service = MockService::start(Script::answers([Answer::steps(steps), Answer::service()]));
    let client = client(&service);
    good(&client);
    good(&client);
}

#[test]
fn informational_answers_in_a_flood_without_end_are_bounded() {
    let flood = Answer::steps([Step::repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1 << 40)]);
    let service = MockService::start(Script::answers([flood, Answer::service()]));
    let client = Settings { fetch_timeout: 200, ..Settings::default() }.client(&service);
    let fetched = within(millis(200), || fetch(&client));
    let status = error(&fetched).status;
    assert!(matches!(status, Status::Timeout | Status::InvalidResponse), "{status:?}");
    good(&client);
}

#[test]
fn a_head_that_is_no_http_is_an_invalid_response() {
    for head in [
        "rubbish\r\n\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/2 200\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nName : x\r\n\r\n",
        "HTTP/1.1 99999 OK\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
    ] {
        let error = outcome(raw(head).then(Step::Close)).expect_err(head);
        assert_eq!(error.status, Status::InvalidResponse, "{head:?}: {error}");
        assert!(error.retryable, "{head:?}");
    }
}

#[test]
fn a_connection_that_ends_within_the_head_is_a_network_failure() {
    for head in
        ["H", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"]
    {
        let error = outcome(raw(head).then(Step::Close)).expect_err(head);
        assert_eq!((error.status, error.retryable), (Status::Network, true), "{head:?}: {error}");
    }
}

#[test]
fn an_offer_to_switch_protocols_is_no_answer() {
    let switched = raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n{}");
    assert!(outcome(switched.then(Step::Close)).is_err());
}

#[test]
fn a_head_of_10_kib_is_good() {
    let filler = "x".repeat(10 << 10);
    let answer = Answer::reply(200, &[("X-Filler", &filler)], SAMPLE);
    assert_eq!(outcome(answer).expect("a head of 10 KiB").len(), 1);
}

#[test]
fn a_head_that_is_too_large_is_an_invalid_response() {
    for size in [17 << 10, 100 << 10] {
        let filler = "x".repeat(size);
        refuse(Answer::reply(200, &[("X-Filler", &filler)], SAMPLE), "head");
    }
    let many = "X-Name: value\r\n".repeat(2000);
    refuse(raw(format!("HTTP/1.1 200 OK\r\n{many}\r\n")), "head");
    let endless = [Step::send("HTTP/1.1 200 OK\r\nX: "), Step::repeat("x", 1 << 40)];
    refuse(Answer::steps(endless), "head");
}

#[test]
fn a_head_of_100_headers_is_good() {
    let many: String = (0..100).map(|i| format!("X-Name-{i}: value\r\n")).collect();
    let answer =
        raw(format!("HTTP/1.1 200 OK\r\n{many}Content-Length: {}\r\n\r\n{SAMPLE}", SAMPLE.len()));
    assert_eq!(outcome(answer).expect("a hundred headers").len(), 1);
}

#[test]
fn an_answer_that_comes_in_single_bytes_is_good() {
    let bytes = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    let variants = outcome(Answer::steps([Step::drip(bytes, 1)])).expect("it is whole");
    assert!(variants.is_empty());
}
