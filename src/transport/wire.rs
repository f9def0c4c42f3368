//! The way of bytes to the peer: a socket, TLS over it, and for a proxy that is spoken to in TLS
//! itself, TLS over that. Nothing here waits; [`super::stream`] does.

use std::io::{self, Read, Write};

use rustls::{ClientConnection, IoState};

use super::exchange_state::ExchangeState;
use super::socket::Socket;
use super::tls;
use crate::machine::gaps::{self, Work};

/// How often records are taken in without data in them before the caller is asked again. A server has a
/// few tickets to give, all at once.
const LOOKS: usize = 4;

/// The most that is handed to the system before the caller is asked again: it takes megabytes at once.
const WRITTEN_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub enum Wire {
    Plain(Socket),
    Tls(Box<TlsWire>),
}

#[derive(Debug)]
pub struct TlsWire {
    tls: ClientConnection,
    below: Wire,
    records: Records,
}

/// How far into a record the peer is, whom TLS asks for whole ones.
#[derive(Debug, Default)]
struct Records {
    header: [u8; 5],
    /// Bytes of the header that were seen.
    seen: usize,
    /// Bytes that are to come behind it.
    left: usize,
}

impl Records {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = if self.seen < self.header.len() {
                let room = &mut self.header[self.seen..];
                let taken = room.len().min(bytes.len());
                room[..taken].copy_from_slice(&bytes[..taken]);
                self.seen += taken;
                self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
                taken
            } else {
                let taken = self.left.min(bytes.len());
                self.left -= taken;
                taken
            };
            bytes = &bytes[taken..];
            if self.seen == self.header.len() && self.left == 0 {
                self.seen = 0;
            }
        }
    }
}

impl Wire {
    pub fn socket(&self) -> &Socket {
        match self {
            Wire::Plain(socket) => socket,
            Wire::Tls(wire) => wire.below.socket(),
        }
    }

    pub fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Wire::Plain(socket) => socket,
            Wire::Tls(wire) => wire.below.socket_mut(),
        }
    }

    /// TLS over this wire; the handshake is still to be made.
    pub fn with_tls(self, tls: ClientConnection) -> Wire {
        Wire::Tls(Box::new(TlsWire { tls, below: self, records: Records::default() }))
    }

    /// Whether a part of a record has come, of which nobody knows yet what it holds.
    pub fn is_mid_record(&self) -> bool {
        match self {
            Wire::Plain(_) => false,
            Wire::Tls(wire) => wire.records.seen > 0 || wire.below.is_mid_record(),
        }
    }

    /// Reads what the peer has sent. `WouldBlock` if that is nothing yet, `Interrupted` if it was much
    /// and no data so far, 0 if the peer has ended the connection in good order.
    pub fn read(&mut self, into: &mut [u8], state: &mut ExchangeState) -> io::Result<usize> {
        state.check()?;
        match self {
            Wire::Plain(socket) => socket.read(into),
            Wire::Tls(wire) => wire.read(into, state),
        }
    }

    /// Takes some of `bytes`, at least one; `WouldBlock` if it can take none now.
    pub fn write(&mut self, bytes: &[u8], state: &mut ExchangeState) -> io::Result<usize> {
        state.check()?;
        match self {
            Wire::Plain(socket) => socket.write(&bytes[..bytes.len().min(WRITTEN_BYTES)]),
            Wire::Tls(wire) => wire.write(bytes, state),
        }
    }

    /// Hands on what was taken. `WouldBlock` if something is left.
    pub fn flush(&mut self, state: &mut ExchangeState) -> io::Result<()> {
        match self {
            Wire::Plain(_) => Ok(()),
            Wire::Tls(wire) => wire.flush(state),
        }
    }

    /// Goes on with the handshake as far as it goes without waiting: `WouldBlock` if the peer's
    /// turn has come, and it is not over.
    pub fn shake_hands(&mut self, state: &mut ExchangeState) -> io::Result<()> {
        let Wire::Tls(wire) = self else { return Ok(()) };
        while wire.tls.is_handshaking() {
            if wire.tls.wants_write() {
                wire.flush(state)?;
            } else if wire.take_in(state)?.is_none() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        // Its last message, which has to leave before anything is waited for.
        match wire.flush(state) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

impl TlsWire {
    fn read(&mut self, into: &mut [u8], state: &mut ExchangeState) -> io::Result<usize> {
        for _ in 0..LOOKS {
            match self.tls.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => {
                    gaps::did(Work::Decrypted, *read.as_ref().unwrap_or(&0));
                    return read; // 0 after a close_notify, UnexpectedEof without one
                }
            }
            if let Err(error) = self.take_in(state) {
                // What came before a record that is wrong was right.
                return match self.tls.reader().read(into) {
                    Ok(amount @ 1..) => {
                        gaps::did(Work::Decrypted, amount);
                        Ok(amount)
                    }
                    _ => Err(error),
                };
            }
        }
        // What is no data (tickets, key updates) may come without end.
        Err(io::ErrorKind::Interrupted.into())
    }

    /// Reads records once and works on them; `None` at the end of the connection.
    fn take_in(&mut self, state: &mut ExchangeState) -> io::Result<Option<IoState>> {
        let TlsWire { tls, below, records } = self;
        let amount = tls.read_tls(&mut Below { wire: below, records, state })?;
        let worked = tls::within(state, || self.tls.process_new_packets());
        if worked.is_err() || self.tls.wants_write() {
            // An alert says why; or an answer to what came. If it does not leave now, it does later.
            let sent = self.flush(state);
            if worked.is_ok() {
                sent.or_else(|error| match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(()),
                    _ => Err(error),
                })?;
            }
        }
        state.check()?; // that may be why it ended
        let io_state = worked.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok((amount > 0).then_some(io_state))
    }

    fn write(&mut self, bytes: &[u8], state: &mut ExchangeState) -> io::Result<usize> {
        if self.tls.wants_write() {
            self.flush(state)?; // so that no more than one piece is held back
        }
        let taken = self.tls.writer().write(bytes)?;
        gaps::did(Work::Encrypted, taken);
        match self.flush(state) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ if taken == 0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(taken),
        }
    }

    fn flush(&mut self, state: &mut ExchangeState) -> io::Result<()> {
        while self.tls.wants_write() {
            let TlsWire { tls, below, records } = self;
            tls.write_tls(&mut Below { wire: below, records, state })?;
        }
        self.below.flush(state)
    }
}

/// What rustls reads from and writes to.
struct Below<'a> {
    wire: &'a mut Wire,
    records: &'a mut Records,
    state: &'a mut ExchangeState,
}

impl Read for Below<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let amount = self.wire.read(into, self.state)?;
        self.records.pass(&into[..amount]);
        Ok(amount)
    }
}

impl Write for Below<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wire.write(bytes, self.state)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_whole_only_behind_its_last_byte_however_it_comes() {
        let records = b"\x17\x03\x03\x00\x03abc\x16\x03\x03\x00\x00\x17\x03\x03\x01\x00".to_vec();
        let input = [records, vec![0; 256]].concat();
        let whole = [0, 8, 13, input.len()];
        for step in [1, 2, 3, 7, input.len()] {
            let mut tracked = Records::default();
            let mut at = 0;
            for piece in input.chunks(step) {
                tracked.pass(piece);
                at += piece.len();
                assert_eq!(tracked.seen == 0, whole.contains(&at), "{at} by {step}");
            }
        }
    }
}
