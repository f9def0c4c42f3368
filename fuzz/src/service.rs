//! A service in this process: it plays one request's answer byte for byte, as it is told to, and to
//! every other request tells the user back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What becomes of the next request.
pub struct Play {
    pub bytes: Vec<u8>,
    /// Bytes of each write.
    pub chunk: usize,
    /// Whether the bytes come before the request, when the connection is made.
    pub early: bool,
    pub then: Then,
}

#[derive(Clone, Copy)]
pub enum Then {
    /// The connection is served on.
    Keep,
    /// It is told that nothing more comes.
    Finish,
    Close,
}

pub struct Service {
    url: String,
    play: Arc<Mutex<Option<Play>>>,
}

impl Service {
    pub fn start() -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let play = Arc::default();
        let server = Server { listener, play: Arc::clone(&play), connections: Vec::new() };
        thread::spawn(|| server.run());
        Service { url, play }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Plays this to the next request.
    pub fn play(&self, play: Play) {
        *self.play.lock().unwrap() = Some(play);
    }

    /// Forgets what is to be played. What is being played has been sent when this returns.
    pub fn settle(&self) {
        self.play.lock().unwrap().take();
    }
}

/// A URL at which nobody listens.
pub fn refused_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}", listener.local_addr().expect("it is bound"))
}

struct Server {
    listener: TcpListener,
    /// Locked as long as it is being played.
    play: Arc<Mutex<Option<Play>>>,
    connections: Vec<Connection>,
}

struct Connection {
    stream: TcpStream,
    /// Requests that are read and not answered, for their answer was there before.
    answered: usize,
    /// It has been told that nothing more comes.
    is_finished: bool,
}

impl Server {
    fn run(mut self) {
        loop {
            let ready = self.wait();
            for at in (0..self.connections.len()).rev().filter(|at| ready[at + 1]) {
                let connection = self.connections.swap_remove(at);
                let kept = self.serve(connection);
                self.connections.extend(kept);
            }
            if ready[0]
                && let Ok((stream, _)) = self.listener.accept()
            {
                let kept = self.welcome(stream);
                self.connections.extend(kept);
            }
        }
    }

    /// Which of listener and connections have something.
    fn wait(&self) -> Vec<bool> {
        let connections = self.connections.iter().map(|connection| connection.stream.as_raw_fd());
        let all = [self.listener.as_raw_fd()].into_iter().chain(connections);
        let mut polled: Vec<_> =
            all.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: the array has as many elements as it says.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, -1) };
        polled.iter().map(|source| source.revents != 0).collect()
    }

    fn welcome(&self, stream: TcpStream) -> Option<Connection> {
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.set_write_timeout(Some(Duration::from_secs(1))).ok()?;
        let connection = Connection { stream, answered: 0, is_finished: false };
        let mut play = self.play.lock().unwrap();
        match play.take_if(|play| play.early) {
            Some(play) => connection.play(&play, 1),
            None => Some(connection),
        }
    }

    /// Reads a request and answers it, if the connection has not ended.
    fn serve(&self, mut connection: Connection) -> Option<Connection> {
        let user = connection.request()?;
        if connection.is_finished {
            return Some(connection);
        }
        if connection.answered > 0 {
            connection.answered -= 1;
            return Some(connection);
        }
        let mut play = self.play.lock().unwrap();
        match play.take_if(|play| !play.early) {
            Some(play) => connection.play(&play, 0),
            None => {
                let body = format!(r#"{{"user":{{"key":"on","payload":{user}}}}}"#);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                connection.stream.write_all((head + &body).as_bytes()).ok()?;
                Some(connection)
            }
        }
    }
}

impl Connection {
    fn play(mut self, play: &Play, answered: usize) -> Option<Connection> {
        self.answered = answered;
        for chunk in play.bytes.chunks(play.chunk) {
            self.stream.write_all(chunk).ok()?;
        }
        match play.then {
            Then::Keep => Some(self),
            Then::Finish => {
                self.stream.shutdown(Shutdown::Write).ok()?;
                self.is_finished = true;
                Some(self)
            }
            Then::Close => None,
        }
    }

    /// The body of the next request.
    fn request(&mut self) -> Option<String> {
        let mut bytes = Vec::new();
        loop {
            let mut buffer = [0; 4096];
            let amount = self.stream.read(&mut buffer).ok().filter(|amount| *amount > 0)?;
            bytes.extend(&buffer[..amount]);
            let text = String::from_utf8_lossy(&bytes);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.to_ascii_lowercase().lines().find_map(|line| {
                line.strip_prefix("content-length:").and_then(|value| value.trim().parse().ok())
            });
            if body.len() >= length.unwrap_or(0usize) {
                return Some(body.to_owned());
            }
        }
    }
}
