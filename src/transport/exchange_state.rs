//! The state of the exchange on one connection: what it may take, how far it has come, and the
//! waits that look at both. Every stretch of an exchange that can grow calls [`ExchangeState::check`].

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::machine::cancel::{Attached, Bell, Cancel, Stop};
use crate::machine::clock;
use crate::machine::gaps;
use crate::machine::sys::{self, Descriptors, EventFd, Interest};
use crate::rules::deadline::Deadline;
use crate::rules::metrics::Metrics;
use crate::rules::timings::{Phase, Timings};

/// Why an exchange does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its deadline passed while it was in this phase.
    TimedOut(Phase),
    /// The caller wants no answer any more.
    Canceled,
    /// The client is being closed and waits no longer.
    Cut,
}

/// Whom an exchange is dealing with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    #[default]
    Service,
    /// Until the way through it to the service is open.
    Proxy,
}

/// What the connections of a client share with it, in one process.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Ends every exchange at once, as `Closed`.
    pub cut: Arc<Cancel>,
    pub metrics: Arc<Metrics>,
    pub descriptors: Arc<Descriptors>,
}

impl Shared {
    pub fn new(descriptors: Arc<Descriptors>) -> Self {
        Shared { cut: Cancel::new(), metrics: Arc::default(), descriptors }
    }
}

/// The reasons to stop an exchange, apart from what it waits for. A copy serves where the state
/// itself is out of reach, in the search for a certificate's issuer.
#[derive(Clone, Debug)]
pub struct Bounds {
    deadline: Deadline,
    stop: Stop,
    cut: Arc<Cancel>,
    /// The process it was made in.
    generation: u64,
}

impl Bounds {
    /// Why to stop now, if there is a reason. `interrupted`: a signal ended a wait.
    #[cfg_attr(feature = "count-gaps", track_caller)]
    pub fn reached(&mut self, phase: Phase, now: Instant, interrupted: bool) -> Option<Ended> {
        if self.stop.is_asked(now, interrupted) {
            Some(Ended::Canceled)
        } else if self.cut.is_fired() {
            Some(Ended::Cut)
        } else if self.deadline.has_passed(now) {
            Some(Ended::TimedOut(phase))
        } else if sys::fork_generation() != self.generation {
            // Forked in the middle of it, by the hook: the connection is the parent's.
            Some(Ended::Canceled)
        } else {
            None
        }
    }
}

/// See the module. It belongs to the thread that makes the exchange; others ring its bell.
#[derive(Debug)]
pub struct ExchangeState {
    _attached: Attached,
    bell: Arc<Bell>,
    bounds: Bounds,
    ended: Option<Ended>,
    phase: Phase,
    phase_began: Instant,
    timings: Timings,
    pub peer: Peer,
}

impl ExchangeState {
    /// Takes a descriptor, for the bell.
    pub fn new(shared: &Shared, now: Instant) -> io::Result<Self> {
        let bell = Bell::with_event()?;
        Ok(ExchangeState {
            _attached: shared.cut.attach(&bell),
            bell,
            bounds: Bounds {
                deadline: Deadline::NEVER,
                stop: Stop::default(),
                cut: Arc::clone(&shared.cut),
                generation: sys::fork_generation(),
            },
            ended: None,
            phase: Phase::Send,
            phase_began: now,
            timings: Timings::default(),
            peer: Peer::Service,
        })
    }

    /// Begins an exchange. The caller's switch can ring until the guard is dropped.
    #[must_use]
    pub fn begin(&mut self, deadline: Deadline, stop: Stop, now: Instant) -> Option<Attached> {
        self.bell.reset();
        let attached = stop.attach(&self.bell);
        self.bounds.deadline = deadline;
        self.bounds.stop = stop;
        self.ended = None;
        self.phase = Phase::Send;
        self.phase_began = now;
        self.peer = Peer::Service;
        attached
    }

