//! Whom the client trusts, and what it shakes hands with.

use std::fs;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, KeyProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SigningKey;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::error::Error;

/// The built-in roots (Mozilla's, as compiled in), or those of `ca_file` in their place.
pub fn config(ca_file: Option<&str>) -> Result<TlsConfig, Error> {
    let roots = match ca_file {
        None => RootCerts::WebPki,
        Some(path) => RootCerts::from(read_authorities(path)?),
    };
    Ok(TlsConfig::builder()
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(Arc::new(provider()))
        .build())
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

fn read_authorities(path: &str) -> Result<Vec<Certificate<'static>>, Error> {
    let refuse = |why: String| Error::invalid_argument(format!("ca_file {path}: {why}"));
    let pem = fs::read(path).map_err(|error| refuse(format!("it cannot be read: {error}")))?;
    let mut authorities = Vec::new();
    for item in parse_pem(&pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => authorities.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(refuse(format!("it is no PEM file: {error}"))),
        }
    }
    if authorities.is_empty() {
        return Err(refuse("it holds no certificate".to_owned()));
    }
    // Those that cannot be parsed are passed over later; without any other, nobody is trusted.
    let ders = authorities.iter().map(|authority| CertificateDer::from(authority.der()));
    let (usable, _) = RootCertStore::empty().add_parsable_certificates(ders);
    if usable == 0 {
        return Err(refuse("none of its certificates can be used".to_owned()));
    }
    Ok(authorities)
}
