//! The answer as it comes: its head, then its body within the limit, packed or not.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;

use super::exchange_state::ExchangeState;
use super::failure::{Failure, Refused};
use super::framing::Framing;
use super::head::{Coding, Head, Parsed};
use super::stream::{INPUT_BYTES, Stream, Unsent};
use crate::machine::gaps::{self, Work};

/// A body of another status than 200 up to this size is read off, if it is there already.
const DRAINED_BYTES: u64 = 8 << 10;

/// What is reserved for a body that does not say how long it is.
const FIRST_BYTES: usize = 4 << 10;

/// The most that is made room for, read or decompressed before the deadline is looked at again. A
/// body that says it is longer has to prove it.
const STEP_BYTES: usize = 256 << 10;

/// The most that is unpacked before the deadline is looked at again: two hundred empty members.
const PACKED_BYTES: usize = 4 << 10;

/// Reads the head of the answer; interim ones before it are passed over.
pub fn read_head(stream: &mut Stream, state: &mut ExchangeState) -> Result<Head, Failure> {
    loop {
        if let Some(head) = parse_head(stream, state)? {
            return Ok(head);
        }
        fill_head(stream, state)?;
    }
}

/// Reads the head from what is there; `None` if it is not whole.
pub fn parse_head(stream: &mut Stream, state: &mut ExchangeState) -> Result<Option<Head>, Failure> {
    while !stream.unread().is_empty() {
        gaps::did(Work::Framed, stream.unread().len());
        match Head::parse(stream.unread_mut()).map_err(Failure::Answer)? {
            Parsed::Final(head, length) => {
                stream.consume(length);
                return Ok(Some(head));
            }
            Parsed::Interim(length) => {
                stream.consume(length);
                state.check()?;
            }
            Parsed::Partial if stream.is_full() => {
                return Err(Failure::Answer("its headers are larger than 16 KiB"));
            }
            Parsed::Partial => break,
        }
    }
    Ok(None)
}

fn fill_head(stream: &mut Stream, state: &mut ExchangeState) -> Result<(), Failure> {
    match stream.fill(false, state)? {
        0 => Err(Failure::Io(io::ErrorKind::UnexpectedEof.into())),
        _ => Ok(()),
    }
}

/// The body of an answer, without its framing.
pub struct Body<'a> {
    stream: &'a mut Stream,
    state: &'a mut ExchangeState,
    framing: Framing,
    unsent: Unsent<'a>,
}

impl<'a> Body<'a> {
    /// `unsent` is what goes on being sent while the body is read: it may depend on it.
    pub fn new(
        stream: &'a mut Stream,
        state: &'a mut ExchangeState,
        framing: Framing,
        unsent: Unsent<'a>,
    ) -> Self {
        Body { stream, state, framing, unsent }
    }

    /// Whether all of it was read.
    pub fn is_done(&self) -> bool {
        self.framing.is_done()
    }

    /// Reads all of it, up to `max_bytes` of what it holds.
    pub fn read_whole(&mut self, coding: Coding, max_bytes: u64) -> Result<Vec<u8>, Failure> {
        match (coding, self.framing) {
            (Coding::Gzip, _) => unpack(self, max_bytes),
            (Coding::Other, _) => {
                Err(Failure::Answer("its content coding is not gzip, the only one offered"))
            }
            (Coding::Identity, Framing::Length(length)) if length > max_bytes => {
                Err(Failure::TooLarge)
            }
            (Coding::Identity, Framing::Length(length)) => {
                read_all(self, length as usize, max_bytes)
            }
            (Coding::Identity, _) => read_all(self, FIRST_BYTES, max_bytes),
        }
    }

    /// Reads off a small body that nobody wants, without waiting for it, to keep the connection. In
    /// few reads: one that comes in crumbs (tiny chunks in much framing) is not worth it.
    pub fn drain(&mut self) {
        const READS: usize = 32;

        let mut left = DRAINED_BYTES;
        for _ in 0..READS {
            while self.skip_framing().is_ok() {
                let there = self.stream.unread().len() as u64;
                let amount = there.min(self.framing.plain_bytes()).min(left);
                if amount == 0 {
                    break;
                }
                self.take(amount as usize);
                left -= amount;
            }
            let is_readable = self.stream.unread().is_empty() && left > 0 && !self.is_done();
            if !is_readable || !matches!(self.stream.fill_now(self.state), Ok(1..)) {
                break;
            }
        }
    }

