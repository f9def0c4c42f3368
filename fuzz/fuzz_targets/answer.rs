//! Bytes of a server through the whole transport: the fetch comes back in its time with a status that
//! fits, and the next one gets its own answer. The input is a byte of flags, the size of each write,
//! and what the server sends.
#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use experiment::client::Client;
use experiment::config::Config;
use experiment::rules::deadline::Limit;
use experiment::rules::error::Status;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment_fuzz::service::{Play, Service, Then};
use libfuzzer_sys::fuzz_target;

/// What a fetch may take that the server leaves without an end, which most inputs do, and another.
const HELD: u64 = 4;
const ENDED: u64 = 200;

/// What a busy machine may take from a fetch. Whatever knows no bound takes the client's own.
const SLACK: u64 = 2000;
const UNBOUNDED: u64 = 5000;

/// Writes at most: each is a wake-up.
const WRITES: usize = 16;

const EARLY: u8 = 1 << 2;
const WARM: u8 = 1 << 3;
const EXPOSURE: u8 = 1 << 4;
const RETRY: u8 = 1 << 5;
const SMALL: u8 = 1 << 6;

static SERVICE: LazyLock<Service> = LazyLock::new(Service::start);

fuzz_target!(|input: &[u8]| {
    let [flags, chunk, bytes @ ..] = input else { return };
    let then = match flags & 3 {
        3 => Then::Keep,
        1 => Then::Close,
        _ => Then::Finish,
    };
    let client = client(*flags);
    if flags & WARM != 0 {
        good(&client);
    }
    SERVICE.play(Play {
        bytes: bytes.to_vec(),
        chunk: usize::from(*chunk).max(bytes.len().div_ceil(WRITES)).max(1),
        early: flags & EARLY != 0,
        then,
    });
    let held = matches!(then, Then::Keep);
    fetch(&client, *flags, if held { HELD } else { ENDED });
    SERVICE.settle();
    good(&client);
    let gauges = client.gauges();
    let metrics = client.metrics();
    assert_eq!(metrics.fetches.value(), 2 + u64::from(flags & WARM != 0));
    assert!(metrics.failures(Status::Internal) == 0, "{gauges:?}");
});

fn client(flags: u8) -> Client {
    let mut config = Config::default();
    config.set_use_environment_proxy(false);
    config.set_server_url(SERVICE.url()).unwrap();
    config.set_connection_pool_max_size(1).unwrap();
    config.set_fetch_timeout(UNBOUNDED).unwrap();
    config.set_fetch_retries(u32::from(flags & RETRY != 0)).unwrap();
    config.set_fetch_retry_backoff_min(0).unwrap();
    if flags & SMALL != 0 {
        config.set_max_response_bytes(100).unwrap();
    }
    Client::new("key", &config).unwrap()
}

fn fetch(client: &Client, flags: u8, bound: u64) {
    let options = FetchOptions {
        deadline: Limit::millis(bound),
        tracks_exposure: (flags & EXPOSURE != 0).then_some(true),
        ..FetchOptions::default()
    };
    let began = Instant::now();
    let fetched = client.fetch(&User::new(), &options);
    let took = began.elapsed();
    assert!(took < Duration::from_millis(bound + SLACK), "{took:?}");
    let Err(error) = fetched.result else { return };
    let fits = match error.status {
        Status::Network | Status::InvalidResponse => error.http_status.is_none(),
        Status::HttpStatus => error.http_status.is_some_and(|code| code != 200),
        Status::Timeout => took >= Duration::from_millis(bound),
        _ => false,
    };
    assert!(fits, "{error:?} after {took:?}");
    assert!(!error.message.contains(['\n', '\r', '\0']), "{error}");
}

/// Fetches what nobody else has.
fn good(client: &Client) {
    static DRAWN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let drawn = DRAWN.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut user = User::new();
    user.set_json("drawn", &drawn.to_string()).unwrap();
    let fetched = client.fetch(&user, &FetchOptions::default());
    let variants = fetched.result.unwrap();
    let payload = variants.get("user").expect("the service's own").payload_json();
    let payload = payload.expect("the user is told back");
    assert!(payload.starts_with(&format!(r#"{{"drawn":{drawn},"#)), "{}", payload.as_str());
}
