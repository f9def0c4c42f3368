//! What ends a fetch before its time (the caller's switch, the host's interrupt hook), and the
//! bell that wakes the thread it sleeps on.
//!
//! Nobody but the thread inside a fetch ever touches its socket. Whoever wants it to stop rings
//! its bell, and it looks; so a cancel can hit no other connection, however descriptors are
//! numbered.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use once_cell::race::OnceBox;

use crate::machine::clock;
use crate::machine::gaps;
use crate::machine::sync::atomic::{AtomicBool, Ordering, fence};
use crate::machine::sync::{Latch, Mutex, Parker};
use crate::machine::sys::{self, EventFd};
use crate::rules::deadline::Deadline;

/// Wakes one thread: where it is parked, or in poll(2) with the bell's descriptor among its own.
#[derive(Debug)]
pub struct Bell {
    /// The process whose thread it wakes.
    generation: u64,
    parker: Parker,
    event: Option<EventFd>,
    rung: AtomicBool,
}

impl Bell {
    /// A bell for a thread that parks.
    pub fn new() -> Arc<Self> {
        Arc::new(Bell::with(None))
    }

    /// A bell that also wakes from poll(2); it takes a descriptor.
    pub fn with_event() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Bell::with(Some(EventFd::new()?))))
    }

    fn with(event: Option<EventFd>) -> Self {
        Bell {
            generation: sys::fork_generation(),
            parker: Parker::new(),
            event,
            rung: AtomicBool::new(false),
        }
    }

    /// In a forked child there is nobody to wake: the thread, and the other end of the descriptor,
    /// are the parent's. Safe in a signal handler.
    pub fn ring(&self) {
        if self.generation != sys::fork_generation() {
            return;
        }
        // The mark last: whoever sees it, and clears, clears this ring and not only its mark.
        if let Some(event) = &self.event {
            event.raise();
        }
        self.rung.store(true, Ordering::SeqCst);
        self.parker.unpark();
    }

    /// Forgets earlier rings; costs no system call when there were none.
    pub fn reset(&self) {
        if self.rung.load(Ordering::SeqCst) {
            self.clear();
        }
    }

    /// Forgets a ring that was seen on the event, marked already or not.
    pub fn clear(&self) {
        self.rung.store(false, Ordering::SeqCst);
        if let Some(event) = &self.event {
            event.clear();
        }
    }

    /// Sleeps until rung or until `deadline`. A ring before the sleep is not lost.
    pub fn park(&self, deadline: Deadline) {
        self.parker.park(deadline);
    }

    /// What to poll for, if it has an event descriptor.
    pub fn event(&self) -> Option<&EventFd> {
        self.event.as_ref()
    }
}

/// What a switch can wake.
pub trait Ring: fmt::Debug + Send + Sync {
    /// Runs in signal handlers too: takes no lock, allocates and frees nothing.
    fn ring(&self);
}

impl Ring for Bell {
    fn ring(&self) {
        Bell::ring(self);
    }
}

/// A switch that ends what carries it. Once fired, it stays so.
#[derive(Debug)]
pub struct Cancel {
    /// The process it was made in.
    generation: u64,
    fired: AtomicBool,
    bells: Bells,
    /// What stands for it in a forked child, where its locks may be held for ever.
    child: OnceBox<Arc<Cancel>>,
}

/// Bells in slots that never move and are never freed before the switch is, so that whoever fires
/// can walk along them while others come and go.
///
/// Who comes and goes takes a slot's latch and waits for it, no longer than a bell takes to ring. Who
/// fires only tries it. A latch that is held then is held by somebody who comes, and looks whether the
/// switch has fired once they are in; by somebody who goes; or by somebody who fires too, and rings.
#[derive(Debug, Default)]
struct Bells {
    first: OnceBox<Block>,
    places: Mutex<Places>,
}

type Slot = Latch<Option<Arc<dyn Ring>>>;

#[derive(Debug)]
struct Block {
    slots: Box<[Slot]>,
    next: OnceBox<Block>,
}

/// Which slots are free.
#[derive(Debug, Default)]
struct Places {
    used: usize,
    free: Vec<usize>,
}

impl Block {
    /// Most switches end one fetch. Each block has twice the slots of the one before.
    const FIRST: usize = 1;

    fn new(slots: usize) -> Box<Self> {
        let slots = (0..slots).map(|_| Slot::new(None)).collect();
        Box::new(Block { slots, next: OnceBox::new() })
    }
}

impl Bells {
    /// The slot at a place, which is there from the first time on that it is asked for.
    fn slot(&self, place: usize) -> &Slot {
        let mut block = self.first.get_or_init(|| Block::new(Block::FIRST));
        let mut at = place;
        while at >= block.slots.len() {
            at -= block.slots.len();
            block = block.next.get_or_init(|| Block::new(2 * block.slots.len()));
        }
        &block.slots[at]
    }

