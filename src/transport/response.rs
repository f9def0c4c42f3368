//! The answer: its status, whether its framing leaves doubts, and its body within the limit.

use std::io::Read;

use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, RETRY_AFTER, TRANSFER_ENCODING,
};
use ureq::Body;

use super::control::Control;
use super::failure::Failure;
use crate::metrics::CloseReason;
use crate::retry;
use crate::timings::Phase;

/// A body of another status than 200 up to this size is read off, if it is there already.
const DRAINED_BYTES: u64 = 8 << 10;

/// What is reserved for a body that does not say how long it is.
const FIRST_BYTES: usize = 4 << 10;

/// Reads the answer to its end. Whatever is left of it when this fails goes with its connection.
pub fn read(
    response: http::Response<Body>,
    max_bytes: u64,
    control: &Control,
) -> Result<Vec<u8>, Failure> {
    control.enter(Phase::Body);
    control.set_close_reason(CloseReason::Peer); // unless something goes wrong from here on
    let (parts, mut body) = response.into_parts();
    let status = parts.status.as_u16();
    if status != 200 {
        drain(&mut body, control);
        let date = text(&parts.headers, DATE);
        let retry_after =
            text(&parts.headers, RETRY_AFTER).and_then(|value| retry::retry_after(value, date));
        return Err(Failure::Status { code: status, retry_after });
    }
    if let Some(encoding) = text(&parts.headers, CONTENT_ENCODING)
        && !encoding.eq_ignore_ascii_case("identity")
    {
        return Err(Failure::Answer("it is encoded in another way than the gzip that was offered"));
    }
    let length = text(&parts.headers, CONTENT_LENGTH).and_then(|value| value.parse().ok());
    let result = read_body(&mut body, length, max_bytes);
    if result.is_err() {
        control.set_close_reason(CloseReason::Failed);
    }
    result
}

fn read_body(body: &mut Body, length: Option<u64>, max_bytes: u64) -> Result<Vec<u8>, Failure> {
    if length.is_some_and(|length| length > max_bytes) {
        return Err(Failure::TooLarge);
    }
    // One more than the body has, so that its end is seen without growing.
    let expected = length.map_or(FIRST_BYTES, |length| length as usize + 1);
    let mut reader = body.with_config().limit(max_bytes).reader();
    let mut bytes = Vec::new();
    let mut filled = 0;
    loop {
        if filled == bytes.len() {
            let more = if filled == 0 { expected } else { filled };
            bytes.try_reserve(more).map_err(|_| Failure::OutOfMemory)?;
            bytes.resize(filled + more, 0);
        }
        match reader.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(amount) => filled += amount,
            Err(error) => return Err(Failure::Exchange(error.into())),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Reads off a small body that nobody wants, without waiting for it, to keep the connection.
fn drain(body: &mut Body, control: &Control) {
    control.set_patient(false);
    let mut rest = [0; 1024];
    let mut reader = body.with_config().limit(DRAINED_BYTES).reader();
    while let Ok(1..) = reader.read(&mut rest) {}
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
