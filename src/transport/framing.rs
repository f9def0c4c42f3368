//! Where the body of an answer ends (RFC 9112, sections 6 and 7). Pure: bytes come in, and what
//! of them is body comes out.

/// What of an answer's framing is refused, as a message says it.
pub type Refusal = &'static str;

/// The longest line of the chunked coding that is read: a size with its extensions, or a trailer.
pub const MAX_LINE_BYTES: usize = 16 << 10;

pub const LINE_TOO_LONG: Refusal = "a line of its chunked coding is longer than 16 KiB";
const BAD_SIZE: Refusal = "a chunk size is not a hexadecimal number";
const BAD_LINE_END: Refusal = "a line of its chunked coding does not end in CR LF";
const BAD_CHUNK_END: Refusal = "a chunk is longer than its size";

/// Where in its body an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes are left.
    Length(u64),
    Chunked(Chunk),
    /// It ends with the connection.
    UntilClose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// In the line with its size; so many bytes of it were seen.
    Size(Line<u64>),
    /// In its data; so many bytes are left.
    Data(u64),
    /// In the line end behind its data.
    DataEnd(Line<()>),
    /// In a trailer field, behind the last chunk.
    Trailer(Line<()>),
    Done,
}

/// A line under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line<T> {
    bytes: usize,
    part: Part,
    value: T,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// Nothing of the line, or digits only.
    #[default]
    Start,
    /// Spaces behind the digits.
    Blank,
    /// What is passed over: an extension, a trailer field.
    Rest,
    /// A CR has come.
    Cr,
}

impl Framing {
    pub const CHUNKED: Framing =
        Framing::Chunked(Chunk::Size(Line { bytes: 0, part: Part::Start, value: 0 }));

    /// Whether the body is complete.
    pub fn is_done(self) -> bool {
        matches!(self, Framing::Length(0) | Framing::Chunked(Chunk::Done))
    }

    /// How much body can come without a look at the framing between.
    pub fn plain_bytes(self) -> u64 {
        match self {
            Framing::Length(left) | Framing::Chunked(Chunk::Data(left)) => left,
            Framing::UntilClose => u64::MAX,
            Framing::Chunked(_) => 0,
        }
    }

    /// So many bytes of body were taken, at most `plain_bytes`.
    pub fn advance(&mut self, amount: u64) {
        match self {
            Framing::Length(left) => *left -= amount,
            Framing::Chunked(Chunk::Data(left)) => {
                *left -= amount;
                if *left == 0 {
                    *self = Framing::Chunked(Chunk::DataEnd(Line::default()));
                }
            }
            Framing::Chunked(_) | Framing::UntilClose => {}
        }
    }

    /// Passes over the framing at the start of `input`; how much of it that was. What follows is
    /// body, or the end, or has not come yet.
    pub fn skip(&mut self, input: &[u8]) -> Result<usize, Refusal> {
        let Framing::Chunked(chunk) = self else { return Ok(0) };
        let mut skipped = 0;
        while skipped < input.len() && !matches!(chunk, Chunk::Data(_) | Chunk::Done) {
            *chunk = chunk.after(input[skipped])?;
            skipped += 1;
        }
        Ok(skipped)
    }
}

impl Chunk {
    /// After one more byte of framing.
    fn after(self, byte: u8) -> Result<Chunk, Refusal> {
        match self {
            Chunk::Size(line) => Ok(match line.size(byte)? {
                None if line.value == 0 => Chunk::Trailer(Line::default()),
                None => Chunk::Data(line.value),
                Some(line) => Chunk::Size(line),
            }),
            Chunk::DataEnd(line) => match (line.part, byte) {
                (Part::Start, b'\r') => Ok(Chunk::DataEnd(Line { part: Part::Cr, ..line })),
                (Part::Cr, b'\n') => Ok(Chunk::Size(Line::default())),
                _ => Err(BAD_CHUNK_END),
            },
            Chunk::Trailer(line) => match line.rest(byte)? {
                // Nothing but a line end: the end of it all.
                None if line.bytes == 1 => Ok(Chunk::Done),
                None => Ok(Chunk::Trailer(Line::default())),
                Some(line) => Ok(Chunk::Trailer(line)),
            },
            Chunk::Data(_) | Chunk::Done => Ok(self),
        }
    }
}

impl Line<u64> {
    /// `chunk-size [ chunk-ext ] CRLF`, extensions passed over; `None` at its end.
    fn size(self, byte: u8) -> Result<Option<Self>, Refusal> {
        let line = Line { bytes: self.bytes + 1, ..self };
        match (self.part, byte) {
            (Part::Start, _) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                let value = self.value.checked_mul(16).ok_or(BAD_SIZE)? | digit;
                self.within(Line { value, ..line })
            }
            _ if self.bytes == 0 => Err(BAD_SIZE),
            (Part::Start | Part::Blank, b' ' | b'\t') => {
                self.within(Line { part: Part::Blank, ..line })
            }
            (Part::Start | Part::Blank, b';') => self.within(Line { part: Part::Rest, ..line }),
            (Part::Start | Part::Blank, b'\r' | b'\n') | (Part::Rest | Part::Cr, _) => {
                line.rest_of(self.part, byte)
            }
            _ => Err(BAD_SIZE),
        }
    }
}

