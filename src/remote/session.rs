//! What a client has running in one process, and how a fetch is driven on its caller's thread.

mod background;

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::config::Config;
use crate::machine::cancel::{Bell, Stop};
use crate::machine::clock;
use crate::machine::gaps::{self, Work};
use crate::machine::life::Life;
use crate::machine::logger::{Level, Logger};
use crate::machine::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::machine::sys::Descriptors;
use crate::model::{User, Variants};
use crate::remote::connections::Connections;
use crate::remote::decode;
use crate::remote::options::FetchOptions;
use crate::remote::vardata::{Template, Vardata};
use crate::rules::deadline::{Deadline, Limit};
use crate::rules::error::{Error, Status};
use crate::rules::fetch::{Fetch, Fetched, Refusal, Rules, Step};
use crate::rules::metrics::{Gauges, Metrics};
use crate::rules::retry::Budget;
use crate::transport::{Shared, Transport};

/// Beyond this size an answer for the user cannot come from the service's cache.
const CACHEABLE_USER_BYTES: usize = 8000;

/// See the module. Any number of threads use it at once.
pub struct Session {
    config: Arc<Config>,
    template: Arc<Template>,
    rules: Arc<Rules>,
    connections: Connections,
    life: Life,
    metrics: Arc<Metrics>,
    descriptors: Arc<Descriptors>,
    logger: Arc<Logger>,
    random: u64,
    warned_of_size: AtomicBool,
    began: Instant,
    /// The second, counted from when it began, in which a refused fetch was last logged.
    refusal_logged: AtomicU64,
}

impl Session {
    /// Opens no connection and starts no thread.
    pub fn new(api_key: &str, config: &Config) -> Result<Self, Error> {
        let logger = Arc::new(config.logger());
        let shared = shared(config);
        let mut template = Template::new(config.effective_server_url(), api_key)?;
        let transport =
            Transport::new(template.uri(), config, shared.clone(), Arc::clone(&logger))?;
        if let Some(proxy) = transport.forwarding() {
            template.forward_by(api_key, proxy);
        }
        let template = Arc::new(template);
        Ok(Session::over(transport, template, shared, Arc::new(config.clone()), logger))
    }

    /// The session of a forked child, which has none of its parent's threads, locks or connections.
    pub fn in_child(&self) -> Self {
        self.close_copies();
        let shared = shared(&self.config);
        let transport = self.connections.transport().in_child(shared.clone());
        let (template, config) = (Arc::clone(&self.template), Arc::clone(&self.config));
        Session::over(transport, template, shared, config, Arc::clone(&self.logger))
    }

    fn over(
        transport: Transport,
        template: Arc<Template>,
        Shared { cut, metrics, descriptors }: Shared,
        config: Arc<Config>,
        logger: Arc<Logger>,
    ) -> Self {
        let life = Life::new(cut);
        Session {
            rules: Arc::new(Rules {
                schedule: config.schedule.clone(),
                budget: Budget::new(config.retry_budget_percent),
                metrics: Arc::clone(&metrics),
            }),
            connections: Connections::new(&config, transport, Arc::clone(&life.closing)),
            life,
            template,
            config,
            metrics,
            descriptors,
            logger,
            random: seed(),
            warned_of_size: AtomicBool::new(false),
            began: clock::now(),
            refusal_logged: AtomicU64::new(0),
        }
    }

    /// In a forked child: closes its copies of the parent's connections, so that the service sees
    /// it when the parent closes them.
    pub fn close_copies(&self) {
        self.descriptors.close_copies();
    }

    /// Whether this process was forked from the one whose session this is.
    pub fn is_inherited(&self) -> bool {
        self.life.is_inherited()
    }

    /// Fetches the variants of `user`, on this thread, within the bounds of the configuration and
    /// of `options`.
    pub fn fetch(&self, user: &User, options: &FetchOptions) -> Fetched {
        let began = clock::now();
        let _inside = gaps::fetch();
        let _running = self.life.run();
        let number = self.metrics.fetches.increment();
        let fetched = match self.encode(user) {
            Ok(body) => self.drive(&body, options, self.random ^ number, began),
            Err(error) => Fetched::not_begun(error),
        };
        self.ended(&fetched, began.elapsed());
        fetched
    }

    fn encode(&self, user: &User) -> Result<Vec<u8>, Error> {
        let body = user
            .encode(&self.config.library)
            .map_err(|invalid| Error::invalid_argument(invalid.to_string()))?;
        gaps::did(Work::Encoded, body.len());
        if body.len() > CACHEABLE_USER_BYTES && !self.warned_of_size.swap(true, Ordering::Relaxed) {
            self.logger.log(Level::Warn, || {
                format!(
                    "a user of {} bytes cannot be cached by the service, whose limit is \
                     {CACHEABLE_USER_BYTES}; further ones are not reported",
                    body.len()
                )
            });
        }
        Ok(body)
    }

