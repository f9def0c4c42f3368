//! The connections of a session: who leases which and waits how long, and when unused ones close.
//!
//! The rules are the pool's and the dispatch's ([`crate::rules::dispatch`]); this is where threads wait by
//! them, and where the connections are that the pool's slots stand for.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::machine::alarm::{Alarm, Noted};
use crate::machine::cancel::{Bell, Cancel, Stop};
use crate::machine::clock;
use crate::machine::sync::{Condvar, Mutex, MutexGuard};
use crate::machine::sys;
use crate::remote::pending::Pending;
use crate::rules::deadline::Deadline;
use crate::rules::dispatch::{Decided, Dispatch, Id, Run};
use crate::rules::error::{Error, Status};
use crate::rules::fetch::{Bounds, Fetch, Refusal, Step};
use crate::rules::metrics::{CloseReason, Gauges};
use crate::rules::pool::{Answer, Lease, Ticket};
use crate::rules::timings::Timings;
use crate::transport::{Connection, Exchange, Request, Transport};

/// What is decided under the one lock of a session.
#[derive(Debug)]
struct State {
    dispatch: Dispatch<Arc<Pending>, Arc<Bell>>,
    timer: Timer,
    /// Workers that sleep because they have nothing to do.
    idle_workers: usize,
    /// The deadline that one of these has taken over while the timer is in a callback.
    watched: Option<Instant>,
    /// How long the machine had slept when that was last looked at.
    slept: Duration,
}

impl State {
    /// What is unused grows older while the machine sleeps, too. `slept` is for how long it has, so far.
    fn note_sleep(&mut self, slept: Duration) {
        /// What the two clocks that tell it may be apart, and no age is measured as finely.
        const WORTH_A_LOOK: Duration = Duration::from_millis(100);
        let time = slept.saturating_sub(self.slept);
        if time >= WORTH_A_LOOK {
            self.slept = slept;
            self.dispatch.slept(time);
        }
    }
}

/// What the timer thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    /// It is not there, or about to look.
    Awake,
    SleepsUntil(Option<Instant>),
    /// It tells someone, who may take as long as they like.
    Away,
}

/// How a wait for a connection stands.
enum Settled<'a> {
    Ended(Result<Leased<'a>, Refusal>),
    /// To be waited for, with this ticket.
    Waiting(Ticket),
}

/// See the module.
#[derive(Debug)]
pub struct Connections {
    /// The process they belong to.
    generation: u64,
    transport: Transport,
    state: Mutex<State>,
    /// Signalled when there is something for a worker to run.
    work: Condvar,
    /// Where the timer sleeps.
    alarm: Arc<Alarm>,
    /// One place for each of the pool's slots, filled when the slot is first leased. Only the
    /// holder of the lease opens or uses what is in it.
    places: Box<[Mutex<Option<Connection>>]>,
    idle_timeout: Duration,
    closing: Arc<Cancel>,
}

impl Connections {
    /// None is open yet. Once `closing` has fired, none is kept.
    pub fn new(config: &Config, transport: Transport, closing: Arc<Cancel>) -> Self {
        let size = NonZeroUsize::new(config.pool_size as usize).unwrap_or(NonZeroUsize::MIN);
        Connections {
            generation: sys::fork_generation(),
            transport,
            state: Mutex::new(State {
                dispatch: Dispatch::new(size),
                timer: Timer::Awake,
                idle_workers: 0,
                watched: None,
                slept: clock::slept(),
            }),
            work: Condvar::new(),
            alarm: Arc::default(),
            places: (0..size.get()).map(|_| Mutex::new(None)).collect(),
            idle_timeout: config.idle_timeout,
            closing,
        }
    }

