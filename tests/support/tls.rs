//! An authority of our own, certificates of every kind, and a TLS server that does as it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::{
    HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
};

/// The name that certificates are for, and whatever else they are for.
pub const NAMES: [&str; 2] = ["service.test", "127.0.0.1"];

/// An authority, with its certificate in a file of its own that goes when it does.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    pub fn new() -> Authority {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let name = format!("exp-ca-{}-{number}.pem", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, certificate.pem()).unwrap();
        Authority { issuer: Issuer::new(params, key), file }
    }

    pub fn file(&self) -> &str {
        self.file.to_str().unwrap()
    }

    /// Asks clients for a certificate of this authority, and may go on without one.
    pub fn asks_clients(&self, goes_on: bool) -> Arc<dyn ClientCertVerifier> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.file).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        if goes_on { builder.allow_unauthenticated() } else { builder }.build().unwrap()
    }

    /// An authority below this one, by its own or any other name, and its certificate.
    pub fn certify_authority(&self, name: &str) -> (Authority, CertificateDer<'static>) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let file = PathBuf::new(); // nobody is to trust it by itself
        (Authority { issuer: Issuer::new(params, key), file }, certificate)
    }

    /// A good certificate for these names.
    pub fn certify(&self, names: &[&str]) -> Identity {
        self.certify_as(names, |_| {})
    }

    /// A certificate with something changed.
    pub fn certify_as(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Identity {
        let (mut params, key) = (leaf(names), KeyPair::generate().unwrap());
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { certificate, key, chain: Vec::new() }
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn leaf(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, "service of a test");
    params
}

/// What a server shows, and its key.
pub struct Identity {
    certificate: Certificate,
    key: KeyPair,
    /// What it shows beside its own certificate.
    chain: Vec<CertificateDer<'static>>,
}

impl Identity {
    /// Shows these certificates, too.
    pub fn with_chain(mut self, chain: Vec<CertificateDer<'static>>) -> Identity {
        self.chain = chain;
        self
    }

    /// As a file of authorities has it.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Signed by nobody but itself.
    pub fn self_signed(names: &[&str]) -> Identity {
        Identity::self_signed_as(names, |_| {})
    }

    /// The same with something changed.
    pub fn self_signed_as(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let (mut params, key) = (leaf(names), KeyPair::generate().unwrap());
        change(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        Identity { certificate, key, chain: Vec::new() }
    }

    pub fn server_config(&self, versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
        self.server_config_with(versions, Arc::new(NoClientAuth))
    }

    pub fn server_config_with(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        clients: Arc<dyn ClientCertVerifier>,
    ) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = [&[self.certificate.der().clone()], &self.chain[..]].concat();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .unwrap();
        config.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
        config
    }
}

pub fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2019, 1, 1);
    params.not_after = date_time_ymd(2020, 1, 1);
}

pub fn not_yet_valid(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2900, 1, 1);
    params.not_after = date_time_ymd(2901, 1, 1);
}

pub type Stream = StreamOwned<ServerConnection, TcpStream>;

/// What a server does with a connection after the handshake; the number counts from 1.
pub type Conduct = dyn Fn(usize, Stream) + Send + Sync;

/// What the server has seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub accepted: AtomicUsize,
    pub full: AtomicUsize,
    pub resumed: AtomicUsize,
    pub names: Mutex<Vec<Option<String>>>,
    pub versions: Mutex<Vec<rustls::ProtocolVersion>>,
    pub requests: AtomicUsize,
}

pub struct TlsServer {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
}

impl TlsServer {
    /// Answers every request as the service does, as far as these tests look.
    pub fn start(config: ServerConfig) -> TlsServer {
        let seen = Arc::new(Seen::default());
        let counted = Arc::clone(&seen);
        TlsServer::run(config, seen, Arc::new(move |_, stream| serve(&counted, stream)))
    }

    pub fn start_with(
        config: ServerConfig,
        conduct: impl Fn(usize, Stream) + Send + Sync + 'static,
    ) -> TlsServer {
        TlsServer::run(config, Arc::default(), Arc::new(conduct))
    }

    fn run(config: ServerConfig, seen: Arc<Seen>, conduct: Arc<Conduct>) -> TlsServer {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (config, counted) = (Arc::new(config), Arc::clone(&seen));
        // Ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let number = counted.accepted.fetch_add(1, Ordering::SeqCst) + 1;
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let (counted, conduct) = (Arc::clone(&counted), Arc::clone(&conduct));
                thread::spawn(move || {
                    if let Some(stream) = shake_hands(connection, stream, &counted) {
                        conduct(number, stream);
                    }
                });
            }
        });
        TlsServer { address, seen }
    }

    /// Its URL by address.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Its URL by the name of its certificate.
    pub fn named_url(&self) -> String {
        super::named_url("https", NAMES[0], self.address)
    }
}

fn shake_hands(
    mut connection: ServerConnection,
    mut stream: TcpStream,
    seen: &Seen,
) -> Option<Stream> {
    stream.set_nodelay(true).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).ok()?;
    }
    match connection.handshake_kind() {
        Some(HandshakeKind::Resumed) => seen.resumed.fetch_add(1, Ordering::SeqCst),
        _ => seen.full.fetch_add(1, Ordering::SeqCst),
    };
    seen.names.lock().unwrap().push(connection.server_name().map(str::to_owned));
    seen.versions.lock().unwrap().extend(connection.protocol_version());
    Some(StreamOwned::new(connection, stream))
}

