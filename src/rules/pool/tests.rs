//! Each promise of the pool under a virtual clock; `histories` then runs it through random ones.

mod histories;

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use super::{Answer, Lease, Pool, Snapshot, Ticket, Waiter};
use crate::rules::deadline::{Deadline, Limit};

/// A pool under a clock that only the test moves. Wakers are names: events say whom they woke.
struct Scene {
    pool: Pool<&'static str>,
    now: Instant,
}

const NOBODY: [&str; 0] = [];

impl Scene {
    fn new(size: usize) -> Self {
        Scene { pool: Pool::new(NonZeroUsize::new(size).unwrap()), now: Instant::now() }
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    fn acquire(&mut self, waiter: Waiter, limit: Limit, name: &'static str) -> Answer {
        self.pool.acquire(self.now, Deadline::after(self.now, limit), waiter, || name)
    }

    fn lease(&mut self) -> Lease {
        leased(self.acquire(Waiter::Thread, Limit::None, "lessee"))
    }

    fn queue(&mut self, waiter: Waiter, limit: Limit, name: &'static str) -> Ticket {
        waiting(self.acquire(waiter, limit, name))
    }

    fn queue_thread(&mut self, name: &'static str) -> Ticket {
        self.queue(Waiter::Thread, Limit::None, name)
    }

    fn queue_task(&mut self, name: &'static str) -> Ticket {
        self.queue(Waiter::Task, Limit::None, name)
    }

    fn release(&mut self, lease: Lease) -> Vec<&'static str> {
        self.pool.release(self.now, lease, true)
    }

    fn release_cold(&mut self, lease: Lease) -> Vec<&'static str> {
        self.pool.release(self.now, lease, false)
    }

    fn withdraw(&mut self, ticket: Ticket) -> Vec<&'static str> {
        self.pool.withdraw(self.now, ticket)
    }

    fn expire(&mut self) -> Vec<&'static str> {
        self.pool.expire(self.now)
    }

    fn worker_ready(&mut self) -> Vec<&'static str> {
        self.pool.worker_ready(self.now)
    }

    fn collect_lease(&mut self, ticket: Ticket) -> Lease {
        leased(self.pool.collect(ticket))
    }

    fn collect_expired(&mut self, ticket: Ticket) -> Snapshot {
        expired(self.pool.collect(ticket))
    }

    fn snapshot(&self) -> Snapshot {
        self.pool.snapshot(self.now)
    }
}

fn leased(answer: Answer) -> Lease {
    match answer {
        Answer::Leased(lease) => lease,
        other => panic!("expected a lease, got {other:?}"),
    }
}

fn waiting(answer: Answer) -> Ticket {
    match answer {
        Answer::Waiting(ticket) => ticket,
        other => panic!("expected a ticket, got {other:?}"),
    }
}

fn expired(answer: Answer) -> Snapshot {
    match answer {
        Answer::Expired(snapshot) => snapshot,
        other => panic!("expected an expiry, got {other:?}"),
    }
}

fn is_closed(answer: Answer) -> bool {
    matches!(answer, Answer::Closed)
}

// Slots

#[test]
fn what_was_idle_while_the_machine_slept_is_so_much_older_and_nothing_else_is() {
    const IDLE: Duration = Duration::from_secs(30);
    let mut scene = Scene::new(2);
    let (before, after) = (scene.lease(), scene.lease());
    let slot = before.slot();
    assert_eq!(scene.release(before), NOBODY);
    scene.pool.slept(IDLE / 2);
    assert!(scene.pool.reap(scene.now, IDLE).is_empty());
    scene.pool.slept(IDLE / 2);
    assert_eq!(scene.release(after), NOBODY);
    assert_eq!(scene.pool.reap(scene.now, IDLE), [slot]);
    assert_eq!(scene.pool.snapshot(scene.now).idle_warm, 1);
}

#[test]
fn no_more_than_size_leases_each_of_its_own_slot() {
    let mut scene = Scene::new(3);
    let mut slots = [scene.lease(), scene.lease(), scene.lease()].map(|lease| lease.slot());
    slots.sort();
    assert_eq!(slots, [0, 1, 2]);
    let _fourth = scene.queue_thread("fourth");
    assert_eq!(scene.snapshot().leased, 3);
}