    /// Whether this process was forked from the one they belong to.
    pub fn are_inherited(&self) -> bool {
        self.generation != sys::fork_generation()
    }

    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// What wakes the timer when the switch of an asynchronous fetch fires.
    pub fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    /// Waits in line for a connection until `until`.
    pub fn lease(&self, until: Deadline, stop: &mut Stop) -> Result<Leased<'_>, Refusal> {
        if stop.is_asked(clock::now(), false) {
            return Err(Refusal::Failed(Error::canceled()));
        }
        let mut bell = None;
        let answer = {
            let mut state = self.state.lock();
            let bell = || Arc::clone(bell.insert(Bell::new()));
            state.dispatch.acquire(clock::now(), until, bell)
        };
        match self.settle(answer) {
            Settled::Ended(result) => result,
            Settled::Waiting(ticket) => {
                let bell = bell.expect("the pool had it made, for this wait");
                self.wait(ticket, &bell, until, stop)
            }
        }
    }

    fn wait(
        &self,
        mut ticket: Ticket,
        bell: &Arc<Bell>,
        until: Deadline,
        stop: &mut Stop,
    ) -> Result<Leased<'_>, Refusal> {
        let _attached = stop.attach(bell);
        loop {
            let stopped = stop.sleep(bell, until);
            if self.are_inherited() {
                // In a child that the hook forked nobody may let go of the state.
                return Err(Refusal::Failed(Error::canceled()));
            }
            let mut state = self.state.lock();
            let now = clock::now();
            if stopped {
                let bells = state.dispatch.withdraw(now, ticket);
                self.unlock_and_wake(state, bells);
                return Err(Refusal::Failed(Error::canceled()));
            }
            let bells = state.dispatch.advance(now);
            let answer = state.dispatch.collect(ticket);
            self.unlock_and_wake(state, bells);
            ticket = match self.settle(answer) {
                Settled::Ended(result) => return result,
                Settled::Waiting(ticket) => ticket,
            };
        }
    }

    /// What the pool's answer means.
    fn settle(&self, answer: Answer) -> Settled<'_> {
        Settled::Ended(match answer {
            Answer::Leased(lease) => Ok(Leased { connections: self, lease: Some(lease) }),
            Answer::Expired(snapshot) => Err(Refusal::Expired(snapshot)),
            Answer::Closed => Err(Refusal::Failed(Error::closed())),
            Answer::Waiting(ticket) => return Settled::Waiting(ticket),
        })
    }

    /// Gives a lease back, and closes what has been unused for too long.
    fn give_back(&self, lease: Lease) {
        let slot = lease.slot();
        let warm = self.places[slot].lock().as_ref().is_some_and(Connection::is_open);
        let mut state = self.state.lock();
        let now = clock::now();
        // Before: what comes back now is not old.
        state.note_sleep(clock::slept());
        let bells = state.dispatch.release(now, lease, warm);
        let unused = self.take_unused(&mut state, now);
        self.unlock_and_wake(state, bells);
        self.close_all(unused);
        if self.closing.is_fired() {
            self.clear(slot, CloseReason::Shutdown);
        }
    }

    /// Gives up what a place holds, its bell's descriptor too, unless somebody is at
    /// it, who does so on leaving.
    fn clear(&self, slot: usize, reason: CloseReason) {
        let place = self.places[slot].try_lock().and_then(|mut place| place.take());
        if let Some(mut connection) = place {
            self.transport.close(&mut connection, reason);
        }
    }

    /// Takes out of reach, under the lock, the connections that nobody has used for too long; all
    /// unused ones, once closing.
    fn take_unused(&self, state: &mut State, now: Instant) -> Vec<Connection> {
        let idle_for = if self.closing.is_fired() { Duration::ZERO } else { self.idle_timeout };
        let slots = state.dispatch.reap(now, idle_for);
        slots.into_iter().filter_map(|slot| self.places[slot].lock().take()).collect()
    }

    fn close_all(&self, connections: Vec<Connection>) {
        let closing = self.closing.is_fired();
        let reason = if closing { CloseReason::Shutdown } else { CloseReason::Idle };
        for mut connection in connections {
            self.transport.close(&mut connection, reason);
        }
    }

    /// Refuses new leases and ends the waits for one. Leases that are out come back by themselves.
    pub fn close(&self) {
        // First of all, so that whoever gives a lease back after this keeps no connection.
        self.closing.fire();
        let mut state = self.state.lock();
        let now = clock::now();
        let bells = state.dispatch.close(now);
        let unused = self.take_unused(&mut state, now);
        self.unlock_and_wake(state, bells);
        self.close_all(unused);
        (0..self.places.len()).for_each(|slot| self.clear(slot, CloseReason::Shutdown));
    }

    /// How things stand now.
    pub fn gauges(&self) -> Gauges {
        let state = self.state.lock();
        let pool = state.dispatch.snapshot(clock::now());
        Gauges {
            leased: pool.leased,
            idle: pool.idle_warm,
            waiting: pool.waiting,
            pending: state.dispatch.pending(),
        }
    }

    /// Lets an asynchronous fetch in, unless closed or `most` are pending. Says how many workers are
    /// wanted then. What is let in has to be submitted, or dismissed.
    pub fn admit(&self, most: usize) -> Result<usize, Error> {
        let mut state = self.state.lock();
        if state.dispatch.is_closed() {
            return Err(Error::closed());
        }
        if state.dispatch.pending() >= most {
            return Err(Error::new(
                Status::QueueFull,
                format!("{most} fetches are already pending (max_pending_fetches)"),
            ));
        }
        state.dispatch.admit();
        Ok(state.dispatch.workers_wanted())
    }

    /// A fetch that was let in will not be submitted.
    pub fn dismiss(&self) {
        let mut state = self.state.lock();
        state.dispatch.dismiss();
        self.unlock_and_wake(state, Vec::new());
    }

    /// Takes a fetch that was let in. `begin` makes its first step.
    pub fn submit(&self, pending: &Arc<Pending>, begin: impl FnOnce(Instant) -> (Fetch, Step)) {
        let mut state = self.state.lock();
        let now = clock::now();
        let (mut fetch, mut step) = begin(now);
        if pending.switch().is_fired() {
            step = fetch.refused(Refusal::Failed(Error::canceled()), now);
        }
        let id = state.dispatch.submit(now, Arc::clone(pending), fetch, step);
        pending.submitted_as(id);
        self.unlock_and_wake(state, Vec::new());
    }

    /// Ends an asynchronous fetch that waits for something else than its answer.
    pub fn cancel(&self, id: Id) {
        let mut state = self.state.lock();
        let bells = state.dispatch.cancel(clock::now(), id);
        self.unlock_and_wake(state, bells);
    }

    /// Goes on with a fetch after its exchange, unless it was canceled meanwhile: then it ends. The
    /// worker that had it is on its way to the next.
    pub fn go_on(&self, id: Id, pending: Arc<Pending>, mut fetch: Fetch, step: Step) {
        let mut state = self.state.lock();
        let now = clock::now();
        // Under the lock: a cancel from now on finds the fetch in its new place.
        let step = match pending.switch().is_fired() {
            true => fetch.stopped(Error::canceled(), now),
            false => step,
        };
        let bells = state.dispatch.worker_ready(now);
        state.dispatch.go_on(now, id, pending, fetch, step);
        self.unlock_and_wake(state, bells);
    }

    /// A worker is on its way to look for something to run. From now on fetches are given to it:
    /// none is refused because it has not arrived yet.
    pub fn worker_comes(&self) {
        let mut state = self.state.lock();
        let bells = state.dispatch.worker_ready(clock::now());
        self.unlock_and_wake(state, bells);
    }

    /// The next exchange for a worker that has nothing to do; `None` when there will be none.
    pub fn next_run(&self) -> Option<Run<Arc<Pending>>> {
        let mut state = self.state.lock();
        loop {
            if let Some(run) = state.dispatch.next_run() {
                // Whoever sleeps sees to what else there is to run, and to the time.
                state.watched = None;
                self.unlock_and_wake(state, Vec::new());
                return Some(run);
            }
            if state.dispatch.is_over() {
                return None;
            }
            state = self.idle(state);
        }
    }

    /// Sleeps until there may be something for a worker to do. While the timer is away, whoever is
    /// idle keeps the time, so that no fetch waits for somebody else's callback.
    fn idle<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let watch = match state.timer {
            Timer::Away => state.dispatch.next_deadline(),
            Timer::Awake | Timer::SleepsUntil(_) => None,
        };
        let watch = watch.filter(|_| is_earlier(watch, state.watched));
        state.watched = watch.or(state.watched);
        state.idle_workers += 1;
        state = match watch {
            Some(until) => self.work.wait_until(state, until),
            None => self.work.wait(state),
        };
        state.idle_workers -= 1;
        let now = clock::now();
        if watch.is_some() && state.watched == watch && watch > Some(now) {
            state.watched = None; // woken early: whoever sleeps next watches again
        }
        if state.watched.is_some_and(|until| until <= now) {
            state.watched = None;
            let bells = state.dispatch.advance(now);
            self.unlock_and_wake(state, bells);
            state = self.state.lock();
        }
        state
    }

    /// Decides what time decides, until there is something to deliver; `None` when nothing will
    /// come any more.
    pub fn next_decided(&self) -> Option<Decided<Arc<Pending>>> {
        let mut state = self.state.lock();
        loop {
            state.timer = Timer::Awake;
            let now = clock::now();
            let mut bells = state.dispatch.advance(now);
            bells.extend(self.end_fired(&mut state, now));
            if !bells.is_empty() || state.dispatch.has_runnable() {
                self.unlock_and_wake(state, bells);
                state = self.state.lock();
            }
            if let Some(decided) = state.dispatch.next_decided() {
                state.timer = Timer::Away;
                self.unlock_and_wake(state, Vec::new());
                return Some(decided);
            }
            if state.dispatch.is_over() {
                return None;
            }
            let until = state.dispatch.next_deadline();
            state.timer = Timer::SleepsUntil(until);
            drop(state);
            self.alarm.sleep(until.map_or(Deadline::NEVER, Deadline::at));
            state = self.state.lock();
        }
    }

    /// Ends the fetches that wait and whose switch has fired.
    fn end_fired(&self, state: &mut State, now: Instant) -> Vec<Arc<Bell>> {
        let fired = match self.alarm.take() {
            Noted::These(fired) => fired,
            Noted::All => state.dispatch.those_that_wait(|pending| pending.switch().is_fired()),
        };
        fired.into_iter().flat_map(|id| state.dispatch.cancel(now, id)).collect()
    }

    /// Someone is about to be told of an outcome. Before that, so that they can submit the next fetch
    /// even if only one may be pending.
    pub fn begin_notifying(&self) {
        let mut state = self.state.lock();
        state.dispatch.begin_notifying();
        self.unlock_and_wake(state, Vec::new());
    }

    /// Someone has been told.
    pub fn notified(&self) {
        self.state.lock().dispatch.notified();
    }

    /// A lease that the dispatch granted, for a worker.
    pub fn leased(&self, lease: Lease) -> Leased<'_> {
        Leased { connections: self, lease: Some(lease) }
    }

    /// Unlocks the state and wakes whom its state concerns.
    fn unlock_and_wake(&self, state: MutexGuard<'_, State>, bells: Vec<Arc<Bell>>) {
        let is_over = state.dispatch.is_over();
        let mut for_worker = state.dispatch.has_runnable();
        let mut for_timer = false;
        match state.timer {
            Timer::Awake => {}
            Timer::SleepsUntil(until) => {
                let next = state.dispatch.next_deadline();
                for_timer = state.dispatch.has_decided() || is_earlier(next, until);
            }
            Timer::Away => {
                let next = state.dispatch.next_deadline();
                for_worker |= state.idle_workers > 0 && is_earlier(next, state.watched);
            }
        }
        drop(state);
        if is_over {
            self.work.notify_all();
            self.alarm.wake();
        } else {
            if for_worker {
                self.work.notify_one();
            }
            if for_timer {
                self.alarm.wake();
            }
        }
        for bell in bells {
            bell.ring();
        }
    }
}

