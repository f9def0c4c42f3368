//! What the behaviour tests share: clients of a scripted service, users that can be told apart, and
//! bounds on time.
//!
//! Every bound has its reason: what is configured is the least a wait may take, and at most
//! [`PROMISE`] more is what the library promises. [`SLACK`] is no promise: it is what a busy
//! machine of two cores may take from a test; and where that is not enough, a thread that does
//! nothing but sleep tells by how much it woke too late in the same time.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::time::{Duration, Instant};

use experiment::client::{Client, Fetched};
use experiment::config::Config;
use experiment::machine::cancel::Cancel;
use experiment::model::{User, Variants};
use experiment::remote::options::FetchOptions;
use experiment::rules::error::Error;
use experiment::rules::metrics::{CloseReason, Metrics};
use mock_service::{Answer, MockService, Step};

/// How late a fetch may be.
pub const PROMISE: Duration = millis(20);

/// How late a test's thread may be on a busy machine.
pub const SLACK: Duration = millis(150);

/// For what happens by itself, and soon: so that a test fails where it would hang.
pub const SOON: Duration = Duration::from_secs(10);

pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The settings that tests change, in milliseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    pub pool: u32,
    pub fetch_timeout: u64,
    pub retry_timeout: u64,
    pub acquire: Option<u64>,
    pub retries: u32,
    pub backoff_min: u64,
    pub backoff_max: u64,
    pub scalar: f64,
    pub jitter: bool,
    pub budget: u32,
    pub deadline: Option<u64>,
}

impl Default for Settings {
    /// Bounds that no test runs into unless it sets its own.
    fn default() -> Self {
        Settings {
            pool: 1,
            fetch_timeout: 8000,
            retry_timeout: 8000,
            acquire: None,
            retries: 0,
            backoff_min: 0,
            backoff_max: 10_000,
            scalar: 1.5,
            jitter: false,
            budget: 0,
            deadline: None,
        }
    }
}

impl Settings {
    pub fn config(&self, url: &str) -> Config {
        let mut config = Config::default();
        config.set_use_environment_proxy(false);
        let set = [
            config.set_server_url(url),
            config.set_connection_pool_max_size(self.pool),
            config.set_fetch_timeout(self.fetch_timeout),
            config.set_fetch_retry_timeout(self.retry_timeout),
            self.acquire.map_or(Ok(()), |acquire| config.set_fetch_pool_acquire_timeout(acquire)),
            config.set_fetch_retries(self.retries),
            config.set_fetch_retry_backoff_min(self.backoff_min),
            config.set_fetch_retry_backoff_max(self.backoff_max),
            config.set_fetch_retry_backoff_scalar(self.scalar),
            config.set_fetch_retry_budget(self.budget),
            self.deadline.map_or(Ok(()), |deadline| config.set_fetch_deadline(deadline)),
        ];
        config.set_fetch_retry_jitter(self.jitter);
        for result in set {
            result.expect("tests set what is allowed");
        }
        config
    }

    pub fn client_at(&self, url: &str) -> Client {
        client_of(&self.config(url))
    }

    pub fn client(&self, service: &MockService) -> Client {
        self.client_at(&service.url())
    }
}

pub fn client_of(config: &Config) -> Client {
    Client::new("test-key", config).expect("the configuration is good")
}

/// A client with settings that nothing runs into.
pub fn client(service: &MockService) -> Client {
    Settings::default().client(service)
}

/// A number that no other fetch of this process has.
pub fn draw() -> u64 {
    static DRAWN: AtomicU64 = AtomicU64::new(1);
    DRAWN.fetch_add(1, Ordering::Relaxed)
}

/// Numbers drawn at random, the same every time.
pub struct Drawn(pub u64);