#[test]
fn the_slot_used_last_is_handed_out_first() {
    let mut scene = Scene::new(3);
    let [a, b, c] = [scene.lease(), scene.lease(), scene.lease()];
    let order = [b.slot(), a.slot(), c.slot()];
    for lease in [c, a, b] {
        assert_eq!(scene.release(lease), NOBODY);
    }
    assert_eq!([scene.lease(), scene.lease(), scene.lease()].map(|lease| lease.slot()), order);
}

#[test]
fn a_warm_slot_is_preferred_to_a_cold_one_used_later() {
    let mut scene = Scene::new(3);
    let [a, b] = [scene.lease(), scene.lease()];
    assert!(!a.is_warm());
    let (warm, cold) = (a.slot(), b.slot());
    assert_eq!(scene.release(a), NOBODY);
    assert_eq!(scene.release_cold(b), NOBODY);

    let first = scene.lease();
    assert_eq!((first.slot(), first.is_warm()), (warm, true));
    let second = scene.lease();
    assert_eq!((second.slot(), second.is_warm()), (cold, false));
}

#[test]
fn surplus_warm_slots_age_and_are_reaped() {
    let mut scene = Scene::new(3);
    let [a, b, c] = [scene.lease(), scene.lease(), scene.lease()];
    let (oldest, older) = (a.slot(), b.slot());
    assert_eq!(scene.release(a), NOBODY);
    scene.pass(10);
    assert_eq!(scene.release(b), NOBODY);
    scene.pass(10);
    assert_eq!(scene.release(c), NOBODY);
    for _ in 0..5 {
        scene.pass(10);
        let busy = scene.lease();
        assert_eq!(scene.release(busy), NOBODY);
    }

    let idle_for = Duration::from_millis(60);
    assert_eq!(scene.pool.reap(scene.now, idle_for), [oldest, older]);
    assert!(scene.pool.reap(scene.now, idle_for).is_empty());
    assert_eq!(scene.snapshot().idle_warm, 1);
    assert!(scene.lease().is_warm());
    assert!(!scene.lease().is_warm());
}

#[test]
fn neither_leased_nor_cold_slots_are_reaped() {
    let mut scene = Scene::new(2);
    let _busy = scene.lease();
    scene.pass(1000);
    assert!(scene.pool.reap(scene.now, Duration::ZERO).is_empty());
}

// The line

#[test]
fn a_free_slot_is_leased_at_once_even_to_one_who_would_not_wait() {
    let mut scene = Scene::new(1);
    let _lease = leased(scene.acquire(Waiter::Thread, Limit::millis(0), "hasty"));
}

#[test]
fn who_would_not_wait_is_refused_without_entering_the_line() {
    let mut scene = Scene::new(1);
    let _busy = scene.lease();
    let refusal = expired(scene.acquire(Waiter::Thread, Limit::millis(0), "hasty"));
    assert_eq!(refusal.waiting, 0);
    assert_eq!(scene.snapshot().waiting, 0);
}

#[test]
fn leases_go_to_those_who_wait_in_the_order_they_came() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    let first = scene.queue_thread("first");
    let second = scene.queue_thread("second");

    assert_eq!(scene.release(busy), ["first"]);
    let second = waiting(scene.pool.collect(second));
    let lease = scene.collect_lease(first);
    assert_eq!(scene.release(lease), ["second"]);
    let _lease = scene.collect_lease(second);
}

#[test]
fn a_newcomer_does_not_overtake_one_who_was_granted_and_has_not_looked() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    let first = scene.queue_thread("first");
    assert_eq!(scene.release(busy), ["first"]);
    let _newcomer = scene.queue_thread("newcomer");
    let _lease = scene.collect_lease(first);
}

#[test]
fn a_retry_enters_at_the_tail() {
    let mut scene = Scene::new(1);
    let failing = scene.lease();
    let other = scene.queue_thread("other");
    assert_eq!(scene.release(failing), ["other"]);
    let retry = scene.queue_thread("retry");
    let lease = scene.collect_lease(other);
    assert_eq!(scene.release(lease), ["retry"]);
    let _lease = scene.collect_lease(retry);
}

#[test]
fn one_release_wakes_one() {
    let mut scene = Scene::new(2);
    let [a, b] = [scene.lease(), scene.lease()];
    let _tickets = ["first", "second", "third"].map(|name| scene.queue_thread(name));
    assert_eq!(scene.release(a), ["first"]);
    assert_eq!(scene.release(b), ["second"]);
}

