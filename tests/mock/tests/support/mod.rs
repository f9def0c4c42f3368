//! A client that knows nothing of HTTP but what these tests look at.
#![allow(dead_code, reason = "no test uses all of it")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use mock_service::{MockService, Script};

/// Far above what anything here takes on a loaded machine: reached only by a failure, which it
/// keeps from hanging.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const USER: &str = r#"{"user_id":"u"}"#;

pub fn play(script: &str) -> MockService {
    MockService::start(serde_json::from_str::<Script>(script).expect("the script is valid"))
}

pub struct Client(pub TcpStream);

pub struct Response {
    pub head: String,
    pub body: String,
}

impl Client {
    pub fn of(service: &MockService) -> Client {
        Client::at(&service.url())
    }

    pub fn at(url: &str) -> Client {
        let address = url.strip_prefix("http://").expect("it is an http URL");
        let stream = TcpStream::connect(address).expect("the service listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is no zero");
        Client(stream)
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        self.0.write_all(bytes.as_ref()).expect("the service takes it");
        self
    }

    pub fn post(&mut self, user: &str) -> &mut Client {
        self.post_with("Authorization: Api-Key key\r\n", user)
    }

    pub fn post_with(&mut self, headers: &str, user: &str) -> &mut Client {
        let length = user.len();
        self.send(format!(
            "POST /sdk/v2/vardata?v=0 HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\r\n{user}"
        ))
    }

    /// One response with a Content-Length.
    pub fn response(&mut self) -> Response {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head.push(char::from(self.exactly(1)[0]));
        }
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.map_or(0, |length| length.parse().expect("it is a number"));
        let body = String::from_utf8(self.exactly(length)).expect("it is text");
        Response { head, body }
    }

    pub fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).expect("so much is sent");
        bytes
    }

    /// All that comes until the end of the connection, which has to be a FIN.
    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).expect("it ends in order");
        rest
    }

    /// The error that the connection ends with.
    pub fn fault(&mut self) -> io::ErrorKind {
        let read = io::copy(&mut self.0, &mut io::sink());
        read.expect_err("it does not end in order").kind()
    }

    pub fn finish(&mut self) -> &mut Client {
        self.0.shutdown(Shutdown::Write).expect("the connection is open");
        self
    }
}

impl Response {
    pub fn status(&self) -> u16 {
        self.head[9..12].parse().expect("it is a number")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("it is JSON")
    }
}
