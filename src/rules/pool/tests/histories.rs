//! Random histories, each event of which is played to the pool and to a model of it that is slow
//! and plain: a list of tickets in the order they came, a list of slots, and loops over both.
//!
//! `POOL_SEED=<seed>` plays one history again.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use super::super::{Answer, Lease, Pool, Ticket, Waiter};
use crate::rules::deadline::{Deadline, Limit};

const HISTORIES: u64 = 20_000;
const EVENTS: usize = 60;

#[test]
fn random_histories_agree_with_the_model() {
    match std::env::var("POOL_SEED") {
        Ok(seed) => History::new(seed.parse().expect("POOL_SEED is a number")).run(),
        Err(_) => {
            // One mark for each decision that a history can bring about: each must have been seen.
            let mut seen = Seen::default();
            for seed in 0..HISTORIES {
                let _on_failure = PrintSeed(seed);
                let mut history = History::new(seed);
                history.run();
                seen.add(&history.seen);
            }
            seen.assert_all();
        }
    }
}

struct PrintSeed(u64);

impl Drop for PrintSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to see this history again: POOL_SEED={}", self.0);
        }
    }
}

/// How often the less likely things happened, over all histories.
#[derive(Default)]
struct Seen {
    granted_in_line: u32,
    granted_past_a_task: u32,
    expired: u32,
    closed: u32,
    grant_withdrawn: u32,
    several_woken: u32,
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.granted_in_line += other.granted_in_line;
        self.granted_past_a_task += other.granted_past_a_task;
        self.expired += other.expired;
        self.closed += other.closed;
        self.grant_withdrawn += other.grant_withdrawn;
        self.several_woken += other.several_woken;
    }

    fn assert_all(&self) {
        for (what, count) in [
            ("granted in line", self.granted_in_line),
            ("granted past a task", self.granted_past_a_task),
            ("expired", self.expired),
            ("closed", self.closed),
            ("grant withdrawn", self.grant_withdrawn),
            ("several woken", self.several_woken),
        ] {
            assert!(count > 1000, "too seldom in these histories: {what}, {count} times");
        }
    }
}

