//! The client in worlds that a seed decides over: its threads, locks, clock, network and callers.
//! No sockets, no sleeping, and every bound holds to the millisecond.
//!
//! `make sim` plays a million of them; `SIM_SEED=N make sim` plays one again, `SIM_HISTORIES=N make
//! sim` another number. What fails is made as simple as it goes before it is printed.

mod dice;
mod world;

use std::any::Any;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

use dice::Order;
use shuttle::{Config, FailurePersistence, Runner};
use world::History;

/// What `make test` has time for.
const HISTORIES: u64 = 10_000;

/// Orders in which a simpler history is tried before it counts as sound.
const TRIES: u64 = 300;

type Failure = Box<dyn Any + Send>;

/// Plays the history of each seed.
fn play(
    seeds: Range<u64>,
    history: impl Fn() -> History + Send + Sync + 'static,
) -> Result<(), Failure> {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true; // that all orderings are taken for the strongest
    let runner = Runner::new(Order::of(seeds), config);
    panic::catch_unwind(AssertUnwindSafe(|| runner.run(move || history().play()))).map(drop)
}

/// The simplest history that still fails, and how it does.
fn simplest(seed: u64, mut failure: Failure) -> (History, Failure) {
    let mut history = History::draw(seed);
    'simpler: loop {
        for simpler in history.simpler() {
            let played = simpler.clone();
            if let Err(again) = play(seed..seed + TRIES, move || played.clone()) {
                (history, failure) = (simpler, again);
                continue 'simpler;
            }
        }
        return (history, failure);
    }
}

fn words(failure: &Failure) -> &str {
    let text = failure.downcast_ref::<String>().map(String::as_str);
    text.or(failure.downcast_ref().copied()).unwrap_or("it panicked")
}

/// The seed that failed first, if one did.
fn failing(seeds: Range<u64>) -> Option<(u64, Failure)> {
    play(seeds, || History::draw(dice::seed())).err().map(|failure| (dice::seed(), failure))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect("a number"))
}

#[test]
fn every_fetch_ends_once_within_its_bound_as_itself() {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_HISTORIES").unwrap_or(HISTORIES),
    };
    let share = (seeds.end - seeds.start).div_ceil(cores);
    // What panics on the way is told at the end.
    panic::set_hook(Box::new(|_| {}));
    let failed = thread::scope(|scope| {
        let parts: Vec<_> = (0..cores)
            .map(|core| {
                let start = seeds.start + core * share;
                let part = start..(start + share).min(seeds.end);
                scope.spawn(move || {
                    failing(part).map(|(seed, failure)| (seed, simplest(seed, failure)))
                })
            })
            .collect();
        parts.into_iter().find_map(|part| part.join().unwrap())
    });
    let _ = panic::take_hook();
    if let Some((seed, (history, failure))) = failed {
        panic!("SIM_SEED={seed}: {}\n{history:#?}", words(&failure));
    }
}