impl Drawn {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A user whose answer from the service no other user gets.
pub fn user(nonce: u64) -> User {
    let mut user = User::new();
    user.set_text("user_id", &format!("user-{nonce}")).unwrap();
    user.set_property_json("nonce", &nonce.to_string()).unwrap();
    user
}

/// The nonce of the user whose answer this is.
pub fn nonce_of(variants: &Variants) -> Option<u64> {
    variants.get("demo-nonce")?.payload_json()?.as_str().parse().ok()
}

pub fn fetch(client: &Client) -> Fetched {
    client.fetch(&user(draw()), &FetchOptions::default())
}

pub fn fetch_with(client: &Client, options: &FetchOptions) -> Fetched {
    client.fetch(&user(draw()), options)
}

/// Fetches, and fails the test unless the answer is this fetch's own.
#[track_caller]
pub fn good(client: &Client) -> Fetched {
    let nonce = draw();
    let fetched = client.fetch(&user(nonce), &FetchOptions::default());
    match &fetched.result {
        Ok(variants) => assert_eq!(nonce_of(variants), Some(nonce), "the answer of another fetch"),
        Err(error) => panic!("the fetch should be good, but: {error:?}"),
    }
    fetched
}

#[track_caller]
pub fn error(fetched: &Fetched) -> &Error {
    fetched.result.as_ref().expect_err("the fetch should fail")
}

#[track_caller]
pub fn variants(fetched: &Fetched) -> &Variants {
    fetched.result.as_ref().expect("the fetch should be good")
}

/// Options with a switch, and the switch.
pub fn cancelable() -> (FetchOptions, Arc<Cancel>) {
    let cancel = Cancel::new();
    let options = FetchOptions { cancel: Some(Arc::clone(&cancel)), ..FetchOptions::default() };
    (options, cancel)
}

pub fn timed<T>(act: impl FnOnce() -> T) -> (T, Duration) {
    sleeper();
    let began = Instant::now();
    let result = act();
    (result, began.elapsed())
}

/// Fails unless `act` is over by `bound`.
#[track_caller]
pub fn within<T>(bound: Duration, act: impl FnOnce() -> T) -> T {
    let (result, took) = timed(act);
    check_bound(took, bound);
    result
}

/// Fails unless `act` takes `bound`, neither less nor much more.
#[track_caller]
pub fn takes<T>(bound: Duration, act: impl FnOnce() -> T) -> T {
    let (result, took) = timed(act);
    assert!(took >= bound, "took {took:?}, which is less than {bound:?}");
    check_bound(took, bound);
    result
}

#[track_caller]
pub fn check_bound(took: Duration, bound: Duration) {
    let late = sleeper().lateness(took);
    let most = bound + PROMISE + SLACK + late;
    assert!(took <= most, "took {took:?}, but {bound:?} was the bound ({late:?} late)");
}

/// How late a thread comes that does nothing but sleep.
struct Sleeper {
    /// When it last lay down, and its overlong sleeps: when each was over, and by how much.
    log: Mutex<(Instant, VecDeque<(Instant, Duration)>)>,
}

/// A nap, and what a timer may be late without a reason.
const NAP: Duration = millis(5);
const TIMER: Duration = millis(1);

fn sleeper() -> &'static Sleeper {
    static SLEEPER: OnceLock<Sleeper> = OnceLock::new();
    static BEGUN: Once = Once::new();
    let new = || Sleeper { log: Mutex::new((Instant::now(), VecDeque::new())) };
    let sleeper = SLEEPER.get_or_init(new);
    BEGUN.call_once(|| drop(std::thread::spawn(|| sleeper.sleep())));
    sleeper
}

impl Sleeper {
    fn sleep(&self) {
        loop {
            let lay_down = Instant::now();
            self.log.lock().unwrap().0 = lay_down;
            std::thread::sleep(NAP);
            let late = lay_down.elapsed().saturating_sub(NAP + TIMER);
            if !late.is_zero() {
                let overlong = &mut self.log.lock().unwrap().1;
                overlong.push_back((Instant::now(), late));
                if overlong.len() > 10_000 {
                    overlong.pop_front();
                }
            }
        }
    }

    /// By how much it overslept in the time just passed.
    fn lateness(&self, passed: Duration) -> Duration {
        let log = self.log.lock().unwrap();
        let (lay_down, overlong) = &*log;
        let recent = overlong.iter().rev().take_while(|(when, _)| when.elapsed() <= passed);
        let sleeping = lay_down.elapsed().saturating_sub(NAP + TIMER);
        recent.map(|(_, late)| *late).sum::<Duration>() + sleeping
    }
}

/// Waits until something in this process is so.
#[track_caller]
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < SOON, "in vain: {what}");
        std::thread::sleep(millis(1));
    }
}

/// Waits until so many requests have arrived.
#[track_caller]
pub fn until_requests(service: &MockService, count: usize) {
    assert!(service.wait_until(SOON, |seen| seen.requests_total >= count), "no request {count}");
}

/// Waits until nobody is connected.
#[track_caller]
pub fn until_disconnected(service: &MockService) {
    until("all connections have ended", || service.connections_open() == 0);
}

/// An answer that never comes, as long as the client is there.
pub fn silence() -> Answer {
    Answer::steps([Step::Hold])
}

/// An answer as it is written here.
pub fn raw(bytes: impl Into<mock_service::Bytes>) -> Answer {
    Answer::steps([Step::send(bytes)])
}

/// What every client's counters say when no fetch is under way and the client is `open`.
#[track_caller]
pub fn check_books(client: &Client) {
    let (metrics, gauges) = (client.metrics(), client.gauges());
    let failed: u64 = experiment::rules::error::Status::ALL
        .into_iter()
        .map(|status| metrics.failures(status))
        .sum();
    assert_eq!(metrics.fetches.value(), metrics.fetches_ok.value() + failed, "fetches");
    assert_eq!(metrics.attempts.value(), metrics.fetches.value() + metrics.retries.value());
    assert_eq!((gauges.leased, gauges.waiting), (0, 0), "nothing is under way");
    let open = metrics.connections_opened.value() - closed(metrics);
    assert_eq!(open, gauges.idle as u64, "opened = closed + open");
}

/// Connections closed, for whatever reason.
pub fn closed(metrics: &Metrics) -> u64 {
    CloseReason::ALL.into_iter().map(|reason| metrics.connections_closed(reason)).sum()
}
