//! A proxy that knows CONNECT and nothing else, and can fail in every way.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What the proxy does with the next CONNECT, and those after it.
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
        Conduct::Tunnel => tunnel(shared, &head, stream, MADE),
        Conduct::TunnelFor(credentials) => {
            let wanted = format!("\r\nProxy-Authorization: {credentials}\r\n");
            if head.contains(&wanted) {
                tunnel(shared, &head, stream, MADE);
            } else {
                let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\n\
                               Proxy-Authenticate: Basic realm=\"p\"\r\nContent-Length: 0\r\n\r\n";
                let _ = (&stream).write_all(refusal.as_bytes());
            }
        }
        Conduct::TunnelAfter(answer) => tunnel(shared, &head, stream, answer),
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
        Conduct::Silence => {
            let _ = (&stream).read_to_end(&mut Vec::new());
        }
    }
}

fn tunnel(shared: &Shared, head: &str, stream: TcpStream, answer: &str) {
    let target = head.split(' ').nth(1).unwrap();
    // Names are this machine's, whatever they are.
    let port: u16 = target.rsplit(':').next().unwrap().parse().unwrap();
    let Ok(upstream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return };
    for end in [&stream, &upstream] {
        end.set_nodelay(true).unwrap();
        shared.tunnels.lock().unwrap().push(end.try_clone().unwrap());
    }
    let _ = (&stream).write_all(answer.as_bytes());
    let (mut from, mut to) = (upstream.try_clone().unwrap(), stream.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let _ = std::io::copy(&mut &stream, &mut &upstream);
    let _ = upstream.shutdown(Shutdown::Both);
}
