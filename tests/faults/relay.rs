//! Bytes on their way to a server and back, until they are stopped, cut or spoilt.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What happens to the bytes from the server, once so many have passed.
#[derive(Clone, Copy, Debug)]
pub enum Passing {
    All,
    /// They are kept back, and the connection stays.
    StopAfter(usize),
    /// The connection ends in order.
    CloseAfter(usize),
    /// One bit is another, and the rest passes.
    SpoilAfter(usize),
}

/// A listener that passes each connection on to a server, which can be changed.
#[derive(Clone)]
pub struct Relay {
    address: SocketAddr,
    way: Arc<Mutex<(SocketAddr, Passing)>>,
}

impl Relay {
    pub fn to(server: SocketAddr) -> Relay {
        Relay::at((Ipv4Addr::LOCALHOST, 0).into(), server)
    }

    pub fn at(address: SocketAddr, server: SocketAddr) -> Relay {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let way = Arc::new(Mutex::new((server, Passing::All)));
        let relay = Relay { address, way };
        let accepting = relay.clone();
        // Ends with the process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (server, passing) = *accepting.way.lock().unwrap();
                // Where no server is, the connection ends.
                let Ok(server) = TcpStream::connect(server) else { continue };
                pass_on(client, server, passing);
            }
        });
        relay
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For the connections from now on.
    pub fn lead(&self, server: SocketAddr, passing: Passing) {
        *self.way.lock().unwrap() = (server, passing);
    }
}

fn pass_on(client: TcpStream, server: TcpStream, passing: Passing) {
    for end in [&client, &server] {
        end.set_nodelay(true).unwrap();
    }
    let (mut from_client, mut to_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        pass_back(&server, &client, passing);
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
}

fn pass_back(mut server: &TcpStream, mut client: &TcpStream, passing: Passing) {
    let (mut passed, mut buffer) = (0, [0; 4096]);
    while let Ok(count @ 1..) = server.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        let mut allowed = count;
        match passing {
            Passing::All => {}
            Passing::SpoilAfter(limit) => {
                if let Some(byte) = limit.checked_sub(passed).and_then(|at| bytes.get_mut(at)) {
                    *byte ^= 1;
                }
            }
            Passing::StopAfter(limit) | Passing::CloseAfter(limit) => {
                allowed = count.min(limit.saturating_sub(passed));
            }
        }
        if client.write_all(&bytes[..allowed]).is_err() {
            return;
        }
        passed += count;
        match passing {
            Passing::CloseAfter(limit) if passed >= limit => return,
            _ => {}
        }
    }
}
