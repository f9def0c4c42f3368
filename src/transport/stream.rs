//! A connection that is open: bytes that wait to be read, and the waits for more and for room to
//! send. Sending watches for an answer, which may come before the request is out (RFC 9112,
//! section 9.5).

use std::io;
use std::net::IpAddr;

use super::exchange_state::ExchangeState;
use super::wire::Wire;
use crate::machine::sys::Interest;
use crate::rules::deadline::Deadline;
use crate::rules::metrics::CloseReason;

/// Room for what the peer sends. The head of an answer must fit.
pub const INPUT_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub struct Stream {
    wire: Wire,
    /// Allocated when the first byte is read, kept as long as the connection.
    input: Box<[u8]>,
    /// What is unread stands from here …
    start: usize,
    /// … to here.
    end: usize,
    received: u64,
}

/// How many bytes have passed so far.
#[derive(Clone, Copy, Debug)]
pub struct Passed {
    /// To the operating system.
    pub sent: u64,
    /// From the peer, as they are above TLS.
    pub received: u64,
}

/// How sending went.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    All,
    /// The peer said something first; so many bytes were taken before it did.
    Early(usize),
}

/// What of a request is still to be sent when its answer begins; `None` if nothing is.
pub type Unsent<'a> = Option<[&'a [u8]; 2]>;

impl Stream {
    pub fn new(wire: Wire) -> Self {
        Stream { wire, input: Box::default(), start: 0, end: 0, received: 0 }
    }

    pub fn into_wire(self) -> Wire {
        self.wire
    }

    /// The address at its other end.
    pub fn peer(&self) -> IpAddr {
        self.wire.socket().peer
    }

    pub fn set_close_reason(&mut self, reason: CloseReason) {
        self.wire.socket_mut().close_reason = reason;
    }

    pub fn passed(&self) -> Passed {
        Passed { sent: self.wire.socket().sent(), received: self.received }
    }

