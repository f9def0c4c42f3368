//! A proxy that makes tunnels (CONNECT), forwards requests with a whole URL, and can fail in every way.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What the proxy does with the next request, and those after it. "Tunnel" is to forward, if that is
/// what it is asked to do.
#[derive(Clone, Debug)]
pub enum Conduct {
    /// Makes the tunnel.
    Tunnel,
    /// Makes it where `Proxy-Authorization` has this value, and answers 407 elsewhere.
    TunnelFor(&'static str),
    /// Answers this, and closes.
    Answer(&'static str),
    /// Answers this, and makes the tunnel.
    TunnelAfter(&'static str),
    /// Sends this byte by byte, so far apart, without an end.
    Drip(&'static str, Duration),
    /// Makes tunnels to port 443 alone, and forwards what is to be forwarded.
    TunnelTo443,
    /// Accepts, reads and says nothing.
    Silence,
}

pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    conduct: Mutex<Conduct>,
    heads: Mutex<Vec<String>>,
    tunnels: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn start(conduct: Conduct) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            conduct: Mutex::new(conduct),
            heads: Mutex::default(),
            tunnels: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        // Ends with the process: a proxy per test is not many.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&accepting);
                thread::spawn(move || serve(&shared, stream));
            }
        });
        Proxy { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// With a user and a password, as they are written in a URL.
    pub fn url_for(&self, credentials: &str) -> String {
        format!("http://{credentials}@{}", self.address)
    }

    pub fn behave(&self, conduct: Conduct) {
        *self.shared.conduct.lock().unwrap() = conduct;
    }

    /// The heads of all requests, as they came.
    pub fn heads(&self) -> Vec<String> {
        self.shared.heads.lock().unwrap().clone()
    }

    /// Ends all tunnels, on both sides.
    pub fn cut(&self) {
        for stream in self.shared.tunnels.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn serve(shared: &Shared, stream: TcpStream) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if input.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    shared.heads.lock().unwrap().push(head.clone());
    let conduct = shared.conduct.lock().unwrap().clone();
    const MADE: &str = "HTTP/1.1 200 Connection established\r\n\r\n";
    match conduct {
        Conduct::Tunnel => open(shared, &head, stream, input, MADE),
        Conduct::TunnelFor(credentials) => {
            let wanted = format!("\r\nproxy-authorization: {credentials}\r\n");
            if head.contains(&wanted) {
                open(shared, &head, stream, input, MADE);
            } else {
                let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\n\
                               Proxy-Authenticate: Basic realm=\"p\"\r\nContent-Length: 0\r\n\r\n";
                let _ = (&stream).write_all(refusal.as_bytes());
            }
        }
        Conduct::TunnelAfter(answer) => open(shared, &head, stream, input, answer),
        Conduct::Answer(answer) => {
            let _ = (&stream).write_all(answer.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            let _ = (&stream).read_to_end(&mut Vec::new());
        }
        Conduct::Drip(text, apart) => {
            for byte in text.bytes().cycle() {
                if (&stream).write_all(&[byte]).is_err() {
                    return;
                }
                thread::sleep(apart);
            }
        }
        Conduct::TunnelTo443 if !head.starts_with("CONNECT ") || head.contains(":443 ") => {
            open(shared, &head, stream, input, MADE);
        }
        Conduct::TunnelTo443 => {
            let _ = (&stream).write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
        }
        Conduct::Silence => {
            let _ = (&stream).read_to_end(&mut Vec::new());
        }
    }
}

/// Makes the way to the service that the head asks for.
fn open(
    shared: &Shared,
    head: &str,
    stream: TcpStream,
    mut input: BufReader<TcpStream>,
    answer: &str,
) {
    let target = head.split(' ').nth(1).unwrap();
    let authority = target.strip_prefix("http://").unwrap_or(target).split('/').next().unwrap();
    // Names are this machine's, whatever they are.
    let port: u16 = authority.rsplit(':').next().unwrap().parse().unwrap();
    let Ok(mut upstream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
    for end in [&stream, &upstream] {
        end.set_nodelay(true).unwrap();
        shared.tunnels.lock().unwrap().push(end.try_clone().unwrap());
    }
    let (mut from, mut to) = (upstream.try_clone().unwrap(), stream.try_clone().unwrap());
    let is_tunnel = head.starts_with("CONNECT ");
    if is_tunnel {
        let _ = (&stream).write_all(answer.as_bytes());
    }
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    if is_tunnel {
        let _ = std::io::copy(&mut input, &mut upstream);
    } else {
        forward(shared, head.to_owned(), input, &mut upstream);
    }
    let _ = upstream.shutdown(Shutdown::Both);
}

/// Passes requests on, one after the other, as a proxy does: without the URL's host and what is its
/// own.
fn forward(
    shared: &Shared,
    mut head: String,
    mut input: BufReader<TcpStream>,
    upstream: &mut TcpStream,
) {
    loop {
        let lines: Vec<&str> = head.lines().collect();
        let (method, rest) = lines[0].split_once(" http://").expect("a whole URL");
        let path = &rest[rest.find('/').unwrap()..];
        let mut passed = format!("{method} {path}\r\n");
        let mut length = 0;
        for line in &lines[1..] {
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if !line.starts_with("proxy-") {
                passed = passed + line + "\r\n";
            }
        }
        let mut body = vec![0; length];
        if input.read_exact(&mut body).is_err()
            || upstream.write_all(passed.as_bytes()).is_err()
            || upstream.write_all(&body).is_err()
        {
            return;
        }
        head.clear();
        while !head.ends_with("\r\n\r\n") {
            if input.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        shared.heads.lock().unwrap().push(head.clone());
    }
}
