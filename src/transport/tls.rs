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

use super::exchange_state::{Bounds, Ended, ExchangeState};
use crate::machine::clock;
use crate::machine::logger::{Level, Logger};
use crate::machine::sync::Mutex;
use crate::rules::error::Error;
use crate::rules::timings::Phase;

/// What the handshakes of a client are made with, and the sessions that they may resume.
pub struct Tls {
    /// Holds no session that was ever kept: what a forked child begins with, which must not touch the
    /// lock of its parent's.
    unused: Arc<ClientConfig>,
    current: Mutex<Current>,
}

struct Current {
    config: Arc<ClientConfig>,
    /// Whether a handshake was made with it, so that the next may resume a session.
    was_used: bool,
}

impl Tls {
    /// The built-in roots (Mozilla's, as compiled in), or those of `ca_file` in their place.
    pub fn new(ca_file: Option<&str>, logger: &Logger) -> Result<Self, Error> {
        config(ca_file, logger).map(Tls::over)
    }

    pub fn in_child(&self) -> Self {
        Tls::over(Arc::clone(&self.unused))
    }

    fn over(unused: Arc<ClientConfig>) -> Self {
        let current = Current { config: without_sessions(&unused), was_used: false };
        Tls { unused, current: Mutex::new(current) }
    }

    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.current.lock().config)
    }

    /// A handshake was made with this configuration.
    pub fn succeeded(&self, with: &Arc<ClientConfig>) {
        let mut current = self.current.lock();
        current.was_used |= Arc::ptr_eq(&current.config, with);
    }

    /// A handshake failed with this configuration. It may have been for a session that the server
    /// cannot resume and does not pass over, as it should; so none of them is offered again, and the
    /// next handshake is a whole one. True if it may go better.
    pub fn failed(&self, with: &Arc<ClientConfig>) -> bool {
        let mut current = self.current.lock();
        if !Arc::ptr_eq(&current.config, with) {
            return true; // somebody else has just found out
        }
        let was_used = current.was_used;
        if was_used {
            *current = Current { config: without_sessions(&self.unused), was_used: false };
        }
        was_used
    }
}

fn without_sessions(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.resumption = Resumption::default();
    Arc::new(config)
}

fn config(ca_file: Option<&str>, logger: &Logger) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(provider());
    let algorithms = provider.signature_verification_algorithms;
    let verifier = match ca_file {
        None => Verifier {
            roots: RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
            named: Vec::new(),
            algorithms,
        },
        Some(path) => {
            let (roots, named) = read_authorities(path, logger)?;
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

fn read_authorities(
    path: &str,
    logger: &Logger,
) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), Error> {
    let refuse = |why: String| Error::invalid_argument(format!("ca_file {path} {why}"));
    let pem = fs::read(path).map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let pem = plain_pem(&pem);
    let named = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, pem::Error>>()
        .map_err(|error| refuse(format!("is not a PEM file: {error}")))?;
    // Whoever wrote it there wants it trusted; what the parser passed over must not go unsaid.
    let begun = begun_certificates(&pem);
    if begun > named.len() {
        return Err(refuse(format!(
            "has {begun} certificates, of which only {} can be read; each needs lines of its own, from \
             -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----",
            named.len()
        )));
    }
    if named.is_empty() {
        return Err(refuse("contains no certificate".to_owned()));
    }
    let mut roots = RootCertStore::empty();
    let (usable, unusable) = roots.add_parsable_certificates(named.iter().cloned());
    if usable == 0 {
        return Err(refuse("contains no usable certificate".to_owned()));
    }
    if unusable > 0 {
        logger.log(Level::Warn, || {
            format!("ca_file {path}: {unusable} of its certificates cannot be used, {usable} can")
        });
    }
    Ok((roots, named))
}

/// A PEM file without the marks that editors put in front of a file, which come to stand in its middle
/// when files are put together, and with the older label that OpenSSL also reads. Behind either, a
/// certificate would not be seen.
fn plain_pem(pem: &[u8]) -> Vec<u8> {
    let without_marks = replaced(pem, b"\xef\xbb\xbf", b"");
    replaced(&without_marks, b" X509 CERTIFICATE-----", b" CERTIFICATE-----")
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    result.extend_from_slice(rest);
    result
}

/// How many certificates a PEM file says it holds, of whatever kind and wherever on their lines.
fn begun_certificates(pem: &[u8]) -> usize {
    let text = String::from_utf8_lossy(pem);
    let labels = text.split("-----BEGIN ").skip(1).filter_map(|rest| rest.split("-----").next());
    labels.filter(|label| label.ends_with("CERTIFICATE") && !label.contains('\n')).count()
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
    /// The bounds of the exchange whose records this thread works on, its phase, and why it is to stop,
    /// if that was found.
    static BOUNDS: RefCell<Option<(Bounds, Phase, Option<Ended>)>> = const { RefCell::new(None) };
}

/// Works on records: no signature is verified and no ticket taken once the bounds of `state` are reached,
/// which then has ended.
pub fn within<R>(state: &mut ExchangeState, step: impl FnOnce() -> R) -> R {
    let outer = BOUNDS.replace(Some((state.bounds().clone(), state.phase(), None)));
    let result = step();
    state.end(BOUNDS.replace(outer).and_then(|(_, _, ended)| ended));
    result
}

#[cfg_attr(feature = "count-gaps", track_caller)]
fn is_over() -> bool {
    // Out of its place meanwhile: the host's hook may make a fetch of its own, with a handshake.
    let Some((mut bounds, phase, ended)) = BOUNDS.take() else { return false };
    let ended = ended.or_else(|| bounds.reached(phase, clock::now(), false));
    BOUNDS.set(Some((bounds, phase, ended)));
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
        // Not for what is wrong with the signature: whoever asked for the step is told why it ended.
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::super::exchange_state::Shared;
    use super::*;
    use crate::machine::cancel::{HOOK_INTERVAL, Stop};
    use crate::machine::sys::Descriptors;
    use crate::rules::deadline::Deadline;

    /// As a hook that raises what a signal left behind: it says so once.
    #[test]
    fn a_hook_that_ends_a_handshake_is_heard_though_it_says_so_once_and_may_make_one_of_its_own() {
        let (asked, shared) = (Arc::new(AtomicUsize::new(0)), Shared::new(Descriptors::new(0)));
        let (count, other) = (Arc::clone(&asked), shared.clone());
        let hook = move || {
            let mut state = ExchangeState::new(&other, clock::now()).unwrap();
            assert!(!within(&mut state, is_over));
            count.fetch_add(1, Ordering::SeqCst) == 0
        };
        let mut state = ExchangeState::new(&shared, clock::now()).unwrap();
        let stop = Stop::new(None, Some(Arc::new(hook)));
        assert!(state.begin(Deadline::NEVER, stop, clock::now()).is_none());
        state.check().unwrap(); // its first turn comes after an interval
        std::thread::sleep(HOOK_INTERVAL);
        assert_eq!(within(&mut state, || [is_over(), is_over()]), [true, true]);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        state.check().unwrap_err();
        assert_eq!(state.ended(), Some(Ended::Canceled));
    }

    #[test]
    fn a_clock_before_1970_tells_no_time_and_does_not_panic() {
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(unix_time(before), None);
        let after = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        assert_eq!(unix_time(after).map(|time| time.as_secs()), Some(7));
    }
}
