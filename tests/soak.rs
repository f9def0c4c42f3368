//! What stays flat however long a client is used: memory, descriptors, threads.
//!
//! `make soak` makes a million fetches, a tenth of that asynchronously, and a hundredth as many
//! clients; `make test` some seconds' worth. SOAK_FETCHES is another number.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{env, fs, thread};

use common::*;
use experiment::client::{Client, Fetched};
use experiment::remote::options::FetchOptions;
use experiment::remote::pending::{Pending, Sink};
use experiment::rules::deadline::{Deadline, Limit};
use experiment::rules::error::Status;
use mock_service::{Answer, Keep, MockService, Script, Step};

/// What `make test` has time for.
const FETCHES: u64 = 20_000;

const THREADS: u64 = 4;

/// Of so many fetches one goes wrong.
const FAULT: u64 = 100;

/// Samples of each part, at least.
const ROUNDS: u64 = 20;

/// What may come and go with the moment at which it is looked at: the connections of the pool, each with
/// its buffers, its other end and the thread there, and what an allocator keeps for later.
const BOUNDS: [(&str, f64); 4] = [
    ("resident KiB", 2048.0),
    ("heap KiB", 128.0 * THREADS as f64),
    ("descriptors", 2.0 * THREADS as f64),
    ("threads", THREADS as f64),
];

#[test]
fn memory_descriptors_and_threads_stay_flat() {
    let fetches = env::var("SOAK_FETCHES").map_or(FETCHES, |number| number.parse().unwrap());
    let service = MockService::start(Script::service().keep(Keep::Nothing));
    soak_fetches(&service, fetches);
    soak_clients(&service, fetches / 100);
    soak_asynchronous(&service, fetches / 10);
}

/// Threads that fetch with one client, and faults.
fn soak_fetches(service: &MockService, fetches: u64) {
    let client = client_for(service);
    let failed = AtomicU64::new(0);
    soak("fetches", fetches, service, |count, drawn| {
        service.set_script(Script::answers(answers(count, drawn)).keep(Keep::Nothing));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..count / THREADS {
                        failed.fetch_add(fetch_own(&client), Ordering::Relaxed);
                    }
                });
            }
        });
        service.set_script(Script::service().keep(Keep::Nothing));
    });
    // Three kinds of faults of eight are none for a fetch over a kept connection.
    let (failed, faults) = (failed.into_inner(), fetches / FAULT);
    assert!((faults / 4..=faults * 2).contains(&failed), "{failed} of {fetches} failed");
    check_books(&client);
}

/// Clients that come and go, after a fetch of their own or two.
fn soak_clients(service: &MockService, clients: u64) {
    soak("clients", clients, service, |count, drawn| {
        for _ in 0..count {
            let client = client_for(service);
            if drawn.below(2) == 0 {
                let told = Arc::default();
                drop(start(&client, &told));
                client.close(Limit::millis(10_000)).unwrap();
                assert_eq!(told.total(), 1);
            } else {
                good(&client);
            }
        }
        until_disconnected(service);
    });
}

/// Asynchronous fetches, of which some are canceled at some moment.
fn soak_asynchronous(service: &MockService, fetches: u64) {
    const AT_ONCE: usize = 64;
    let client = client_for(service);
    let told = Arc::new(Told::default());
    let mut started = 0;
    soak("asynchronous fetches", fetches, service, |count, drawn| {
        service.set_script(Script::answers(answers(count, drawn)).keep(Keep::Nothing));
        let mut pending: Vec<Arc<Pending>> = Vec::new();
        for _ in 0..count {
            if pending.len() == AT_ONCE {
                let oldest = pending.swap_remove(drawn.below(AT_ONCE as u64) as usize);
                if drawn.below(3) == 0 {
                    oldest.cancel();
                }
                assert!(oldest.wait(Deadline::NEVER));
            }
            pending.push(start(&client, &told));
            started += 1;
            // One of those that are under way, most likely.
            if drawn.below(4) == 0 {
                let back = drawn.below(pending.len().min(8) as u64) as usize;
                pending[pending.len() - 1 - back].cancel();
            }
        }
        until("all are told", || told.total() == started);
        service.set_script(Script::service().keep(Keep::Nothing));
    });
    assert!(told.good.load(Ordering::SeqCst) > fetches / 4);
    assert!(told.canceled.load(Ordering::SeqCst) > fetches / 50);
    client.close(Limit::millis(10_000)).unwrap();
    check_books(&client);
}

