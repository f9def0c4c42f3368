//! Addresses at which nothing ever answers: refused at once, or never heard of again.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use crate::socket;

/// On loopback a connection is there at once; what takes this long will not come.
const NEVER: Duration = Duration::from_millis(100);

/// An address at which no attempt to connect ever ends, as long as this lives.
#[derive(Debug)]
pub struct BlackHole {
    address: SocketAddr,
    _listener: TcpListener,
    /// They fill the line of connections waiting to be accepted.
    _waiting: Vec<TcpStream>,
}

impl BlackHole {
    /// Opens one: a listener that accepts nothing, with its waiting line full.
    ///
    /// # Panics
    ///
    /// If the machine cannot do that: no test can go on without.
    pub fn open() -> BlackHole {
        BlackHole::try_open().expect("this machine can fill the waiting line of a listener")
    }

    fn try_open() -> io::Result<BlackHole> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket::shorten_backlog(&listener)?;
        let address = listener.local_addr()?;
        let mut waiting = Vec::new();
        loop {
            match TcpStream::connect_timeout(&address, NEVER) {
                Ok(stream) => waiting.push(stream),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => break,
                Err(error) => return Err(error),
            }
        }
        Ok(BlackHole { address, _listener: listener, _waiting: waiting })
    }

    /// Where it is: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address to connect to in vain.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A connection that was accepted holds its port, and nobody else is given it, although nobody
/// listens there any more. A port that is merely closed may be another test's a moment later.
pub(crate) fn refused_url() -> String {
    static HELD: OnceLock<(TcpStream, TcpStream)> = OnceLock::new();
    let (_, accepted) = HELD.get_or_init(|| hold_port().expect("this machine has a port to spare"));
    let address = accepted.local_addr().expect("the connection is open");
    format!("http://{address}")
}

fn hold_port() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (accepted, _) = listener.accept()?;
    Ok((client, accepted))
}
