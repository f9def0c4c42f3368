//! Clocks.

#[cfg(feature = "count-gaps")]
use std::mem;
use std::time::Duration;

use super::check;

/// Since the machine was started, the time included in which it slept, where that is known.
pub fn boot_time() -> Duration {
    time_of(libc::CLOCK_BOOTTIME).unwrap_or_else(monotonic_time)
}

/// Since the machine was started, without the time in which it slept.
pub fn monotonic_time() -> Duration {
    time_of(libc::CLOCK_MONOTONIC).unwrap_or_default()
}

fn time_of(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is alive for the call.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) }).ok()?;
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// What this thread has had of the processor: no waits, and nothing of what others do meanwhile.
#[cfg(feature = "count-gaps")]
pub fn thread_time() -> Duration {
    // SAFETY: all zeroes is a valid timespec.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: `time` is alive for the call, which fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(super) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        // A wait beyond the type's range is as good as one without end.
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(duration.subsec_nanos() as i32),
    }
}