/// One history: the pool, the model, and what the owners hold.
struct History {
    random: Random,
    now: Instant,
    pool: Pool<usize>,
    model: Model,
    /// By number: the tickets of those who have not collected or withdrawn.
    tickets: Vec<Option<Ticket>>,
    leases: Vec<Lease>,
    seen: Seen,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let size = 1 + random.below(4);
        History {
            now: Instant::now(),
            pool: Pool::new(NonZeroUsize::new(size).unwrap()),
            model: Model::new(size),
            tickets: Vec::new(),
            leases: Vec::new(),
            random,
            seen: Seen::default(),
        }
    }

    fn run(&mut self) {
        for _ in 0..EVENTS {
            self.step();
            self.check();
        }
        self.wind_up();
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..30 => self.acquire(),
            30..48 => self.release(),
            48..60 => self.collect(),
            60..68 => self.withdraw(),
            68..78 => self.now += Duration::from_millis(self.random.below(4) as u64),
            78..83 => self.expire(),
            83..95 => self.worker_ready(),
            95..99 => self.reap(),
            _ => self.close(),
        }
    }

    fn acquire(&mut self) {
        let waiter = if self.random.below(2) == 0 { Waiter::Thread } else { Waiter::Task };
        let limit = match self.random.below(6) {
            0 => Limit::None,
            n => Limit::millis(3 * (n as u64 - 1)),
        };
        let deadline = Deadline::after(self.now, limit);
        let number = self.tickets.len();
        let answer = self.pool.acquire(self.now, deadline, waiter, || number);
        let expected = self.model.acquire(self.now, deadline, waiter);
        self.tickets.push(None);
        self.receive(number, answer, expected);
    }

    fn collect(&mut self) {
        let Some((number, ticket)) = self.any_ticket() else {
            return;
        };
        let answer = self.pool.collect(ticket);
        let expected = self.model.collect(number);
        self.receive(number, answer, expected);
    }

    fn receive(&mut self, number: usize, answer: Answer, expected: State) {
        match (answer, expected) {
            (Answer::Leased(lease), State::Granted { slot, warm }) => {
                assert_eq!((lease.slot(), lease.is_warm()), (slot, warm));
                self.leases.push(lease);
            }
            (Answer::Waiting(ticket), State::Waiting) => self.tickets[number] = Some(ticket),
            (Answer::Expired(_), State::Expired) | (Answer::Closed, State::Closed) => {}
            (answer, expected) => panic!("ticket {number}: {answer:?} instead of {expected:?}"),
        }
    }

    fn release(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let lease = self.leases.swap_remove(self.random.below(self.leases.len()));
        let warm = self.random.below(3) > 0;
        let slot = lease.slot();
        let woken = self.pool.release(self.now, lease, warm);
        let expected = self.model.release(self.now, slot, warm);
        self.compare(woken, expected);
    }

    fn withdraw(&mut self) {
        let Some((number, ticket)) = self.any_ticket() else {
            return;
        };
        self.seen.grant_withdrawn += u32::from(self.model.is_granted(number));
        let woken = self.pool.withdraw(self.now, ticket);
        let expected = self.model.withdraw(self.now, number);
        self.compare(woken, expected);
    }

    fn expire(&mut self) {
        let woken = self.pool.expire(self.now);
        let expected = self.model.expire(self.now);
        self.compare(woken, expected);
    }

    fn worker_ready(&mut self) {
        let woken = self.pool.worker_ready(self.now);
        let expected = self.model.worker_ready(self.now);
        self.compare(woken, expected);
    }

    fn reap(&mut self) {
        let idle_for = Duration::from_millis(self.random.below(8) as u64);
        let reaped = self.pool.reap(self.now, idle_for);
        assert_eq!(reaped, self.model.reap(self.now, idle_for));
    }

    fn close(&mut self) {
        let woken = self.pool.close(self.now);
        let expected = self.model.close(self.now);
        self.compare(woken, expected);
    }

    fn any_ticket(&mut self) -> Option<(usize, Ticket)> {
        let held: Vec<usize> =
            (0..self.tickets.len()).filter(|number| self.tickets[*number].is_some()).collect();
        let number = *held.get(self.random.below(held.len().max(1)))?;
        Some((number, self.tickets[number].take()?))
    }

    fn compare(&mut self, mut woken: Vec<usize>, mut expected: Vec<usize>) {
        self.seen.count(&self.model, &expected);
        woken.sort();
        expected.sort();
        assert_eq!(woken, expected, "the tickets decided by this event");
    }

    /// What must hold after every event, whatever the model says.
    fn check(&self) {
        let snapshot = self.pool.snapshot(self.now);
        let granted = self.model.count(|state| matches!(state, State::Granted { .. }));
        let waiting = self.model.count(|state| matches!(state, State::Waiting));

        assert!(snapshot.leased <= snapshot.size);
        assert_eq!(snapshot.leased, self.leases.len() + granted);
        assert_eq!(snapshot.waiting, waiting);
        assert_eq!(snapshot.free_workers, self.model.free_workers);
        assert_eq!(snapshot.idle_warm, self.model.idle_warm());
        assert_eq!(snapshot.longest_lease, self.model.longest_lease(self.now));
        assert_eq!(self.pool.next_deadline(), self.model.next_deadline());

        let mut slots: Vec<usize> = self.leases.iter().map(Lease::slot).collect();
        slots.sort();
        slots.dedup();
        assert_eq!(slots.len(), self.leases.len(), "a slot is leased twice");

        assert!(
            snapshot.leased == snapshot.size || !self.model.someone_could_take_a_slot(),
            "a slot is idle while a ticket waits that could take it"
        );
    }

    /// Closes the pool and gives everything back: nothing may be lost.
    fn wind_up(&mut self) {
        self.close();
        while !self.leases.is_empty() {
            self.release();
        }
        while let Some((number, ticket)) = self.any_ticket() {
            let woken = self.pool.withdraw(self.now, ticket);
            assert_eq!(woken, self.model.withdraw(self.now, number));
        }
        self.check();
        assert_eq!(self.pool.snapshot(self.now).leased, 0);
    }
}

impl Seen {
    fn count(&mut self, model: &Model, woken: &[usize]) {
        self.several_woken += u32::from(woken.len() > 1);
        for number in woken {
            match model.tickets[*number].state {
                State::Granted { .. } => {
                    self.granted_in_line += 1;
                    let passed = model.tickets[..*number]
                        .iter()
                        .any(|ticket| matches!(ticket.state, State::Waiting));
                    self.granted_past_a_task += u32::from(passed);
                }
                State::Expired => self.expired += 1,
                State::Closed => self.closed += 1,
                State::Waiting | State::Gone => panic!("ticket {number} was woken undecided"),
            }
        }
    }
}

/// What the pool must do, written down without a thought for speed.
struct Model {
    /// In the order they came, those refused or leased at once included.
    tickets: Vec<ModelTicket>,
    slots: Vec<ModelSlot>,
    free_workers: usize,
    closed: bool,
    /// Counts the returns of slots, to tell which was used last.
    returns: i64,
}

struct ModelTicket {
    waiter: Waiter,
    deadline: Deadline,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Waiting,
    Granted {
        slot: usize,
        warm: bool,
    },
    Expired,
    Closed,
    /// Collected or withdrawn.
    Gone,
}

#[derive(Clone, Copy)]
enum ModelSlot {
    Leased { since: Instant },
    Idle { since: Instant, warm: bool, returned: i64 },
}

impl Model {
    fn new(size: usize) -> Self {
        let cold =
            |slot| ModelSlot::Idle { since: Instant::now(), warm: false, returned: -(slot as i64) };
        Model {
            tickets: Vec::new(),
            slots: (0..size).map(cold).collect(),
            free_workers: 0,
            closed: false,
            returns: 0,
        }
    }