    /// Puts a bell into a free slot.
    fn put(&self, bell: Arc<dyn Ring>) -> usize {
        let place = {
            let mut places = self.places.lock();
            places.free.pop().unwrap_or_else(|| {
                places.used += 1;
                places.used - 1
            })
        };
        *self.slot(place).lock() = Some(bell);
        place
    }

    fn take(&self, place: usize) -> Option<Arc<dyn Ring>> {
        let bell = self.slot(place).lock().take();
        self.places.lock().free.push(place);
        bell
    }

    /// Safe in a signal handler.
    fn ring(&self) {
        let mut block = self.first.get();
        while let Some(Block { slots, next }) = block {
            for bell in slots.iter().filter_map(Latch::try_lock) {
                if let Some(bell) = &*bell {
                    bell.ring();
                }
            }
            block = next.get();
        }
    }
}

impl Default for Cancel {
    fn default() -> Self {
        Cancel {
            generation: sys::fork_generation(),
            fired: AtomicBool::new(false),
            bells: Bells::default(),
            child: OnceBox::new(),
        }
    }
}

impl Cancel {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Ends what carries this switch, now and from now on. Any thread, any number of times, also in
    /// a signal handler: it makes system calls that are async-signal-safe, and beside them touches
    /// atomics alone.
    pub fn fire(&self) {
        self.fired.store(true, Ordering::SeqCst);
        // Whoever attaches a bell does so before they look at `fired`.
        fence(Ordering::SeqCst);
        let mut here = self;
        while here.generation != sys::fork_generation() {
            // Without one there is no bell in this process.
            let Some(child) = here.child.get() else { return };
            here = child;
        }
        here.bells.ring();
    }

    /// What stands for it in this process, if that is a forked child.
    fn here(&self) -> Option<&Arc<Cancel>> {
        if self.generation == sys::fork_generation() {
            return None;
        }
        let child = self.child.get_or_init(|| Box::new(Cancel::new()));
        Some(child.here().unwrap_or(child))
    }

    pub fn is_fired(&self) -> bool {
        self.fired.load(Ordering::SeqCst)
    }

    /// Lets the switch ring `bell` until the guard is dropped. Look at `is_fired` after this, not
    /// before: a switch that fires in between has rung already.
    pub fn attach(self: &Arc<Self>, bell: &Arc<impl Ring + 'static>) -> Attached {
        let cancel = Arc::clone(self.here().unwrap_or(self));
        let place = cancel.bells.put(Arc::clone(bell) as Arc<dyn Ring>);
        fence(Ordering::SeqCst);
        Attached { cancel, place }
    }
}

/// Takes its bell off the switch when dropped. From then on nobody rings it.
#[derive(Debug)]
pub struct Attached {
    cancel: Arc<Cancel>,
    place: usize,
}

impl Drop for Attached {
    fn drop(&mut self) {
        // In a forked child the bell is the parent's.
        if self.cancel.generation == sys::fork_generation() {
            drop(self.cancel.bells.take(self.place));
        }
    }
}

/// Asks the host whether the thread inside the call is to come back; true to come back.
pub type Hook = dyn Fn() -> bool + Send + Sync;

/// How often the hook is asked while a fetch waits.
pub const HOOK_INTERVAL: Duration = Duration::from_millis(50);

/// One fetch's reasons to stop early.
#[derive(Clone)]
pub struct Stop {
    /// The process that it is in.
    generation: u64,
    cancel: Option<Arc<Cancel>>,
    hook: Option<Arc<Hook>>,
    asked: Option<Instant>,
}

impl Default for Stop {
    fn default() -> Self {
        Stop::new(None, None)
    }
}

impl Stop {
    pub fn new(cancel: Option<Arc<Cancel>>, hook: Option<Arc<Hook>>) -> Self {
        Stop { generation: sys::fork_generation(), cancel, hook, asked: None }
    }

    /// Lets the caller's switch, if there is one, ring `bell`.
    pub fn attach(&self, bell: &Arc<Bell>) -> Option<Attached> {
        self.cancel.as_ref().map(|cancel| cancel.attach(bell))
    }

    /// Whether to stop now. Asks the hook if its time has come, or if a signal `interrupted`. In a child
    /// that the hook forked: the fetch is the parent's, and so are the locks and the connection.
    #[cfg_attr(feature = "count-gaps", track_caller)]
    pub fn is_asked(&mut self, now: Instant, interrupted: bool) -> bool {
        gaps::look();
        if self.cancel.as_ref().is_some_and(|cancel| cancel.is_fired()) {
            return true;
        }
        let Some(hook) = &self.hook else { return false };
        let last = *self.asked.get_or_insert(now);
        if !interrupted && now.saturating_duration_since(last) < HOOK_INTERVAL {
            return false;
        }
        self.asked = Some(now);
        let _host = gaps::outside();
        hook() || self.generation != sys::fork_generation()
    }

