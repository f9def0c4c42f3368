//! Opening a connection: look up, race the addresses, shake hands, and through a proxy first to it.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use http::Uri;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use zeroize::Zeroizing;

use super::exchange_state::{ExchangeState, Peer, Shared};
use super::failure::Failure;
use super::proxy::{self, Proxy};
use super::resolver::Resolver;
use super::response;
use super::socket::Socket;
use super::stream::Stream;
use super::tls::Tls;
use super::wire::Wire;
use super::{USER_AGENT, send};
use crate::machine::clock;
use crate::machine::sys::{self, Enlisted, Interest, Ours};
use crate::rules::deadline::Deadline;
use crate::rules::timings::Phase;

/// Where connections of a client lead, and by which way. The same in its forked children.
pub struct Route {
    pub host: String,
    pub port: u16,
    pub is_tls: bool,
    pub proxy: Option<Proxy>,
}

impl Route {
    pub fn new(server: &Uri, proxy: Option<Proxy>) -> Self {
        let is_tls = proxy::is_https(server);
        Route {
            host: server.host().unwrap_or_default().to_owned(),
            port: server.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            is_tls,
            proxy,
        }
    }

    /// Whether a proxy forwards the requests, and so may respond itself. Otherwise it is a tunnel's end.
    pub fn is_forwarded(&self) -> bool {
        self.proxy.is_some() && !self.is_tls
    }

    /// Whether a handshake is made on it.
    pub fn needs_tls(&self) -> bool {
        self.is_tls || self.proxy.as_ref().is_some_and(|proxy| proxy.is_tls)
    }
}

/// What a connection is opened with.
pub struct Connector<'a> {
    pub route: &'a Route,
    pub resolver: &'a Arc<Resolver>,
    pub tls: Option<&'a Tls>,
    pub shared: &'a Shared,
}

impl Connector<'_> {
    /// A connection to the service, ready for a request. If a handshake fails, which may have been for
    /// the session that it was to resume, the way is gone once more with a whole one.
    pub fn connect(&self, state: &mut ExchangeState) -> Result<Stream, Failure> {
        let mut may_resume = false;
        match self.connect_once(&mut may_resume, state) {
            Err(failure)
                if may_resume && state.ended().is_none() && !failure.is_of_certificate() =>
            {
                self.connect_once(&mut may_resume, state)
            }
            result => result,
        }
    }

    /// `may_resume` becomes true when a handshake fails that may have been to resume a session.
    fn connect_once(
        &self,
        may_resume: &mut bool,
        state: &mut ExchangeState,
    ) -> Result<Stream, Failure> {
        let Route { host, port, is_tls, proxy } = self.route;
        let Some(proxy) = proxy else {
            let stream = self.open(host, *port, state)?;
            return if *is_tls {
                self.shake_hands(stream, host, may_resume, state)
            } else {
                Ok(stream)
            };
        };
        state.peer = Peer::Proxy;
        let mut stream = self.open(&proxy.host, proxy.port, state)?;
        if proxy.is_tls {
            stream = self.shake_hands(stream, &proxy.host, may_resume, state)?;
        }
        if *is_tls {
            state.enter(Phase::Connect); // the tunnel's turn, also after TLS with the proxy
            let tunnel = tunnel(&mut stream, host, *port, proxy, state);
            tunnel.inspect_err(|_| self.came_to_nothing(&stream, state))?;
            state.peer = Peer::Service;
            stream = self.shake_hands(stream, host, may_resume, state)?;
        }
        state.peer = Peer::Service;
        Ok(stream)
    }

    fn open(&self, host: &str, port: u16, state: &mut ExchangeState) -> Result<Stream, Failure> {
        state.enter(Phase::Resolve);
        let addresses = in_turn(&self.resolver.resolve(host, state)?);
        state.enter(Phase::Connect);
        let mut race = Race { shared: self.shared, port, racers: Vec::new(), tried: 0 };
        let winner = race.run(&addresses, state);
        match &winner {
            Ok(Racer { address, .. }) => self.resolver.prefer(host, *address),
            // The caller's wish says nothing of the addresses.
            Err(_) if state.is_stopped_by_caller() => {}
            Err(_) => self.resolver.distrust(host, &addresses[..race.tried]),
        }
        let Racer { enlisted, stream, address } = winner?;
        let socket = Socket::new(stream, address, enlisted, Arc::clone(&self.shared.metrics));
        Ok(Stream::new(Wire::Plain(socket)))
    }

    /// A new connection was accepted, and then gave no tunnel, no handshake or no byte of an answer: what
    /// accepts at that address may be a middlebox, or a server that is half alive.
    pub fn came_to_nothing(&self, stream: &Stream, state: &ExchangeState) {
        let entry = match (&self.route.proxy, state.peer) {
            (None, _) => &self.route.host,
            (Some(proxy), Peer::Proxy) => &proxy.host,
            (Some(proxy), Peer::Service) if !self.route.is_tls => &proxy.host,
            // It is the service that fails, and which of its addresses is the proxy's affair.
            (Some(_), Peer::Service) => return,
        };
        if !state.is_stopped_by_caller() {
            self.resolver.demote(entry, stream.peer());
        }
    }

    fn shake_hands(
        &self,
        stream: Stream,
        host: &str,
        may_resume: &mut bool,
        state: &mut ExchangeState,
    ) -> Result<Stream, Failure> {
        state.enter(Phase::Tls);
        let fail = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        let tls = self.tls.ok_or_else(|| io::Error::other("TLS was not set up"))?;
        let config = tls.config();
        let name = ServerName::try_from(bare(host).to_owned()).map_err(|_| {
            fail(rustls::Error::General("the host is not a valid name for TLS".to_owned()))
        })?;
        let connection = ClientConnection::new(Arc::clone(&config), name).map_err(fail)?;
        let mut stream = Stream::new(stream.into_wire().with_tls(connection));
        let result = stream.shake_hands(state);
        match &result {
            Ok(()) => tls.succeeded(&config),
            // The caller's wish says nothing of the sessions.
            Err(_) if state.is_stopped_by_caller() => {}
            Err(_) => {
                *may_resume = tls.failed(&config);
                self.came_to_nothing(&stream, state);
            }
        }
        result?;
        Ok(stream)
    }
}