    fn acquire(&mut self, now: Instant, deadline: Deadline, waiter: Waiter) -> State {
        let number = self.tickets.len();
        self.tickets.push(ModelTicket { waiter, deadline, state: State::Waiting });
        if self.closed {
            self.tickets[number].state = State::Closed;
        } else {
            let overtakes = self.tickets[..number]
                .iter()
                .any(|other| self.is_eligible(other) && !other.deadline.has_passed(now));
            if !overtakes && self.is_eligible(&self.tickets[number]) {
                self.grant(now, number);
            }
            let state = &mut self.tickets[number].state;
            if matches!(state, State::Waiting) && deadline.has_passed(now) {
                *state = State::Expired;
            }
        }
        self.collect(number)
    }

    fn collect(&mut self, number: usize) -> State {
        let state = self.tickets[number].state;
        if !matches!(state, State::Waiting) {
            self.tickets[number].state = State::Gone;
        }
        state
    }

    fn release(&mut self, now: Instant, slot: usize, warm: bool) -> Vec<usize> {
        self.put_back(now, slot, warm);
        self.settle(now)
    }

    fn withdraw(&mut self, now: Instant, number: usize) -> Vec<usize> {
        let state = std::mem::replace(&mut self.tickets[number].state, State::Gone);
        let State::Granted { slot, warm } = state else {
            return Vec::new();
        };
        if self.tickets[number].waiter == Waiter::Task {
            self.free_workers += 1;
        }
        self.release(now, slot, warm)
    }

    fn worker_ready(&mut self, now: Instant) -> Vec<usize> {
        self.free_workers += 1;
        self.settle(now)
    }

    fn close(&mut self, now: Instant) -> Vec<usize> {
        self.closed = true;
        let mut woken = self.expire(now);
        for number in 0..self.tickets.len() {
            if matches!(self.tickets[number].state, State::Waiting) {
                self.tickets[number].state = State::Closed;
                woken.push(number);
            }
        }
        woken
    }

    fn expire(&mut self, now: Instant) -> Vec<usize> {
        let mut woken = Vec::new();
        for (number, ticket) in self.tickets.iter_mut().enumerate() {
            if matches!(ticket.state, State::Waiting) && ticket.deadline.has_passed(now) {
                ticket.state = State::Expired;
                woken.push(number);
            }
        }
        woken
    }

    fn reap(&mut self, now: Instant, idle_for: Duration) -> Vec<usize> {
        let mut reaped: Vec<(i64, usize)> = Vec::new();
        for (slot, state) in self.slots.iter().enumerate() {
            if let ModelSlot::Idle { since, warm: true, returned } = *state
                && since + idle_for <= now
            {
                reaped.push((returned, slot));
            }
        }
        reaped.sort();
        for (_, slot) in &reaped {
            self.put_back(now, *slot, false);
        }
        reaped.into_iter().map(|(_, slot)| slot).collect()
    }

    /// First the dead are told, then each slot goes to the first who can take it.
    fn settle(&mut self, now: Instant) -> Vec<usize> {
        let mut woken = self.expire(now);
        while let Some(number) = self.tickets.iter().position(|ticket| self.is_eligible(ticket)) {
            if !self.grant(now, number) {
                break;
            }
            woken.push(number);
        }
        woken
    }

    fn is_eligible(&self, ticket: &ModelTicket) -> bool {
        let can_run = ticket.waiter == Waiter::Thread || self.free_workers > 0;
        matches!(ticket.state, State::Waiting) && can_run
    }

    fn grant(&mut self, now: Instant, number: usize) -> bool {
        let best = (0..self.slots.len()).filter_map(|slot| match self.slots[slot] {
            ModelSlot::Idle { warm, returned, .. } => Some((warm, returned, slot)),
            ModelSlot::Leased { .. } => None,
        });
        let Some((warm, _, slot)) = best.max() else {
            return false;
        };
        self.slots[slot] = ModelSlot::Leased { since: now };
        self.tickets[number].state = State::Granted { slot, warm };
        if self.tickets[number].waiter == Waiter::Task {
            self.free_workers -= 1;
        }
        true
    }

    fn put_back(&mut self, now: Instant, slot: usize, warm: bool) {
        self.returns += 1;
        self.slots[slot] = ModelSlot::Idle { since: now, warm, returned: self.returns };
    }

    fn is_granted(&self, number: usize) -> bool {
        matches!(self.tickets[number].state, State::Granted { .. })
    }

    fn someone_could_take_a_slot(&self) -> bool {
        self.tickets.iter().any(|ticket| self.is_eligible(ticket))
    }

    fn count(&self, which: impl Fn(&State) -> bool) -> usize {
        self.tickets.iter().filter(|ticket| which(&ticket.state)).count()
    }

    fn idle_warm(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, ModelSlot::Idle { warm: true, .. })).count()
    }

    fn longest_lease(&self, now: Instant) -> Option<Duration> {
        let lease = |slot: &ModelSlot| match slot {
            ModelSlot::Leased { since } => Some(now - *since),
            ModelSlot::Idle { .. } => None,
        };
        self.slots.iter().filter_map(lease).max()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waiting = |ticket: &&ModelTicket| matches!(ticket.state, State::Waiting);
        self.tickets.iter().filter(waiting).filter_map(|ticket| ticket.deadline.instant()).min()
    }
}

/// SplitMix64: small, and good enough to choose events.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound as u64) as usize
    }
}