    /// Until when to sleep before looking again: `deadline`, or the hook's next turn.
    pub fn next_look(&self, now: Instant, deadline: Deadline) -> Deadline {
        match &self.hook {
            Some(_) => deadline.min(Deadline::at(self.asked.unwrap_or(now) + HOOK_INTERVAL)),
            None => deadline,
        }
    }

    /// Sleeps on `bell` until it rings or `deadline` passes; true if the fetch is to stop.
    ///
    /// May return early: the caller looks whether what it waits for has come.
    #[cfg_attr(feature = "count-gaps", track_caller)]
    pub fn sleep(&mut self, bell: &Bell, deadline: Deadline) -> bool {
        let now = clock::now();
        if self.is_asked(now, false) {
            return true;
        }
        bell.park(self.next_look(now, deadline));
        self.is_asked(clock::now(), false)
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop")
            .field("cancel", &self.cancel)
            .field("hook", &self.hook.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn a_switch_rings_the_bells_attached_to_it_and_no_longer_those_taken_off() {
        let (cancel, bell, other) = (Cancel::new(), Bell::new(), Bell::new());
        let attached = cancel.attach(&bell);
        drop(cancel.attach(&other));
        cancel.fire();
        assert!(cancel.is_fired());
        assert!(bell.rung.load(Ordering::SeqCst));
        assert!(!other.rung.load(Ordering::SeqCst));
        drop(attached);
        assert!(cancel.bells.slot(0).lock().is_none() && cancel.bells.slot(1).lock().is_none());
    }

    #[test]
    fn a_switch_rings_every_bell_however_many_there_are() {
        let cancel = Cancel::new();
        let bells: Vec<_> = (0..100).map(|_| Bell::new()).collect();
        let attached: Vec<_> = bells.iter().map(|bell| cancel.attach(bell)).collect();
        cancel.fire();
        assert!(bells.iter().all(|bell| bell.rung.load(Ordering::SeqCst)));
        drop(attached);
        assert!(bells.iter().all(|bell| Arc::strong_count(bell) == 1));
        let places: Vec<_> = bells.iter().map(|bell| cancel.attach(bell).place).collect();
        assert!(places.iter().all(|&place| place < 100), "slots that are free are used again");
    }

    /// As a signal handler would that interrupts whoever comes or goes, or fires.
    #[test]
    fn a_switch_fires_past_whoever_is_at_a_slot() {
        let (cancel, bell, other) = (Cancel::new(), Bell::new(), Bell::new());
        let _attached = (cancel.attach(&bell), cancel.attach(&other));
        let held = cancel.bells.slot(0).lock();
        let _places = cancel.bells.places.lock();
        cancel.fire();
        assert!(cancel.is_fired());
        assert!(!bell.rung.load(Ordering::SeqCst));
        assert!(other.rung.load(Ordering::SeqCst));
        drop(held);
    }

    #[test]
    fn a_sleep_ends_when_the_switch_fires() {
        let (cancel, bell) = (Cancel::new(), Bell::new());
        let mut stop = Stop::new(Some(Arc::clone(&cancel)), None);
        let _attached = stop.attach(&bell);
        let thread = std::thread::spawn(move || cancel.fire());
        while !stop.sleep(&bell, Deadline::NEVER) {}
        thread.join().unwrap();
    }

    #[test]
    fn a_hook_is_asked_once_an_interval_and_on_every_interruption() {
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let hook = move || count.fetch_add(1, Ordering::SeqCst) > 1;
        let mut stop = Stop::new(None, Some(Arc::new(hook)));
        let start = Instant::now();
        assert!(!stop.is_asked(start, false), "its first turn comes after an interval");
        assert!(!stop.is_asked(start + HOOK_INTERVAL / 2, false));
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        assert!(!stop.is_asked(start + HOOK_INTERVAL, false));
        assert!(!stop.is_asked(start + HOOK_INTERVAL, true));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let next = stop.next_look(start, Deadline::NEVER);
        assert_eq!(next, Deadline::at(start + HOOK_INTERVAL * 2));
        assert!(stop.is_asked(start + HOOK_INTERVAL * 2, false), "the hook's yes is a stop");
    }

    #[test]
    fn a_bell_that_was_reset_no_longer_wakes_from_poll() {
        use crate::machine::sys::{Interest, wait_ready};
        let bell = Bell::with_event().unwrap();
        let source = [(bell.event().unwrap().fd(), Interest::Readable)];
        let ready = || wait_ready(&source, Deadline::at(Instant::now())).unwrap();
        bell.ring();
        assert_eq!(ready(), 1);
        bell.reset();
        assert_eq!(ready(), 0);
    }
}