// Tasks and workers

#[test]
fn a_task_is_leased_a_slot_only_with_a_worker() {
    let mut scene = Scene::new(2);
    let waits = scene.queue_task("waits");
    assert_eq!(scene.worker_ready(), ["waits"]);
    let _lease = scene.collect_lease(waits);
    let _waits_too = scene.queue_task("waits too");
    assert_eq!(scene.snapshot().leased, 1);
}

#[test]
fn a_lease_takes_one_worker_and_only_from_a_task() {
    let mut scene = Scene::new(3);
    assert_eq!(scene.worker_ready(), NOBODY);
    let _thread = scene.lease();
    assert_eq!(scene.snapshot().free_workers, 1);
    let _task = leased(scene.acquire(Waiter::Task, Limit::None, "task"));
    assert_eq!(scene.snapshot().free_workers, 0);
}

#[test]
fn a_task_without_a_slot_takes_no_worker() {
    let mut scene = Scene::new(1);
    let _busy = scene.lease();
    assert_eq!(scene.worker_ready(), NOBODY);
    let _task = scene.queue_task("task");
    assert_eq!(scene.snapshot().free_workers, 1);
}

#[test]
fn a_task_without_a_worker_lets_the_next_pass_and_keeps_its_place() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    let early_task = scene.queue_task("early task");
    let thread = scene.queue_thread("thread");
    let _late_task = scene.queue_task("late task");
    let _late_thread = scene.queue_thread("late thread");

    assert_eq!(scene.release(busy), ["thread"]);
    assert_eq!(scene.worker_ready(), NOBODY);
    let lease = scene.collect_lease(thread);
    assert_eq!(scene.release(lease), ["early task"]);
    let lease = scene.collect_lease(early_task);
    assert_eq!(scene.release(lease), ["late thread"]);
}

#[test]
fn with_a_worker_free_tasks_and_threads_are_served_as_one_line() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    for _ in 0..2 {
        assert_eq!(scene.worker_ready(), NOBODY);
    }
    let task = scene.queue_task("task");
    let thread = scene.queue_thread("thread");
    let _task = scene.queue_task("second task");
    assert_eq!(scene.release(busy), ["task"]);
    let lease = scene.collect_lease(task);
    assert_eq!(scene.release(lease), ["thread"]);
    let lease = scene.collect_lease(thread);
    assert_eq!(scene.release(lease), ["second task"]);
}

#[test]
fn a_newcomer_thread_passes_tasks_that_have_no_worker() {
    let mut scene = Scene::new(1);
    let _task = scene.queue_task("task");
    let _lease = scene.lease();
}

#[test]
fn ten_thousand_tasks_without_a_worker_are_passed_in_one_step() {
    // Looking at each of them on every release would take this test minutes.
    let mut scene = Scene::new(1);
    let tasks: Vec<Ticket> = (0..10_000).map(|_| scene.queue_task("task")).collect();
    for _ in 0..100_000 {
        let busy = scene.lease();
        let thread = scene.queue_thread("thread");
        assert_eq!(scene.release(busy), ["thread"]);
        let lease = scene.collect_lease(thread);
        assert_eq!(scene.release(lease), NOBODY);
    }
    assert_eq!(scene.snapshot().waiting, tasks.len());
}

// Expiry

#[test]
fn a_ticket_expires_at_its_deadline_and_not_before() {
    let mut scene = Scene::new(1);
    let _busy = scene.lease();
    let ticket = scene.queue(Waiter::Thread, Limit::millis(5), "waits");
    scene.pass(4);
    assert_eq!(scene.expire(), NOBODY);
    scene.pass(1);
    assert_eq!(scene.expire(), ["waits"]);
    scene.collect_expired(ticket);
    assert_eq!(scene.expire(), NOBODY);
}

#[test]
fn an_overdue_ticket_is_expired_by_a_release_never_granted() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    let late = scene.queue(Waiter::Thread, Limit::millis(5), "late");
    let alive = scene.queue(Waiter::Thread, Limit::millis(6), "alive");
    scene.pass(5);
    assert_eq!(scene.release(busy), ["late", "alive"]);
    assert_eq!(scene.collect_expired(late).leased, 1);
    let _lease = scene.collect_lease(alive);
}

