//! The fault matrix: whatever goes wrong, in whatever language the fetch is made, it is back within its
//! bound and with the right status, the next fetch of the same client is right, and nothing is left
//! behind. See README.md.

#[path = "../native/mod.rs"]
mod native;
#[path = "../support/mod.rs"]
mod support;

mod catalogue;
mod fault;
mod lane;
mod relay;
mod report;
mod victim;
mod world;

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use lane::Lane;
use report::Report;
use victim::{Programs, Way};

fn main() -> ExitCode {
    if !world::is_inside() {
        return world::enter();
    }
    let seed = number_of("FAULTS_SEED").unwrap_or_else(drawn_seed);
    let only = std::env::var("FAULTS_ONLY").unwrap_or_default();
    let ways = Way::wanted();
    println!("FAULTS_SEED={seed}");
    let began = Instant::now();
    let programs = Programs::build(&ways);
    println!("the victims are built after {:.1} s", began.elapsed().as_secs_f64());
    let world = world::World::begin();
    let mut faults = catalogue::all(&world);
    faults.retain(|fault| fault.name.contains(&only));

    let began = Instant::now();
    let columns = thread::scope(|scope| {
        let lanes: Vec<_> = ways
            .iter()
            .map(|&way| Lane::new(way, &programs, seed))
            .map(|lane| scope.spawn(|| lane.run_all(&faults)))
            .collect();
        lanes.into_iter().map(|lane| lane.join().expect("a lane ends")).collect()
    });
    let report = Report { seed, ways, faults: &faults, columns };
    report.print(began.elapsed());
    if !report.is_good() {
        return ExitCode::FAILURE;
    }
    let is_whole = only.is_empty() && report.ways.len() == Way::ALL.len();
    if let Some(path) = std::env::var_os("FAULTS_REPORT").filter(|_| is_whole) {
        std::fs::write(path, report.page()).expect("the report can be written");
    }
    ExitCode::SUCCESS
}

fn number_of(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

/// Another one for each run.
fn drawn_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("the clock is after 1970").as_micros() as u64 % 1_000_000_000
}
