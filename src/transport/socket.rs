//! A TCP connection that never blocks.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use crate::machine::gaps::{self, Work};
use crate::machine::sys::{self, Enlisted, Ours};
use crate::rules::metrics::{CloseReason, Metrics};

/// Counts itself when it is made and when it is closed, and why.
#[derive(Debug)]
pub struct Socket {
    _enlisted: Enlisted, // before the stream, so that it is dropped first
    stream: Ours<TcpStream>,
    metrics: Arc<Metrics>,
    sent: u64,
    /// The address at its other end.
    pub peer: IpAddr,
    /// What is counted when it is closed.
    pub close_reason: CloseReason,
}

impl Socket {
    /// `stream` is connected to `peer` and does not block.
    pub fn new(
        stream: Ours<TcpStream>,
        peer: IpAddr,
        enlisted: Enlisted,
        metrics: Arc<Metrics>,
    ) -> Self {
        metrics.connections_opened.increment();
        let close_reason = CloseReason::Failed;
        Socket { _enlisted: enlisted, stream, metrics, sent: 0, peer, close_reason }
    }

    pub fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Reads what is there; `WouldBlock` if nothing is, 0 at the end of the connection.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let amount = uninterrupted(|| sys::receive(&self.stream, into))?;
        gaps::did(Work::Received, amount);
        Ok(amount)
    }

    /// Writes as much as the system takes; `WouldBlock` if it takes nothing.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let amount = uninterrupted(|| sys::send(&self.stream, bytes))?;
        self.sent += amount as u64;
        gaps::did(Work::Sent, amount);
        Ok(amount)
    }

    /// Bytes that the system has taken so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }
}

/// A call that does not block is not interrupted for long: it is made again.
fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.metrics.closed(self.close_reason);
    }
}