fn is_earlier(deadline: Option<Instant>, than: Option<Instant>) -> bool {
    match (deadline, than) {
        (Some(deadline), Some(than)) => deadline < than,
        (deadline, _) => deadline.is_some(),
    }
}

/// A lease that finds its way back, also when the exchange panics.
#[derive(Debug)]
pub struct Leased<'a> {
    connections: &'a Connections,
    lease: Option<Lease>,
}

impl Leased<'_> {
    /// Makes one exchange and gives the connection back. Fails without one if there is no
    /// descriptor left to open a connection with.
    pub fn exchange(
        self,
        Bounds { timeout, until: deadline }: Bounds,
        request: &dyn Request,
        stop: &Stop,
    ) -> Result<(Result<Vec<u8>, Error>, Timings), Error> {
        let Connections { transport, places, .. } = self.connections;
        let slot = self.lease.as_ref().map_or(0, Lease::slot);
        let mut place = places[slot].lock();
        let connection = match place.as_mut() {
            Some(connection) => connection,
            None => place.insert(transport.connection().map_err(|error| {
                Error::new(Status::Network, format!("no connection can be opened: {error}"))
            })?),
        };
        let exchange = Exchange { request, timeout, deadline, stop: stop.clone() };
        Ok(transport.exchange(connection, &exchange))
    }
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        // In a child that was forked in the middle of the exchange, the pool is the parent's.
        if let Some(lease) = self.lease.take()
            && !self.connections.are_inherited()
        {
            if std::thread::panicking() {
                // Nobody knows in what state it is.
                self.connections.clear(lease.slot(), CloseReason::Failed);
            }
            self.connections.give_back(lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unused_grows_older_by_what_the_machine_sleeps_once() {
        const IDLE: Duration = Duration::from_secs(30);
        let mut state = State {
            dispatch: Dispatch::new(NonZeroUsize::MIN),
            timer: Timer::Awake,
            idle_workers: 0,
            watched: None,
            slept: Duration::from_secs(5),
        };
        let now = clock::now();
        let answer = state.dispatch.acquire(now, Deadline::NEVER, || unreachable!("one is free"));
        let Answer::Leased(lease) = answer else { unreachable!("one is free") };
        assert!(state.dispatch.release(now, lease, true).is_empty());
        for slept in [5, 20, 20, 34] {
            state.note_sleep(Duration::from_secs(slept));
            assert!(state.dispatch.reap(now, IDLE).is_empty(), "{slept}");
        }
        state.note_sleep(Duration::from_secs(35));
        assert_eq!(state.dispatch.reap(now, IDLE).len(), 1);
    }
}
