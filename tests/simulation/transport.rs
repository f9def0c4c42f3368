//! A service and a network of which a seed decides what they do with each exchange.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Uri;
use shuttle::rand::{Rng, thread_rng};
use zeroize::Zeroizing;

use crate::config::Config;
use crate::machine::cancel::{Bell, Cancel, Stop};
use crate::machine::clock;
use crate::machine::logger::Logger;
use crate::machine::sys::Descriptors;
use crate::rules::deadline::{Deadline, Limit};
use crate::rules::error::{Error, Status};
use crate::rules::metrics::{CloseReason, Metrics};
use crate::rules::schedule::Bound;
use crate::rules::timings::{Phase, Timings};

/// What the connections of a client share with it.
#[derive(Clone, Debug)]
pub struct Shared {
    pub cut: Arc<Cancel>,
    pub metrics: Arc<Metrics>,
    pub descriptors: Arc<Descriptors>,
}

impl Shared {
    pub fn new(descriptors: Arc<Descriptors>) -> Self {
        Shared { cut: Cancel::new(), metrics: Arc::default(), descriptors }
    }
}

pub struct Transport {
    shared: Shared,
    size: usize,
    busy: AtomicUsize,
}

/// Open, closed, or not opened yet.
#[derive(Debug)]
pub struct Connection {
    open: bool,
}

pub const USER_AGENT: &str = "simulation";

/// As the real one.
pub trait Request {
    fn write(&self, out: &mut Zeroizing<Vec<u8>>) -> &[u8];
    fn may_repeat_what_was_sent(&self) -> bool;
}

#[derive(Clone, Copy, Debug)]
pub struct Forwarding<'a> {
    pub authorization: Option<&'a str>,
}

pub struct Exchange<'a> {
    pub request: &'a dyn Request,
    pub timeout: Bound,
    pub deadline: Deadline,
    pub stop: Stop,
}

/// What the service does with a request.
#[derive(Clone, Copy)]
enum Fate {
    Answers,
    AnswersNonsense,
    Says(u16),
    Breaks,
    Stalls,
}

impl Fate {
    fn draw() -> (Fate, Duration) {
        let fate = match thread_rng().gen_range(0..10) {
            0..=5 => Fate::Answers,
            6 => Fate::AnswersNonsense,
            7 => Fate::Says([503, 429, 400][thread_rng().gen_range(0..3)]),
            8 => Fate::Breaks,
            _ => Fate::Stalls,
        };
        // In few steps, so that things often fall due at the same instant.
        (fate, Duration::from_millis(10 * thread_rng().gen_range(0..8)))
    }
}

impl Transport {
    pub fn new(
        _server: &Uri,
        config: &Config,
        shared: Shared,
        _logger: Arc<Logger>,
    ) -> Result<Self, Error> {
        Ok(Transport { shared, size: config.pool_size as usize, busy: AtomicUsize::new(0) })
    }

    pub fn in_child(&self, _shared: Shared) -> Self {
        unreachable!("nobody forks here")
    }

    pub fn forwarding(&self) -> Option<Forwarding<'_>> {
        None
    }

    pub fn max_sockets(_pool_size: usize) -> usize {
        0
    }

    pub fn connection(&self) -> io::Result<Connection> {
        Ok(Connection { open: false })
    }

    pub fn exchange(
        &self,
        connection: &mut Connection,
        exchange: &Exchange<'_>,
    ) -> (Result<Vec<u8>, Error>, Timings) {
        let busy = self.busy.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(busy <= self.size, "more exchanges at once than the pool has connections");
        if connection.open {
            self.shared.metrics.connections_reused.increment();
        } else {
            self.shared.metrics.connections_opened.increment();
            connection.open = true;
        }
        let began = clock::now();
        let result = self.run(exchange);
        if result.is_err() {
            self.close(connection, CloseReason::Failed);
        }
        let mut timings = Timings::default();
        timings.add(Phase::FirstByte, clock::now() - began);
        self.busy.fetch_sub(1, Ordering::Relaxed);
        (result, timings)
    }

    fn run(&self, exchange: &Exchange<'_>) -> Result<Vec<u8>, Error> {
        let bell = Bell::new();
        let _attached = (exchange.stop.attach(&bell), self.shared.cut.attach(&bell));
        let mut stop = exchange.stop.clone();
        let (fate, delay) = Fate::draw();
        let answered = match fate {
            Fate::Stalls => Deadline::NEVER,
            _ => Deadline::after(clock::now(), Limit::After(delay)),
        };
        loop {
            let now = clock::now();
            if stop.is_asked(now, false) {
                return Err(Error::canceled());
            } else if self.shared.cut.is_fired() {
                return Err(Error::closed());
            } else if exchange.deadline.has_passed(now) {
                return Err(Error::timeout(Phase::FirstByte, "stalled"));
            } else if answered.has_passed(now) {
                return outcome(fate, exchange.request);
            }
            bell.park(stop.next_look(now, exchange.deadline.min(answered)));
        }
    }

    pub fn close(&self, connection: &mut Connection, reason: CloseReason) {
        if std::mem::take(&mut connection.open) {
            self.shared.metrics.closed(reason);
        }
    }
}

/// A good answer has the user in it who was asked for.
fn outcome(fate: Fate, request: &dyn Request) -> Result<Vec<u8>, Error> {
    match fate {
        Fate::Answers => {
            let mut text = Zeroizing::default();
            let rest = request.write(&mut text);
            let text = [&text[..], rest].concat();
            let head = text.windows(4).position(|end| end == b"\r\n\r\n").expect("a head ends");
            Ok([br#"{"flag":{"key":"on","payload":"#, &text[head + 4..], b"}}"].concat())
        }
        Fate::AnswersNonsense => Ok(b"[]".to_vec()),
        Fate::Says(status) => {
            let retry_after = (status == 429).then_some(Duration::from_millis(30));
            Err(Error::http_status(status, retry_after))
        }
        Fate::Breaks | Fate::Stalls => Err(Error::new(Status::Network, "broken")),
    }
}

impl Connection {
    pub fn is_open(&self) -> bool {
        self.open
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}
