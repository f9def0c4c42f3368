//! Handshakes and what is encrypted; and proxies, through which it goes.

use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mock_service::{MockService, Script, Step};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use serde_json::json;

use crate::fault::{Dice, Fault, Gets, INVALID, NETWORK, Scene, TLS};
use crate::relay::{Passing, Relay};
use crate::support::proxy::{Conduct, Proxy};
use crate::support::tls::{
    Authority, Identity, NAMES, TlsServer, expired, not_yet_valid, read_request, stalling_after,
};

const KIND: &str = "TLS";
const CUT: Gets = Gets::Either(&["EXP_ERR_NETWORK", "EXP_ERR_INVALID_RESPONSE"]);
const STALLS: Gets = Gets::TimesOut("tls");

/// A good server behind a relay, which leads elsewhere once the fault begins.
fn relayed(
    versions: Versions,
    astray: impl Fn(&Authority, SocketAddr) -> (SocketAddr, Passing),
) -> Scene {
    let authority = Authority::new();
    let good = TlsServer::start(authority.certify(&NAMES).server_config(versions)).address;
    let relay = Relay::to(good);
    let (server, passing) = astray(&authority, good);
    let lifted = relay.clone();
    Scene::at(format!("https://{}", relay.address()))
        .with(json!({"ca_file": authority.file(), "connection_idle_timeout_millis": 0}))
        .fails(move |_| relay.lead(server, passing))
        .lifts(move |_| lifted.lead(good, Passing::All))
        .keeping(authority) // whose file is read when a client is made
}

type Versions = &'static [&'static SupportedProtocolVersion];
static BOTH: Versions = &[&TLS12, &TLS13];
static ONLY_12: Versions = &[&TLS12];
static ONLY_13: Versions = &[&TLS13];

fn passing(
    name: &str,
    gets: Gets,
    versions: Versions,
    passing: impl Fn(&mut Dice) -> Passing + Send + Sync + 'static,
) -> Fault {
    Fault::new(KIND, name, gets, move |dice| {
        let passing = passing(dice);
        relayed(versions, |_, good| (good, passing))
    })
}

fn certified(name: &str, identity: fn(&Authority) -> Identity) -> Fault {
    Fault::new(KIND, name, TLS, move |_| {
        relayed(BOTH, |authority, _| {
            let config = identity(authority).server_config(BOTH);
            (TlsServer::start(config).address, Passing::All)
        })
    })
}

/// The server says this, once, instead of TLS.
fn says(name: &str, gets: Gets, bytes: &'static [u8]) -> Fault {
    Fault::new(KIND, name, gets, move |_| {
        let opening = vec![Step::WaitMillis(20), Step::send(bytes.to_vec()), Step::Close];
        let service = MockService::start(Script::service().connections([opening]));
        relayed(BOTH, |_, _| (service.address(), Passing::All)).keeping(service)
    })
}

fn stalls(version: &'static str, versions: Versions, records: usize) -> Fault {
    let name = format!("{version}: silence within record {} of the server", records + 1);
    Fault::new(KIND, name, STALLS, move |_| {
        relayed(versions, |authority, _| {
            let config = Arc::new(authority.certify(&NAMES).server_config(versions));
            (stalling_after(config, records), Passing::All)
        })
    })
}

pub fn handshakes() -> Vec<Fault> {
    let mut faults = vec![passing("silence", STALLS, BOTH, |_| Passing::StopAfter(0))];
    faults.extend((0..3).map(|records| stalls("TLS 1.3", ONLY_13, records)));
    faults.extend((0..4).map(|records| stalls("TLS 1.2", ONLY_12, records)));
    faults.extend([
        passing("closed at once", NETWORK, BOTH, |_| Passing::CloseAfter(0)),
        passing("TLS 1.3: cut within the handshake, drawn where", NETWORK, ONLY_13, |dice| {
            Passing::CloseAfter(1 + dice.below(200))
        })
        .drawn(),
        passing("TLS 1.2: cut within the handshake, drawn where", NETWORK, ONLY_12, |dice| {
            Passing::CloseAfter(1 + dice.below(90)) // also where a session is resumed
        })
        .drawn(),
        passing("TLS 1.3: one bit is another, drawn which", TLS, ONLY_13, |dice| {
            Passing::SpoilAfter(140 + dice.below(60))
        })
        .drawn(),
        says("an alert", TLS, b"\x15\x03\x03\x00\x02\x02\x28"),
        says("HTTP where TLS is spoken", TLS, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        certified("an expired certificate", |it| it.certify_as(&NAMES, expired)),
        certified("a certificate of tomorrow", |it| it.certify_as(&NAMES, not_yet_valid)),
        certified("a certificate of another name", |it| it.certify(&["another.test"])),
        certified("a certificate of an unknown authority", |_| Authority::new().certify(&NAMES)),
        certified("a certificate that it signed itself", |_| Identity::self_signed(&NAMES)),
        encrypted("cut within the body, without a farewell", CUT, true),
        encrypted("a farewell within the body", INVALID, false),
    ]);
    faults.into_iter().map(|fault| fault.bound_millis(400)).collect()
}

/// A server that ends within the body, with close_notify or without.
fn encrypted(name: &str, gets: Gets, is_cut: bool) -> Fault {
    Fault::new(KIND, name, gets, move |_| {
        relayed(BOTH, |authority, _| {
            let config = authority.certify(&NAMES).server_config(BOTH);
            let server = TlsServer::start_with(config, move |_, mut stream| {
                if read_request(&mut stream).is_none() {
                    return;
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{");
                if !is_cut {
                    stream.conn.send_close_notify();
                }
                let _ = stream.flush();
            });
            (server.address, Passing::All)
        })
    })
}

pub fn proxies() -> Vec<Fault> {
    const KIND: &str = "Proxy";
    let conduct = |name: &str, gets: Gets, conduct: Conduct| {
        Fault::new(KIND, name, gets, move |_| {
            let service = MockService::start(Script::service());
            let proxy = Rc::new(Proxy::start(Conduct::Tunnel));
            let (failing, conduct) = (Rc::clone(&proxy), conduct.clone());
            Scene::at(service.url())
                .with(json!({"proxy_url": proxy.url(), "connection_idle_timeout_millis": 0}))
                .fails(move |_| failing.behave(conduct.clone()))
                .lifts(move |_| proxy.behave(Conduct::Tunnel))
                .keeping(service)
        })
    };
    let drip = Conduct::Drip("HTTP/1.1 200 OK\r\nX-Long: x", Duration::from_millis(10));
    vec![
        conduct("it accepts and says nothing", Gets::TimesOut("connect"), Conduct::Silence),
        conduct("its answer drips", Gets::TimesOut("connect"), drip),
        conduct("it wants other credentials", NETWORK, Conduct::Answer("HTTP/1.1 407 No\r\n\r\n")),
        conduct("it cannot reach the service", NETWORK, Conduct::Answer("HTTP/1.1 502 No\r\n\r\n")),
        conduct("it speaks no HTTP", INVALID, Conduct::Answer("rubbish\r\n\r\n")),
        conduct("it ends without an answer", NETWORK, Conduct::Answer("")),
    ]
}
