//! Handshakes and what is encrypted; and proxies, through which it goes.

use std::cell::RefCell;
use std::io::Write;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mock_service::{MockService, Script, Step};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use serde_json::json;

use crate::fault::{Dice, Fault, Gets, INVALID, NETWORK, Scene, TLS, http};
use crate::relay::{Passing, Relay};
use crate::support::proxy::{Conduct, Proxy};
use crate::support::tls::{
    Authority, Identity, NAMES, TlsServer, answer, expired, flooding_with_tickets, not_yet_valid,
    of_one_name, read_request, stalling_after, with_others_of_one_name,
};
use crate::world::{Says, World};

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
            // Behind the head of a record, whose length could become one that is waited for.
            Passing::SpoilAfter(150 + dice.below(60))
        })
        .drawn(),
        says("an alert", TLS, b"\x15\x03\x03\x00\x02\x02\x28"),
        says("HTTP where TLS is spoken", TLS, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        certified("an expired certificate", |it| it.certify_as(&NAMES, expired)),
        certified("a certificate of tomorrow", |it| it.certify_as(&NAMES, not_yet_valid)),
        certified("a certificate of another name", |it| it.certify(&["another.test"])),
        certified("a certificate of an unknown authority", |_| Authority::new().certify(&NAMES)),
        certified("a certificate that it signed itself", |_| Identity::self_signed(&NAMES)),
        certified("16 certificates of one name, none of which leads on", |_| of_one_name(16)),
        certified("150 certificates of one name, none of which leads on", |_| of_one_name(150)),
        // More than a handshake may have in it.
        certified("400 certificates of one name, none of which leads on", |_| of_one_name(400)),
        beside_150_of_no_use(),
        tickets_at_once(),
        tickets_later(),
        encrypted("cut within the body, without a farewell", CUT, true),
        encrypted("a farewell within the body", INVALID, false),
    ]);
    faults.into_iter().map(|fault| fault.bound_millis(400)).collect()
}

/// The service's own certificate needs none of them.
fn beside_150_of_no_use() -> Fault {
    let name = "a good certificate beside 150 of one name, which it does not need";
    Fault::new(KIND, name, Gets::Own, |_| {
        relayed(BOTH, |authority, _| {
            let config = with_others_of_one_name(authority, 150).server_config(BOTH);
            (TlsServer::start(config).address, Passing::All)
        })
    })
}

fn tickets_at_once() -> Fault {
    let name = "TLS 1.3: tickets without end, after the handshake";
    Fault::new(KIND, name, Gets::TimesOut("first_byte"), |_| {
        relayed(ONLY_13, |authority, _| {
            let server = flooding_with_tickets(&authority.certify(&NAMES), false, |_| true);
            (server.address, Passing::All)
        })
    })
}

