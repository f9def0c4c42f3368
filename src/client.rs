//! The client: owns pool, connections and counters, and drives one fetch on its caller's thread.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::cancel::{Bell, Cancel, Stop};
use crate::config::{self, Config};
use crate::deadline::{Deadline, Limit};
use crate::error::{Error, Status};
use crate::fetch::{self, Bounds, Fetch, Refusal, Rules, Step};
use crate::logger::{Level, Logger};
use crate::metrics::{CloseReason, Gauges, Metrics};
use crate::model::{User, Variants};
use crate::options::FetchOptions;
use crate::pool::{Answer, Lease, Pool, Waiter};
use crate::retry::Budget;
use crate::schedule::Schedule;
use crate::sync::{Condvar, Mutex};
use crate::timings::Timings;
use crate::transport::{Connection, Exchange, Transport};

/// Beyond this size an answer for the user cannot come from the service's cache.
const CACHEABLE_USER_BYTES: usize = 8000;

/// What a fetch came to.
#[derive(Debug)]
pub struct Fetched {
    pub result: Result<Variants, Error>,
    /// Attempts made, the first included; 0 when it failed before it began.
    pub attempts: u32,
    pub timings: Timings,
}

/// Fetches variants; any number of threads at once.
pub struct Client {
    schedule: Schedule,
    budget: Budget,
    library: String,
    idle_timeout: Duration,
    transport: Transport,
    pool: Mutex<Pool<Arc<Bell>>>,
    /// One place for each of the pool's slots, filled when the slot is first leased. Only the
    /// holder of the lease opens or uses what is in it.
    connections: Box<[Mutex<Option<Connection>>]>,
    /// Fires when the client begins to close: no pause between attempts goes on.
    closing: Arc<Cancel>,
    /// Fires when it has waited long enough: no exchange goes on.
    cut: Arc<Cancel>,
    running: AtomicUsize,
    /// Signalled when nothing is running any more, once the client is closing.
    idle: (Mutex<()>, Condvar),
    metrics: Arc<Metrics>,
    logger: Arc<Logger>,
    random: u64,
    warned_of_size: AtomicBool,
}

impl Client {
    /// Reads the environment and the `ca_file` if they are wanted; opens no connection and starts
    /// no thread.
    pub fn new(api_key: &str, config: &Config) -> Result<Self, Error> {
        config::check_api_key(api_key)?;
        let metrics = Arc::new(Metrics::default());
        let logger = Arc::new(config.logger());
        let cut = Cancel::new();
        let (cut_of, metrics_of, logger_of) =
            (Arc::clone(&cut), Arc::clone(&metrics), Arc::clone(&logger));
        let size = NonZeroUsize::new(config.pool_size as usize).unwrap_or(NonZeroUsize::MIN);
        Ok(Client {
            schedule: config.schedule.clone(),
            budget: Budget::new(config.retry_budget_percent),
            library: config.library.clone(),
            idle_timeout: config.idle_timeout,
            transport: Transport::new(api_key, config, cut_of, metrics_of, logger_of)?,
            pool: Mutex::new(Pool::new(size)),
            connections: (0..size.get()).map(|_| Mutex::new(None)).collect(),
            closing: Cancel::new(),
            cut,
            running: AtomicUsize::new(0),
            idle: (Mutex::new(()), Condvar::new()),
            metrics,
            logger,
            random: RandomState::new().build_hasher().finish(),
            warned_of_size: AtomicBool::new(false),
        })
    }

    /// Fetches the variants of `user`, on this thread, within the bounds of the configuration and
    /// of `options`.
    pub fn fetch(&self, user: &User, options: &FetchOptions) -> Fetched {
        let began = Instant::now();
        let _running = Running::begin(self);
        let fetched = match self.encode(user) {
            Ok(body) => self.drive(&body, options, began),
            Err(error) => Fetched { result: Err(error), attempts: 0, timings: Timings::default() },
        };
        let status = fetched.result.as_ref().err().map(|error| error.status);
        self.metrics.fetch_ended(status, began.elapsed());
        self.log_end(&fetched, began.elapsed());
        fetched
    }

    fn encode(&self, user: &User) -> Result<Vec<u8>, Error> {
        let body = user
            .encode(&self.library)
            .map_err(|invalid| Error::invalid_argument(invalid.to_string()))?;
        if body.len() > CACHEABLE_USER_BYTES && !self.warned_of_size.swap(true, Ordering::Relaxed) {
            self.logger.log(Level::Warn, || {
                format!(
                    "a user of {} bytes cannot be cached by the service, whose limit is \
                     {CACHEABLE_USER_BYTES}; later ones are not reported",
                    body.len()
                )
            });
        }
        Ok(body)
    }