    /// Does what each step of the fetch asks for, until it is over.
    fn drive(&self, body: &[u8], options: &FetchOptions, random: u64, began: Instant) -> Fetched {
        let mut stop = Stop::new(options.cancel.clone(), options.interrupt.clone());
        let (mut fetch, mut step) = Fetch::begin(&self.rules, options.deadline, random, began);
        let result = loop {
            step = match step {
                Step::Attempt { until } => {
                    self.attempt(&mut fetch, until, body, options, &mut stop)
                }
                Step::Pause { until } => match self.pause(until, &mut stop) {
                    Ok(()) => fetch.resumed(clock::now()),
                    Err(error) => fetch.stopped(error, clock::now()),
                },
                Step::Done(result) => break result,
            };
        };
        fetch.ended(result)
    }

    fn attempt(
        &self,
        fetch: &mut Fetch,
        until: Deadline,
        body: &[u8],
        options: &FetchOptions,
        stop: &mut Stop,
    ) -> Step {
        let leased = match self.connections.lease(until, stop) {
            Ok(leased) => leased,
            Err(refusal) => return fetch.refused(refusal, clock::now()),
        };
        let bounds = fetch.leased(clock::now());
        let request = Vardata { template: &self.template, user: body, options };
        match leased.exchange(bounds, &request, stop) {
            Ok((result, timings)) => {
                let result = result.and_then(|body| self.decode(body, bounds.until, stop));
                fetch.exchanged(result, &timings, clock::now())
            }
            Err(error) => fetch.refused(Refusal::Failed(error), clock::now()),
        }
    }

    /// Decodes a body, unless the time is over first or the fetch is to stop.
    fn decode(&self, body: Vec<u8>, until: Deadline, stop: &mut Stop) -> Result<Variants, Error> {
        let mut stopped = false;
        let go_on = || {
            let now = clock::now();
            stopped = stop.is_asked(now, false);
            !stopped && !until.has_passed(now)
        };
        let decoded = decode::decode(body, &self.metrics, go_on);
        if stopped {
            return Err(Error::canceled());
        }
        let (variants, skipped) = decoded?;
        if skipped > 0 {
            self.logger.log(Level::Warn, || {
                format!("skipped {skipped} entries of the response that are not variants")
            });
        }
        Ok(variants)
    }

    /// Waits between two attempts.
    fn pause(&self, until: Instant, stop: &mut Stop) -> Result<(), Error> {
        let bell = Bell::new();
        let _attached = (stop.attach(&bell), self.life.closing.attach(&bell));
        while clock::now() < until {
            if self.life.closing.is_fired() {
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
        self.connections.close();
    }

    /// Closes the client: new fetches are refused, waiting ones end as `Closed`, and those that
    /// run are waited for. What still runs after `limit` is cut off, and that is a timeout.
    pub fn close(&self, limit: Limit) -> Result<(), Error> {
        let _inside = gaps::fetch();
        self.begin_close();
        if self.runs_here() {
            return Err(Error::new(Status::Timeout, "a fetch cannot wait for its own end"));
        }
        self.life.wait_for_end(limit)
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub fn logger(&self) -> &Arc<Logger> {
        &self.logger
    }

    /// How the pool stands now.
    pub fn gauges(&self) -> Gauges {
        self.connections.gauges()
    }

    /// Counts and logs what a fetch came to.
    fn ended(&self, fetched: &Fetched, elapsed: Duration) {
        let status = fetched.result.as_ref().err().map(|error| error.status);
        self.metrics.fetch_ended(status, elapsed);
        let level = if status.is_none() { Level::Debug } else { Level::Warn };
        self.logger.log(level, || {
            let what = match &fetched.result {
                Ok(variants) => format!("{} variants", variants.len()),
                Err(error) => error.to_string(),
            };
            format!("fetch: {what} ({} attempts, {} ms)", fetched.attempts, elapsed.as_millis())
        });
    }

    /// Counts a fetch that was not started, and logs one a second of those.
    fn refused(&self, error: Error) -> Error {
        let count = self.metrics.fetch_refused(error.status);
        let second = clock::now().saturating_duration_since(self.began).as_secs() + 1;
        if self.refusal_logged.swap(second, Ordering::Relaxed) != second {
            self.logger.log(Level::Warn, || {
                let status = error.status.name();
                format!("fetch refused: {error} ({count} with status {status} so far)")
            });
        }
        error
    }

    pub fn log_defect(&self, defect: &Error) {
        self.logger.log(Level::Error, || defect.message.clone().into_owned());
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("connections", &self.connections).finish_non_exhaustive()
    }
}

/// Where the jitter of one process comes from. std draws its keys once, before a fork.
fn seed() -> u64 {
    if cfg!(feature = "simulation") {
        return 0; // what happens is to follow from the simulation's seed alone
    }
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    hasher.write_u128(now.map_or(0, |now| now.as_nanos()));
    hasher.finish()
}

fn shared(config: &Config) -> Shared {
    let descriptors = Transport::max_sockets(config.pool_size as usize);
    Shared::new(Descriptors::new(descriptors))
}
