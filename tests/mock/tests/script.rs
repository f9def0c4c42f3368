//! Each step, each opening and the short form, as a socket sees them.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use mock_service::{Answer, MockService, Script, Step};
use support::{Client, PATIENCE, USER, play};

fn answered(script: &str) -> String {
    let service = play(script);
    Client::of(&service).post(USER).rest()
}

#[test]
fn send_sends_text_and_any_bytes() {
    let service = play(r#"{"answers":[{"steps":[{"send":"é\r\n"},{"send":{"hex":"00ff"}}]}]}"#);
    assert_eq!(Client::of(&service).post(USER).exactly(6), b"\xc3\xa9\r\n\x00\xff");
}

#[test]
fn repeat_sends_any_multiple() {
    let times = 1_000_003;
    let service = play(&format!(
        r#"{{"answers":[{{"steps":[{{"repeat":{{"bytes":"0123456789","times":{times}}}}},"close"]}}]}}"#
    ));
    let received = Client::of(&service).post(USER).rest();
    assert_eq!(received, "0123456789".repeat(times));
}

#[test]
fn repeat_of_nothing_is_nothing() {
    let steps = r#"[{"repeat":{"bytes":"","times":9}},{"repeat":{"bytes":"x","times":0}},"close"]"#;
    assert_eq!(answered(&format!(r#"{{"answers":[{{"steps":{steps}}}]}}"#)), "");
}

#[test]
fn steps_come_in_order_and_waits_take_their_time() {
    let service = play(
        r#"{"answers":[{"steps":[{"send":"head"},{"wait_millis":80},{"send":"body"},"close"]}]}"#,
    );
    let mut client = Client::of(&service);
    client.post(USER).exactly(4);
    let head = Instant::now();
    assert_eq!(client.rest(), "body");
    // A little less than 80: the head may have been under way for a while before it was read.
    assert!(head.elapsed() > Duration::from_millis(40), "{:?}", head.elapsed());
}

#[test]
fn drip_sends_one_byte_at_a_time() {
    let drip = Step::drip("abcd", 30);
    let service = MockService::start(Script::answers([Answer::steps([drip, Step::Close])]));
    let mut client = Client::of(&service);
    let start = Instant::now();
    client.post(USER);
    let mut buffer = [0; 16];
    for expected in *b"abcd" {
        let length = client.0.peek(&mut buffer).expect("a byte comes");
        assert_eq!((length, client.exactly(1)), (1, vec![expected]));
    }
    assert!(start.elapsed() >= Duration::from_millis(90), "{:?}", start.elapsed());
    assert_eq!(client.rest(), "");
}

#[test]
fn service_answers_as_the_service_does() {
    let service = play(r#"{"answers":[{"steps":[{"wait_millis":1},"service"]}]}"#);
    let mut client = Client::of(&service);
    assert_eq!(client.post(USER).response().status(), 200);
    assert_eq!(client.post("[]").response().status(), 400);
}

#[test]
fn hold_is_silent_until_the_service_stops() {
    let service = play(r#"{"answers":[{"steps":[{"send":"x"},"hold"]}]}"#);
    let mut client = Client::of(&service);
    client.post(USER).exactly(1);
    let silent = Duration::from_millis(50);
    client.0.set_read_timeout(Some(silent)).expect("it is no zero");
    assert_eq!(client.fault(), ErrorKind::WouldBlock);
    service.stop();
    assert_eq!(client.rest(), "");
}

#[test]
fn close_ends_with_a_fin_although_input_is_unread() {
    let service = play(
        r#"{"answers":[{"after":"head","status":413,"headers":[["Content-Length","0"]],"then":"close"}]}"#,
    );
    let mut client = Client::of(&service);
    // In one write, so that all of the body is there before the answer is.
    let answer = client.post(&"x".repeat(20_000)).rest();
    assert_eq!(answer, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n");
    service.stop();
    let error = client.0.take_error().expect("the socket can be asked");
    assert!(error.is_none(), "{error:?}");
}

#[test]
fn reset_ends_with_a_reset() {
    let service = play(r#"{"answers":[{"steps":[{"send":"x"},{"wait_millis":1},"reset"]}]}"#);
    assert_eq!(Client::of(&service).post(USER).fault(), ErrorKind::ConnectionReset);
    let service = play(r#"{"answers":[{"status":200,"body":"x","then":"reset"}]}"#);
    assert_eq!(Client::of(&service).post(USER).fault(), ErrorKind::ConnectionReset);
}

#[test]
fn the_short_form_is_well_formed() {
    assert_eq!(
        answered(
            r#"{"answers":[{"status":429,"headers":[["A","1"],["A","2"]],"body":"é","then":"close"}]}"#
        ),
        "HTTP/1.1 429 Too Many Requests\r\nA: 1\r\nA: 2\r\nContent-Length: 2\r\n\r\né"
    );
    assert_eq!(
        answered(r#"{"answers":[{"json":{"b":1, "a":1.0},"then":"close"}]}"#),
        "HTTP/1.1 200 OK\r\nContent-Type: application/json;charset=utf-8\r\n\
         Content-Length: 16\r\n\r\n{\"b\":1, \"a\":1.0}"
    );
    assert_eq!(
        answered(r#"{"answers":[{"headers":[["content-type","x"]],"json":null,"then":"close"}]}"#),
        "HTTP/1.1 200 OK\r\ncontent-type: x\r\nContent-Length: 4\r\n\r\nnull"
    );
    assert_eq!(
        answered(r#"{"answers":[{"status":204,"then":"close"}]}"#),
        "HTTP/1.1 204 No Content\r\n\r\n"
    );
}

#[test]
fn a_header_can_lie_about_the_length() {
    assert_eq!(
        answered(
            r#"{"answers":[{"headers":[["content-length","9"]],"body":"cut","then":"close"}]}"#
        ),
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut"
    );
    assert_eq!(
        answered(
            r#"{"answers":[{"headers":[["Transfer-Encoding","chunked"]],"body":"0\r\n\r\n","then":"close"}]}"#
        ),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    );
}

#[test]
fn an_answer_can_be_delayed_and_the_connection_kept() {
    let service = play(r#"{"answers":[{"delay_millis":40,"status":200},{"delay_millis":40}]}"#);
    let mut client = Client::of(&service);
    for _ in 0..2 {
        let start = Instant::now();
        assert_eq!(client.post(USER).response().status(), 200);
        assert!(start.elapsed() >= Duration::from_millis(40), "{:?}", start.elapsed());
    }
    assert_eq!(service.connections_accepted(), 1);
}

#[test]
fn the_constructors_say_what_the_json_says() {
    let json = r#"{
        "answers": [
            {"status": 429, "headers": [["Retry-After", "1"]], "body": "slow down"},
            {"status": 200, "json": {"a":1}, "after": "head"},
            {"delay_millis": 5, "then": "close"},
            {"steps": [{"repeat": {"bytes": "x", "times": 2}}, {"drip": {"bytes": "y", "every_millis": 3}}]}
        ],
        "connections": [["close"], [{"wait_millis": 1}, "reset"], []]
    }"#;
    let built = Script::answers([
        Answer::reply(429, &[("Retry-After", "1")], "slow down"),
        Answer::json(200, r#"{"a":1}"#).after_head(),
        Answer::service().delayed(5).then(Step::Close),
        Answer::steps([Step::repeat("x", 2), Step::drip("y", 3)]),
    ])
    .connections([vec![Step::Close], vec![Step::WaitMillis(1), Step::Reset], vec![]]);
    assert_eq!(serde_json::from_str::<Script>(json).expect("it is valid"), built);
}

#[test]
fn a_wrong_script_is_refused_by_name() {
    for (script, named) in [
        (r#"{"answer":[]}"#, "unknown field `answer`"),
        (r#"{"answers":[{"statuss":1}]}"#, "unknown field `statuss`"),
        (r#"{"answers":[{"status":200,"steps":[]}]}"#, "not both"),
        (r#"{"answers":[{"json":1,"body":""}]}"#, "not both"),
        (r#"{"answers":[{"steps":["stop"]}]}"#, "unknown variant `stop`"),
        (r#"{"connections":[[{"send":{"hex":"x"}}]]}"#, "hexadecimal"),
    ] {
        let error = serde_json::from_str::<Script>(script).expect_err(script);
        assert!(error.to_string().contains(named), "{script}: {error}");
    }
}

#[test]
fn answers_go_to_requests_in_order_over_all_connections() {
    let service = play(r#"{"answers":[{"status":201},{"status":202},{"status":203}]}"#);
    let (mut one, mut two) = (Client::of(&service), Client::of(&service));
    let mut statuses = Vec::new();
    for client in [1, 2, 2, 1, 1] {
        let client = if client == 1 { &mut one } else { &mut two };
        statuses.push(client.post(USER).response().status());
    }
    assert_eq!(statuses, [201, 202, 203, 203, 203]);
}

#[test]
fn another_script_starts_from_its_beginning() {
    let script = || Script::answers([Answer::json(500, "{}"), Answer::json(503, "{}")]);
    let service = MockService::start(script());
    let mut client = Client::of(&service);
    let mut status = || client.post(USER).response().status();
    assert_eq!([status(), status(), status()], [500, 503, 503]);
    service.set_script(script());
    assert_eq!([status(), status()], [500, 503]);
    service.set_script(Script::service());
    assert_eq!(status(), 200);
}

#[test]
fn an_answer_can_come_before_the_body() {
    let service = play(r#"{"answers":[{"after":"head","status":200},{"status":201}]}"#);
    let mut client = Client::of(&service);
    client.send("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n");
    assert_eq!(client.response().status(), 200);
    assert_eq!(service.requests()[0].body.len(), 0);
    client.send("body").post(USER);
    assert_eq!(client.response().status(), 201);
    assert_eq!(&*service.requests()[0].body, b"body");
}

#[test]
fn a_connection_can_begin_with_any_step_and_the_last_opening_repeats() {
    let service = play(r#"{"connections":[["close"],["reset"],[{"send":"hello"}],[]]}"#);
    assert_eq!(Client::of(&service).rest(), "");
    // The reset may be there before `connect` has returned.
    let reset = TcpStream::connect(service.address()).and_then(|mut stream| stream.read(&mut [0]));
    assert_eq!(reset.expect_err("it is reset").kind(), ErrorKind::ConnectionReset);
    let mut greeted = Client::of(&service);
    assert_eq!(greeted.exactly(5), b"hello");
    assert_eq!(greeted.post(USER).response().status(), 200);
    for _ in 0..2 {
        assert_eq!(Client::of(&service).post(USER).response().status(), 200);
    }
}

#[test]
fn a_held_connection_takes_no_more_than_the_buffers_of_the_system() {
    let service = play(r#"{"connections":[["hold"]]}"#);
    let mut client = Client::of(&service);
    let stalled = Duration::from_millis(200);
    client.0.set_write_timeout(Some(stalled)).expect("it is no zero");
    // Far beyond the largest buffers that Linux gives a socket at either end.
    let error = client.0.write_all(&vec![b'x'; 64 << 20]).expect_err("nobody reads it");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert_eq!(service.requests_total(), 0);
}

#[test]
fn a_half_closed_client_still_gets_its_answer() {
    let service = play(r#"{"answers":[{"delay_millis":30,"status":200,"body":"late"}]}"#);
    let mut client = Client::of(&service);
    let answer = client.post(USER).finish().rest();
    assert!(answer.ends_with("late"), "{answer}");
    assert!(service.wait_until(PATIENCE, |record| record.connections_open == 0));
}

#[test]
fn the_examples_of_the_readme_are_answers() {
    let readme = include_str!("../README.md");
    let fenced = readme.lines().filter(|line| line.starts_with("{\""));
    let mut count = 0;
    for line in fenced {
        serde_json::from_str::<Answer>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        count += 1;
    }
    assert_eq!(count, 12);
}