    /// Does what each step of the fetch asks for, until it is over.
    fn drive(&self, body: &[u8], options: &FetchOptions, began: Instant) -> Fetched {
        let rules =
            Rules { schedule: &self.schedule, budget: &self.budget, metrics: &self.metrics };
        let random = self.random ^ self.metrics.fetches.value();
        let mut stop = Stop::new(options.cancel.clone(), options.interrupt.clone());
        let (mut fetch, mut step) = Fetch::begin(rules, options.deadline, random, began);
        let result = loop {
            step = match step {
                Step::Attempt { until } => {
                    self.attempt(&mut fetch, until, body, options, &mut stop)
                }
                Step::Pause { until } => match self.pause(until, &mut stop) {
                    Ok(()) => fetch.resumed(Instant::now()),
                    Err(error) => fetch.stopped(error, Instant::now()),
                },
                Step::Done(result) => break result,
            };
        };
        Fetched { result, attempts: fetch.attempts(), timings: fetch.into_timings() }
    }

    fn attempt(
        &self,
        fetch: &mut Fetch<'_>,
        until: Deadline,
        body: &[u8],
        options: &FetchOptions,
        stop: &mut Stop,
    ) -> Step {
        let leased = match self.lease(until, stop) {
            Ok(leased) => leased,
            Err(refusal) => return fetch.refused(refusal, Instant::now()),
        };
        let bounds = fetch.leased(Instant::now());
        match leased.exchange(bounds, body, options, stop) {
            Ok((result, timings)) => {
                let result = result.and_then(|body| self.decode(body));
                fetch.exchanged(result, &timings, Instant::now())
            }
            Err(error) => fetch.refused(Refusal::Failed(error), Instant::now()),
        }
    }

