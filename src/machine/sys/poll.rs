//! Waiting for descriptors: poll(2).

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Instant;

use super::check;
use super::time::timespec;
use crate::rules::deadline::Deadline;

/// How many descriptors one wait takes: sockets that race to connect, and a signal to stop.
pub const MAX_SOURCES: usize = 8;

/// What a descriptor is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    Readable,
    Writable,
}

/// Waits until one of `sources` is ready (or failed, or hung up), or until `deadline`.
///
/// Bit i of the result is set when source i is ready; 0 when the deadline passed. A signal ends
/// the wait as `io::ErrorKind::Interrupted`, so that the caller can ask the host's hook.
pub fn wait_ready(sources: &[(RawFd, Interest)], deadline: Deadline) -> io::Result<u32> {
    let mut polled = [libc::pollfd { fd: -1, events: 0, revents: 0 }; MAX_SOURCES];
    for (slot, &(fd, interest)) in polled.iter_mut().zip(sources) {
        slot.fd = fd;
        slot.events = match interest {
            Interest::Readable => libc::POLLIN,
            Interest::Writable => libc::POLLOUT,
        };
    }
    check(poll(&mut polled[..sources.len().min(MAX_SOURCES)], deadline))?;
    let ready = polled.iter().enumerate().filter(|(_, source)| source.revents != 0);
    Ok(ready.fold(0, |bits, (i, _)| bits | 1 << i))
}

/// poll(2) as long as whole milliseconds are left: the kernel keeps its deadline also if the process
/// is stopped meanwhile, whereas ppoll(2) goes on with what was left of its timeout when it is
/// continued. That is for what is below a millisecond.
fn poll(sources: &mut [libc::pollfd], deadline: Deadline) -> libc::c_int {
    let count = sources.len() as libc::nfds_t;
    loop {
        let left = deadline.remaining(Instant::now());
        let millis = left
            .map_or(-1, |left| libc::c_int::try_from(left.as_millis()).unwrap_or(libc::c_int::MAX));
        if millis == 0 {
            let left = left.map(timespec);
            let timeout = left.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: `sources` has `count` elements; `timeout` points to a timespec that outlives
            // the call; the signal mask is left alone.
            return unsafe { libc::ppoll(sources.as_mut_ptr(), count, timeout, ptr::null()) };
        }
        // SAFETY: `sources` has `count` elements.
        let result = unsafe { libc::poll(sources.as_mut_ptr(), count, millis) };
        if result != 0 {
            return result;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::EventFd;
    use super::*;

    #[test]
    fn a_wait_for_nothing_ends_at_its_deadline_and_not_before() {
        let event = EventFd::new().unwrap();
        let until = Instant::now() + Duration::from_millis(5);
        let ready = wait_ready(&[(event.fd(), Interest::Readable)], Deadline::at(until));
        assert_eq!(ready.unwrap(), 0);
        assert!(Instant::now() >= until);
    }
}
