//! One exchange with the service over one connection.
//!
//! From the outside in: [`Transport::exchange`] opens a connection if there is none ([`connector`],
//! with names from [`resolver`]), sends the request ([`request`]) and reads the answer ([`response`]:
//! its [`head`], and by the [`framing`] its body). [`stream`] is where bytes are waited for, [`wire`]
//! the socket with TLS over it, neither of which blocks. The [`exchange_state`] goes along: deadline,
//! cancel and phase. [`failure`] puts what went wrong into the caller's terms.

mod connector;
mod exchange_state;
mod failure;
mod framing;
mod head;
mod proxy;
mod resolver;
mod response;
mod socket;
mod stream;
mod tls;
mod wire;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use zeroize::Zeroizing;

use self::connector::{Connector, Route};
pub use self::exchange_state::Shared;
use self::exchange_state::{Ended, ExchangeState};
use self::failure::{Failure, Names};
use self::head::{Head, Reuse};
use self::resolver::Resolver;
use self::response::Body;
use self::stream::{Sent, Stream, Unsent};
use self::tls::Tls;
use crate::config::Config;
use crate::machine::cancel::Stop;
use crate::machine::clock::{self, BootInstant};
use crate::machine::gaps::{self, Work};
use crate::machine::logger::{Level, Logger};
use crate::machine::sync::Mutex;
use crate::rules::deadline::{Deadline, Limit};
use crate::rules::error::Error;
use crate::rules::metrics::CloseReason;
use crate::rules::schedule::Bound;
use crate::rules::timings::{Phase, Timings};

pub const USER_AGENT: &str = concat!("libexperiment/", env!("CARGO_PKG_VERSION"));

/// What the connections of a client have in common.
pub struct Transport {
    settings: Arc<Settings>,
    /// What a handshake is made with; `None` if none is.
    tls: Option<Tls>,
    resolver: Arc<Resolver>,
    /// Connections that have been unused since before this are not used again: after it, one of them
    /// gave no byte of an answer in time, and what cut its path may have cut theirs.
    suspect_until: Mutex<Option<BootInstant>>,
    shared: Shared,
    logger: Arc<Logger>,
}

/// What was decided when the client was created, and holds in its forked children too.
struct Settings {
    route: Route,
    names: Names,
    idle_timeout: Duration,
    max_lifetime: Limit,
    max_response_bytes: u64,
}

/// One place for a connection: open or not, it serves one exchange at a time.
pub struct Connection {
    state: ExchangeState,
    open: Option<Open>,
    /// Room for a request, kept for the next.
    output: Zeroizing<Vec<u8>>,
}

/// A connection that is open.
struct Open {
    stream: Stream,
    // By the clock that goes on while the machine sleeps: the peer's does.
    since: BootInstant,
    last_used: BootInstant,
    /// For how long it may be unused, as its peer has said.
    kept: Limit,
}

/// A request, of which the transport knows nothing but its bytes.
pub trait Request {
    /// Writes it into `out`, in place of what is there; returns what of its body is to be sent after that.
    fn write(&self, out: &mut Zeroizing<Vec<u8>>) -> &[u8];

    /// Whether it may be sent once more when a kept connection has ended under it, after some of it was sent.
    fn may_repeat_what_was_sent(&self) -> bool;
}

/// That a proxy forwards the requests, which then have to name the whole URL.
#[derive(Clone, Copy, Debug)]
pub struct Forwarding<'a> {
    /// What the proxy wants to see, as the field `proxy-authorization`.
    pub authorization: Option<&'a str>,
}

/// One exchange to make, and its bounds.
pub struct Exchange<'a> {
    pub request: &'a dyn Request,
    /// For the message, when it is over.
    pub timeout: Bound,
    /// When it is over at the latest.
    pub deadline: Deadline,
    pub stop: Stop,
}

