//! Opening a connection, as links of ureq's chain: a proxy's tunnel or our socket, then TLS, then
//! the watch that sees what passes above it.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, NextTimeout,
    RustlsConnector, Transport,
};

use super::control::Control;
use super::resolver::Resolver;
use super::socket::{INPUT_BYTES, Socket};
use crate::clock;
use crate::deadline::Deadline;
use crate::metrics::CloseReason;
use crate::sys::{self, Enlisted, Interest};
use crate::timings::Phase;

/// The links, in the order in which a connection is built.
pub fn chain(
    control: &Arc<Control>,
    resolver: &Arc<Resolver>,
    tls: &Arc<RustlsConnector>,
    through_proxy: bool,
) -> impl Connector {
    let socket = SocketConnector { control: Arc::clone(control), resolver: Arc::clone(resolver) };
    ConnectProxyConnector::default()
        .chain(socket)
        .chain(TlsConnector { control: Arc::clone(control), tls: Arc::clone(tls) })
        .chain(WatchConnector { control: Arc::clone(control), through_proxy })
}

/// Resolves and connects, unless a proxy's tunnel is there already.
#[derive(Debug)]
struct SocketConnector {
    control: Arc<Control>,
    resolver: Arc<Resolver>,
}

impl<In: Transport> Connector<In> for SocketConnector {
    type Out = Either<In, Socket>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if let Some(tunnel) = chained {
            return Ok(Some(Either::A(tunnel)));
        }
        let host = details.uri.host().ok_or(Error::HostNotFound)?;
        let default_port = if details.needs_tls() { 443 } else { 80 };
        let port = details.uri.port_u16().unwrap_or(default_port);
        self.control.enter(Phase::Resolve);
        let addresses = self.resolver.resolve(host, &self.control)?;
        self.control.enter(Phase::Connect);
        let winner = race(&addresses, port, &self.control);
        let Racer { enlisted, stream, address } = winner.inspect_err(|_| {
            self.resolver.distrust(host);
        })?;
        if addresses.len() > 1 {
            self.resolver.prefer(host, address);
        }
        Ok(Some(Either::B(Socket::new(stream, enlisted, Arc::clone(&self.control)))))
    }
}

/// Addresses tried at the same time; the last place in a wait is the bell's.
pub const MAX_RACERS: usize = sys::MAX_SOURCES - 1;

/// A connection under way to one of the addresses.
struct Racer {
    enlisted: Enlisted, // before the stream, so that it is dropped first
    stream: TcpStream,
    address: IpAddr,
}

/// Connects to the first of `addresses` that accepts.
fn race(addresses: &[IpAddr], port: u16, control: &Control) -> io::Result<Racer> {
    let mut untried = addresses.iter();
    let mut racers: Vec<Racer> = Vec::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let mut next_start = clock::now();
    loop {
        let now = clock::now();
        if (racers.is_empty() || next_start <= now)
            && racers.len() < MAX_RACERS
            && let Some(&address) = untried.next()
        {
            match sys::begin_connect(&SocketAddr::new(address, port)) {
                Ok(stream) => {
                    let enlisted = control.descriptors().enlist(&stream);
                    racers.push(Racer { enlisted, stream, address });
                }
                Err(error) => {
                    failure = error;
                    continue;
                }
            }
            next_start = now + control.head_start(now);
        }
        if racers.is_empty() {
            return Err(failure);
        }
        let more = untried.len() > 0 && racers.len() < MAX_RACERS;
        let until = if more { Deadline::at(next_start) } else { Deadline::NEVER };
        let sources: Vec<_> =
            racers.iter().map(|racer| (racer.stream.as_raw_fd(), Interest::Writable)).collect();
        let ready = control.wait(&sources, until)?;
        for i in (0..racers.len()).rev().filter(|i| ready & 1 << i != 0) {
            let racer = racers.swap_remove(i);
            match racer.stream.take_error()? {
                None => return Ok(racer),
                Some(error) => failure = error,
            }
            next_start = clock::now();
        }
    }
}

/// Wraps in TLS what needs it. The configuration behind it is shared by all connections of a
/// client, and with it the sessions to resume.
#[derive(Debug)]
struct TlsConnector {
    control: Arc<Control>,
    tls: Arc<RustlsConnector>,
}

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = <RustlsConnector as Connector<In>>::Out;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if details.needs_tls() {
            self.control.enter(Phase::Tls);
        }
        self.tls.connect(details, chained)
    }
}

/// Puts the watch on top, but not on a connection to a proxy, through which another is built.
#[derive(Debug)]
struct WatchConnector {
    control: Arc<Control>,
    through_proxy: bool,
}

impl<In: Transport> Connector<In> for WatchConnector {
    type Out = Either<In, Watch<In>>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(mut inner) = chained else { return Ok(None) };
        // ureq runs the chain for the proxy itself with a configuration that names no proxy.
        if self.through_proxy && details.config.proxy().is_none() {
            self.control.enter(Phase::Connect); // the tunnel's turn, also after TLS with the proxy
            return Ok(Some(Either::A(inner)));
        }
        // What comes from a proxy behind its own answer would be taken for the service's.
        if !inner.buffers().input().is_empty() {
            let why = "it sent more than its answer".to_owned();
            return Err(Error::ConnectProxyFailed(why));
        }
        self.control.connection_opened();
        Ok(Some(Either::B(Watch { inner, control: Arc::clone(&self.control) })))
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted)
}

/// Sees what passes above TLS, and finds out whether a kept connection is open and clean.
#[derive(Debug)]
struct Watch<T> {
    inner: T,
    control: Arc<Control>,
}

impl<T: Transport> Transport for Watch<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        // Into a full buffer nothing is read, which would be taken for the end of the connection.
        let unread = self.inner.buffers().input().len();
        if unread >= INPUT_BYTES && !self.control.is_reading_body() {
            return Err(Error::LargeResponseHeader(unread, INPUT_BYTES));
        }
        let received = match self.inner.await_input(timeout) {
            // For ureq a reset is an end like any other, once the body has begun.
            Err(Error::Io(reset)) if is_reset(&reset) && self.control.is_reading_body() => {
                return Err(Error::Io(io::Error::other(reset)));
            }
            received => received?,
        };
        if received {
            self.control.note_received();
        }
        Ok(received)
    }

    /// Asked twice: when the answer is complete, where what is buffered must be nothing, and
    /// before the next request, where a read must find nothing either. That read goes through TLS,
    /// which has messages of its own to take in and may hold bytes that the socket no longer has.
    fn is_open(&mut self) -> bool {
        if !self.inner.buffers().input().is_empty() {
            self.control.set_close_reason(CloseReason::Unclean);
            return false;
        }
        if !self.control.is_to_send() {
            return true;
        }
        self.control.set_patient(false);
        let read = self.inner.await_input(NextTimeout::default());
        self.control.set_patient(true);
        match read {
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.control.note_reused();
                true
            }
            Ok(true) => {
                self.control.set_close_reason(CloseReason::Unclean);
                false
            }
            Ok(false) | Err(_) => {
                self.control.set_close_reason(CloseReason::Peer);
                false
            }
        }
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

impl<T> Drop for Watch<T> {
    fn drop(&mut self) {
        self.control.connection_closed();
    }
}
