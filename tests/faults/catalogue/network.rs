//! Names, and ways to addresses: as the kernel and the C library have them.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use mock_service::{Answer, MockService, Script, Step};
use serde_json::json;

use super::send;
use crate::fault::{Fault, Gets, NETWORK, Scene};
use crate::native::run;
use crate::relay::Relay;
use crate::victim::Victim;
use crate::world::{Says, World, connected_to, packets, port, unused_address};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Of this machine, too, and no nearer to it than one another: so the C library keeps their order.
const DEAD: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 9));
const ALIVE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 9, 9, 10));
const CONNECT: Gets = Gets::TimesOut("connect");

/// A name that is this machine, until the fault begins and after it has ended.
fn named(world: &World, name: &str, gets: Gets, says: Says) -> Fault {
    let world = world.share();
    Fault::new("Resolver", name, gets, move |_| {
        let (service, name) = (MockService::start(Script::service()), world.name());
        name.is(Says::Addresses(vec![HERE]));
        let (failing, says) = (name.clone(), says.clone());
        Scene::at(name.url(service.address().port()))
            .fails(move |_| failing.is(says.clone()))
            .lifts(move |_| name.is(Says::Addresses(vec![HERE])))
            .keeping(service)
    })
    // A connection that is kept needs no name.
    .on_a_new_connection()
}

pub fn resolver(world: &World) -> Vec<Fault> {
    let here = || Says::Addresses(vec![HERE]);
    let mut faults = vec![
        named(world, "no answer", Gets::TimesOut("resolve"), Says::Nothing),
        named(world, "no such name", NETWORK, Says::Code(3)),
        named(world, "the name server fails", NETWORK, Says::Code(2)),
        named(world, "the name server refuses", NETWORK, Says::Code(5)),
        named(world, "a name without addresses", NETWORK, Says::Addresses(vec![])),
        named(world, "an answer that is no message", NETWORK, Says::Rubbish),
        named(world, "an answer after 100 ms", Gets::Own, {
            Says::Later(Duration::from_millis(100), vec![HERE])
        }),
        named(world, "a name that is there every other time, and now is not", NETWORK, {
            Says::InTurn(vec![Says::Code(3), here()])
        }),
        named(world, "a name that is there every other time, and now is", Gets::Own, {
            Says::InTurn(vec![here(), Says::Code(3)])
        }),
        // Expected, and not so yet: addresses none of which serves are no reason not to ask again.
        named(world, "an address that refuses, and then the name has another", NETWORK, {
            Says::Addresses(vec![DEAD])
        }),
    ];
    faults.push(refused_everywhere(world));
    faults.push(eight_are_dead(world));
    let dead = [
        ("the first address refuses, the second serves", DEAD, ""),
        ("the first address is a black hole, the second serves", DEAD, "dead"),
        ("IPv6 is a black hole, IPv4 serves", IpAddr::V6(Ipv6Addr::LOCALHOST), "six"),
    ];
    faults.extend(dead.map(|(name, dead, set)| first_is_dead(world, name, dead, set)));
    faults
}

/// Until somebody listens at one of them.
fn refused_everywhere(world: &World) -> Fault {
    let world = world.share();
    let addresses = (1..=20).map(|i| Ipv4Addr::new(127, 9, 9, i).into());
    let says = Says::Addresses(addresses.collect());
    Fault::new("Resolver", "twenty addresses, all of which refuse", NETWORK, move |_| {
        let (service, name) = (server(port()), world.name());
        name.is(says.clone());
        let scene = Scene::at(name.url(service.address().port()));
        served_later(scene, service, Ipv4Addr::new(127, 9, 9, 7).into())
    })
    .on_a_new_connection()
}

/// Nobody listens at this address, until the fault ends.
fn served_later(scene: Scene, service: MockService, address: IpAddr) -> Scene {
    let (relay, server) = (RefCell::new(None), service.address());
    let at = SocketAddr::new(address, server.port());
    scene.keeping(service).lifts(move |_| {
        relay.borrow_mut().get_or_insert_with(|| Relay::at(at, server));
    })
}