#[test]
fn an_overdue_task_is_expired_by_a_worker_never_granted() {
    let mut scene = Scene::new(1);
    let late = scene.queue(Waiter::Task, Limit::millis(5), "late");
    scene.pass(5);
    assert_eq!(scene.worker_ready(), ["late"]);
    scene.collect_expired(late);
}

#[test]
fn a_ticket_granted_in_time_stays_granted_however_late_its_owner_looks() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    let ticket = scene.queue(Waiter::Thread, Limit::millis(5), "slow owner");
    scene.pass(4);
    assert_eq!(scene.release(busy), ["slow owner"]);
    scene.pass(1000);
    assert_eq!(scene.expire(), NOBODY);
    let _lease = scene.collect_lease(ticket);
}

#[test]
fn a_ticket_without_a_deadline_never_expires() {
    let mut scene = Scene::new(1);
    let _busy = scene.lease();
    let ticket = scene.queue_thread("patient");
    assert_eq!(scene.pool.next_deadline(), None);
    scene.pass(u64::from(u32::MAX));
    assert_eq!(scene.expire(), NOBODY);
    let _ticket = waiting(scene.pool.collect(ticket));
}

#[test]
fn the_next_deadline_is_the_earliest_of_those_who_still_wait() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    let start = scene.now;
    let due = |millis| Some(start + Duration::from_millis(millis));
    let _last = scene.queue(Waiter::Task, Limit::millis(30), "last");
    let granted = scene.queue(Waiter::Thread, Limit::millis(10), "granted");
    let withdrawn = scene.queue(Waiter::Thread, Limit::millis(20), "withdrawn");

    assert_eq!(scene.pool.next_deadline(), due(10));
    assert_eq!(scene.release(busy), ["granted"]);
    assert_eq!(scene.pool.next_deadline(), due(20));
    assert_eq!(scene.withdraw(withdrawn), NOBODY);
    assert_eq!(scene.pool.next_deadline(), due(30));
    scene.pass(30);
    assert_eq!(scene.expire(), ["last"]);
    assert_eq!(scene.pool.next_deadline(), None);
    let _lease = scene.collect_lease(granted);
}

#[test]
fn an_expiry_says_how_the_pool_looked() {
    let mut scene = Scene::new(2);
    let _oldest = scene.lease();
    scene.pass(70);
    let _newer = scene.lease();
    let ticket = scene.queue(Waiter::Thread, Limit::millis(30), "waits");
    let _other = scene.queue_thread("waits on");
    scene.pass(30);
    assert_eq!(scene.expire(), ["waits"]);
    scene.pass(1000);
    let seen = Snapshot {
        size: 2,
        leased: 2,
        idle_warm: 0,
        waiting: 2,
        free_workers: 0,
        longest_lease: Some(Duration::from_millis(100)),
    };
    assert_eq!(scene.collect_expired(ticket), seen);
}

#[test]
fn the_snapshot_counts_what_is_leased_idle_and_waiting() {
    let mut scene = Scene::new(3);
    let [a, b] = [scene.lease(), scene.lease()];
    assert_eq!(scene.release(a), NOBODY);
    assert_eq!(scene.release_cold(b), NOBODY);
    let mut seen = Snapshot {
        size: 3,
        leased: 0,
        idle_warm: 1,
        waiting: 0,
        free_workers: 0,
        longest_lease: None,
    };
    assert_eq!(scene.snapshot(), seen);

    let _task = scene.queue_task("task");
    let _lease = scene.lease();
    scene.pass(1);
    seen.leased = 1;
    seen.idle_warm = 0;
    seen.waiting = 1;
    seen.longest_lease = Some(Duration::from_millis(1));
    assert_eq!(scene.snapshot(), seen);
}

// Withdrawal

#[test]
fn who_withdraws_from_the_line_is_gone() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    let first = scene.queue_thread("first");
    let _second = scene.queue_thread("second");
    assert_eq!(scene.withdraw(first), NOBODY);
    assert_eq!(scene.release(busy), ["second"]);
}

