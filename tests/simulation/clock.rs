//! The clock of a simulated world: it stands still while anybody has something to do, and then goes
//! on to the next instant that somebody waits for.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use shuttle::sync::Condvar;

/// Any instant will do; it is the same for all worlds of a process.
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

// All threads of a world are run by one thread of the system.
thread_local! {
    static TIME: RefCell<Time> = const { RefCell::new(Time::BEGINNING) };
}

struct Time {
    passed: Duration,
    /// Who waits until when.
    alarms: Vec<(Duration, Arc<Condvar>)>,
    is_over: bool,
}

impl Time {
    const BEGINNING: Time = Time { passed: Duration::ZERO, alarms: Vec::new(), is_over: false };
}

pub fn now() -> Instant {
    *BEGINNING + passed()
}

/// Since the world began.
pub fn passed() -> Duration {
    TIME.with_borrow(|time| time.passed)
}

/// The machine is awake all the time.
pub fn slept() -> Duration {
    Duration::ZERO
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootInstant(Duration);

impl BootInstant {
    pub fn now() -> Self {
        BootInstant(passed() + slept())
    }

    pub fn since(self, earlier: BootInstant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub fn elapsed(self) -> Duration {
        BootInstant::now().since(self)
    }
}

/// A new world begins.
pub fn begin() {
    TIME.set(Time::BEGINNING);
}

/// No alarm will be set any more.
pub fn end() {
    TIME.with_borrow_mut(|time| time.is_over = true);
}

/// What the clock's thread does. It is to run when nobody else can: then nobody will ever be woken
/// but by time.
pub fn run() {
    loop {
        let next = TIME.with_borrow(|time| time.alarms.iter().map(|(at, _)| *at).min());
        match next {
            Some(at) => ring(at),
            None if TIME.with_borrow(|time| time.is_over) => return,
            None => panic!("all wait, and none of them for a time: a wake-up was lost"),
        }
        shuttle::thread::yield_now();
    }
}

fn ring(at: Duration) {
    let due: Vec<_> = TIME.with_borrow_mut(|time| {
        time.passed = time.passed.max(at);
        time.alarms.iter().filter(|(alarm, _)| *alarm <= at).map(|it| Arc::clone(&it.1)).collect()
    });
    for condvar in due {
        condvar.notify_all();
    }
}

/// Rings until it is dropped, once its time has come.
pub struct Alarm {
    at: Duration,
    condvar: Arc<Condvar>,
}

impl Alarm {
    pub fn set(at: Instant, condvar: &Arc<Condvar>) -> Self {
        let at = at.saturating_duration_since(*BEGINNING);
        TIME.with_borrow_mut(|time| time.alarms.push((at, Arc::clone(condvar))));
        Alarm { at, condvar: Arc::clone(condvar) }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        TIME.with_borrow_mut(|time| {
            let is_mine = |it: &(Duration, Arc<Condvar>)| {
                it.0 == self.at && Arc::ptr_eq(&it.1, &self.condvar)
            };
            if let Some(mine) = time.alarms.iter().position(is_mine) {
                time.alarms.swap_remove(mine);
            }
        });
    }
}
