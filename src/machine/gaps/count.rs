//! The count itself. Each thread keeps its own, so that a fetch is measured for what it does, whatever
//! the machine does beside it.

use std::cell::RefCell;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use super::Work;
use crate::machine::sys;

/// Names the file to which each fetch adds its longest stretches, a line each: what is counted, how
/// much, and the looks before and after it.
const FILE: &str = "EXPERIMENT_GAPS";

/// For the test of the test: so many milliseconds of work between the first two looks of each fetch.
const PLANTED: &str = "EXPERIMENT_GAPS_PLANTED";

/// For that, too: no look counts, as if nobody had written it.
const BLIND: &str = "EXPERIMENT_GAPS_BLIND";

const WORKS: [(Work, &str); 8] = [
    (Work::Received, "received"),
    (Work::Sent, "sent"),
    (Work::Decrypted, "decrypted"),
    (Work::Encrypted, "encrypted"),
    (Work::Framed, "framed"),
    (Work::Body, "body"),
    (Work::Decoded, "decoded"),
    (Work::Encoded, "encoded"),
];

/// What is counted: of each kind of work the bytes, and microseconds of the processor behind them.
const COUNTS: usize = WORKS.len() + 1;

type Site = &'static Location<'static>;

/// The most of one count between two looks.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// `micros`, or a kind of work.
    pub what: &'static str,
    pub amount: u64,
    from: Site,
    to: Site,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gap { what, amount, from, to } = self;
        write!(f, "{what} {amount} {}:{} {}:{}", from.file(), from.line(), to.file(), to.line())
    }
}

type Worst = [Option<Gap>; COUNTS];

/// A fetch that this thread is inside.
struct Fetch {
    began: Site,
    last_look: Site,
    since: Duration,
    done: [u64; WORKS.len()],
    worst: Worst,
}

thread_local! {
    static INSIDE: RefCell<Option<Fetch>> = const { RefCell::new(None) };
}

/// Of all fetches since it was asked for last.
static WORST: Mutex<Worst> = Mutex::new([None; COUNTS]);

impl Fetch {
    fn look(&mut self, site: Site) {
        let micros = sys::thread_time().saturating_sub(self.since).as_micros() as u64;
        let amounts = self.done.iter().copied().chain([micros]);
        for (count, amount) in amounts.enumerate() {
            let what = WORKS.get(count).map_or("micros", |(_, name)| name);
            let gap = Gap { what, amount, from: self.last_look, to: site };
            keep_worse(&mut self.worst[count], gap);
        }
        self.last_look = site;
        self.done = [0; WORKS.len()];
        self.since = sys::thread_time();
    }
}

fn keep_worse(worst: &mut Option<Gap>, gap: Gap) {
    if worst.is_none_or(|worst| worst.amount < gap.amount) {
        *worst = Some(gap);
    }
}

/// Ends the fetch when dropped.
pub struct Inside {
    outer: Option<Fetch>,
}

/// This thread is inside a fetch until the guard is dropped.
#[track_caller]
pub fn fetch() -> Inside {
    let site = Location::caller();
    let since = sys::thread_time();
    let done = [0; WORKS.len()];
    let fetch = Fetch { began: site, last_look: site, since, done, worst: [None; COUNTS] };
    Inside { outer: INSIDE.replace(Some(fetch)) }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let Some(mut fetch) = INSIDE.replace(self.outer.take()) else { return };
        fetch.look(fetch.began);
        report(&fetch.worst);
    }
}

/// The deadline, the switch and the hook are looked at here.
#[track_caller]
pub fn look() {
    static IS_BLIND: LazyLock<bool> = LazyLock::new(|| std::env::var_os(BLIND).is_some());
    if *IS_BLIND {
        return;
    }
    let site = Location::caller();
    INSIDE.with_borrow_mut(|inside| {
        if let Some(fetch) = inside {
            let is_first = fetch.last_look == fetch.began;
            fetch.look(site);
            if is_first {
                work_if_asked();
            }
        }
    });
}

/// Of each kind of work all bytes, whichever fetch they were for.
static TOTALS: [AtomicU64; WORKS.len()] = [const { AtomicU64::new(0) }; WORKS.len()];

/// All that was counted, to hold instructions against.
pub fn totals() -> impl Iterator<Item = (&'static str, u64)> {
    WORKS.iter().zip(&TOTALS).map(|((_, what), total)| (*what, total.load(Ordering::Relaxed)))
}

/// So many bytes were worked on.
pub fn did(work: Work, bytes: usize) {
    TOTALS[work as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    INSIDE.with_borrow_mut(|inside| {
        if let Some(fetch) = inside {
            fetch.done[work as usize] += bytes as u64;
        }
    });
}

/// What runs until the guard is dropped is the host's, and counts for nothing.
pub struct Outside {
    fetch: Option<Fetch>,
    left: Duration,
}

pub fn outside() -> Outside {
    Outside { fetch: INSIDE.take(), left: sys::thread_time() }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some(mut fetch) = self.fetch.take() {
            fetch.since += sys::thread_time().saturating_sub(self.left);
            INSIDE.set(Some(fetch));
        }
    }
}

/// The most of each count in all fetches of the process since this was called last.
pub fn worst() -> Vec<Gap> {
    let mut worst = WORST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    std::mem::replace(&mut *worst, [None; COUNTS]).into_iter().flatten().collect()
}

fn report(of_fetch: &Worst) {
    let mut worst = WORST.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for (worst, gap) in worst.iter_mut().zip(of_fetch) {
        if let Some(gap) = gap {
            keep_worse(worst, *gap);
        }
    }
    // Where there is no descriptor left, the next fetch tells of this one.
    if let Some(path) = std::env::var_os(FILE)
        && append(Path::new(&path), &worst).is_ok()
    {
        *worst = [None; COUNTS];
    }
}

fn append(path: &Path, worst: &Worst) -> std::io::Result<()> {
    let lines: String = worst.iter().flatten().map(|gap| format!("{gap}\n")).collect();
    OpenOptions::new().append(true).create(true).open(path)?.write_all(lines.as_bytes())
}

/// The gap that is planted, if one is: it must be found.
fn work_if_asked() {
    let Some(millis) = std::env::var_os(PLANTED) else { return };
    let millis = millis.to_str().and_then(|millis| millis.parse().ok()).expect(PLANTED);
    let until = sys::thread_time() + Duration::from_millis(millis);
    while sys::thread_time() < until {
        std::hint::spin_loop();
    }
}