    /// Waits in line for a connection until `until`.
    fn lease(&self, until: Deadline, stop: &mut Stop) -> Result<Leased<'_>, Refusal> {
        if stop.is_asked(Instant::now(), false) {
            return Err(Refusal::Failed(Error::canceled()));
        }
        let bell = Bell::new();
        let answer = {
            let mut pool = self.pool.lock();
            pool.acquire(Instant::now(), until, Waiter::Thread, Arc::clone(&bell))
        };
        let mut ticket = match self.settled(answer) {
            Ok(settled) => return settled,
            Err(ticket) => ticket,
        };
        let _attached = stop.attach(&bell);
        loop {
            let stopped = stop.sleep(&bell, until);
            let mut pool = self.pool.lock();
            let now = Instant::now();
            let (woken, answer) = if stopped {
                (pool.withdraw(now, ticket), None)
            } else {
                (pool.expire(now), Some(pool.collect(ticket)))
            };
            drop(pool);
            ring(woken);
            let Some(answer) = answer else { return Err(Refusal::Failed(Error::canceled())) };
            ticket = match self.settled(answer) {
                Ok(settled) => return settled,
                Err(ticket) => ticket,
            };
        }
    }

    /// The pool's answer, or the ticket to go on waiting with.
    fn settled(&self, answer: Answer) -> Result<Result<Leased<'_>, Refusal>, crate::pool::Ticket> {
        match answer {
            Answer::Leased(lease) => Ok(Ok(Leased { client: self, lease: Some(lease) })),
            Answer::Expired(snapshot) => Ok(Err(Refusal::Expired(snapshot))),
            Answer::Closed => Ok(Err(Refusal::Failed(Error::closed()))),
            Answer::Waiting(ticket) => Err(ticket),
        }
    }

    /// Gives a lease back, and closes what has been unused for too long; all that is unused, once
    /// the client is closing.
    fn give_back(&self, lease: Lease) {
        let warm = self.connections[lease.slot()].lock().as_ref().is_some_and(Connection::is_open);
        let mut pool = self.pool.lock();
        let now = Instant::now();
        let woken = pool.release(now, lease, warm);
        let unused = self.take_unused(&mut pool, now);
        drop(pool);
        ring(woken);
        self.close_all(unused);
    }

    /// Takes out of reach, under the pool's lock, the connections of slots that nobody uses.
    fn take_unused(&self, pool: &mut Pool<Arc<Bell>>, now: Instant) -> Vec<Connection> {
        let idle_for = if self.closing.is_fired() { Duration::ZERO } else { self.idle_timeout };
        let slots = pool.reap(now, idle_for);
        slots.into_iter().filter_map(|slot| self.connections[slot].lock().take()).collect()
    }

    fn close_all(&self, connections: Vec<Connection>) {
        let closing = self.closing.is_fired();
        let reason = if closing { CloseReason::Shutdown } else { CloseReason::Idle };
        for mut connection in connections {
            self.transport.close(&mut connection, reason);
        }
    }

    fn decode(&self, body: Vec<u8>) -> Result<Variants, Error> {
        let (variants, skipped) = fetch::decode(body, &self.metrics)?;
        if skipped > 0 {
            self.logger.log(Level::Warn, || {
                format!("the answer held {skipped} entries that are no variants; they are left out")
            });
        }
        Ok(variants)
    }

    /// Waits between two attempts.
    fn pause(&self, until: Instant, stop: &mut Stop) -> Result<(), Error> {
        let bell = Bell::new();
        let _attached = (stop.attach(&bell), self.closing.attach(&bell));
        while Instant::now() < until {
            if self.closing.is_fired() {
                return Err(Error::closed());
            }
            if stop.sleep(&bell, Deadline::at(until)) {
                return Err(Error::canceled());
            }
        }
        Ok(())
    }

    /// Refuses new fetches and ends those that wait, without waiting itself.
    pub fn begin_close(&self) {
        // First of all, so that whoever gives a lease back after this closes its connection.
        self.closing.fire();
        let mut pool = self.pool.lock();
        let now = Instant::now();
        let woken = pool.close(now);
        let unused = self.take_unused(&mut pool, now);
        drop(pool);
        ring(woken);
        self.close_all(unused);
    }

    /// Closes the client: new fetches are refused, waiting ones end as `Closed`, and those that
    /// run are waited for. What still runs after `limit` is cut off, and that is a timeout.
    pub fn close(&self, limit: Limit) -> Result<(), Error> {
        self.begin_close();
        if self.wait_idle(Deadline::after(Instant::now(), limit)) {
            return Ok(());
        }
        self.cut.fire();
        Err(Error::new(
            Status::Timeout,
            "fetches were still running when the time to close was over, and were cut off",
        ))
    }

    fn wait_idle(&self, until: Deadline) -> bool {
        let (lock, condvar) = &self.idle;
        let mut guard = lock.lock();
        while self.running.load(Ordering::SeqCst) > 0 {
            guard = match until.instant() {
                None => condvar.wait(guard),
                Some(instant) if instant <= Instant::now() => return false,
                Some(instant) => condvar.wait_until(guard, instant),
            };
        }
        true
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Where its messages go.
    pub fn logger(&self) -> &Arc<Logger> {
        &self.logger
    }

    /// How the pool stands now.
    pub fn gauges(&self) -> Gauges {
        let pool = self.pool.lock().snapshot(Instant::now());
        Gauges { leased: pool.leased, idle: pool.idle_warm, waiting: pool.waiting }
    }

    fn log_end(&self, fetched: &Fetched, elapsed: Duration) {
        let level = if fetched.result.is_ok() { Level::Debug } else { Level::Warn };
        self.logger.log(level, || {
            let what = match &fetched.result {
                Ok(variants) => format!("{} variants", variants.len()),
                Err(error) => error.to_string(),
            };
            format!("fetch: {what} ({} attempts, {} ms)", fetched.attempts, elapsed.as_millis())
        });
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("transport", &self.transport).finish_non_exhaustive()
    }
}

/// A lease that finds its way back, also when the exchange panics.
struct Leased<'a> {
    client: &'a Client,
    lease: Option<Lease>,
}

impl Leased<'_> {
    /// Makes one exchange and gives the connection back.
    fn exchange(
        self,
        Bounds { timeout, until: deadline }: Bounds,
        user: &[u8],
        options: &FetchOptions,
        stop: &Stop,
    ) -> Result<(Result<Vec<u8>, Error>, Timings), Error> {
        let client = self.client;
        let slot = self.lease.as_ref().map_or(0, Lease::slot);
        let mut place = client.connections[slot].lock();
        let connection = match place.as_mut() {
            Some(connection) => connection,
            None => place.insert(client.transport.connection().map_err(|error| {
                Error::new(Status::Network, format!("no connection can be opened: {error}"))
            })?),
        };
        let exchange = Exchange { user, options, timeout, deadline, stop: stop.clone() };
        Ok(client.transport.exchange(connection, &exchange))
    }
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.client.give_back(lease);
        }
    }
}

/// Counts a fetch as running while it lives.
struct Running<'a>(&'a Client);

impl<'a> Running<'a> {
    fn begin(client: &'a Client) -> Self {
        client.running.fetch_add(1, Ordering::SeqCst);
        Running(client)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let last = self.0.running.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.0.closing.is_fired() {
            let (lock, condvar) = &self.0.idle;
            // Taken so that whoever is about to wait is seen to wait.
            drop(lock.lock());
            condvar.notify_all();
        }
    }
}

fn ring(bells: Vec<Arc<Bell>>) {
    for bell in bells {
        bell.ring();
    }
}
