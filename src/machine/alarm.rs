//! How a switch that fires reaches the asynchronous fetches that wait. Whoever fires it may be in a
//! signal handler, and can neither lock what they are in nor end them: it notes which they are and
//! wakes the thread that keeps the time, which does.

use crate::machine::sync::Parker;
use crate::machine::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::rules::deadline::Deadline;
use crate::rules::dispatch::Id;

/// The timer's bed, and beside it the fetches to look at when it wakes.
#[derive(Debug, Default)]
pub struct Alarm {
    /// 0 where none is noted.
    noted: [AtomicU64; Alarm::ROOM],
    /// There are more than there was room for.
    more: AtomicBool,
    timer: Parker,
}

/// The fetches whose switch has fired.
#[derive(Debug, PartialEq, Eq)]
pub enum Noted {
    These(Vec<Id>),
    /// Too many to note: every fetch whose switch has fired.
    All,
}

impl Alarm {
    const ROOM: usize = 16;

    /// The switch of this fetch has fired. Safe in a signal handler.
    pub fn ring(&self, id: Id) {
        if id == 0 {
            return; // whoever submits it looks at the switch afterwards
        }
        let note = |place: &AtomicU64| {
            place.compare_exchange(0, id, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        if !self.noted.iter().any(note) {
            self.more.store(true, Ordering::SeqCst);
        }
        self.timer.unpark();
    }

    /// What was noted since this was last asked.
    pub fn take(&self) -> Noted {
        let is_noted = |place: &&AtomicU64| place.load(Ordering::SeqCst) != 0;
        let noted = self.noted.iter().filter(is_noted);
        let noted = noted.map(|place| place.swap(0, Ordering::SeqCst)).collect();
        if self.more.load(Ordering::SeqCst) && self.more.swap(false, Ordering::SeqCst) {
            return Noted::All;
        }
        Noted::These(noted)
    }

    /// Wakes the timer: it has to look before the time it sleeps until.
    pub fn wake(&self) {
        self.timer.unpark();
    }

    /// What the timer does until it is woken, `until` passes, or earlier.
    pub fn sleep(&self, until: Deadline) {
        self.timer.park(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_told_once_and_all_where_there_was_no_room() {
        let alarm = Alarm::default();
        assert_eq!(alarm.take(), Noted::These(vec![]));
        alarm.ring(7);
        alarm.ring(9);
        alarm.ring(0);
        assert_eq!(alarm.take(), Noted::These(vec![7, 9]));
        assert_eq!(alarm.take(), Noted::These(vec![]));
        (1..=Alarm::ROOM as Id + 1).for_each(|id| alarm.ring(id));
        assert_eq!(alarm.take(), Noted::All);
        assert_eq!(alarm.take(), Noted::These(vec![]));
    }

    #[test]
    fn a_sleep_ends_when_a_switch_has_fired_before_it() {
        let alarm = Alarm::default();
        alarm.ring(1);
        alarm.sleep(Deadline::NEVER);
    }
}