/// Answers each request until the client leaves.
pub fn serve(seen: &Seen, mut stream: Stream) {
    while let Some(body) = read_request(&mut stream) {
        seen.requests.fetch_add(1, Ordering::SeqCst);
        if stream.write_all(answer(&body).as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads one request; its body, or `None` if the client has left.
pub fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut input = BufReader::with_capacity(1, stream); // takes nothing of the next one
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if input.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    String::from_utf8(body).ok()
}

/// An answer that echoes the user of this body, as the mock of the service does.
pub fn answer(body: &str) -> String {
    let user = body.split("\"user_id\":\"").nth(1).and_then(|it| it.split('"').next()).unwrap();
    let json = format!("{{\"demo-nonce\":{{\"key\":\"on\",\"payload\":\"{user}\"}}}}");
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{json}",
        json.len()
    )
}

/// A server that sends the first `records` of its TLS records and one byte of the next, and then
/// holds still until the client leaves.
pub fn stalling_after(config: Arc<ServerConfig>, records: usize) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            thread::spawn(move || {
                let mut left = records;
                while connection.read_tls(&mut stream).unwrap_or(0) > 0 {
                    connection.process_new_packets().unwrap();
                    let mut flight = Vec::new();
                    while connection.wants_write() {
                        connection.write_tls(&mut flight).unwrap();
                    }
                    let allowed = first_records(&flight, &mut left);
                    if stream.write_all(allowed).is_err() || allowed.len() < flight.len() {
                        break;
                    }
                }
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    address
}

/// As many whole records as are left to send, and a byte more.
fn first_records<'a>(flight: &'a [u8], left: &mut usize) -> &'a [u8] {
    let mut end = 0;
    while *left > 0 && end < flight.len() {
        end += 5 + usize::from(u16::from_be_bytes([flight[end + 3], flight[end + 4]]));
        *left -= 1;
    }
    &flight[..flight.len().min(end + 1)]
}

/// A server that plays its part until its turn has come to send tickets of sessions without end.
pub fn flooding_with_tickets(
    identity: &Identity,
    across: bool,
    before: impl Fn(&mut Stream) -> bool + Send + Sync + 'static,
) -> TlsServer {
    let mut config = identity.server_config(&[&rustls::version::TLS13]);
    config.enable_secret_extraction = true;
    TlsServer::start_with(config, move |_, mut stream| {
        if before(&mut stream) {
            flood_with_tickets(stream, across);
        }
    })
}

/// As many to a record as fit, and as fast as they are taken. `across`: one that does not fit goes on in
/// the next record.
fn flood_with_tickets(stream: Stream, across: bool) {
    use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    // Lifetime, what is added to the age, and nonce, ticket and extensions, as short as they may be.
    const TICKET: &[u8] = b"\x04\0\0\x0e\0\0\x0e\x10\0\0\0\0\0\0\x01t\0\0";
    let plain_bytes = if across { 1 << 14 } else { (1 << 14) / TICKET.len() * TICKET.len() };
    let StreamOwned { conn, mut sock } = stream;
    let (mut number, secrets) = conn.dangerous_extract_secrets().unwrap().tx;
    let rustls::ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else {
        panic!("what both sides like best")
    };
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap());
    let tickets = TICKET.repeat(plain_bytes);
    let mut at = 0;
    loop {
        let mut nonce: [u8; 12] = iv.as_ref().try_into().unwrap();
        for (byte, of_number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        number += 1;
        let mut record = tickets[at..at + plain_bytes].to_vec();
        at = (at + plain_bytes) % TICKET.len();
        record.push(22); // a message of the handshake
        let [high, low] = ((record.len() + AES_256_GCM.tag_len()) as u16).to_be_bytes();
        let head = [0x17, 3, 3, high, low];
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce, Aad::from(head), &mut record).unwrap();
        if sock.write_all(&[&head[..], &record].concat()).is_err() {
            return;
        }
    }
}

/// A certificate of the authority, behind which stand so many of one name that lead nowhere.
pub fn with_others_of_one_name(authority: &Authority, others: usize) -> Identity {
    Identity { chain: many_of_one_name(others).1, ..authority.certify(&NAMES) }
}

/// A certificate that each of so many of one name may have issued, as each may have each of them: the
/// search for an issuer has no end (RUSTSEC-2023-0053).
pub fn of_one_name(certificates: usize) -> Identity {
    let (issuer, chain) = many_of_one_name(certificates);
    let (params, key) = (leaf(&NAMES), KeyPair::generate().unwrap());
    let certificate = params.signed_by(&key, &issuer).unwrap();
    Identity { certificate, key, chain }
}

fn many_of_one_name(
    certificates: usize,
) -> (Issuer<'static, KeyPair>, Vec<CertificateDer<'static>>) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "one name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::new(params.clone(), KeyPair::generate().unwrap());
    let certify = |_| {
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &issuer).unwrap().der().clone()
    };
    let chain = (0..certificates).map(certify).collect();
    (issuer, chain)
}