/// A host without the brackets that an address of IPv6 has in a URL.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Has the proxy connect to the service (RFC 9110, section 9.3.6).
fn tunnel(
    stream: &mut Stream,
    host: &str,
    port: u16,
    proxy: &Proxy,
    state: &mut ExchangeState,
) -> Result<(), Failure> {
    let request = tunnel_request(host, port, proxy);
    let head = match send(stream, state, &mut [&request]) {
        // A response that comes before the end of so short a request is the response.
        Ok(Some(head)) => Ok(head),
        Ok(None) => response::read_head(stream, state),
        Err(failure) => Err(failure),
    };
    let head = head.map_err(|failure| match failure {
        Failure::Answer(why) => Failure::ProxyAnswer(why),
        failure => failure,
    })?;
    match head.status {
        // What it says of a body is to be ignored: there is none.
        200..=299 if stream.unread().is_empty() => Ok(()),
        // What comes from a proxy behind its own answer would be taken for the service's.
        200..=299 => Err(Failure::ProxyAnswer("it sent data after its response")),
        status => Err(Failure::ProxyStatus(status)),
    }
}

/// Reserved at once: a buffer that grows leaves copies of the credentials behind.
fn tunnel_request(host: &str, port: u16, proxy: &Proxy) -> Zeroizing<Vec<u8>> {
    let authorization = proxy.authorization.as_ref().map_or("", |text| text.as_str());
    let mut request =
        Zeroizing::new(Vec::with_capacity(2 * host.len() + authorization.len() + 256));
    let _ = write!(request, "CONNECT {host}:{port} HTTP/1.1\r\nhost: {host}:{port}\r\n");
    if !authorization.is_empty() {
        let _ = write!(request, "proxy-authorization: {authorization}\r\n");
    }
    let _ = write!(request, "user-agent: {USER_AGENT}\r\n\r\n");
    request
}

/// The addresses with the families in turn, beginning with that of the first (RFC 8305, section 4).
fn in_turn(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let first_is_v4 = addresses.first().is_some_and(IpAddr::is_ipv4);
    let (mut one, mut other): (Vec<IpAddr>, Vec<IpAddr>) =
        addresses.iter().partition(|address| address.is_ipv4() == first_is_v4);
    let longer = one.len().max(other.len());
    let mut turns = Vec::with_capacity(addresses.len());
    for _ in 0..longer {
        turns.extend((!one.is_empty()).then(|| one.remove(0)));
        turns.extend((!other.is_empty()).then(|| other.remove(0)));
    }
    turns
}

