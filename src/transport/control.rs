//! The hand on one connection: what the exchange under way may take, how far it has come, and
//! what became of it. Shared by the exchange, above ureq, and the socket, below it.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::{Attached, Bell, Cancel, Stop};
use crate::clock;
use crate::deadline::Deadline;
use crate::metrics::{CloseReason, Metrics};
use crate::sync::Mutex;
use crate::sys::{self, Descriptors, Enlisted, Interest, Signal};
use crate::timings::{Phase, Timings};

/// Why the socket refuses to go on with an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its deadline passed while it was in this phase.
    TimedOut(Phase),
    /// The caller wants no answer any more.
    Canceled,
    /// The client is being closed and waits no longer.
    Cut,
}

/// What has happened since the exchange began.
#[derive(Clone, Debug)]
pub struct Report {
    pub ended: Option<Ended>,
    /// What it was doing last.
    pub phase: Phase,
    pub timings: Timings,
    /// It went over a connection that had served before, open and clean as far as could be seen.
    pub reused: bool,
    /// Bytes of it were handed to the operating system.
    pub sent: bool,
    /// Bytes of an answer were read, as they are above TLS.
    pub received: bool,
}

impl Report {
    fn new() -> Self {
        Report {
            ended: None,
            phase: Phase::Send,
            timings: Timings::default(),
            reused: false,
            sent: false,
            received: false,
        }
    }
}

#[derive(Debug)]
struct State {
    deadline: Deadline,
    stop: Stop,
    /// False: what is not there at once is not waited for.
    patient: bool,
    phase_began: Instant,
    report: Report,
    opened: Option<Instant>,
    close_reason: CloseReason,
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

/// See the module. One exchange at a time; the lease sees to that.
#[derive(Debug)]
pub struct Control {
    state: Mutex<State>,
    bell: Arc<Bell>,
    shared: Shared,
    /// The process it was made in.
    generation: u64,
    _attached: Attached,
    _enlisted: Option<Enlisted>,
}

impl Control {
    /// Takes a descriptor, for the bell.
    pub fn new(shared: &Shared, now: Instant) -> io::Result<Arc<Self>> {
        let bell = Bell::with_signal()?;
        let state = State {
            deadline: Deadline::NEVER,
            stop: Stop::default(),
            patient: true,
            phase_began: now,
            report: Report::new(),
            opened: None,
            close_reason: CloseReason::Failed,
        };
        Ok(Arc::new(Control {
            state: Mutex::new(state),
            _attached: shared.cut.attach(&bell),
            _enlisted: bell.signal().map(|signal| shared.descriptors.enlist(signal)),
            bell,
            shared: shared.clone(),
            generation: sys::fork_generation(),
        }))
    }

    /// Begins an exchange. The caller's switch can ring until the guard is dropped.
    #[must_use]
    pub fn begin(&self, deadline: Deadline, stop: Stop, now: Instant) -> Option<Attached> {
        self.bell.reset();
        let attached = stop.attach(&self.bell);
        let mut state = self.state.lock();
        state.deadline = deadline;
        state.stop = stop;
        state.patient = true;
        state.report = Report::new();
        state.phase_began = now;
        attached
    }

    /// Ends an exchange: what happened in it, its last phase up to `now`.
    pub fn finish(&self, now: Instant) -> Report {
        let mut state = self.state.lock();
        let last = state.report.phase;
        state.enter(last, now);
        state.stop = Stop::default();
        state.report.timings.reused = state.report.reused;
        std::mem::replace(&mut state.report, Report::new())
    }

    pub fn enter(&self, phase: Phase) {
        self.state.lock().enter(phase, clock::now());
    }

    /// Goes on from sending to waiting for the answer, once.
    pub fn sent_all(&self) {
        let mut state = self.state.lock();
        // A look at a kept connection before the request goes out is no wait for its answer.
        if state.patient && state.report.phase == Phase::Send {
            state.enter(Phase::FirstByte, clock::now());
        }
    }

    pub fn is_reading_body(&self) -> bool {
        self.state.lock().report.phase == Phase::Body
    }

    /// Whether nothing of the request has been sent yet.
    pub fn is_to_send(&self) -> bool {
        self.state.lock().report.phase == Phase::Send
    }

    /// A connection is there, not used before, and the exchange goes on to sending.
    pub fn connection_opened(&self) {
        let now = clock::now();
        let mut state = self.state.lock();
        state.opened = Some(now);
        state.report.reused = false;
        state.enter(Phase::Send, now);
    }

    pub fn connection_closed(&self) {
        self.state.lock().opened = None;
    }

    /// Since when the connection is open; `None` when there is none.
    pub fn opened(&self) -> Option<Instant> {
        self.state.lock().opened
    }

    pub fn note_reused(&self) {
        let mut state = self.state.lock();
        state.report.reused = true;
        state.close_reason = CloseReason::Failed;
    }

