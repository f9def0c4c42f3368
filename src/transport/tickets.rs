//! Keeps a server from making work without end by messages that TLS allows: of each record of TLS 1.3,
//! rustls is given no more messages of a handshake than a good server puts into one. Each session ticket
//! costs it keys and a copy of the server's certificates, and a record has room for nine hundred.

use std::ops::Range;

use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{
    CipherSuiteCommon, ConnectionTrafficSecrets, ContentType, Error, SupportedCipherSuite,
    Tls13CipherSuite,
};

/// The flight of a server has five (RFC 8446, section 2), and tickets come by ones and twos.
const MOST_OF_A_RECORD: usize = 8;

/// Type and length (RFC 8446, section 4).
const HEADER_BYTES: usize = 4;

/// The same cipher suites, those of TLS 1.3 with the limit. They are never freed: call it once.
pub fn limited(suites: &[SupportedCipherSuite]) -> Vec<SupportedCipherSuite> {
    let limited = |suite: &SupportedCipherSuite| match suite {
        SupportedCipherSuite::Tls13(suite) => {
            let aead = Box::leak(Box::new(LimitedAead(suite.aead_alg)));
            let common = CipherSuiteCommon { ..suite.common };
            let suite = Tls13CipherSuite { common, aead_alg: aead, quic: None, ..**suite };
            SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))
        }
        other => *other,
    };
    suites.iter().map(limited).collect()
}

struct LimitedAead(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for LimitedAead {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        self.0.encrypter(key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        let inner = self.0.decrypter(key, iv);
        Box::new(LimitedDecrypter { inner, messages: Messages::default() })
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }
}

struct LimitedDecrypter {
    inner: Box<dyn MessageDecrypter>,
    messages: Messages,
}

impl MessageDecrypter for LimitedDecrypter {
    fn decrypt<'a>(
        &mut self,
        message: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let mut plain = self.inner.decrypt(message, sequence)?;
        if plain.typ == ContentType::Handshake {
            let kept = self.messages.keep(plain.payload);
            if kept.is_empty() {
                plain.typ = ContentType::ApplicationData; // which may be empty, as handshakes may not
            }
            plain.payload = &plain.payload[kept];
        }
        Ok(plain)
    }
}

/// Where in the messages of a handshake the records have got to, which may split them anywhere.
#[derive(Default)]
struct Messages {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    left: usize,
    is_dropped: bool,
}

impl Messages {
    /// What to keep of the next record: one piece, since all behind the first that is dropped is, too.
    fn keep(&mut self, record: &[u8]) -> Range<usize> {
        let (mut kept, mut begun, mut at) = (0..0, 0, 0);
        while at < record.len() {
            if self.header_bytes == 0 {
                self.is_dropped = begun >= MOST_OF_A_RECORD;
                begun += 1;
            }
            let from = at;
            at += self.pass(&record[at..]);
            if !self.is_dropped {
                kept = if kept.is_empty() { from..at } else { kept.start..at };
            }
        }
        kept
    }

    /// Passes over the rest of the message, or as much of it as is there.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let of_header = bytes.len().min(HEADER_BYTES - self.header_bytes);
        if of_header > 0 {
            self.header[self.header_bytes..][..of_header].copy_from_slice(&bytes[..of_header]);
            self.header_bytes += of_header;
            let [_, high, middle, low] = self.header;
            self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
        }
        if self.header_bytes < HEADER_BYTES {
            return of_header;
        }
        let of_body = self.left.min(bytes.len() - of_header);
        self.left -= of_body;
        if self.left == 0 {
            self.header_bytes = 0;
        }
        of_header + of_body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKET: &[u8] = b"\x04\0\0\x03abc";

    /// What is kept of messages that are split into records of that size.
    fn kept(messages: &[u8], record_bytes: usize) -> Vec<u8> {
        let mut state = Messages::default();
        let mut kept = Vec::new();
        for record in messages.chunks(record_bytes) {
            kept.extend_from_slice(&record[state.keep(record)]);
        }
        kept
    }

    #[test]
    fn what_a_good_server_sends_is_kept_however_it_is_split() {
        let large = [&b"\x0b\0\x10\0"[..], &[7; 4096], TICKET, b"\x18\0\0\0"].concat();
        let flight = TICKET.repeat(MOST_OF_A_RECORD);
        for size in 1..=large.len() {
            assert!(kept(&large, size) == large, "in records of {size}");
        }
        for size in 1..=flight.len() {
            assert_eq!(kept(&flight, size), flight, "in records of {size}");
        }
    }

    #[test]
    fn of_a_record_with_many_messages_the_first_are_kept_whole() {
        let flood = TICKET.repeat(1000);
        for size in 1..=flood.len() {
            let kept = kept(&flood, size);
            let records = flood.len().div_ceil(size);
            assert!(kept.len() <= records * (MOST_OF_A_RECORD + 1) * TICKET.len());
            assert_eq!(kept, TICKET.repeat(kept.len() / TICKET.len())[..], "in records of {size}");
        }
    }
}