    fn skip_framing(&mut self) -> io::Result<()> {
        let skipped = self.framing.skip(self.stream.unread()).map_err(Refused::error)?;
        gaps::did(Work::Framed, skipped);
        self.stream.consume(skipped);
        Ok(())
    }

    /// The connection has ended: in good order, if that is what tells the end of the body.
    fn ended(&mut self) -> io::Result<usize> {
        if self.framing != Framing::UntilClose {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.framing = Framing::Length(0);
        Ok(0)
    }

    fn take(&mut self, amount: usize) {
        self.stream.consume(amount);
        self.framing.advance(amount as u64);
    }
}

impl Read for Body<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.skip_framing()?;
            if self.is_done() {
                return Ok(0);
            }
            let plain = usize::try_from(self.framing.plain_bytes()).unwrap_or(usize::MAX);
            let unread = self.stream.unread();
            let amount = unread.len().min(into.len()).min(plain);
            if amount > 0 {
                into[..amount].copy_from_slice(&unread[..amount]);
                self.take(amount);
                return Ok(amount);
            }
            let most = into.len().min(plain);
            if self.unsent.is_some() {
                if self.stream.fill_and_send(&mut self.unsent, self.state)? == 0 {
                    return self.ended();
                }
            } else if most < INPUT_BYTES {
                if self.stream.fill(true, self.state)? == 0 {
                    return self.ended();
                }
            } else {
                // A large piece takes no way round by the buffer.
                let amount = self.stream.read_through(&mut into[..most], self.state)?;
                self.framing.advance(amount as u64);
                return if amount == 0 { self.ended() } else { Ok(amount) };
            }
        }
    }
}

/// What is read while somebody looks at the clock.
trait Source: Read {
    fn check(&mut self) -> io::Result<()>;
}

impl Source for Body<'_> {
    fn check(&mut self) -> io::Result<()> {
        self.state.check()
    }
}

/// On its own: the decoder has forty kilobytes, which it puts together on the stack. Inlined, every
/// fetch would take them, packed or not, and each thread that ever made one would keep them.
#[inline(never)]
fn unpack(body: &mut Body<'_>, max_bytes: u64) -> Result<Vec<u8>, Failure> {
    let mut packed = Packed { body, failure: None };
    let read = read_all(&mut MultiGzDecoder::new(&mut packed), FIRST_BYTES, max_bytes);
    match (read, packed.failure) {
        (Err(_), Some(error)) => Err(Failure::Io(error)),
        (Err(Failure::Io(_)), None) => {
            Err(Failure::Answer("its gzip data is damaged or truncated"))
        }
        (read, _) => read,
    }
}

/// The body as it comes over the wire. Keeps the error that ended it, so that a broken connection
/// is not taken for damaged data.
struct Packed<'a, 'b> {
    body: &'a mut Body<'b>,
    failure: Option<io::Error>,
}

impl Read for Packed<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(PACKED_BYTES);
        // Asked for as long as nothing comes of it: the decoder itself looks at no clock.
        let read = self.body.check().and_then(|()| self.body.read(&mut into[..most]));
        read.map_err(|error| {
            let kind = error.kind();
            self.failure = Some(error);
            kind.into()
        })
    }
}

impl Source for MultiGzDecoder<&mut Packed<'_, '_>> {
    fn check(&mut self) -> io::Result<()> {
        self.get_mut().body.check()
    }
}

fn read_all(from: &mut impl Source, expected: usize, max_bytes: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let mut filled = 0;
    loop {
        if filled == bytes.len() {
            // One more than is expected, so that the end is seen without growing.
            let more = if filled <= expected { expected + 1 - filled } else { filled };
            let more = more.min(STEP_BYTES);
            bytes.try_reserve(more).map_err(|_| Failure::OutOfMemory)?;
            bytes.resize(filled + more, 0);
        }
        let before = filled;
        match from.read(&mut bytes[filled..])? {
            0 => break,
            amount => filled += amount,
        }
        gaps::did(Work::Body, filled - before);
        if filled as u64 > max_bytes {
            return Err(Failure::TooLarge);
        }
        // Unpacking goes on for long without a look at the socket.
        from.check()?;
    }
    bytes.truncate(filled);
    Ok(bytes)
}