/// What is known of one try, when it has failed.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// It went over a connection that had served before, open and clean as far as could be seen.
    reused: bool,
    /// Bytes of it were handed to the operating system.
    sent: bool,
    /// Bytes of an answer were read, as they are above TLS.
    received: bool,
    /// How long the service says that it keeps the connection unused.
    keeps: Option<Duration>,
}

impl Transport {
    /// Reads the environment and the `ca_file` if they are wanted.
    pub fn new(
        server: &Uri,
        config: &Config,
        shared: Shared,
        logger: Arc<Logger>,
    ) -> Result<Self, Error> {
        let proxy = proxy::choose(config, server)?;
        let names = Names {
            server: server.authority().map(ToString::to_string).unwrap_or_default(),
            proxy: proxy.as_ref().map(proxy::Proxy::name),
        };
        let route = Route::new(server, proxy);
        let tls = Tls::new(config.ca_file.as_deref(), &logger)?;
        let lookup = Arc::clone(&config.lookup);
        Ok(Transport {
            tls: route.needs_tls().then_some(tls),
            settings: Arc::new(Settings {
                route,
                names,
                idle_timeout: config.idle_timeout,
                max_lifetime: config.max_lifetime,
                max_response_bytes: config.max_response_bytes,
            }),
            resolver: Resolver::new(lookup, Arc::clone(&shared.metrics), &logger),
            suspect_until: Mutex::new(None),
            shared,
            logger,
        })
    }

    /// The transport of a forked child: the same settings, no connection, no lock of the parent's.
    pub fn in_child(&self, shared: Shared) -> Self {
        Transport {
            settings: Arc::clone(&self.settings),
            tls: self.tls.as_ref().map(Tls::in_child),
            resolver: self.resolver.in_child(Arc::clone(&shared.metrics)),
            suspect_until: Mutex::new(None),
            shared,
            logger: Arc::clone(&self.logger),
        }
    }