    /// Ends an exchange: where its time went, the last phase up to `now`.
    pub fn finish(&mut self, now: Instant) -> Timings {
        self.enter_at(self.phase, now);
        self.bounds.stop = Stop::default();
        std::mem::take(&mut self.timings)
    }

    pub fn enter(&mut self, phase: Phase) {
        self.enter_at(phase, clock::now());
    }

    fn enter_at(&mut self, phase: Phase, now: Instant) {
        self.timings.add(self.phase, now.saturating_duration_since(self.phase_began));
        self.phase = phase;
        self.phase_began = now;
    }

    /// What the exchange is doing, or was doing last.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Why it stopped, if it was not for what the peer did.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Stops it, if there is a reason that was found elsewhere. A hook may give its own but once.
    pub fn end(&mut self, why: Option<Ended>) {
        self.ended = self.ended.or(why);
    }

    /// Whether it was the caller, or the close of the client, that stopped it.
    pub fn is_stopped_by_caller(&self) -> bool {
        matches!(self.ended, Some(Ended::Canceled | Ended::Cut))
    }

    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Fails if the exchange is to stop: out of time, canceled, or cut. Once it has failed, it does
    /// so until the next exchange begins.
    #[cfg_attr(feature = "count-gaps", track_caller)]
    pub fn check(&mut self) -> io::Result<()> {
        self.check_at(clock::now(), false)
    }

    #[cfg_attr(feature = "count-gaps", track_caller)]
    fn check_at(&mut self, now: Instant, interrupted: bool) -> io::Result<()> {
        if self.ended.is_some() {
            gaps::look();
        } else {
            self.ended = self.bounds.reached(self.phase, now, interrupted);
        }
        match self.ended {
            // Not Interrupted, which std's readers repeat for ever.
            Some(_) => Err(io::ErrorKind::TimedOut.into()),
            None => Ok(()),
        }
    }

    /// Waits until one of `sources` is ready, and says which (bit i for source i): none of them
    /// when `until` passed first. Fails if the exchange is to stop.
    #[cfg_attr(feature = "count-gaps", track_caller)]
    pub fn wait(&mut self, sources: &[(RawFd, Interest)], until: Deadline) -> io::Result<u32> {
        let mut polled = [(-1, Interest::Readable); sys::MAX_SOURCES];
        let count = sources.len();
        assert!(count < polled.len(), "as many sources as poll takes beside the bell");
        polled[..count].copy_from_slice(sources);
        polled[count].0 = self.bell.event().map_or(-1, EventFd::fd);
        let mut interrupted = false;
        loop {
            let now = clock::now();
            self.check_at(now, interrupted)?;
            if until.has_passed(now) {
                return Ok(0);
            }
            match sys::wait_ready(&polled[..=count], self.next_look(now, until)) {
                Ok(ready) => {
                    interrupted = false;
                    let ready_sources = ready & !(1 << count);
                    if ready_sources != 0 {
                        return Ok(ready_sources);
                    }
                    if ready != 0 {
                        self.bell.clear();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => interrupted = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// Sleeps until the bell rings, `until` passes, or it is time to look again. Fails if the
    /// exchange is to stop.
    #[cfg_attr(feature = "count-gaps", track_caller)]
    pub fn sleep(&mut self, until: Deadline) -> io::Result<()> {
        let now = clock::now();
        self.check_at(now, false)?;
        self.bell.park(self.next_look(now, until));
        self.check()
    }

    fn next_look(&self, now: Instant, until: Deadline) -> Deadline {
        self.bounds.stop.next_look(now, self.bounds.deadline.min(until))
    }

    /// How long to wait for the likelier of two ways before the other is tried: 250 ms (what
    /// RFC 8305 advises between addresses), or a quarter of what is left if that is less.
    pub fn head_start(&self, now: Instant) -> Duration {
        const HEAD_START: Duration = Duration::from_millis(250);
        let left = self.bounds.deadline.remaining(now);
        left.map_or(HEAD_START, |left| HEAD_START.min(left / 4))
    }
}