/// Of two addresses, the one that is tried first.
fn first_is_dead(world: &World, name: &str, dead: IpAddr, set: &'static str) -> Fault {
    let world = world.share();
    Fault::new("Resolver", name, Gets::Own, move |_| {
        let (service, name) = (server(port()), world.name());
        name.is(Says::Addresses(vec![dead, ALIVE]));
        let port = service.address().port();
        let relay = Relay::at(SocketAddr::new(ALIVE, port), service.address());
        let scene = Scene::at(name.url(port)).keeping((service, relay));
        let element = match set {
            "dead" => format!("{dead} . {port}"),
            "six" => port.to_string(),
            _ => return scene, // it refuses by itself
        };
        let lifted = element.clone();
        scene
            .fails(move |_| packets("add", set, &element))
            .lifts(move |_| packets("delete", set, &lifted))
    })
    .on_a_new_connection()
}

/// All of one family, before the one that serves.
fn eight_are_dead(world: &World) -> Fault {
    let world = world.share();
    let name = "eight addresses of IPv6 are black holes, the one of IPv4 serves";
    Fault::new("Resolver", name, Gets::Own, move |_| {
        let (service, name) = (server(port()), world.name());
        let dead = (1..=8).map(|i| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, i).into());
        name.is(Says::Addresses(dead.chain([ALIVE]).collect()));
        let port = service.address().port();
        let relay = Relay::at(SocketAddr::new(ALIVE, port), service.address());
        Scene::at(name.url(port))
            .fails(move |_| packets("add", "six", port))
            .lifts(move |_| packets("delete", "six", port))
            .keeping((service, relay))
    })
    .on_a_new_connection()
    .bound_millis(500)
}

/// At the port of another address, too, a relay may come to listen, and stays: so it is no port that the
/// system gives a second time.
fn server(port: u16) -> MockService {
    MockService::start_on(port, Script::service()).expect("the port is ours")
}

pub fn connect() -> Vec<Fault> {
    vec![
        nobody_listens(),
        backlog_is_full(),
        filtered("packets vanish", CONNECT, "dropped").on_a_new_connection(),
        filtered("the connection is reset by a firewall", NETWORK, "refused").on_a_new_connection(),
        filtered("the host is unreachable, a router says", NETWORK, "unreachable")
            .on_a_new_connection(),
        no_route(),
        filtered("the path of a kept connection is cut", Gets::TimesOut("first_byte"), "dropped"),
        filtered("a firewall resets a kept connection", NETWORK, "refused"),
        filtered("every tenth packet is lost", Gets::Own, "lossy").bound_millis(5000),
        cut_within_the_body(),
        kept_are_cut("the path of eight kept connections is cut for good", CUT),
        // One timeout, and the second attempt goes over a connection that is new.
        kept_are_cut("the same, and a retry", Gets::Own)
            .settings(json!({
                "connection_pool_max_size": KEPT,
                "fetch_timeout_millis": 300,
                "fetch_retries": 1,
                "fetch_retry_timeout_millis": 300,
                "fetch_retry_backoff_min_millis": 0,
            }))
            .bound_millis(700),
    ]
}

const KIND: &str = "Connect and path";

fn nobody_listens() -> Fault {
    Fault::new(KIND, "nobody listens", NETWORK, |_| {
        let (port, service) = (port(), Rc::new(RefCell::new(None)));
        let failing = Rc::clone(&service);
        Scene::at(format!("http://127.0.0.1:{port}"))
            .fails(move |_| *failing.borrow_mut() = None)
            .lifts(move |_| {
                service.borrow_mut().get_or_insert_with(|| server(port));
            })
    })
    .on_a_new_connection()
}

