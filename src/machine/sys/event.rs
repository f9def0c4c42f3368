//! Event descriptors, by which one thread ends another's wait for sockets.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::check;
use super::fork::Ours;
use super::socket::above_stdio;

/// A descriptor that one thread raises and another waits for among its sockets (eventfd(2)).
///
/// In a forked child it does nothing: the other end is the parent's, and the number may be the host's.
#[derive(Debug)]
pub struct EventFd(Ours<OwnedFd>);

impl EventFd {
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd(2) takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: `fd` was just made and belongs to nobody else.
        Ok(EventFd(Ours::new(above_stdio(unsafe { OwnedFd::from_raw_fd(fd) })?)))
    }

    /// Makes the descriptor readable, until `clear`. Safe in a signal handler, but for errno.
    pub fn raise(&self) {
        if self.0.is_here() {
            let one = 1u64.to_ne_bytes();
            // Not write(2) by its name, which is a cancellation point.
            // SAFETY: the buffer holds the eight bytes that are named. The result says nothing new: a
            // full counter is readable already.
            unsafe {
                libc::syscall(libc::SYS_write, self.0.as_raw_fd(), one.as_ptr(), one.len());
            }
        }
    }

    pub fn clear(&self) {
        if self.0.is_here() {
            let mut count = [0u8; 8];
            // SAFETY: the buffer has room for the eight bytes that are asked for. An error means that
            // the counter was zero.
            unsafe {
                libc::syscall(libc::SYS_read, self.0.as_raw_fd(), count.as_mut_ptr(), count.len());
            }
        }
    }

    /// What to poll for reading; -1, which poll(2) ignores, in a forked child.
    pub fn fd(&self) -> RawFd {
        if self.0.is_here() { self.0.as_raw_fd() } else { -1 }
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::{Interest, wait_ready};
    use super::*;
    use crate::rules::deadline::Deadline;

    #[test]
    fn a_raised_event_is_ready_until_it_is_cleared() {
        let event = EventFd::new().unwrap();
        let ready = |event: &EventFd| {
            wait_ready(&[(event.fd(), Interest::Readable)], Deadline::at(Instant::now())).unwrap()
        };
        event.raise();
        event.raise();
        assert_eq!(ready(&event), 1);
        event.clear();
        assert_eq!(ready(&event), 0);
    }
}
