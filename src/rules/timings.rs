//! Where the time of a fetch goes: its phases, and how long each took.

use std::time::Duration;

/// What a fetch is doing. The names stand in messages, metrics and the C accessors alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting in line for a connection of the pool.
    Pool,
    /// Looking up the host's name.
    Resolve,
    /// Opening the TCP connection, and a proxy's tunnel.
    Connect,
    /// Shaking hands.
    Tls,
    /// Handing the request to the operating system.
    Send,
    /// Waiting for the head of the answer to be complete.
    FirstByte,
    /// Reading and decoding the body.
    Body,
    /// Waiting between two attempts.
    Backoff,
}

impl Phase {
    pub const COUNT: usize = 8;

    pub const ALL: [Phase; Phase::COUNT] = [
        Phase::Pool,
        Phase::Resolve,
        Phase::Connect,
        Phase::Tls,
        Phase::Send,
        Phase::FirstByte,
        Phase::Body,
        Phase::Backoff,
    ];

    /// Its name in metrics and log lines.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Pool => "pool",
            Phase::Resolve => "resolve",
            Phase::Connect => "connect",
            Phase::Tls => "tls",
            Phase::Send => "send",
            Phase::FirstByte => "first_byte",
            Phase::Body => "body",
            Phase::Backoff => "backoff",
        }
    }

    /// What the fetch was doing, as a message says it.
    pub fn activity(self) -> &'static str {
        match self {
            Phase::Pool => "waiting for a free connection",
            Phase::Resolve => "looking up the host",
            Phase::Connect => "connecting",
            Phase::Tls => "in the TLS handshake",
            Phase::Send => "sending the request",
            Phase::FirstByte => "waiting for the response",
            Phase::Body => "reading the response body",
            Phase::Backoff => "waiting to try again",
        }
    }
}

/// Time spent in each phase, summed over all attempts of one fetch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timings {
    spent: [Duration; Phase::COUNT],
    /// Whether the last attempt went over a connection that had served before.
    pub reused: bool,
}

impl Timings {
    /// No time at all.
    pub const NONE: Timings = Timings { spent: [Duration::ZERO; Phase::COUNT], reused: false };

    pub fn add(&mut self, phase: Phase, time: Duration) {
        self.spent[phase as usize] += time;
    }

    pub fn spent(&self, phase: Phase) -> Duration {
        self.spent[phase as usize]
    }

    /// Takes in the phases of one more attempt.
    pub fn merge(&mut self, attempt: &Timings) {
        for phase in Phase::ALL {
            self.add(phase, attempt.spent(phase));
        }
        self.reused = attempt.reused;
    }
}