fn backlog_is_full() -> Fault {
    let name = "the line of those who wait to be accepted is full";
    Fault::new(KIND, name, CONNECT, |_| {
        let port = port();
        let (line, service) = (RefCell::new(Some(full_line(port))), RefCell::new(None));
        Scene::at(format!("http://127.0.0.1:{port}")).lifts(move |_| {
            line.borrow_mut().take();
            service.borrow_mut().get_or_insert_with(|| server(port));
        })
    })
    .on_a_new_connection()
}

/// A listener that accepts nobody, and those who wait for it.
fn full_line(port: u16) -> (TcpListener, Vec<TcpStream>) {
    const NEVER: Duration = Duration::from_millis(100);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is ours");
    let address = listener.local_addr().expect("it is bound");
    // SAFETY: takes no memory. It makes the line as short as can be.
    unsafe { libc::listen(listener.as_raw_fd(), 0) };
    let waiting = std::iter::from_fn(|| TcpStream::connect_timeout(&address, NEVER).ok()).collect();
    (listener, waiting)
}

fn filtered(name: &str, gets: Gets, set: &'static str) -> Fault {
    Fault::new(KIND, name, gets, move |_| {
        let service = MockService::start(Script::service());
        let port = service.address().port();
        Scene::at(service.url())
            .fails(move |_| packets("add", set, port))
            .lifts(move |_| packets("delete", set, port))
            .keeping(service)
    })
}

/// Until the network is there.
fn no_route() -> Fault {
    Fault::new(KIND, "no route to the network", NETWORK, |_| {
        let (service, address) = (server(port()), unused_address());
        let url = format!("http://{address}:{}", service.address().port());
        let add = ["address", "replace", &format!("{address}/32"), "dev", "lo"].map(str::to_owned);
        let scene = Scene::at(url).lifts(move |_| drop(run(Command::new("ip").args(&add))));
        served_later(scene, service, address.into())
    })
    .on_a_new_connection()
}

/// Connections that are kept at once, where they are many.
pub const KEPT: usize = 8;
const CUT: Gets = Gets::TimesOut("first_byte");

/// Nobody is told, and the service itself is well: one fetch pays, and no other.
fn kept_are_cut(name: &str, gets: Gets) -> Fault {
    Fault::new(KIND, name, gets, |_| {
        // So late that all are under way at once.
        let slow = Script::answers([Answer::service().delayed(100)]);
        let service = Rc::new(MockService::start(slow));
        let (port, cut) = (service.address().port(), Rc::new(Cut::default()));
        let cutting = Rc::clone(&cut);
        Scene::at(service.url())
            .fails(move |_| {
                service.set_script(Script::service());
                cutting.cut(port);
            })
            .keeping(cut)
    })
    .settings(json!({"connection_pool_max_size": KEPT}))
    .kept(KEPT)
}

/// Connections of which no packet arrives any more, as long as this is there.
#[derive(Default)]
struct Cut(RefCell<Vec<String>>);

impl Cut {
    fn cut(&self, to: u16) {
        for from in connected_to(to) {
            let element = format!("{from} . {to}");
            packets("add", "cut", &element);
            self.0.borrow_mut().push(element);
        }
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.0.borrow().iter().for_each(|element| packets("delete", "cut", element));
    }
}

fn cut_within_the_body() -> Fault {
    Fault::new(KIND, "the path is cut within the body", Gets::TimesOut("body"), |_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{";
        let slow = [send(head), Step::WaitMillis(150), send("\"flag\":{\"key\":\"on\"}}")];
        let service = Rc::new(MockService::start(Script::service()));
        let port = service.address().port();
        let failing = Rc::clone(&service);
        Scene::at(service.url())
            .fails(move |_| failing.set_script(Script::answers([Answer::steps(slow.clone())])))
            .meanwhile(move |_: &Victim| {
                std::thread::sleep(Duration::from_millis(75));
                packets("add", "dropped", port);
            })
            .lifts(move |_| {
                service.set_script(Script::service());
                packets("delete", "dropped", port);
            })
    })
}