/// Addresses tried at the same time; the last place in a wait is the bell's.
pub const MAX_RACERS: usize = sys::MAX_SOURCES - 1;

/// A connection under way to one of the addresses.
struct Racer {
    enlisted: Enlisted, // before the stream, so that it is dropped first
    stream: Ours<TcpStream>,
    address: IpAddr,
}

/// The race of a host's addresses, each with a head start before the next (RFC 8305, section 5).
struct Race<'a> {
    shared: &'a Shared,
    port: u16,
    /// The oldest first.
    racers: Vec<Racer>,
    /// How many of the addresses were given a start.
    tried: usize,
}

impl Race<'_> {
    /// Connects to the first of `addresses` that accepts.
    fn run(&mut self, addresses: &[IpAddr], state: &mut ExchangeState) -> io::Result<Racer> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        let mut next_start = clock::now();
        loop {
            state.check()?;
            let now = clock::now();
            if self.tried < addresses.len() && (self.racers.is_empty() || next_start <= now) {
                let address = addresses[self.tried];
                self.tried += 1;
                next_start = now + state.head_start(now);
                if let Err(error) = self.start(address) {
                    failure = error;
                    next_start = now;
                    continue;
                }
            }
            if self.racers.is_empty() {
                return Err(failure);
            }
            let more = self.tried < addresses.len();
            let until = if more { Deadline::at(next_start) } else { Deadline::NEVER };
            match self.wait(until, state)? {
                Ok(Some(winner)) => return Ok(winner),
                Ok(None) => {}
                Err(error) => {
                    failure = error;
                    next_start = clock::now();
                }
            }
        }
    }

    fn start(&mut self, address: IpAddr) -> io::Result<()> {
        if self.racers.len() == MAX_RACERS {
            self.racers.remove(0); // it had the longest time
        }
        let stream = sys::begin_connect(&SocketAddr::new(address, self.port))?;
        let enlisted = self.shared.descriptors.enlist(&stream);
        self.racers.push(Racer { enlisted, stream: Ours::new(stream), address });
        Ok(())
    }

    /// Waits for one that is connected: none until then, or why one has failed.
    fn wait(
        &mut self,
        until: Deadline,
        state: &mut ExchangeState,
    ) -> io::Result<Result<Option<Racer>, io::Error>> {
        let sources: Vec<_> = self
            .racers
            .iter()
            .map(|racer| (racer.stream.as_raw_fd(), Interest::Writable))
            .collect();
        let ready = state.wait(&sources, until)?;
        let mut failure = None;
        for i in (0..self.racers.len()).rev().filter(|i| ready & 1 << i != 0) {
            let racer = self.racers.remove(i);
            match connected(&racer.stream) {
                Ok(()) => return Ok(Ok(Some(racer))),
                Err(error) => failure = Some(error),
            }
        }
        Ok(failure.map_or(Ok(None), Err))
    }
}

fn connected(stream: &TcpStream) -> io::Result<()> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    // A port of the ephemeral range that nobody listens to can be drawn for the connection itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn the_families_take_turns_and_keep_their_own_order() {
        for (given, turns) in [
            (&[][..], &[][..]),
            (&["::1"], &["::1"]),
            (&["::1", "::2", "::3", "1.1.1.1"], &["::1", "1.1.1.1", "::2", "::3"]),
            (&["1.1.1.1", "::1", "1.1.1.2", "1.1.1.3"], &["1.1.1.1", "::1", "1.1.1.2", "1.1.1.3"]),
            (&["1.1.1.1", "1.1.1.2", "::1", "::2"], &["1.1.1.1", "::1", "1.1.1.2", "::2"]),
        ] {
            assert_eq!(in_turn(&addresses(given)), addresses(turns), "{given:?}");
        }
    }
    #[test]
    fn a_connection_to_itself_is_none() {
        // Where nobody listens, the system may draw the very port for our own end: an even one of the
        // ephemeral range (ip(7)). Some ten thousand tries are needed.
        for port in (0..20).flat_map(|_| (32_768..60_999).step_by(2)) {
            let address = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), port);
            let Ok(stream) = sys::begin_connect(&address) else { continue };
            if stream.peer_addr().is_ok_and(|peer| Some(peer) == stream.local_addr().ok()) {
                let error = connected(&stream).expect_err("nobody else is there");
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                return;
            }
        }
        panic!("it never happened");
    }
}
