//! The socket below everything: TCP with the exchange's own deadline at every wait.
//!
//! Writes are held back until an answer is wanted, so that head and body (or a handshake's
//! messages) leave in one send.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use ureq::Error;
use ureq::unversioned::transport::{Buffers, NextTimeout, Transport};

use super::control::Control;
use crate::deadline::Deadline;
use crate::sys::{Enlisted, Interest};

/// Room for what the peer sends. An answer's head must fit.
pub const INPUT_BYTES: usize = 16 << 10;

/// Room for what is to be sent, beyond what is held back already. The longest header must fit: ureq
/// writes none in pieces (`FlagKeys::MAX_BYTES` in base64, and its name).
pub const OUTPUT_BYTES: usize = 12 << 10;

/// Held-back bytes from which on they are sent without waiting for more.
const SEND_AT_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub struct Socket {
    _enlisted: Enlisted, // before the stream, so that it is dropped first
    stream: TcpStream,
    control: Arc<Control>,
    buffers: SocketBuffers,
    /// Why the peer takes nothing any more. It may have said something before.
    refused: Option<io::Error>,
}

impl Socket {
    /// `stream` is connected and does not block.
    pub fn new(stream: TcpStream, enlisted: Enlisted, control: Arc<Control>) -> Self {
        control.socket_opened();
        let buffers = SocketBuffers::default();
        Socket { _enlisted: enlisted, stream, control, buffers, refused: None }
    }

    /// Sends what is held back. If the peer does not take it, that is told by the next read: what
    /// it said before, like a 413 to a large request, is the answer.
    fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.buffers.held_back && self.refused.is_none() {
            // A peer that takes and gives without a pause never makes us wait.
            self.control.check(false)?;
            match self.stream.write(&self.buffers.output[sent..self.buffers.held_back]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    sent += written;
                    self.control.note_sent();
                }
                Err(error) if is_end(&error) => self.refused = Some(error),
                Err(error) => self.wait_after(error, Interest::Writable)?,
            }
        }
        self.buffers.held_back = 0;
        Ok(())
    }

    fn read(&mut self) -> io::Result<usize> {
        if self.control.before_read()? {
            self.wait(Interest::Readable)?;
        }
        loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Ok(amount) => return Ok(amount),
                Err(error) if !self.control.is_patient() => return Err(error),
                Err(error) => self.wait_after(error, Interest::Readable)?,
            }
        }
    }

    /// What a peer that takes nothing any more has said before: it is there, or will never be.
    fn read_last_words(&mut self, refused: io::Error) -> io::Result<usize> {
        match self.stream.read(self.buffers.input_append_buf()) {
            Ok(amount) if amount > 0 => {
                self.refused = Some(refused);
                Ok(amount)
            }
            _ => Err(refused),
        }
    }

    /// Waits if that is what `error` asks for, else fails with it.
    fn wait_after(&self, error: io::Error, interest: Interest) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.wait(interest),
            io::ErrorKind::Interrupted => self.control.check(true),
            _ => Err(error),
        }
    }

    fn wait(&self, interest: Interest) -> io::Result<()> {
        self.control.wait(&[(self.stream.as_raw_fd(), interest)], Deadline::NEVER).map(drop)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.control.socket_closed();
    }
}

impl Transport for Socket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        self.buffers.held_back += amount;
        if self.buffers.held_back >= SEND_AT_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        self.flush()?;
        let amount = match self.refused.take() {
            Some(refused) => self.read_last_words(refused)?,
            None => {
                self.control.sent_all();
                self.read()?
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// Not asked: the layer above looks with a read that must find nothing.
    fn is_open(&mut self) -> bool {
        self.buffers.input().is_empty() && self.refused.is_none()
    }
}

/// Whether the peer has ended the connection.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// One buffer each way, allocated when first used and kept as long as the connection.
#[derive(Debug, Default)]
struct SocketBuffers {
    input: Vec<u8>,
    consumed: usize,
    filled: usize,
    progress: bool,
    output: Vec<u8>,
    held_back: usize,
    scratch: Vec<u8>,
}

impl SocketBuffers {
    /// Moves what is unread to the front, so that the free room is in one piece.
    fn make_room(&mut self) {
        if self.input.is_empty() {
            self.input.resize(INPUT_BYTES, 0);
        }
        self.input.copy_within(self.consumed..self.filled, 0);
        self.filled -= self.consumed;
        self.consumed = 0;
    }

    fn grow_output(&mut self) {
        let wanted = self.held_back + OUTPUT_BYTES;
        if self.output.len() < wanted {
            self.output.resize(wanted, 0);
        }
    }
}

impl Buffers for SocketBuffers {
    fn output(&mut self) -> &mut [u8] {
        self.grow_output();
        &mut self.output[self.held_back..]
    }

    fn input(&self) -> &[u8] {
        &self.input[self.consumed..self.filled]
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.make_room();
        &mut self.input[self.filled..]
    }

    fn input_appended(&mut self, amount: usize) {
        self.filled += amount;
    }

    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        self.consumed += amount;
        if self.consumed == self.filled {
            (self.consumed, self.filled) = (0, 0);
        }
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.grow_output();
        if self.scratch.is_empty() {
            // Only bodies of unknown length pass through here, and none of ours are.
            self.scratch.resize(1, 0);
        }
        (&mut self.scratch, &mut self.output[self.held_back..])
    }

    fn can_use_input(&self) -> bool {
        self.filled > self.consumed && self.progress
    }
}