    /// Finishes the handshake of a wire with TLS.
    pub fn shake_hands(&mut self, state: &mut ExchangeState) -> io::Result<()> {
        loop {
            match self.wire.shake_hands(state) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let interest = self.blocked_handshake(state);
                    self.wait(interest, state)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_end(error.kind()) => return Err(self.said_before(error, state)),
                done => return done,
            }
        }
    }

    /// Why the peer takes nothing any more: what it said of that before, by TLS, or else `error`.
    fn said_before(&mut self, error: io::Error, state: &mut ExchangeState) -> io::Error {
        match self.fill_now(state) {
            Err(said) if said.kind() == io::ErrorKind::InvalidData => said,
            _ => error,
        }
    }

    /// What a handshake waits for: room, if some of it could not be sent.
    fn blocked_handshake(&mut self, state: &mut ExchangeState) -> &'static [Interest] {
        match self.wire.flush(state) {
            Ok(()) => &[Interest::Readable],
            Err(_) => &[Interest::Readable, Interest::Writable],
        }
    }

    /// Whether a part of a record of TLS has come.
    pub fn is_mid_record(&self) -> bool {
        self.wire.is_mid_record()
    }

    /// What was read and not consumed.
    pub fn unread(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    pub fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.input[self.start..self.end]
    }

    pub fn consume(&mut self, amount: usize) {
        self.start += amount;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Whether there is room to read more without consuming.
    pub fn is_full(&self) -> bool {
        self.end - self.start >= INPUT_BYTES
    }

    /// Reads more of what is there, without waiting: 0 at the end, `WouldBlock` if there is nothing.
    pub fn fill_now(&mut self, state: &mut ExchangeState) -> io::Result<usize> {
        if self.input.is_empty() {
            self.input = vec![0; INPUT_BYTES].into();
        }
        self.input.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let amount = self.wire.read(&mut self.input[self.end..], state)?;
        self.end += amount;
        self.received += amount as u64;
        Ok(amount)
    }

    /// Reads more, and waits for it; 0 at the end. What is not expected to be there yet is waited
    /// for first, which saves a read.
    pub fn fill(&mut self, expected: bool, state: &mut ExchangeState) -> io::Result<usize> {
        if !expected {
            self.wait(&[Interest::Readable], state)?;
        }
        loop {
            match self.fill_now(state) {
                Err(error) => self.wait_after(error, state)?,
                filled => return filled,
            }
        }
    }

    /// Reads past the input buffer, which must be empty; 0 at the end.
    pub fn read_through(
        &mut self,
        into: &mut [u8],
        state: &mut ExchangeState,
    ) -> io::Result<usize> {
        debug_assert!(self.unread().is_empty());
        loop {
            match self.wire.read(into, state) {
                Err(error) => self.wait_after(error, state)?,
                read => return read,
            }
        }
    }

    /// Sends `bytes`, unless the peer says something before all of them are out.
    pub fn send(&mut self, bytes: &[u8], state: &mut ExchangeState) -> io::Result<Sent> {
        let mut taken = 0;
        loop {
            match self.hand_over(bytes, &mut taken, state) {
                Ok(()) => return Ok(Sent::All),
                Err(error) if is_not_yet(&error) => {}
                // It takes nothing any more, but may have said why before: in an answer, or by TLS.
                Err(error) if is_end(error.kind()) => {
                    return match self.fill_now(state) {
                        Ok(1..) => Ok(Sent::Early(taken)),
                        Err(said) if said.kind() == io::ErrorKind::InvalidData => Err(said),
                        _ => Err(error),
                    };
                }
                Err(error) => return Err(error),
            }
            self.wait(&[Interest::Readable, Interest::Writable], state)?;
            match self.fill_now(state) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(Sent::Early(taken)),
                Err(error) if is_not_yet(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads more, and while there is nothing to read goes on sending: the peer may wait for the rest
    /// of the request before it says the rest of its answer. 0 at the end.
    pub fn fill_and_send(
        &mut self,
        unsent: &mut Unsent<'_>,
        state: &mut ExchangeState,
    ) -> io::Result<usize> {
        loop {
            match self.fill_now(state) {
                Err(error) if is_not_yet(&error) => {}
                filled => return filled,
            }
            self.send_more(unsent, state);
            match unsent {
                Some(_) => self.wait(&[Interest::Readable, Interest::Writable], state)?,
                None => self.wait(&[Interest::Readable], state)?,
            }
        }
    }

    /// Sends what the peer takes now. One that takes nothing any more is only listened to.
    fn send_more(&mut self, unsent: &mut Unsent<'_>, state: &mut ExchangeState) {
        for piece in unsent.iter_mut().flatten() {
            let mut taken = 0;
            let result = self.hand_over(piece, &mut taken, state);
            *piece = &piece[taken..];
            match result {
                Err(error) if is_not_yet(&error) => return,
                Err(_) => break,
                Ok(()) => {}
            }
        }
        *unsent = None;
    }

    /// Writes until all is out, or `WouldBlock`.
    fn hand_over(
        &mut self,
        bytes: &[u8],
        taken: &mut usize,
        state: &mut ExchangeState,
    ) -> io::Result<()> {
        while *taken < bytes.len() {
            *taken += self.wire.write(&bytes[*taken..], state)?;
        }
        self.wire.flush(state)
    }

    /// Waits if there was nothing to read, comes back if there was no data in it, else fails.
    fn wait_after(&mut self, error: io::Error, state: &mut ExchangeState) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.wait(&[Interest::Readable], state),
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        }
    }

    fn wait(&mut self, interests: &[Interest], state: &mut ExchangeState) -> io::Result<()> {
        let fd = self.wire.socket().fd();
        let mut sources = [(fd, Interest::Readable); 2];
        for (source, &interest) in sources.iter_mut().zip(interests) {
            source.1 = interest;
        }
        state.wait(&sources[..interests.len()], Deadline::NEVER).map(drop)
    }
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Whether the peer has ended the connection.
pub fn is_end(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
    )
}