    /// How requests are to be written, if a proxy forwards them.
    pub fn forwarding(&self) -> Option<Forwarding<'_>> {
        let proxy = self.settings.route.proxy.as_ref();
        let proxy = proxy.filter(|_| self.settings.route.is_forwarded())?;
        Some(Forwarding { authorization: proxy.authorization.as_ref().map(|text| text.as_str()) })
    }

    /// A place for a connection, not open yet. Takes a descriptor.
    pub fn connection(&self) -> io::Result<Connection> {
        let state = ExchangeState::new(&self.shared, clock::now())?;
        Ok(Connection { state, open: None, output: Zeroizing::default() })
    }

    /// Sends one request and reads its answer's body, over the kept connection or a new one.
    /// Whatever happens, the connection is afterwards clean or closed.
    pub fn exchange(
        &self,
        connection: &mut Connection,
        exchange: &Exchange<'_>,
    ) -> (Result<Vec<u8>, Error>, Timings) {
        let began = clock::now();
        let began_at = BootInstant::now();
        self.retire(connection, began_at);
        let attached = connection.state.begin(exchange.deadline, exchange.stop.clone(), began);
        let mut progress = Progress::default();
        let mut result = self.run(connection, exchange, &mut progress);
        if let Err(failure) = &result
            && is_stale(failure, &connection.state, progress, exchange.request)
        {
            self.logger.log(Level::Debug, || {
                let server = &self.settings.names.server;
                format!("the kept-alive connection to {server} had been closed; request repeated")
            });
            self.shared.metrics.stale_repeats.increment();
            progress = Progress::default();
            result = self.run(connection, exchange, &mut progress);
        }
        drop(attached);
        let ended = clock::now();
        let state = &mut connection.state;
        let result = result.map_err(|failure| {
            let Settings { max_response_bytes, names, .. } = &*self.settings;
            failure.into_error(state, exchange.timeout, *max_response_bytes, names)
        });
        let mut timings = state.finish(ended);
        timings.reused = progress.reused;
        if progress.reused {
            self.shared.metrics.connections_reused.increment();
        }
        if matches!(state.ended(), Some(Ended::TimedOut(_)))
            && progress.reused
            && !progress.received
        {
            *self.suspect_until.lock() = Some(began_at);
        }
        if let Some(open) = &mut connection.open {
            open.last_used = BootInstant::now();
        }
        (result, timings)
    }

    /// Closes a kept connection that is too old, was unused for too long, or may be cut off.
    fn retire(&self, connection: &mut Connection, now: BootInstant) {
        let Some(open) = &connection.open else { return };
        let unused = now.since(open.last_used);
        let reason = if unused >= self.settings.idle_timeout || open.kept.is_reached(unused) {
            CloseReason::Idle
        } else if self.settings.max_lifetime.is_reached(now.since(open.since)) {
            CloseReason::Lifetime
        } else if *self.suspect_until.lock() > Some(open.last_used) {
            CloseReason::Suspect
        } else {
            return;
        };
        self.close(connection, reason);
    }

    /// One try. Leaves a connection behind only if it is clean.
    fn run(
        &self,
        connection: &mut Connection,
        exchange: &Exchange<'_>,
        progress: &mut Progress,
    ) -> Result<Vec<u8>, Failure> {
        let Connection { state, open, output } = connection;
        state.check()?; // before a good connection is touched
        let kept = open.take().and_then(|open| is_clean(open, state));
        progress.reused = kept.is_some();
        let mut open = match kept {
            Some(open) => open,
            None => {
                let stream = self.connector().connect(state)?;
                let now = BootInstant::now();
                Open { stream, since: now, last_used: now, kept: Limit::None }
            }
        };
        state.enter(Phase::Send);
        let (result, close) = self.talk(&mut open.stream, state, exchange, output, progress);
        if result.is_err() && !progress.reused && !progress.received {
            self.connector().came_to_nothing(&open.stream, state);
        }
        match close {
            None => {
                open.kept = progress.keeps.map_or(Limit::None, usable_for);
                connection.open = Some(open);
            }
            Some(reason) => open.stream.set_close_reason(reason),
        }
        result
    }

    fn connector(&self) -> Connector<'_> {
        Connector {
            route: &self.settings.route,
            resolver: &self.resolver,
            tls: self.tls.as_ref(),
            shared: &self.shared,
        }
    }

    /// Request and answer, and why the connection is to be closed after them, if it is.
    fn talk(
        &self,
        stream: &mut Stream,
        state: &mut ExchangeState,
        exchange: &Exchange<'_>,
        output: &mut Zeroizing<Vec<u8>>,
        progress: &mut Progress,
    ) -> (Result<Vec<u8>, Failure>, Option<CloseReason>) {
        let rest = exchange.request.write(output);
        gaps::did(Work::Encoded, output.len());
        let before = stream.passed();
        let asked = ask(stream, state, [output, rest]);
        progress.sent = stream.passed().sent > before.sent;
        progress.received = stream.passed().received > before.received;
        let (head, unsent) = match asked {
            Ok(answer) => answer,
            Err(failure) => return (Err(failure), Some(CloseReason::Failed)),
        };
        progress.keeps = head.keeps;
        let is_early = unsent.is_some();
        state.enter(Phase::Body);
        let (result, is_read) = self.take_answer(stream, state, &head, unsent);
        let close = match (&result, head.reuse) {
            (Err(failure), _) if !matches!(failure, Failure::Status { .. }) => {
                Some(CloseReason::Failed)
            }
            // Nobody listens to the rest of the request.
            _ if is_early => Some(CloseReason::Peer),
            (_, Reuse::Ends) => Some(CloseReason::Peer),
            (_, Reuse::Yes) if is_read => None,
            (_, Reuse::Yes | Reuse::Doubtful) => Some(CloseReason::Unclean),
        };
        (result, close)
    }

    /// Reads what follows the head, and whether nothing more can.
    fn take_answer(
        &self,
        stream: &mut Stream,
        state: &mut ExchangeState,
        head: &Head,
        unsent: Unsent<'_>,
    ) -> (Result<Vec<u8>, Failure>, bool) {
        let framing = match head.framing {
            Ok(framing) => framing,
            Err(why) => return (Err(Failure::Answer(why)), false),
        };
        let mut body = Body::new(stream, state, framing, unsent);
        let result = match head.status {
            200 => body.read_whole(head.coding, self.settings.max_response_bytes),
            // Only a proxy asks for credentials like that. In a tunnel the service would be asking.
            407 if self.settings.route.is_forwarded() => Err(Failure::ProxyStatus(407)),
            code => {
                body.drain();
                Err(Failure::Status { code, retry_after: head.retry_after })
            }
        };
        let is_done = body.is_done();
        (result, is_done && stream.unread().is_empty())
    }

    /// Closes a connection, if it is open, at once and without a word to the peer.
    pub fn close(&self, connection: &mut Connection, reason: CloseReason) {
        if let Some(mut open) = connection.open.take() {
            open.stream.set_close_reason(reason);
        }
    }

    /// Sockets that a client of `pool_size` connections has open at most: those that race to connect.
    pub fn max_sockets(pool_size: usize) -> usize {
        pool_size * connector::MAX_RACERS
    }
}

