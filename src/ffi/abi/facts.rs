//! What is known of a fetch, whether it came to variants or to an error.

use std::time::Instant;

use crate::rules::deadline::Deadline;
use crate::rules::timings::{Phase, Timings};

/// What a fetch is doing.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum exp_phase {
    /// None: the failure was not a timeout.
    EXP_PHASE_NONE = -1,
    /// Waiting for a connection from the pool.
    EXP_PHASE_POOL = 0,
    /// Looking up the host name.
    EXP_PHASE_RESOLVE = 1,
    /// Opening the TCP connection, and the tunnel through a proxy.
    EXP_PHASE_CONNECT = 2,
    /// In the TLS handshake.
    EXP_PHASE_TLS = 3,
    /// Sending the request.
    EXP_PHASE_SEND = 4,
    /// Waiting for the response headers.
    EXP_PHASE_FIRST_BYTE = 5,
    /// Reading and decoding the response body.
    EXP_PHASE_BODY = 6,
    /// Waiting between two attempts.
    EXP_PHASE_BACKOFF = 7,
}

impl From<Phase> for exp_phase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Pool => exp_phase::EXP_PHASE_POOL,
            Phase::Resolve => exp_phase::EXP_PHASE_RESOLVE,
            Phase::Connect => exp_phase::EXP_PHASE_CONNECT,
            Phase::Tls => exp_phase::EXP_PHASE_TLS,
            Phase::Send => exp_phase::EXP_PHASE_SEND,
            Phase::FirstByte => exp_phase::EXP_PHASE_FIRST_BYTE,
            Phase::Body => exp_phase::EXP_PHASE_BODY,
            Phase::Backoff => exp_phase::EXP_PHASE_BACKOFF,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Facts {
    pub attempts: u32,
    pub timings: Timings,
    pub until: Deadline,
}

impl Facts {
    /// Of no fetch at all.
    pub const NONE: Facts = Facts { attempts: 0, timings: Timings::NONE, until: Deadline::NEVER };

    pub fn connection_reused(&self) -> i32 {
        self.timings.reused.into()
    }

    /// Time left at `now`, rounded down; `u64::MAX` without a limit.
    pub fn micros_left(&self, now: Instant) -> u64 {
        let left = self.until.remaining(now).map(|left| left.as_micros());
        left.map_or(u64::MAX, |micros| u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// Time spent in a phase; 0 for a number that is none.
    pub fn phase_micros(&self, phase: i32) -> u64 {
        let phase = usize::try_from(phase).ok().and_then(|phase| Phase::ALL.get(phase));
        let spent = phase.map(|&phase| self.timings.spent(phase)).unwrap_or_default();
        u64::try_from(spent.as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_phases_of_the_header_are_those_of_the_library() {
        for (position, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(exp_phase::from(phase) as usize, position);
            let name = format!("EXP_PHASE_{}", phase.name().to_ascii_uppercase());
            assert_eq!(format!("{:?}", exp_phase::from(phase)), name);
        }
    }

    #[test]
    fn what_is_left_is_counted_down_to_zero_and_without_a_limit_it_is_no_number() {
        let now = Instant::now();
        let until = Deadline::at(now + Duration::from_millis(2));
        let facts = Facts { until, ..Facts::NONE };
        assert_eq!(facts.micros_left(now), 2_000);
        assert_eq!(facts.micros_left(now + Duration::from_secs(1)), 0);
        assert_eq!(Facts::NONE.micros_left(now), u64::MAX);
    }

    #[test]
    fn a_number_that_is_no_phase_took_no_time() {
        let mut facts = Facts::NONE;
        facts.timings.add(Phase::Backoff, Duration::from_micros(9));
        assert_eq!([-1, 7, 8, i32::MAX].map(|phase| facts.phase_micros(phase)), [0, 9, 0, 0]);
    }
}