impl Line<()> {
    fn rest(self, byte: u8) -> Result<Option<Self>, Refusal> {
        Line { bytes: self.bytes + 1, ..self }.rest_of(self.part, byte)
    }
}

impl<T: Copy> Line<T> {
    /// Passes over `byte`, which came in `part`; `None` at the end of the line.
    fn rest_of(self, part: Part, byte: u8) -> Result<Option<Self>, Refusal> {
        match (part, byte) {
            (Part::Cr, b'\n') => Ok(None),
            (Part::Cr, _) | (_, b'\n') => Err(BAD_LINE_END),
            (_, b'\r') => self.within(Line { part: Part::Cr, ..self }),
            _ => self.within(Line { part: Part::Rest, ..self }),
        }
    }

    fn within(self, line: Self) -> Result<Option<Self>, Refusal> {
        if line.bytes > MAX_LINE_BYTES { Err(LINE_TOO_LONG) } else { Ok(Some(line)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is body of `input` in the chunked coding, and whether it is complete.
    fn decoded(input: &[u8], step: usize) -> Result<(Vec<u8>, bool, usize), Refusal> {
        let (mut framing, mut body, mut at) = (Framing::CHUNKED, Vec::new(), 0);
        while at < input.len() && !framing.is_done() {
            let piece = &input[at..input.len().min(at + step)];
            let skipped = framing.skip(piece)?;
            let amount = (piece.len() - skipped).min(framing.plain_bytes() as usize);
            body.extend(&piece[skipped..skipped + amount]);
            framing.advance(amount as u64);
            at += skipped + amount;
        }
        Ok((body, framing.is_done(), at))
    }

    #[test]
    fn what_the_chunked_coding_may_hold_is_read_in_pieces_of_any_size() {
        let long_extension = format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(16_000));
        for input in [
            "2\r\n{}\r\n0\r\n\r\n",
            "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n",
            "0002\r\n{}\r\n000\r\n\r\n",
            "000000000000000000000000000000002\r\n{}\r\n0\r\n\r\n",
            "2;name\r\n{}\r\n0;last\r\n\r\n",
            "2 ; name = \"quoted; text\"\r\n{}\r\n0\r\n\r\n",
            "2  \r\n{}\r\n0\t\r\n\r\n",
            "2\r\n{}\r\n0\r\nTrailer: x\r\nOther: y\r\n\r\n",
            &long_extension,
        ] {
            for step in [1, 2, 3, 7, usize::MAX / 2] {
                let whole = (b"{}".to_vec(), true, input.len());
                assert_eq!(decoded(input.as_bytes(), step), Ok(whole), "{input:?} by {step}");
            }
        }
    }

    #[test]
    fn what_the_chunked_coding_may_not_hold_is_refused_at_once() {
        let long_size = format!("2;{}", "x".repeat(MAX_LINE_BYTES));
        let long_trailer = format!("0\r\n{}", "x".repeat(MAX_LINE_BYTES + 1));
        for (input, why) in [
            ("+2\r\n{}", BAD_SIZE),
            ("-2\r\n{}", BAD_SIZE),
            ("0x2\r\n{}", BAD_SIZE),
            (" 2\r\n{}", BAD_SIZE),
            ("2 2\r\n{}", BAD_SIZE),
            ("\r\n", BAD_SIZE),
            (";x\r\n", BAD_SIZE),
            ("g\r\n", BAD_SIZE),
            ("2,\r\n", BAD_SIZE),
            ("10000000000000000\r\n", BAD_SIZE),
            ("2\n", BAD_LINE_END),
            ("2\r{", BAD_LINE_END),
            ("2;x\n", BAD_LINE_END),
            ("2;x\ry", BAD_LINE_END),
            ("2\r\n{}\n", BAD_CHUNK_END),
            ("2\r\n{}}", BAD_CHUNK_END),
            ("2\r\n{}\r0", BAD_CHUNK_END),
            ("0\r\n\n", BAD_LINE_END),
            ("0\r\na: b\n", BAD_LINE_END),
            ("0\r\na: b\rc", BAD_LINE_END),
            (&long_size, LINE_TOO_LONG),
            (&long_trailer, LINE_TOO_LONG),
        ] {
            for step in [1, usize::MAX / 2] {
                assert_eq!(decoded(input.as_bytes(), step), Err(why), "{input:?} by {step}");
            }
        }
    }

    #[test]
    fn what_follows_the_last_chunk_is_left_alone() {
        let input = b"0\r\n\r\nHTTP/1.1";
        assert_eq!(decoded(input, usize::MAX / 2), Ok((Vec::new(), true, 5)));
    }
}
