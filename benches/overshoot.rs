//! How long after its bound a fetch is back, for each way to keep it: `cargo bench --bench
//! overshoot`. Idle, and with 64 threads fetching at once beside two processes that only spin.
//!
//! Prints a table, in milliseconds, and beside it what threads oversleep under the same load that do
//! nothing but sleep. Its first row is of threads that do nothing but look at the clock: what keeps a
//! fetch busy (a flood, decoding) waits for its turn on the processor as they do. A server that floods
//! does so in this process, and is a part of the load. Names on the command line choose the kinds
//! that hold them.

#[path = "../tests/support/mod.rs"]
mod support;

use std::any::Any;
use std::net::Ipv4Addr;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use experiment::config::Config;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use mock_service::{Answer, BlackHole, MockService, Script};
use support::net::{Dropping, Narrow};
use support::proxy::{Conduct, Proxy};
use support::tls::{Authority, NAMES, stalling_after};
use support::{bounded, client, large_user, stall};

const THREADS: usize = 64;

/// Threads that only sleep, for comparison.
const SLEEPERS: usize = 8;

/// One way to keep a fetch, set up: what holds it, how to get there, and whom to fetch for.
struct Kind {
    name: String,
    bound: Duration,
    settings: Config,
    user: User,
    /// Goes with it.
    keeps: Box<dyn Any + Sync>,
}

const BOUND: Duration = Duration::from_millis(100);

fn kind(name: &str, mut settings: Config, keeps: impl Any + Sync) -> Kind {
    settings.set_connection_pool_max_size(THREADS as u32).unwrap();
    settings.set_max_response_bytes(1 << 30).unwrap();
    Kind {
        name: name.to_owned(),
        bound: BOUND,
        settings,
        user: User::new(),
        keeps: Box::new(keeps),
    }
}

fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for stall in stall::all().into_iter().filter(|stall| stall.user_bytes == 0) {
        let service = MockService::start(stall.script);
        kinds.push(kind(stall.name, bounded(&service.url(), BOUND), service));
    }
    let server = Narrow::listen();
    let unread = kind("1 MB of user not read", bounded(&server.url(), BOUND), server);
    kinds.push(Kind { user: large_user(1 << 20), ..unread });
    let hole = BlackHole::open();
    kinds.push(kind("full backlog", bounded(&hole.url(), BOUND), hole));
    let dropping = Dropping::listen((Ipv4Addr::LOCALHOST, 0).into());
    let url = format!("http://{}", dropping.address());
    kinds.push(kind("dropped packets", bounded(&url, BOUND), dropping));
    let mut settings = bounded("http://name.test", BOUND);
    settings.set_lookup(Arc::new(|_| {
        loop {
            std::thread::park();
        }
    }));
    kinds.push(kind("hung lookup", settings, ()));
    let authority = Arc::new(Authority::new());
    for records in [0, 1, 2] {
        let server = authority.certify(&NAMES).server_config(&[&rustls::version::TLS13]);
        let address = stalling_after(Arc::new(server), records);
        let mut settings = bounded(&format!("https://{address}"), BOUND);
        settings.set_ca_file(authority.file()).unwrap();
        let name = format!("TLS after {records} records");
        kinds.push(kind(&name, settings, Arc::clone(&authority)));
    }
    for (name, conduct) in [
        ("silent proxy", Conduct::Silence),
        ("dripping proxy", Conduct::Drip("HTTP/1.1 200 OK\r\nX: x", Duration::from_millis(10))),
    ] {
        let proxy = Proxy::start(conduct);
        let mut settings = bounded("http://127.0.0.1:1", BOUND);
        settings.set_proxy_url(&proxy.url()).unwrap();
        kinds.push(kind(name, settings, proxy));
    }
    // 5 MB of JSON that arrives at once and takes longer to decode than there is time for.
    let payload = format!(r#"{{"text":"{}","list":[{}0]}}"#, "é".repeat(1000), "12,".repeat(1000));
    let variants: Vec<_> = (0..1000)
        .map(|i| format!(r#""flag-{i}":{{"key":"on","value":"on","payload":{payload}}}"#))
        .collect();
    let body = format!("{{{}}}", variants.join(","));
    let service = Arc::new(MockService::start(Script::answers([Answer::json(200, body)])));
    for millis in [5, 8, 12] {
        let bound = Duration::from_millis(millis);
        let settings = bounded(&service.url(), bound);
        let name = format!("5 MB of JSON in {millis} ms");
        kinds.push(Kind { bound, ..kind(&name, settings, Arc::clone(&service)) });
    }
    // As many variants as 8 MiB can hold.
    let variants: Vec<_> = (0..600_000).map(|i| format!(r#""{i}":{{}}"#)).collect();
    let body = format!("{{{}}}", variants.join(","));
    let service = MockService::start(Script::answers([Answer::json(200, body)]));
    let bound = Duration::from_millis(30);
    let settings = bounded(&service.url(), bound);
    kinds.push(Kind { bound, ..kind("600 000 variants in 30 ms", settings, service) });
    kinds
}

/// What is measured: by how much one was late, or nothing if it was in time.
type Once<'a> = dyn Fn() -> Option<Duration> + Sync + 'a;

/// How late a fetch is. What was answered in time is left out.
fn fetching(kind: &Kind) -> impl Fn() -> Option<Duration> + Sync {
    let client = client(&kind.settings);
    move || {
        let began = Instant::now();
        let result = client.fetch(&kind.user, &FetchOptions::default()).result;
        result.is_err().then(|| began.elapsed().saturating_sub(kind.bound))
    }
}

/// How late a thread is that does nothing but look at the clock.
fn computing() -> Option<Duration> {
    let until = Instant::now() + BOUND;
    while Instant::now() < until {}
    Some(until.elapsed())
}

/// So many times on each of so many threads.
fn overshoots(once: &Once, threads: usize, times: usize) -> Vec<Duration> {
    std::thread::scope(|scope| {
        let run = || (0..times).filter_map(|_| once()).collect::<Vec<_>>();
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    })
}

fn figures(mut overshoots: Vec<Duration>) -> String {
    overshoots.sort();
    let millis = |duration: Option<&Duration>| {
        duration.map_or_else(|| "-".to_owned(), |it| format!("{:.2}", it.as_secs_f64() * 1e3))
    };
    let (p50, max) = (overshoots.get(overshoots.len() / 2), overshoots.last());
    format!("{:>9} {:>9} {:>6}", millis(p50), millis(max), overshoots.len())
}

/// What a thread of this machine oversleeps that does nothing but sleep, beside the same load: no
/// fetch can be better.
fn oversleeps(until: &AtomicBool) -> Vec<Duration> {
    let mut all = Vec::new();
    while !until.load(Ordering::Relaxed) {
        let began = Instant::now();
        std::thread::sleep(BOUND);
        all.push(began.elapsed().saturating_sub(BOUND));
    }
    all
}

/// Ends its process when it is dropped.
struct Spinning(Child);

impl Spinning {
    fn start() -> Spinning {
        Spinning(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One row: idle, busy, and what sleepers oversleep beside the latter.
fn measure(name: &str, once: &Once) {
    let idle = overshoots(once, 1, 20);
    let spinning = [Spinning::start(), Spinning::start()];
    let over = AtomicBool::new(false);
    let (busy, asleep) = std::thread::scope(|scope| {
        let sleepers: Vec<_> = (0..SLEEPERS).map(|_| scope.spawn(|| oversleeps(&over))).collect();
        let busy = overshoots(once, THREADS, 5);
        over.store(true, Ordering::Relaxed);
        let asleep = sleepers.into_iter().flat_map(|it| it.join().unwrap()).collect();
        (busy, asleep)
    });
    drop(spinning);
    println!("{name:32} {}   {}   {}", figures(idle), figures(busy), figures(asleep));
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|it| name.contains(it));
    let columns = |of: &str| format!("{of:>9} {:>9} {:>6}", "max", "n");
    let [idle, busy, asleep] = ["idle p50", "busy p50", "sleep p50"].map(columns);
    println!("{:32} {idle}   {busy}   {asleep}", "");
    measure("only looking at the clock", &computing);
    for kind in kinds() {
        if is_wanted(&kind.name) {
            measure(&kind.name, &fetching(&kind));
        }
        drop(kind.keeps);
    }
}