#[test]
fn a_lease_granted_to_one_who_withdraws_goes_straight_to_the_next() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    let first = scene.queue_thread("first");
    let second = scene.queue_thread("second");
    assert_eq!(scene.release(busy), ["first"]);
    assert_eq!(scene.withdraw(first), ["second"]);
    assert!(scene.collect_lease(second).is_warm());
}

#[test]
fn a_lease_granted_to_one_who_withdraws_passes_those_whose_time_is_up() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    let first = scene.queue_thread("first");
    let late = scene.queue(Waiter::Thread, Limit::millis(5), "late");
    let alive = scene.queue_thread("alive");
    assert_eq!(scene.release(busy), ["first"]);
    scene.pass(5);
    assert_eq!(scene.withdraw(first), ["late", "alive"]);
    scene.collect_expired(late);
    let _lease = scene.collect_lease(alive);
}

#[test]
fn a_lease_granted_to_one_who_withdraws_is_free_again_as_warm_as_it_was() {
    for warm in [true, false] {
        let mut scene = Scene::new(1);
        let busy = scene.lease();
        let ticket = scene.queue_thread("waits");
        assert_eq!(scene.pool.release(scene.now, busy, warm), ["waits"]);
        assert_eq!(scene.withdraw(ticket), NOBODY);
        assert_eq!(scene.lease().is_warm(), warm);
    }
}

#[test]
fn a_task_that_withdraws_gives_back_its_worker_too() {
    let mut scene = Scene::new(1);
    let first = scene.queue_task("first");
    let second = scene.queue_task("second");
    assert_eq!(scene.worker_ready(), ["first"]);
    assert_eq!(scene.withdraw(first), ["second"]);
    let _lease = scene.collect_lease(second);
    assert_eq!(scene.snapshot().free_workers, 0);
}

#[test]
fn an_expired_ticket_may_be_withdrawn_instead_of_collected() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    let ticket = scene.queue(Waiter::Thread, Limit::millis(1), "waits");
    scene.pass(1);
    assert_eq!(scene.expire(), ["waits"]);
    assert_eq!(scene.withdraw(ticket), NOBODY);
    assert_eq!(scene.release(busy), NOBODY);
    assert_eq!(scene.pool.snapshot(scene.now).leased, 0);
}

// Closing

#[test]
fn closing_refuses_who_waits_and_who_comes() {
    let mut scene = Scene::new(1);
    let _busy = scene.lease();
    let thread = scene.queue_thread("thread");
    let task = scene.queue_task("task");
    assert_eq!(scene.pool.close(scene.now), ["thread", "task"]);
    assert!(is_closed(scene.pool.collect(thread)));
    assert!(is_closed(scene.pool.collect(task)));
    assert!(is_closed(scene.acquire(Waiter::Thread, Limit::None, "newcomer")));
    assert_eq!(scene.pool.close(scene.now), NOBODY);
}

#[test]
fn closing_refuses_even_when_a_slot_is_free() {
    let mut scene = Scene::new(1);
    assert_eq!(scene.pool.close(scene.now), NOBODY);
    assert!(is_closed(scene.acquire(Waiter::Thread, Limit::None, "newcomer")));
}

#[test]
fn a_ticket_overdue_when_the_pool_closes_has_expired() {
    let mut scene = Scene::new(1);
    let _busy = scene.lease();
    let ticket = scene.queue(Waiter::Thread, Limit::millis(1), "late");
    scene.pass(1);
    assert_eq!(scene.pool.close(scene.now), ["late"]);
    scene.collect_expired(ticket);
}

#[test]
fn what_was_granted_before_closing_stays_granted() {
    let mut scene = Scene::new(1);
    let busy = scene.lease();
    let ticket = scene.queue_thread("granted");
    assert_eq!(scene.release(busy), ["granted"]);
    assert_eq!(scene.pool.close(scene.now), NOBODY);
    let _lease = scene.collect_lease(ticket);
}

#[test]
fn after_closing_the_idle_connections_can_all_be_reaped() {
    let mut scene = Scene::new(2);
    let [a, b] = [scene.lease(), scene.lease()];
    let slots = [a.slot(), b.slot()];
    assert_eq!(scene.release(a), NOBODY);
    assert_eq!(scene.pool.close(scene.now), NOBODY);
    assert_eq!(scene.release(b), NOBODY);
    assert_eq!(scene.pool.reap(scene.now, Duration::ZERO), slots);
}
