//! What the tests of the transport share. Each test binary uses a part of it.
#![allow(dead_code)]

#[cfg(feature = "count-gaps")]
pub mod gaps;
pub mod namespaces;
pub mod net;
pub mod proxy;
pub mod stall;
pub mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use experiment::client::{Client, Fetched};
use experiment::config::Config;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::rules::error::Error;
use experiment::rules::timings::Phase;

/// Within this after its bound a fetch is back: what the library promises.
pub const PROMISE: Duration = Duration::from_millis(20);

/// What the machine may add on top: tests run beside each other on two cores that others use too,
/// and a thread that is ready may have to wait its turn. Whatever is really unbounded, or bounded
/// by a read instead of the fetch, is off by much more.
pub const SLACK: Duration = Duration::from_millis(80);

/// How often something may be late before it counts: a machine that is busy elsewhere is now and
/// then later than any slack, code that knows no bound always is.
pub const TRIES: u64 = 5;

/// What takes longer than this on loopback never happens.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Settings for a service at `url`: one connection, and far more time than it needs.
pub fn config(url: &str) -> Config {
    let mut config = Config::default();
    config.set_server_url(url).unwrap();
    config.set_connection_pool_max_size(1).unwrap();
    config.set_fetch_timeout(PATIENCE.as_millis() as u64).unwrap();
    config.set_use_environment_proxy(false);
    config
}

/// The same with `bound` as the timeout of an attempt.
pub fn bounded(url: &str, bound: Duration) -> Config {
    let mut config = config(url);
    config.set_fetch_timeout(bound.as_millis() as u64).unwrap();
    config
}

pub fn client(config: &Config) -> Client {
    Client::new("key", config).unwrap()
}

/// A user with a number of its own, which the service puts into its answer.
pub fn user() -> (User, String) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let nonce = format!("user-{}", LAST.fetch_add(1, Ordering::Relaxed));
    let mut user = User::new();
    user.set_text("user_id", &nonce).unwrap();
    (user, nonce)
}

/// A user of about a megabyte, which the buffers of a socket do not hold beside the receiver's.
pub fn large_user(bytes: usize) -> User {
    let mut user = user().0;
    user.set_property_json("large", &format!("\"{}\"", "x".repeat(bytes))).unwrap();
    user
}

/// Fetches, and makes sure that the answer is the one to this very request.
pub fn fetch_with(client: &Client, options: &FetchOptions) -> Result<Fetched, Error> {
    let (user, nonce) = user();
    let fetched = client.fetch(&user, options);
    match &fetched.result {
        Err(error) => Err(error.clone()),
        Ok(variants) => {
            let variant = variants.get("demo-nonce").expect("the answer is the service's");
            let echoed = variant.payload_json().expect("the service echoes the user");
            assert_eq!(echoed.as_str(), format!("\"{nonce}\""), "the answer to another request");
            Ok(fetched)
        }
    }
}

pub fn fetch(client: &Client) -> Result<Fetched, Error> {
    fetch_with(client, &FetchOptions::default())
}

/// Runs something and tells how long it took.
pub fn timed<R>(run: impl FnOnce() -> R) -> (R, Duration) {
    let began = Instant::now();
    let result = run();
    (result, began.elapsed())
}

/// Waits until something has happened; fails if it does not within the patience.
#[track_caller]
pub fn wait_until(what: &str, happened: impl Fn() -> bool) {
    let began = Instant::now();
    while !happened() {
        assert!(began.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs something until it is over on time once: within the promise and the slack after `bound`.
#[track_caller]
pub fn on_time<R>(bound: Duration, mut run: impl FnMut() -> R) -> R {
    let mut times = Vec::new();
    for _ in 0..TRIES {
        let (result, took) = timed(&mut run);
        if took <= bound + PROMISE + SLACK {
            return result;
        }
        times.push(took);
    }
    panic!("always later than {:?} after {bound:?}: {times:?}", PROMISE + SLACK);
}

/// Timeouts by phase, all of them, so that one counted in the wrong place shows.
pub fn timeouts(client: &Client) -> [(Phase, u64); Phase::COUNT] {
    Phase::ALL.map(|phase| (phase, client.metrics().timeouts(phase)))
}

/// Has every name resolve to these addresses, in this order.
pub fn resolve_to(config: &mut Config, addresses: &[IpAddr]) {
    let addresses = addresses.to_vec();
    config.set_lookup(Arc::new(move |_| Ok(addresses.clone())));
}

/// A URL with a name in place of an address.
pub fn named_url(scheme: &str, name: &str, address: SocketAddr) -> String {
    format!("{scheme}://{name}:{}", address.port())
}

pub const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
