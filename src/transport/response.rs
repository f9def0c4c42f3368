//! The answer: its status, whether its framing leaves doubts, and its body within the limit.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, RETRY_AFTER,
    TRANSFER_ENCODING,
};
use http::{Response, Version};
use ureq::{Body, BodyReader};

use super::control::Control;
use super::failure::Failure;
use crate::retry;
use crate::timings::Phase;

/// A body of another status than 200 up to this size is read off, if it is there already.
const DRAINED_BYTES: u64 = 8 << 10;

/// What is reserved for a body that does not say how long it is.
const FIRST_BYTES: usize = 4 << 10;

/// The most that is made room for, read or decompressed before the deadline is looked at again. A
/// body that says it is longer has to prove it.
const STEP_BYTES: usize = 256 << 10;

/// The most that is unpacked before the deadline is looked at again: two hundred empty members.
const PACKED_BYTES: usize = 4 << 10;

/// Reads the answer to its end. Whatever is left of it when this fails goes with its connection.
pub fn read(
    response: &mut Response<Body>,
    max_bytes: u64,
    control: &Control,
) -> Result<Vec<u8>, Failure> {
    control.enter(Phase::Body);
    let status = response.status().as_u16();
    if status != 200 {
        drain(response.body_mut(), control);
        let headers = response.headers();
        let date = text(headers, DATE);
        let retry_after =
            text(headers, RETRY_AFTER).and_then(|value| retry::retry_after(value, date));
        return Err(Failure::Status { code: status, retry_after });
    }
    let is_gzip = is_gzip(response.headers())?;
    let length = text(response.headers(), CONTENT_LENGTH).and_then(|value| value.parse().ok());
    // Packed, a body may be longer than what comes of it.
    if !is_gzip && length.is_some_and(|length: u64| length > max_bytes) {
        return Err(Failure::TooLarge);
    }
    let body = response.body_mut();
    if is_gzip {
        return unpack(body, max_bytes, control);
    }
    let expected = length.map_or(FIRST_BYTES, |length| length as usize);
    read_all(body.with_config().reader(), expected, max_bytes, control)
}

/// On its own: the decoder has forty kilobytes, which it puts together on the stack. Inlined, every
/// fetch would take them, packed or not, and each thread that ever made one would keep them.
#[inline(never)]
fn unpack(body: &mut Body, max_bytes: u64, control: &Control) -> Result<Vec<u8>, Failure> {
    let mut packed = Packed { body: body.with_config().reader(), control, failure: None };
    let read = read_all(MultiGzDecoder::new(&mut packed), FIRST_BYTES, max_bytes, control);
    match (read, packed.failure) {
        (Err(_), Some(error)) => Err(Failure::Exchange(error.into())),
        (Err(Failure::Exchange(_)), None) => {
            Err(Failure::Answer("its gzip data is damaged or cut"))
        }
        (read, _) => read,
    }
}

/// ureq could unpack by itself, but would take the headers away that tell how a body is framed.
fn is_gzip(headers: &HeaderMap) -> Result<bool, Failure> {
    match text(headers, CONTENT_ENCODING).map(str::to_ascii_lowercase).as_deref() {
        None | Some("identity") => Ok(false),
        Some("gzip" | "x-gzip") => Ok(true),
        Some(_) => {
            Err(Failure::Answer("it is encoded in another way than the gzip that was offered"))
        }
    }
}

/// The body as it comes over the wire. Keeps the error that ended it, so that a broken connection
/// is not taken for damaged data.
struct Packed<'a> {
    body: BodyReader<'a>,
    control: &'a Control,
    failure: Option<io::Error>,
}

impl Read for Packed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(PACKED_BYTES);
        // Asked for as long as nothing comes of it: the decoder itself looks at no clock.
        let read = self.control.check(false).and_then(|()| self.body.read(&mut into[..most]));
        read.map_err(|error| {
            let kind = error.kind();
            self.failure = Some(error);
            kind.into()
        })
    }
}

fn read_all(
    mut from: impl Read,
    expected: usize,
    max_bytes: u64,
    control: &Control,
) -> Result<Vec<u8>, Failure> {
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
        match from.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(amount) => filled += amount,
            Err(error) => return Err(Failure::Exchange(error.into())),
        }
        if filled as u64 > max_bytes {
            return Err(Failure::TooLarge);
        }
        // Unpacking goes on for long without a look at the socket.
        control.check(false).map_err(|error| Failure::Exchange(error.into()))?;
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Reads off a small body that nobody wants, without waiting for it, to keep the connection. In few
/// reads: one that comes in crumbs (tiny chunks in much framing) is not worth it.
fn drain(body: &mut Body, control: &Control) {
    const READS: usize = 32;

    control.set_patient(false);
    let mut rest = [0; 1024];
    let mut reader = body.with_config().limit(DRAINED_BYTES).reader();
    for _ in 0..READS {
        if !matches!(reader.read(&mut rest), Ok(1..)) {
            break;
        }
    }
    control.set_patient(true);
}

/// Whether the end of the body is told in exactly one way. If not, what follows it on the
/// connection may be a part of it (RFC 9112, section 6.3), and the connection is not used again.
pub fn is_framed_once(headers: &HeaderMap) -> bool {
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (lengths, codings.next(), codings.next()) {
        (0 | 1, None, _) => true,
        (0, Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        _ => false,
    }
}

/// Whether the service has said that it ends the connection after this answer, or tells the end of
/// the body by nothing else.
pub fn is_last(response: &Response<Body>) -> bool {
    let headers = response.headers();
    let says = |option: &str| {
        let values = headers.get_all(CONNECTION).iter();
        let mut options = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
        options.any(|it| it.trim_ascii().eq_ignore_ascii_case(option.as_bytes()))
    };
    let is_open_ended =
        !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING);
    says("close") || is_open_ended || response.version() == Version::HTTP_10 && !says("keep-alive")
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_framed_once_by_one_length_or_by_chunks_alone() {
        for (headers, once) in [
            (&[][..], true),
            (&[("content-length", "5")][..], true),
            (&[("transfer-encoding", "Chunked")][..], true),
            (&[("transfer-encoding", "gzip, chunked")][..], false),
            (&[("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")][..], false),
            (&[("content-length", "5"), ("transfer-encoding", "chunked")][..], false),
            (&[("content-length", "5"), ("content-length", "5")][..], false),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(HeaderName::from_static(name), value.parse().unwrap());
            }
            assert_eq!(is_framed_once(&map), once, "{headers:?}");
        }
    }
}