impl Connection {
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

/// How long a connection is used of the time for which its peer keeps it unused. In the last second, or
/// half of the time, it may be closed while a request is on its way.
fn usable_for(keeps: Duration) -> Limit {
    const MARGIN: Duration = Duration::from_secs(1);
    Limit::After(keeps - MARGIN.min(keeps / 2))
}

/// A kept connection, if it is open and nothing has come over it since its last answer: that would be
/// taken for the next one. The look goes through TLS, which has messages of its own to take in and
/// may hold bytes that the socket no longer has.
fn is_clean(mut open: Open, state: &mut ExchangeState) -> Option<Open> {
    let reason = match open.stream.fill_now(state) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            match open.stream.is_mid_record() {
                false => return Some(open),
                true => CloseReason::Unclean,
            }
        }
        // Much of what is no data is nothing that a good server sends unasked.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => CloseReason::Unclean,
        Ok(1..) => CloseReason::Unclean,
        Ok(0) | Err(_) => CloseReason::Peer,
    };
    open.stream.set_close_reason(reason);
    None
}

/// Sends a request, in pieces, and reads the head of its answer; with one that came before all was sent
/// comes the rest of the pieces.
fn ask<'a>(
    stream: &mut Stream,
    state: &mut ExchangeState,
    mut pieces: [&'a [u8]; 2],
) -> Result<(Head, Unsent<'a>), Failure> {
    if let Some(head) = send(stream, state, &mut pieces)? {
        return Ok((head, Some(pieces)));
    }
    state.enter(Phase::FirstByte);
    Ok((response::read_head(stream, state)?, None))
}

/// Sends the pieces, or as much of them as is taken until the head of a response is there.
fn send(
    stream: &mut Stream,
    state: &mut ExchangeState,
    pieces: &mut [&[u8]],
) -> Result<Option<Head>, Failure> {
    for piece in pieces {
        while let Sent::Early(taken) = stream.send(piece, state)? {
            *piece = &piece[taken..];
            if let Some(head) = response::parse_head(stream, state)? {
                return Ok(Some(head));
            }
        }
        *piece = &[];
    }
    Ok(None)
}

/// Whether the request is to be repeated on a fresh connection: the kept one had ended before it
/// gave a byte of an answer.
fn is_stale(
    failure: &Failure,
    state: &ExchangeState,
    progress: Progress,
    request: &dyn Request,
) -> bool {
    state.ended().is_none()
        && progress.reused
        && !progress.received
        && (!progress.sent || request.may_repeat_what_was_sent())
        && failure.is_end_of_connection()
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("server", &self.settings.names.server)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("open", &self.is_open()).finish_non_exhaustive()
    }
}