/// Does so much in rounds, and looks after each what there is.
fn soak(what: &str, total: u64, service: &MockService, mut round: impl FnMut(u64, &mut Drawn)) {
    let began = Instant::now();
    let count = (total / ROUNDS).clamp(THREADS, 5000);
    let mut drawn = Drawn(0x5eed_5eed_5eed_5eed);
    let mut samples = Vec::new();
    for _ in 0..total.div_ceil(count) {
        round(count, &mut drawn);
        until("the service is at rest", || service.connections_open() <= THREADS as usize);
        samples.push(sample());
    }
    println!("{what}: {total} in {:.1} s", began.elapsed().as_secs_f64());
    for (at, (name, bound)) in BOUNDS.into_iter().enumerate() {
        let values: Vec<f64> = samples.iter().map(|sample| sample[at]).collect();
        // The first half is where caches fill.
        let late = &values[values.len() / 2..];
        let growth = slope(late) * late.len() as f64;
        let each = growth / (late.len() as u64 * count) as f64;
        let last = values[values.len() - 1];
        println!("  {name}: {last:.0}, grows by {growth:+.1} ({each:+.6} each), bound {bound}");
        assert!(growth <= bound, "{what}: {name} grow: {values:?}");
    }
}

/// By how much the line that fits best rises from one value to the next.
fn slope(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let middle = (count - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / count;
    let places = (0..values.len()).map(|at| at as f64 - middle);
    let rise: f64 = places.clone().zip(values).map(|(place, value)| place * (value - mean)).sum();
    rise / places.map(|place| place * place).sum::<f64>()
}

/// In the order of `BOUNDS`.
fn sample() -> [f64; 4] {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let resident: f64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    // SAFETY: the call takes nothing and returns numbers.
    let heap = unsafe { libc::mallinfo2() };
    let entries = |path| fs::read_dir(path).unwrap().count() as f64;
    [
        resident * 4.0,
        (heap.uordblks + heap.hblkhd) as f64 / 1024.0,
        entries("/proc/self/fd"),
        entries("/proc/self/task"),
    ]
}

fn client_for(service: &MockService) -> Client {
    let settings = Settings {
        pool: THREADS as u32,
        fetch_timeout: 200,
        acquire: Some(10_000),
        ..Settings::default()
    };
    settings.client(service)
}

/// Whether it failed, as 0 or 1. Whatever happens, it is not another's answer.
fn fetch_own(client: &Client) -> u64 {
    let nonce = draw();
    told_own(&client.fetch(&user(nonce), &FetchOptions::default()), nonce).map_or(1, |()| 0)
}

fn told_own(fetched: &Fetched, nonce: u64) -> Result<(), Status> {
    match &fetched.result {
        Ok(variants) => assert_eq!(nonce_of(variants), Some(nonce), "the answer of another"),
        Err(error) => {
            let faults =
                [Status::Timeout, Status::Network, Status::HttpStatus, Status::InvalidResponse];
            let expected = error.status == Status::Canceled || faults.contains(&error.status);
            assert!(expected, "{error:?}");
            return Err(error.status);
        }
    }
    Ok(())
}

/// What asynchronous fetches came to.
#[derive(Default)]
struct Told {
    good: AtomicU64,
    canceled: AtomicU64,
    failed: AtomicU64,
}

impl Told {
    fn total(&self) -> u64 {
        [&self.good, &self.canceled, &self.failed]
            .map(|count| count.load(Ordering::SeqCst))
            .iter()
            .sum()
    }
}

fn start(client: &Client, told: &Arc<Told>) -> Arc<Pending> {
    let (nonce, told) = (draw(), Arc::clone(told));
    let sink = Sink::Callback(Box::new(move |fetched| {
        let count = match told_own(&fetched, nonce) {
            Ok(()) => &told.good,
            Err(Status::Canceled) => &told.canceled,
            Err(_) => &told.failed,
        };
        count.fetch_add(1, Ordering::SeqCst);
    }));
    let pending = client.prepare(&user(nonce), &FetchOptions::default(), 0, sink).unwrap();
    client.start(&pending).unwrap();
    pending
}

fn answers(count: u64, drawn: &mut Drawn) -> Vec<Answer> {
    (0..count)
        .map(|_| if drawn.below(FAULT) == 0 { fault(drawn) } else { Answer::service() })
        .collect()
}

fn fault(drawn: &mut Drawn) -> Answer {
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{";
    match drawn.below(8) {
        0 => Answer::reply(503, &[], "no"),
        1 => Answer::reply(429, &[("Retry-After", "1")], ""),
        2 => Answer::steps([Step::Close]),
        3 => Answer::steps([Step::Reset]).after_head(),
        4 => Answer::steps([Step::send(cut), Step::Close]),
        5 => Answer::json(200, "[]"),
        6 => silence(),
        _ => Answer::service().then(Step::Close),
    }
}
