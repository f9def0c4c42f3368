//! One exchange with the service over one connection: the only room that knows ureq.
//!
//! From the outside in: [`Transport::exchange`] makes the request ([`request`]), has ureq run it
//! over the connection ([`connector`], [`socket`], with names from [`resolver`]) and reads the
//! answer ([`response`]). The [`control`] of the connection carries deadline and cancel down to
//! the socket, and what happened back up, where [`failure`] puts it into the caller's terms.

mod connector;
mod control;
mod failure;
mod proxy;
mod request;
mod resolver;
mod response;
mod socket;
mod tls;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver as UreqResolver};
use ureq::unversioned::transport::{NextTimeout, RustlsConnector};

pub use self::control::Shared;
use self::control::{Control, Report};
use self::failure::Failure;
use self::request::Head;
use self::resolver::Resolver;
use crate::cancel::Stop;
use crate::clock;
use crate::config::Config;
use crate::deadline::{Deadline, Limit};
use crate::error::Error;
use crate::logger::{Level, Logger};
use crate::metrics::CloseReason;
use crate::options::FetchOptions;
use crate::schedule::Bound;
use crate::timings::Timings;

const USER_AGENT: &str = concat!("libexperiment/", env!("CARGO_PKG_VERSION"));

/// What the connections of a client have in common.
pub struct Transport {
    settings: Arc<Settings>,
    tls: Arc<RustlsConnector>,
    resolver: Arc<Resolver>,
    shared: Shared,
    logger: Arc<Logger>,
}

/// What was decided when the client was created, and holds in its forked children too.
struct Settings {
    head: Head,
    server: String,
    agent_config: ureq::config::Config,
    idle_timeout: Duration,
    max_lifetime: Limit,
    max_response_bytes: u64,
}

/// One place for a connection: open or not, it serves one exchange at a time.
pub struct Connection {
    agent: Agent,
    control: Arc<Control>,
    last_used: Instant,
}

/// One exchange to make: the bytes of the user, what the fetch asks for, and its bounds.
pub struct Exchange<'a> {
    pub user: &'a [u8],
    pub options: &'a FetchOptions,
    /// For the message, when it is over.
    pub timeout: Bound,
    /// When it is over at the latest.
    pub deadline: Deadline,
    pub stop: Stop,
}

