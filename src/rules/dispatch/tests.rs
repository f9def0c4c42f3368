//! The dispatch over a virtual clock: each of its rules by itself, then random histories.
//!
//! `DISPATCH_SEED=<seed>` plays one history again.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::*;
use crate::model::Checkpoint;
use crate::rules::deadline::Limit;
use crate::rules::error::Status;
use crate::rules::fetch::Rules;
use crate::rules::retry::Budget;
use crate::rules::schedule::Schedule;
use crate::rules::schedule::tests::schedule;
use crate::rules::timings::Timings;

fn rules(schedule: Schedule) -> Arc<Rules> {
    Arc::new(Rules { schedule, budget: Budget::new(0), metrics: Arc::default() })
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn variants() -> Variants {
    Variants::decode(b"{}".to_vec(), Checkpoint::unhurried()).unwrap().variants
}

fn unavailable() -> Error {
    Error::new(Status::Network, "gone")
}

/// A dispatch whose pending fetches are numbers, and what the world around it would do.
struct World {
    dispatch: Dispatch<u32, Arc<()>>,
    rules: Arc<Rules>,
    now: Instant,
    runs: Vec<Run<u32>>,
}

impl World {
    fn new(size: usize, schedule: Schedule) -> Self {
        World {
            dispatch: Dispatch::new(NonZeroUsize::new(size).unwrap()),
            rules: rules(schedule),
            now: Instant::now(),
            runs: Vec::new(),
        }
    }

    fn submit(&mut self, name: u32, own: Limit) -> Id {
        self.dispatch.admit();
        let (fetch, step) = Fetch::begin(&self.rules, own, 0, self.now);
        self.dispatch.submit(self.now, name, fetch, step)
    }

    fn worker_ready(&mut self) -> Vec<Arc<()>> {
        self.dispatch.worker_ready(self.now)
    }

    fn pass(&mut self, time: Duration) -> Vec<Arc<()>> {
        self.now += time;
        self.dispatch.advance(self.now)
    }

    /// What a worker gets to run.
    fn run(&mut self) -> Option<u32> {
        let run = self.dispatch.next_run()?;
        let name = run.pending;
        self.runs.push(run);
        Some(name)
    }

    /// The first exchange under way comes to this; its worker takes a rest.
    fn end(&mut self, result: Result<Variants, Error>) -> Option<Decided<u32>> {
        let Run { id, pending, mut fetch, lease } = self.runs.remove(0);
        let _ = fetch.leased(self.now);
        drop(self.dispatch.release(self.now, lease, true));
        match fetch.exchanged(result, &Timings::default(), self.now) {
            Step::Done(result) => {
                self.notified();
                Some(Decided { pending, fetch, result })
            }
            step => {
                self.dispatch.go_on(self.now, id, pending, fetch, step);
                None
            }
        }
    }

    fn notified(&mut self) {
        self.dispatch.begin_notifying();
        self.dispatch.notified();
    }

    /// Who has been decided without a worker, and how.
    fn decided(&mut self) -> Vec<(u32, Status)> {
        let mut all = Vec::new();
        while let Some(decided) = self.dispatch.next_decided() {
            self.notified();
            all.push((decided.pending, decided.result.unwrap_err().status));
        }
        all
    }

    fn thread(&mut self, until: Duration) -> (Answer, Arc<()>) {
        let bell = Arc::new(());
        let until = Deadline::at(self.now + until);
        (self.dispatch.acquire(self.now, until, || Arc::clone(&bell)), bell)
    }
}

#[test]
fn a_fetch_runs_when_there_are_a_slot_and_a_worker_whichever_comes_last() {
    let mut world = World::new(1, schedule());
    world.submit(1, Limit::None);
    assert_eq!(world.run(), None);
    drop(world.worker_ready());
    assert_eq!(world.run(), Some(1));
    drop(world.worker_ready());
    world.submit(2, Limit::None);
    assert_eq!(world.run(), None);
    assert!(world.end(Ok(variants())).unwrap().result.is_ok());
    assert_eq!(world.run(), Some(2));
    assert_eq!(world.dispatch.pending(), 1);
}

#[test]
fn threads_and_tasks_are_served_in_the_order_in_which_they_came() {
    let mut world = World::new(1, schedule());
    drop((world.worker_ready(), world.worker_ready()));
    world.submit(1, Limit::None);
    assert_eq!(world.run(), Some(1));
    let (Answer::Waiting(first), bell) = world.thread(millis(500)) else { panic!("a slot is out") };
    world.submit(2, Limit::None);
    let (Answer::Waiting(second), _) = world.thread(millis(500)) else { panic!("a slot is out") };

    let Run { lease, .. } = world.runs.pop().unwrap();
    let bells = world.dispatch.release(world.now, lease, true);
    assert!(bells.len() == 1 && Arc::ptr_eq(&bells[0], &bell));
    assert_eq!(world.run(), None, "the thread was first");
    let Answer::Leased(lease) = world.dispatch.collect(first) else { panic!("it was granted") };
    assert!(world.dispatch.release(world.now, lease, true).is_empty());
    assert_eq!(world.run(), Some(2));
    let Run { lease, .. } = world.runs.pop().unwrap();
    assert_eq!(world.dispatch.release(world.now, lease, true).len(), 1);
    assert!(matches!(world.dispatch.collect(second), Answer::Leased(_)));
}

#[test]
fn a_task_without_a_worker_keeps_its_place_and_lets_threads_pass() {
    let mut world = World::new(1, schedule());
    world.submit(1, Limit::None);
    let (Answer::Leased(lease), _) = world.thread(millis(0)) else { panic!("a slot is idle") };
    world.submit(2, Limit::None);
    drop(world.worker_ready());
    drop(world.dispatch.release(world.now, lease, true));
    assert_eq!((world.run(), world.run()), (Some(1), None));
}

#[test]
fn a_wait_that_is_over_is_a_timeout_while_every_worker_is_busy() {
    let mut world = World::new(1, schedule());
    drop(world.worker_ready());
    world.submit(1, Limit::None);
    assert_eq!(world.run(), Some(1));
    world.submit(2, Limit::None);
    world.submit(3, Limit::millis(30));
    assert_eq!(world.dispatch.next_deadline(), Some(world.now + millis(30)));
    drop(world.pass(millis(29)));
    assert_eq!(world.decided(), []);
    drop(world.pass(millis(1)));
    assert_eq!(world.decided(), [(3, Status::Timeout)]);
    drop(world.pass(millis(970)));
    assert_eq!(world.decided(), [(2, Status::Timeout)]);
    assert_eq!(world.dispatch.next_deadline(), None);
    assert_eq!(world.dispatch.pending(), 1);
}

#[test]
fn a_pause_holds_neither_a_slot_nor_a_worker_and_ends_on_time() {
    let mut world = World::new(1, Schedule { retries: 1, ..schedule() });
    drop(world.worker_ready());
    world.submit(1, Limit::None);
    assert_eq!(world.run(), Some(1));
    assert!(world.end(Err(unavailable())).is_none());
    drop(world.worker_ready());
    world.submit(2, Limit::None);
    assert_eq!(world.run(), Some(2), "slot and worker are free");
    assert!(world.end(Ok(variants())).is_some());
    drop(world.worker_ready());
    drop(world.pass(millis(499)));
    assert_eq!(world.run(), None);
    drop(world.pass(millis(1)));
    assert_eq!(world.run(), Some(1));
    let failed = world.end(Err(unavailable())).unwrap();
    let failed = failed.fetch.ended(failed.result);
    assert_eq!((failed.result.unwrap_err().status, failed.attempts), (Status::Network, 2));
    assert_eq!(world.dispatch.pending(), 0);
}

#[test]
fn a_pause_whose_end_is_noticed_late_ended_when_it_was_due() {
    let mut world = World::new(1, Schedule { retries: 1, ..schedule() });
    drop(world.worker_ready());
    world.submit(1, Limit::None);
    assert_eq!(world.run(), Some(1));
    assert!(world.end(Err(unavailable())).is_none());
    // Due after 500 ms; from then on it may wait for 300 ms, which pass unnoticed too.
    drop(world.pass(millis(801)));
    assert_eq!(world.decided(), [(1, Status::Timeout)]);
}

#[test]
fn a_cancel_ends_what_waits_and_leaves_what_runs_and_what_has_ended() {
    let mut world = World::new(1, Schedule { retries: 1, ..schedule() });
    drop(world.worker_ready());
    let running = world.submit(1, Limit::None);
    let in_line = world.submit(2, Limit::None);
    assert_eq!(world.run(), Some(1));
    drop(world.dispatch.cancel(world.now, running));
    drop(world.dispatch.cancel(world.now, in_line));
    assert_eq!(world.decided(), [(2, Status::Canceled)]);
    drop(world.dispatch.cancel(world.now, in_line));
    assert!(world.end(Err(unavailable())).is_none());
    drop(world.dispatch.cancel(world.now, running));
    assert_eq!(world.decided(), [(1, Status::Canceled)], "in its pause");
    drop(world.dispatch.cancel(world.now, 77));
    assert_eq!((world.decided(), world.dispatch.pending()), (vec![], 0));
    assert_eq!(world.dispatch.next_deadline(), None);
}

#[test]
fn a_cancel_after_the_wait_was_over_comes_too_late_also_if_nobody_had_noticed() {
    let mut world = World::new(1, schedule());
    let id = world.submit(1, Limit::None);
    world.now += millis(1000);
    drop(world.dispatch.cancel(world.now, id));
    assert_eq!(world.decided(), [(1, Status::Timeout)]);
}

#[test]
fn a_cancel_of_the_first_in_line_lets_the_next_have_its_turn() {
    let mut world = World::new(1, schedule());
    drop(world.worker_ready());
    world.submit(1, Limit::None);
    assert_eq!(world.run(), Some(1));
    let second = world.submit(2, Limit::None);
    world.submit(3, Limit::None);
    drop(world.dispatch.cancel(world.now, second));
    drop(world.worker_ready());
    assert!(world.end(Ok(variants())).is_some());
    assert_eq!(world.run(), Some(3));
}

#[test]
fn closing_ends_all_that_wait_and_leaves_what_runs() {
    let mut world = World::new(2, Schedule { retries: 1, ..schedule() });
    drop((world.worker_ready(), world.worker_ready()));
    world.submit(1, Limit::None);
    world.submit(2, Limit::None);
    world.submit(3, Limit::None);
    assert_eq!((world.run(), world.run(), world.run()), (Some(1), Some(2), None));
    assert!(world.end(Err(unavailable())).is_none());
    let (Answer::Leased(lease), _) = world.thread(millis(9)) else { panic!("3 has no worker") };
    let (Answer::Waiting(ticket), _) = world.thread(millis(9)) else { panic!("all is out") };
    assert_eq!(world.dispatch.close(world.now).len(), 1);
    assert!(matches!(world.dispatch.collect(ticket), Answer::Closed));
    assert_eq!(world.decided(), [(3, Status::Closed), (1, Status::Closed)]);
    assert!(!world.dispatch.is_over());
    drop(world.dispatch.release(world.now, lease, true));
    assert!(world.end(Err(unavailable())).is_none(), "it would pause, but is closed");
    assert_eq!(world.decided(), [(2, Status::Closed)]);
    assert!(world.dispatch.is_over());
}

#[test]
fn whoever_is_told_is_pending_no_more_but_still_keeps_a_worker_busy() {
    let mut world = World::new(1, schedule());
    world.submit(1, Limit::millis(0));
    assert_eq!((world.dispatch.pending(), world.dispatch.workers_wanted()), (1, 1));
    assert!(world.dispatch.next_decided().is_some());
    world.dispatch.begin_notifying();
    assert_eq!((world.dispatch.pending(), world.dispatch.workers_wanted()), (0, 1));
    world.dispatch.notified();
    assert_eq!(world.dispatch.workers_wanted(), 0);
}

const HISTORIES: u64 = 10_000;
const EVENTS: usize = 80;

#[test]
fn in_random_histories_every_fetch_is_decided_once_and_nothing_is_lost() {
    if let Ok(seed) = std::env::var("DISPATCH_SEED") {
        return drop(History::new(seed.parse().expect("DISPATCH_SEED is a number")).run());
    }
    let mut seen = BTreeMap::new();
    for seed in 0..HISTORIES {
        let _on_failure = PrintSeed(seed);
        for (how, count) in History::new(seed).run() {
            *seen.entry(how).or_insert(0) += count;
        }
    }
    for how in [None, Some(Status::Timeout), Some(Status::Canceled), Some(Status::Closed)] {
        let count = seen.get(&format!("{how:?}")).copied().unwrap_or(0);
        assert!(count > 1000, "too seldom in these histories: {how:?}, {count} times");
    }
}

struct PrintSeed(u64);

impl Drop for PrintSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to see this history again: DISPATCH_SEED={}", self.0);
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

struct Thread {
    ticket: Ticket,
    bell: Arc<()>,
    rung: bool,
}

/// One history: threads, tasks and workers, and what each of them must have seen.
struct History {
    random: Random,
    world: World,
    size: usize,
    workers: usize,
    idle_workers: usize,
    submitted: u32,
    ends: BTreeMap<u32, Option<Status>>,
    ids: Vec<(u32, Id)>,
    threads: Vec<Thread>,
    leases: Vec<Lease>,
    closed: bool,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let size = 1 + random.below(3) as usize;
        let acquire = [None, Some(Limit::None), Some(Limit::millis(0)), Some(Limit::millis(7))];
        let schedule = Schedule {
            fetch_timeout: millis(20),
            retry_timeout: millis(10),
            acquire_timeout: acquire[random.below(4) as usize],
            retries: random.below(3) as u32,
            backoff_min: millis(random.below(3) * 5),
            ..schedule()
        };
        History {
            world: World::new(size, schedule),
            size,
            random,
            workers: 0,
            idle_workers: 0,
            submitted: 0,
            ends: BTreeMap::new(),
            ids: Vec::new(),
            threads: Vec::new(),
            leases: Vec::new(),
            closed: false,
        }
    }

    fn run(mut self) -> BTreeMap<String, usize> {
        for _ in 0..EVENTS {
            self.step();
            self.check();
        }
        self.wind_up();
        let mut seen = BTreeMap::new();
        for how in self.ends.into_values() {
            *seen.entry(format!("{how:?}")).or_insert(0) += 1;
        }
        seen
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..22 => self.submit(),
            22..36 => self.worker_ready(),
            36..56 => self.end_exchange(),
            56..66 => self.thread(),
            66..74 => self.thread_leaves(),
            74..80 => self.thread_gives_back(),
            80..92 => {
                let time = millis(self.random.below(8));
                let bells = self.world.pass(time);
                self.ring(bells);
                let next = self.world.dispatch.next_deadline();
                assert!(next.is_none_or(|next| next > self.world.now), "overdue and undecided");
            }
            92..98 => self.cancel(),
            _ => self.close(),
        }
        while let Some(name) = self.world.run() {
            assert!(self.idle_workers > 0, "{name} runs on a worker that is not there");
            self.idle_workers -= 1;
        }
        while let Some(decided) = self.world.dispatch.next_decided() {
            self.world.notified();
            self.ended(decided.pending, Some(decided.result.unwrap_err().status));
        }
        self.collect();
    }

    fn submit(&mut self) {
        if self.closed {
            return; // the session refuses it
        }
        self.submitted += 1;
        let own = match self.random.below(3) {
            0 => Limit::millis(self.random.below(30)),
            _ => Limit::None,
        };
        let id = self.world.submit(self.submitted, own);
        self.ids.push((self.submitted, id));
    }

    fn worker_ready(&mut self) {
        if self.workers < self.size {
            self.workers += 1;
            self.idle_workers += 1;
            let bells = self.world.worker_ready();
            self.ring(bells);
        }
    }

    fn end_exchange(&mut self) {
        if self.world.runs.is_empty() {
            return;
        }
        let at = self.random.below(self.world.runs.len() as u64) as usize;
        let Run { id, pending, mut fetch, lease } = self.world.runs.remove(at);
        let now = self.world.now;
        let _ = fetch.leased(now);
        let result = if self.random.below(2) == 0 { Ok(variants()) } else { Err(unavailable()) };
        let bells = self.world.dispatch.release(now, lease, true);
        self.ring(bells);
        match fetch.exchanged(result, &Timings::default(), now) {
            Step::Done(result) => {
                self.world.notified();
                self.ended(pending, result.err().map(|error| error.status));
            }
            step => self.world.dispatch.go_on(now, id, pending, fetch, step),
        }
        // The worker is ready again, at once or after an eternity in a callback.
        self.workers -= 1;
        if self.random.below(4) > 0 {
            self.worker_ready();
        }
    }

    fn thread(&mut self) {
        let until = millis(self.random.below(10));
        match self.world.thread(until) {
            (Answer::Leased(lease), _) => self.leases.push(lease),
            (Answer::Waiting(ticket), bell) => {
                assert!(!self.closed);
                self.threads.push(Thread { ticket, bell, rung: false });
            }
            (Answer::Expired(_), _) => assert!(until.is_zero()),
            (Answer::Closed, _) => assert!(self.closed),
        }
    }

    fn thread_leaves(&mut self) {
        if let Some(thread) = self.threads.pop() {
            let bells = self.world.dispatch.withdraw(self.world.now, thread.ticket);
            self.ring(bells);
        }
    }

    fn thread_gives_back(&mut self) {
        if let Some(lease) = self.leases.pop() {
            let bells = self.world.dispatch.release(self.world.now, lease, true);
            self.ring(bells);
        }
    }

    fn cancel(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let (_, id) = self.ids[self.random.below(self.ids.len() as u64) as usize];
        let bells = self.world.dispatch.cancel(self.world.now, id);
        self.ring(bells);
    }

    fn close(&mut self) {
        self.closed = true;
        let bells = self.world.dispatch.close(self.world.now);
        self.ring(bells);
    }

    fn ring(&mut self, bells: Vec<Arc<()>>) {
        for bell in bells {
            // One whose ticket was given back meanwhile rings for nobody.
            if let Some(thread) = self.threads.iter_mut().find(|t| Arc::ptr_eq(&t.bell, &bell)) {
                assert!(!thread.rung, "a thread is woken once");
                thread.rung = true;
            }
        }
    }

    /// A thread has an answer if, and only if, its bell has rung.
    fn collect(&mut self) {
        for Thread { ticket, bell, rung } in std::mem::take(&mut self.threads) {
            match self.world.dispatch.collect(ticket) {
                Answer::Leased(lease) => {
                    assert!(rung);
                    self.leases.push(lease);
                }
                Answer::Waiting(ticket) => {
                    assert!(!rung);
                    self.threads.push(Thread { ticket, bell, rung });
                }
                Answer::Expired(_) => assert!(rung),
                Answer::Closed => assert!(rung && self.closed),
            }
        }
    }

    fn ended(&mut self, name: u32, how: Option<Status>) {
        let before = self.ends.insert(name, how);
        assert!(before.is_none(), "{name} ends twice: {before:?}, {how:?}");
        assert!(how != Some(Status::Closed) || self.closed);
    }

    fn check(&mut self) {
        let pool = self.world.dispatch.snapshot(self.world.now);
        assert_eq!(pool.leased, self.leases.len() + self.world.runs.len());
        assert!(pool.leased <= self.size);
        assert_eq!(pool.free_workers, self.idle_workers);
        let in_line = pool.waiting;
        if pool.leased < self.size && self.idle_workers > 0 {
            assert_eq!(in_line, 0, "a slot and a worker are idle while someone waits");
        }
        let open = self.submitted as usize - self.ends.len();
        assert_eq!(self.world.dispatch.pending(), open);
        let places = self.world.dispatch.waiting.len() + self.world.runs.len();
        assert_eq!(places, open, "a fetch that has not ended is in exactly one place");
    }

    /// After a close, and when all that runs has come back, nothing is left.
    fn wind_up(&mut self) {
        self.close();
        while let Some(Run { id, pending, mut fetch, lease }) = self.world.runs.pop() {
            let _ = fetch.leased(self.world.now);
            drop(self.world.dispatch.release(self.world.now, lease, false));
            match fetch.exchanged(Err(unavailable()), &Timings::default(), self.world.now) {
                Step::Done(result) => {
                    self.world.notified();
                    self.ended(pending, result.err().map(|error| error.status));
                }
                step => self.world.dispatch.go_on(self.world.now, id, pending, fetch, step),
            }
        }
        assert_eq!(self.world.run(), None);
        while let Some(decided) = self.world.dispatch.next_decided() {
            self.world.notified();
            self.ended(decided.pending, Some(decided.result.unwrap_err().status));
        }
        self.collect();
        assert!(self.threads.is_empty());
        for lease in std::mem::take(&mut self.leases) {
            assert!(self.world.dispatch.release(self.world.now, lease, true).is_empty());
        }
        assert_eq!(self.ends.len(), self.submitted as usize);
        assert!(self.world.dispatch.is_over() && self.world.dispatch.waiting.is_empty());
        assert_eq!(self.world.dispatch.next_deadline(), None);
    }
}
