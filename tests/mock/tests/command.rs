//! The command, as a test in another language drives it.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::{env, fs, process};

use serde_json::{Value, json};
use support::{Client, USER};

struct Mock {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    url: String,
}

impl Mock {
    fn start(arguments: &[&str]) -> Mock {
        Mock::run(command().args(arguments))
    }

    fn run(command: &mut Command) -> Mock {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let stdout = child.stdout.take().expect("it is piped");
        let mut mock = Mock {
            stdin: child.stdin.take(),
            stdout: BufReader::new(stdout),
            url: String::new(),
            child,
        };
        mock.url = text(&mock.read()["url"]);
        mock
    }

    fn say(&mut self, line: impl AsRef<[u8]>) -> Value {
        let stdin = self.stdin.as_mut().expect("it is open until the end");
        stdin.write_all(&[line.as_ref(), b"\n"].concat()).expect("it reads");
        self.read()
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("it is text");
        serde_json::from_str(&line).expect("it is one line of JSON")
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}");
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mock-service"));
    command.env_remove("DEMO_NONCE");
    command
}

fn text(value: &Value) -> String {
    value.as_str().expect("it is a string").into()
}

#[test]
fn it_is_the_service_until_its_input_ends() {
    let mock = Mock::start(&[]);
    let url = mock.url.clone();
    assert_eq!(Client::at(&url).post(USER).response().json()["demo-nonce"]["payload"], "u");
    drop(mock);
    assert!(TcpStream::connect(url.strip_prefix("http://").expect("it is an http URL")).is_err());
}

#[test]
fn it_plays_scripts_and_says_what_it_has_seen() {
    let mut mock = Mock::start(&[]);
    let playing = mock.say(r#"{"play":{"answers":[{"status":503,"json":null}]}}"#);
    assert_eq!(playing["id"], 1);
    let mut client = Client::at(&text(&playing["url"]));
    assert_eq!(client.post(USER).response().status(), 503);
    client.send("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n").send([0, 255]).response();
    let seen = mock.say(r#"{"seen":1}"#);
    assert_eq!(seen["requests_total"], 2);
    assert_eq!(seen["connections_open"], 1);
    let first = &seen["requests"][0];
    assert_eq!((&first["method"], &first["body"]), (&json!("POST"), &json!(USER)));
    assert_eq!(first["headers"][0], json!(["Authorization", "Api-Key key"]));
    assert_eq!(seen["requests"][1]["body"], json!({"hex": "00ff"}));
    assert_eq!(mock.say(r#"{"seen":0}"#)["requests_total"], 0);
}

#[test]
fn it_stops_what_it_is_told_to() {
    let mut mock = Mock::start(&[]);
    let held = mock.say(r#"{"play":{"connections":[["hold"]]}}"#);
    let mut client = Client::at(&text(&held["url"]));
    assert_eq!(mock.say(r#"{"stop":1}"#), json!({"stopped": [1]}));
    assert_eq!(client.rest(), "");
    assert_eq!(mock.say(r#"{"stop":1}"#), json!({"error": "no service 1"}));
    assert_eq!(mock.say(r#"{"seen":1}"#), json!({"error": "no service 1"}));
    mock.say(r#"{"play":{}}"#);
    mock.say(r#"{"black_hole":true}"#);
    assert_eq!(mock.say(r#"{"stop_all":true}"#), json!({"stopped": [2, 3]}));
    assert_eq!(Client::at(&mock.url).post(USER).response().status(), 200);
}

#[test]
fn a_bad_line_is_no_end() {
    let mut mock = Mock::start(&[]);
    for line in ["", "{", "{\"sing\":1}", "{\"play\":{\"answers\":7}}", "\"\u{fffd}"] {
        assert!(mock.say(line)["error"].is_string(), "{line}");
    }
    assert!(mock.say(b"\xff")["error"].is_string());
    assert_eq!(mock.say(r#"{"play":{}}"#)["id"], 1);
}

#[test]
fn it_knows_where_nobody_is() {
    let mut mock = Mock::start(&[]);
    let refused = text(&mock.say(r#"{"refused":true}"#)["url"]);
    assert!(TcpStream::connect(&refused["http://".len()..]).is_err());
    let hole = text(&mock.say(r#"{"black_hole":true}"#)["url"]);
    let address = hole["http://".len()..].parse().expect("it is an address");
    let timeout = std::time::Duration::from_millis(50);
    assert!(TcpStream::connect_timeout(&address, timeout).is_err());
}

#[test]
fn the_nonce_of_the_environment_comes_first() {
    let mock = Mock::run(command().env("DEMO_NONCE", "7\""));
    let user = r#"{"user_properties":{"nonce":1}}"#;
    let variants = Client::at(&mock.url).post(user).response().json();
    assert_eq!(variants["demo-nonce"]["payload"], "7\"");
}

#[test]
fn options_choose_the_script_and_the_port() {
    let file = env::temp_dir().join(format!("mock-service-{}.json", process::id()));
    fs::write(&file, r#"{"answers":[{"status":418}]}"#).expect("there is room for a file");
    // Free now; another process may take it in between, but no test of this crate asks for a port.
    let free = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = free.local_addr().expect("it is bound").port().to_string();
    drop(free);
    let path = file.to_str().expect("it is text");
    let mock = Mock::start(&["--script", path, "--port", &port]);
    assert_eq!(mock.url, format!("http://127.0.0.1:{port}"));
    assert_eq!(Client::at(&mock.url).post(USER).response().status(), 418);
    fs::remove_file(&file).expect("it is ours");
}

#[test]
fn wrong_options_are_said_so() {
    for arguments in [&["--help"][..], &["--port", "x"], &["--script", "/nowhere"]] {
        let output = command().args(arguments).stdin(Stdio::null()).output().expect("it runs");
        assert!(!output.status.success());
        assert!(output.stderr.starts_with(b"mock-service: "), "{arguments:?}");
    }
}