impl Transport {
    /// Reads the environment and the `ca_file` if they are wanted.
    pub fn new(
        api_key: &str,
        config: &Config,
        shared: Shared,
        logger: Arc<Logger>,
    ) -> Result<Self, Error> {
        let head = Head::new(config.effective_server_url(), api_key)?;
        let agent_config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy::choose(config, head.uri())?)
            .user_agent(USER_AGENT)
            .tls_config(tls::config(config.ca_file.as_deref())?)
            .input_buffer_size(socket::INPUT_BYTES)
            .output_buffer_size(socket::OUTPUT_BYTES)
            // Not less: ureq compares it with all that is there, be it a body. The watch sees to
            // a head that fills the buffer.
            .max_response_header_size(socket::INPUT_BYTES)
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            .max_idle_age(Duration::MAX) // ages are looked at here, in `retire`
            .build();
        let settings = Settings {
            server: head.uri().authority().map(ToString::to_string).unwrap_or_default(),
            head,
            agent_config,
            idle_timeout: config.idle_timeout,
            max_lifetime: config.max_lifetime,
            max_response_bytes: config.max_response_bytes,
        };
        Ok(Transport {
            settings: Arc::new(settings),
            tls: Arc::default(),
            resolver: Resolver::new(
                Arc::clone(&config.lookup),
                Arc::clone(&shared.metrics),
                &logger,
            ),
            shared,
            logger,
        })
    }

    /// The transport of a forked child: the same settings, no connection, no lock of the parent's.
    pub fn in_child(&self, shared: Shared) -> Self {
        Transport {
            settings: Arc::clone(&self.settings),
            tls: Arc::default(),
            resolver: self.resolver.in_child(Arc::clone(&shared.metrics)),
            shared,
            logger: Arc::clone(&self.logger),
        }
    }

    /// A place for a connection, not open yet. Takes a descriptor.
    pub fn connection(&self) -> io::Result<Connection> {
        let now = clock::now();
        let control = Control::new(&self.shared, now)?;
        Ok(Connection { agent: self.agent(&control), control, last_used: now })
    }

    fn agent(&self, control: &Arc<Control>) -> Agent {
        let through_proxy = self.settings.agent_config.proxy().is_some();
        let chain = connector::chain(control, &self.resolver, &self.tls, through_proxy);
        Agent::with_parts(self.settings.agent_config.clone(), chain, ResolvedLater)
    }

    /// Sends one request and reads its answer's body, over the kept connection or a new one.
    /// Whatever happens, the connection is afterwards clean or closed.
    pub fn exchange(
        &self,
        connection: &mut Connection,
        exchange: &Exchange<'_>,
    ) -> (Result<Vec<u8>, Error>, Timings) {
        let control = Arc::clone(&connection.control);
        let began = clock::now();
        self.retire(connection, began);
        let attached = control.begin(exchange.deadline, exchange.stop.clone(), began);
        let mut result = self.run(connection, exchange);
        if let Err(failure) = &result
            && is_stale(failure, &control.report(), exchange.options)
        {
            self.logger.log(Level::Debug, || "a kept connection had ended: repeated".to_owned());
            self.shared.metrics.stale_repeats.increment();
            result = self.run(connection, exchange);
        }
        drop(attached);
        connection.last_used = clock::now();
        let report = control.finish(connection.last_used);
        if report.reused {
            self.shared.metrics.connections_reused.increment();
        }
        let result = result.map_err(|failure| {
            failure.into_error(
                &report,
                exchange.timeout,
                self.settings.max_response_bytes,
                &self.settings.server,
            )
        });
        (result, report.timings)
    }

    /// Closes a kept connection that is too old, or was unused for too long.
    fn retire(&self, connection: &mut Connection, now: Instant) {
        let Some(opened) = connection.control.opened() else { return };
        if now.saturating_duration_since(connection.last_used) >= self.settings.idle_timeout {
            self.close(connection, CloseReason::Idle);
        } else if Deadline::after(opened, self.settings.max_lifetime).has_passed(now) {
            self.close(connection, CloseReason::Lifetime);
        }
    }

    fn run(
        &self,
        connection: &mut Connection,
        exchange: &Exchange<'_>,
    ) -> Result<Vec<u8>, Failure> {
        let control = Arc::clone(&connection.control);
        let request = self.settings.head.request(exchange.user, exchange.options);
        let result = match connection.agent.run(request) {
            Err(error) => Err(Failure::Exchange(error)),
            Ok(mut response) => {
                // Should ureq drop the connection when it has read the answer: that is why.
                let is_last = response::is_last(&response);
                control.set_close_reason(if is_last {
                    CloseReason::Peer
                } else {
                    CloseReason::Unclean
                });
                let is_framed_once = response::is_framed_once(response.headers());
                let max_bytes = self.settings.max_response_bytes;
                let result = response::read(&mut response, max_bytes, &control);
                if !matches!(result, Ok(_) | Err(Failure::Status { .. })) {
                    control.set_close_reason(CloseReason::Failed);
                }
                drop(response);
                if !is_framed_once {
                    self.close(connection, CloseReason::Unclean);
                }
                result
            }
        };
        match &result {
            Ok(_) | Err(Failure::Status { .. }) => {}
            Err(_) => self.close(connection, CloseReason::Failed),
        }
        result
    }

    /// Closes a connection, if it is open, at once and without a word to the peer.
    pub fn close(&self, connection: &mut Connection, reason: CloseReason) {
        connection.control.set_close_reason(reason);
        connection.agent = self.agent(&connection.control);
    }
}

impl Transport {
    /// Descriptors that a client of `pool_size` connections has open at most: a bell for each, and
    /// sockets that race to connect.
    pub fn max_descriptors(pool_size: usize) -> usize {
        pool_size * (1 + connector::MAX_RACERS)
    }
}

impl Connection {
    pub fn is_open(&self) -> bool {
        self.control.opened().is_some()
    }
}

/// Whether the request is to be repeated on a fresh connection: the kept one had ended before it
/// gave a byte of an answer. A request that records an exposure is repeated only if nothing of it
/// was sent, so that the exposure cannot count twice.
fn is_stale(failure: &Failure, report: &Report, options: &FetchOptions) -> bool {
    let records_exposure = options.tracks_exposure == Some(true);
    report.ended.is_none()
        && report.reused
        && !report.received
        && !(records_exposure && report.sent)
        && failure.is_end_of_connection()
}

/// ureq resolves before every request, over a kept connection too. Ours is done by the connector,
/// when there is something to connect to.
#[derive(Debug)]
struct ResolvedLater;

impl UreqResolver for ResolvedLater {
    fn resolve(
        &self,
        _: &http::Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("server", &self.settings.server).finish_non_exhaustive()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("open", &self.is_open()).finish_non_exhaustive()
    }
}