    /// What is to be counted if the socket is closed from now on.
    pub fn set_close_reason(&self, reason: CloseReason) {
        self.state.lock().close_reason = reason;
    }

    /// Where the connection's descriptors are listed, for a forked child.
    pub fn descriptors(&self) -> &Arc<Descriptors> {
        &self.shared.descriptors
    }

    pub fn socket_opened(&self) {
        self.state.lock().close_reason = CloseReason::Failed;
        self.shared.metrics.connections_opened.increment();
    }

    pub fn socket_closed(&self) {
        self.shared.metrics.closed(self.state.lock().close_reason);
    }

    pub fn note_sent(&self) {
        self.state.lock().report.sent = true;
    }

    pub fn note_received(&self) {
        self.state.lock().report.received = true;
    }

    pub fn report(&self) -> Report {
        self.state.lock().report.clone()
    }

    /// With `false`, reads find what is already there or fail as `WouldBlock`.
    pub fn set_patient(&self, patient: bool) {
        self.state.lock().patient = patient;
    }

    pub fn is_patient(&self) -> bool {
        self.state.lock().patient
    }

    /// Whether to wait for input before the first try to read it: in the middle of a body the next
    /// bytes are probably there, before it they are not. Fails if the exchange is to stop, also if
    /// the peer sends so fast that there is never a wait.
    pub fn before_read(&self) -> io::Result<bool> {
        let mut state = self.state.lock();
        if !state.patient {
            return Ok(false);
        }
        self.check_state(&mut state, clock::now(), false)?;
        Ok(state.report.phase != Phase::Body)
    }

    /// Fails if the exchange is to stop: out of time, canceled, or cut.
    pub fn check(&self, interrupted: bool) -> io::Result<()> {
        self.check_state(&mut self.state.lock(), clock::now(), interrupted)
    }

    /// Waits until one of `sources` is ready, and says which (bit i for source i): none of them
    /// when `until` passed first. Fails if the exchange is to stop.
    pub fn wait(&self, sources: &[(RawFd, Interest)], until: Deadline) -> io::Result<u32> {
        let mut polled = [(-1, Interest::Readable); sys::MAX_SOURCES];
        let count = sources.len();
        assert!(count < polled.len(), "as many sources as poll takes beside the bell");
        polled[..count].copy_from_slice(sources);
        polled[count].0 = self.bell.signal().map_or(-1, Signal::fd);
        let mut interrupted = false;
        loop {
            let look = {
                let mut state = self.state.lock();
                let now = clock::now();
                self.check_state(&mut state, now, interrupted)?;
                if until.has_passed(now) {
                    return Ok(0);
                }
                state.stop.next_look(now, state.deadline.min(until))
            };
            match sys::wait_ready(&polled[..=count], look) {
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

    /// How long to wait for the likelier of two ways before the other is tried: 250 ms (what
    /// RFC 8305 advises between addresses), or a quarter of what is left if that is less.
    pub fn head_start(&self, now: Instant) -> Duration {
        const HEAD_START: Duration = Duration::from_millis(250);
        let left = self.state.lock().deadline.remaining(now);
        left.map_or(HEAD_START, |left| HEAD_START.min(left / 4))
    }

    /// Sleeps until the bell rings, `until` passes, or it is time to look again. Fails if the
    /// exchange is to stop.
    pub fn sleep(&self, until: Deadline) -> io::Result<()> {
        let look = {
            let mut state = self.state.lock();
            let now = clock::now();
            self.check_state(&mut state, now, false)?;
            state.stop.next_look(now, state.deadline.min(until))
        };
        self.bell.park(look);
        self.check(false)
    }

    fn check_state(&self, state: &mut State, now: Instant, interrupted: bool) -> io::Result<()> {
        if state.report.ended.is_none() {
            state.report.ended = if state.stop.is_asked(now, interrupted) {
                Some(Ended::Canceled)
            } else if self.shared.cut.is_fired() {
                Some(Ended::Cut)
            } else if state.deadline.has_passed(now) {
                Some(Ended::TimedOut(state.report.phase))
            } else if sys::fork_generation() != self.generation {
                // Forked in the middle of it, by the hook: the connection is the parent's.
                Some(Ended::Canceled)
            } else {
                None
            };
        }
        match state.report.ended {
            // Neither Interrupted, which rustls would repeat for ever, nor an end of the stream,
            // which ureq takes for the end of a body without a length.
            Some(_) => Err(io::ErrorKind::TimedOut.into()),
            None => Ok(()),
        }
    }

    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }
}

impl State {
    fn enter(&mut self, phase: Phase, now: Instant) {
        let spent = now.saturating_duration_since(self.phase_began);
        self.report.timings.add(self.report.phase, spent);
        self.report.phase = phase;
        self.phase_began = now;
    }
}