/// Behind each answer, so that the next request is not made over that connection.
fn tickets_later() -> Fault {
    let name = "TLS 1.3: tickets without end, on a kept connection";
    Fault::new(KIND, name, Gets::Own, |_| {
        let authority = Authority::new();
        let server = flooding_with_tickets(&authority.certify(&NAMES), false, |stream| {
            let body = read_request(stream);
            body.is_some_and(|body| stream.write_all(answer(&body).as_bytes()).is_ok())
        });
        Scene::at(server.url()).with(json!({"ca_file": authority.file()})).keeping(authority)
    })
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

const PROXY: &str = "Proxy";

/// A proxy that behaves like this once the fault begins, on the way to a service of HTTP, which it is to
/// forward to, or of TLS, to which it is to make a tunnel.
fn proxied(name: &str, gets: Gets, is_tunnel: bool, conduct: Conduct) -> Fault {
    Fault::new(PROXY, name, gets, move |_| {
        let proxy = Rc::new(Proxy::start(Conduct::Tunnel));
        let (failing, conduct) = (Rc::clone(&proxy), conduct.clone());
        let scene = through(&proxy.url(), is_tunnel);
        // Where the fetch ends at the proxy, it says so.
        let scene = if is_tunnel { scene.names(proxy.url().replace("http://", "")) } else { scene };
        scene
            .fails(move |_| failing.behave(conduct.clone()))
            .lifts(move |_| proxy.behave(Conduct::Tunnel))
    })
}

fn through(proxy_url: &str, is_tunnel: bool) -> Scene {
    let settings = json!({"proxy_url": proxy_url, "connection_idle_timeout_millis": 0});
    if !is_tunnel {
        let service = MockService::start(Script::service());
        return Scene::at(service.url()).with(settings).keeping(service);
    }
    let authority = Authority::new();
    let server = TlsServer::start(authority.certify(&NAMES).server_config(BOTH));
    let mut settings = settings;
    settings["ca_file"] = authority.file().into();
    Scene::at(server.url()).with(settings).keeping(authority)
}

pub fn proxies(world: &World) -> Vec<Fault> {
    let forwards = |name, gets, conduct| proxied(name, gets, false, conduct);
    let tunnels = |name, gets, conduct| proxied(name, gets, true, conduct);
    let drip = Conduct::Drip("HTTP/1.1 200 OK\r\nX-Long: x", Duration::from_millis(10));
    let many = |status: &str| -> &'static str {
        let fields = (0..25).map(|i| format!("X-{i}: y\r\n")).collect::<String>();
        format!("HTTP/1.1 {status}\r\n{fields}\r\n").leak()
    };
    // Tried again it would come too late.
    let retries = json!({"fetch_retries": 2, "fetch_retry_backoff_min_millis": 5000});
    let mut faults = vec![
        forwards("silence", Gets::TimesOut("first_byte"), Conduct::Silence),
        forwards("its answer drips", Gets::TimesOut("first_byte"), drip.clone()),
        forwards("407", NETWORK, Conduct::Answer("HTTP/1.1 407 No\r\n\r\n")),
        forwards("502", http(502), Conduct::Answer("HTTP/1.1 502 No\r\n\r\n")),
        forwards("no HTTP", INVALID, Conduct::Answer("rubbish\r\n\r\n")),
        forwards("an end without an answer", NETWORK, Conduct::Answer("")),
        forwards("tunnels to port 443 alone", Gets::Own, Conduct::TunnelTo443),
        tunnels("tunnel: silence", Gets::TimesOut("connect"), Conduct::Silence),
        tunnels("tunnel: the answer drips", Gets::TimesOut("connect"), drip),
        tunnels("tunnel: 407", NETWORK, Conduct::Answer("HTTP/1.1 407 No\r\n\r\n")),
        tunnels("tunnel: 407 with 25 headers, and retries", NETWORK, {
            Conduct::Answer(many("407 No"))
        })
        .settings(retries),
        tunnels("tunnel: 200 with 25 headers", Gets::Own, Conduct::TunnelAfter(many("200 OK"))),
        tunnels("tunnel: 502", NETWORK, Conduct::Answer("HTTP/1.1 502 No\r\n\r\n")),
        tunnels("tunnel: no HTTP", NETWORK, Conduct::Answer("rubbish\r\n\r\n")),
        tunnels("tunnel: an end without an answer", NETWORK, Conduct::Answer("")),
        nobody_listens(),
        unknown(world),
    ];
    for (what, list) in [
        ("a comma", "a.test,127.0.0.1"),
        ("spaces", "a.test , 127.0.0.1"),
        ("a newline", "a.test\n127.0.0.1"),
        ("a tab", "a.test\t127.0.0.1"),
        ("a semicolon", "a.test;127.0.0.1"),
    ] {
        let name = format!("a list of exceptions with {what}, and a proxy that is not there");
        let environment = [("HTTP_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", list)];
        let direct = |_: &mut Dice| {
            let service = MockService::start(Script::service());
            Scene::at(service.url()).keeping(service)
        };
        let fault = Fault::new(PROXY, name, Gets::Own, direct).in_an_own_process(&environment);
        faults.push(fault.settings(json!({"use_environment_proxy": true})));
    }
    faults
}

/// At the proxy's port, until the fault ends.
fn nobody_listens() -> Fault {
    Fault::new(PROXY, "nobody listens", NETWORK, |_| {
        let at = SocketAddr::from(([127, 0, 0, 1], crate::world::port()));
        let (proxy, relay) = (Proxy::start(Conduct::Tunnel), RefCell::new(None));
        let server = proxy.url().replace("http://", "").parse().expect("an address");
        through(&format!("http://{at}"), true).names(at.to_string()).keeping(proxy).lifts(
            move |_| {
                relay.borrow_mut().get_or_insert_with(|| Relay::at(at, server));
            },
        )
    })
    .on_a_new_connection()
}

fn unknown(world: &World) -> Fault {
    let world = world.share();
    Fault::new(PROXY, "its name is unknown", NETWORK, move |_| {
        let (proxy, name) = (Proxy::start(Conduct::Tunnel), world.name());
        let port = proxy.url().rsplit(':').next().and_then(|it| it.parse().ok()).expect("a port");
        let url = name.url(port);
        name.is(Says::Code(3));
        through(&url, true).names(url.replace("http://", "")).keeping(proxy).lifts(move |_| {
            name.is(Says::Addresses(vec![std::net::Ipv4Addr::LOCALHOST.into()]));
        })
    })
    .on_a_new_connection()
}
