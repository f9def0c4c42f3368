//! Whom the client trusts, and what it shakes hands with.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, KeyProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature,
    verify_tls13_signature,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, PrivateKeyDer, ServerName,
    SignatureVerificationAlgorithm, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::sign::SigningKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::exchange_state::Bounds;
use crate::clock;
use crate::error::Error;
use crate::timings::Phase;

/// The built-in roots (Mozilla's, as compiled in), or those of `ca_file` in their place.
pub fn config(ca_file: Option<&str>) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(provider());
    let algorithms = provider.signature_verification_algorithms;
    let verifier = match ca_file {
        None => Verifier {
            roots: RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
            named: Vec::new(),
            algorithms,
        },
        Some(path) => {
            let (roots, named) = read_authorities(path)?;
            Verifier { roots, named, algorithms }
        }
    };
    let config = ClientConfig::builder_with_details(provider, Arc::new(WallClock))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid_argument(format!("TLS cannot be set up: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The same for a forked child, which must not touch the lock of its parent's kept sessions.
pub fn in_child(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.resumption = Resumption::default();
    Arc::new(config)
}

/// All of ring but what signs, which only a client with a certificate of its own would need: 65 kB.
fn provider() -> CryptoProvider {
    CryptoProvider { key_provider: &NoKeys, ..ring::default_provider() }
}

#[derive(Debug)]
struct NoKeys;

impl KeyProvider for NoKeys {
    fn load_private_key(
        &self,
        _: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        Err(rustls::Error::General("no client certificates are used".to_owned()))
    }
}

/// Before 1970 there is no time that certificates could be held against: a failure, not a panic. So
/// it is where the bounds are reached: each ticket of a session asks for the time, and a record holds
/// hundreds of them.
#[derive(Debug)]
struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        if is_over() { None } else { unix_time(SystemTime::now()) }
    }
}

fn unix_time(now: SystemTime) -> Option<UnixTime> {
    now.duration_since(SystemTime::UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
}

fn read_authorities(path: &str) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), Error> {
    let refuse = |why: String| Error::invalid_argument(format!("ca_file {path}: {why}"));
    let pem = fs::read(path).map_err(|error| refuse(format!("it cannot be read: {error}")))?;
    // Editors put it there, and the first certificate would not be seen behind it.
    let pem = pem.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&pem);
    let named = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, pem::Error>>()
        .map_err(|error| refuse(format!("it is no PEM file: {error}")))?;
    if named.is_empty() {
        return Err(refuse("it holds no certificate".to_owned()));
    }
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(named.iter().cloned());
    if usable == 0 {
        return Err(refuse("none of its certificates can be used".to_owned()));
    }
    Ok((roots, named))
}

/// webpki's verification, bounded in what it searches, with a look at the clock before each signature.
#[derive(Debug)]
struct Verifier {
    roots: RootCertStore,
    /// What `ca_file` names: such a certificate is trusted as itself, too.
    named: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Certificates between the server's own and a root. Chains in use have up to four; a server may send
/// some more than it needs.
const MAX_INTERMEDIATES: usize = 16;

/// Certificates of one name, which are tried one after the other: cross-signed ones. More of them
/// would multiply at each step of the search (RUSTSEC-2023-0053).
const MAX_OF_ONE_NAME: usize = 2;

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let bounded: Vec<_> = self.algorithms.all.iter().map(|inner| Bounded(*inner)).collect();
        let algorithms: Vec<&dyn SignatureVerificationAlgorithm> =
            bounded.iter().map(|algorithm| algorithm as _).collect();
        let searched = worth_searching(intermediates);
        let chain = verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            &searched,
            now,
            &algorithms,
        );
        match chain {
            Err(error) if !(self.named.contains(end_entity) && is_no_matter_of_time(&error)) => {
                return Err(error);
            }
            _ => {}
        }
        verify_server_name(&certificate, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Whether a certificate that `ca_file` names was refused only for how it was issued: not by an
/// authority, or as one itself. webpki looks at its dates and its purpose before that.
fn is_no_matter_of_time(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
        }
        _ => false,
    }
}

/// The intermediates without repetitions, and no more of them than can be searched at once.
fn worth_searching<'a>(intermediates: &'a [CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
    let mut of_name: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut kept: Vec<CertificateDer<'a>> = Vec::new();
    for certificate in intermediates {
        if kept.len() == MAX_INTERMEDIATES {
            break;
        }
        let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { continue };
        let same = of_name.entry(parsed.subject().to_vec()).or_default();
        if *same < MAX_OF_ONE_NAME && !kept.contains(certificate) {
            *same += 1;
            kept.push(CertificateDer::from(certificate.as_ref()));
        }
    }
    kept
}

thread_local! {
    /// The bounds of the exchange whose records this thread works on.
    static BOUNDS: RefCell<Option<Bounds>> = const { RefCell::new(None) };
}

/// Works on records: no signature is verified and no ticket taken once `bounds` are reached.
pub fn within<R>(bounds: &Bounds, step: impl FnOnce() -> R) -> R {
    let outer = BOUNDS.replace(Some(bounds.clone()));
    let result = step();
    BOUNDS.replace(outer);
    result
}

/// Whether the bounds are reached. They are away meanwhile: the hook may fetch, too.
#[cfg_attr(feature = "count-gaps", track_caller)]
fn is_over() -> bool {
    let Some(mut bounds) = BOUNDS.take() else { return false };
    let ended = bounds.reached(Phase::Tls, clock::now(), false);
    BOUNDS.set(Some(bounds));
    ended.is_some()
}

/// An algorithm that looks at the clock before it begins.
#[derive(Debug)]
struct Bounded(&'static dyn SignatureVerificationAlgorithm);

impl SignatureVerificationAlgorithm for Bounded {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        // Whoever asked for the step finds out by itself that its time is over.
        if is_over() {
            Err(InvalidSignature)
        } else {
            self.0.verify_signature(public_key, message, signature)
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.0.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0.signature_alg_id()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_before_1970_tells_no_time_and_does_not_panic() {
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(unix_time(before), None);
        let after = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        assert_eq!(unix_time(after).map(|time| time.as_secs()), Some(7));
    }
}
