//! A network of our own, in namespaces: packets that vanish, and a name server that does as it is told.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::namespaces;

const INSIDE: &str = "FAULTS_INSIDE";

/// What is in none of the sets passes. Elements are added and taken away by the faults.
const RULES: &str = "
table inet faults {
    set dropped { type inet_service; }
    set six { type inet_service; }
    set refused { type inet_service; }
    set unreachable { type inet_service; }
    set lossy { type inet_service; }
    set dead { type ipv4_addr . inet_service; }
    set cut { type inet_service . inet_service; }
    chain out {
        type filter hook output priority 0;
        tcp dport @dropped drop
        tcp sport . tcp dport @cut drop
        tcp dport . tcp sport @cut drop
        tcp sport @dropped drop
        meta nfproto ipv6 tcp dport @six drop
        ip daddr . tcp dport @dead drop
        tcp dport @refused reject with tcp reset
        tcp dport @unreachable reject with icmpx type host-unreachable
        tcp dport @lossy numgen random mod 100 < 10 drop
        tcp sport @lossy numgen random mod 100 < 10 drop
    }
}";

/// Sockets hold little here, so that a server which does not read is felt by a request of a megabyte.
/// In a container the kernel's settings may only be read until they are mounted anew.
const SET_UP: &str = "ip link set lo up && \
    { test -w /proc/sys/net/ipv4/tcp_rmem || mount -o remount,bind,rw /proc/sys; } && \
    for i in 1 2 3 4 5 6 7 8; do ip address add 2001:db8::$i/128 dev lo nodad; done && \
    echo 4096 65536 131072 >/proc/sys/net/ipv4/tcp_rmem && \
    echo 4096 65536 131072 >/proc/sys/net/ipv4/tcp_wmem && \
    mount --bind \"$FAULTS_RESOLV\" /etc/resolv.conf && \
    nft \"$FAULTS_RULES\" && exec \"$0\"";

pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this program again in namespaces of its own. Where they are not allowed it fails: it would
/// prove nothing.
pub fn enter() -> ExitCode {
    let mut unshare = match namespaces::unshare() {
        Ok(unshare) => unshare,
        Err(refused) => {
            eprintln!("{refused}");
            return ExitCode::FAILURE;
        }
    };
    let resolv = std::env::temp_dir().join(format!("exp-faults-resolv-{}", std::process::id()));
    std::fs::write(&resolv, "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n").unwrap();
    let status = unshare
        .args(["sh", "-c", SET_UP])
        .arg(std::env::current_exe().expect("this program is a file"))
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .env("FAULTS_RESOLV", &resolv)
        .env("FAULTS_RULES", RULES)
        .status();
    let _ = std::fs::remove_file(resolv);
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("unshare: {error}: install util-linux");
            ExitCode::FAILURE
        }
    }
}

/// Changes what happens to packets: `("add", "dropped", "20001")`.
pub fn packets(verb: &str, set: &str, element: impl std::fmt::Display) {
    let element = format!("{{ {element} }}");
    let output =
        Command::new("nft").args([verb, "element", "inet", "faults", set, &element]).output();
    let output = output.expect("nft runs");
    let is_lifted = verb == "delete" && !output.status.success();
    assert!(output.status.success() || is_lifted, "{}", String::from_utf8_lossy(&output.stderr));
}

/// The ports of connections to this one, as the kernel has them.
pub fn connected_to(port: u16) -> Vec<u16> {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").expect("there is /proc");
    let of = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    let from = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_one = fields[3] == ESTABLISHED && of(fields[2]) == Some(port);
        is_one.then(|| of(fields[1])).flatten()
    };
    table.lines().skip(1).filter_map(from).collect()
}

/// A port that nobody else is given: below those that the system gives.
pub fn port() -> u16 {
    static LAST: AtomicU16 = AtomicU16::new(20_000);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// An address that no network here has.
pub fn unused_address() -> Ipv4Addr {
    static LAST: AtomicU16 = AtomicU16::new(0);
    Ipv4Addr::new(10, 9, 9, LAST.fetch_add(1, Ordering::Relaxed) as u8)
}

/// What the name server says of a name.
#[derive(Clone, Debug)]
pub enum Says {
    Addresses(Vec<IpAddr>),
    /// The same, after so long.
    Later(Duration, Vec<IpAddr>),
    /// A code of failure: 2 that it failed, 3 that there is no such name, 5 that it refuses.
    Code(u8),
    /// The first, and the next time the other, and so on.
    InTurn(Vec<Says>),
    /// What is no message.
    Rubbish,
    /// Nothing, until it says something else of the name; then that.
    Nothing,
}

pub struct World {
    names: Arc<Names>,
}

struct Names {
    socket: UdpSocket,
    sayings: Mutex<HashMap<String, Says>>,
    unanswered: Mutex<Vec<(Vec<u8>, SocketAddr)>>,
}

impl World {
    pub fn begin() -> World {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 53)).expect("the port of names is free");
        let names =
            Arc::new(Names { socket, sayings: Mutex::default(), unanswered: Mutex::default() });
        let serving = Arc::clone(&names);
        // Ends with the process.
        thread::spawn(move || serving.serve());
        World { names }
    }

    /// A name of its own.
    pub fn name(&self) -> Name {
        static LAST: AtomicU16 = AtomicU16::new(0);
        let text = format!("name-{}.test", LAST.fetch_add(1, Ordering::Relaxed));
        Name { text, names: Arc::clone(&self.names) }
    }

    pub fn share(&self) -> World {
        World { names: Arc::clone(&self.names) }
    }
}

#[derive(Clone)]
pub struct Name {
    text: String,
    names: Arc<Names>,
}

impl Name {
    pub fn url(&self, port: u16) -> String {
        format!("http://{}:{port}", self.text)
    }

    pub fn is(&self, says: Says) {
        self.names.sayings.lock().unwrap().insert(self.text.clone(), says);
        let unanswered = std::mem::take(&mut *self.names.unanswered.lock().unwrap());
        for (query, from) in unanswered {
            self.names.answer(query, from);
        }
    }
}

impl Names {
    fn serve(self: Arc<Self>) {
        let mut query = [0; 512];
        while let Ok((length, from)) = self.socket.recv_from(&mut query) {
            self.answer(query[..length].to_vec(), from);
        }
    }

    fn answer(&self, query: Vec<u8>, from: SocketAddr) {
        let says = self.says(&name_of(&query), wants(&query));
        let send = |says: &Says| self.socket.send_to(&message(&query, says), from).map(drop);
        match says {
            Says::Nothing => self.unanswered.lock().unwrap().push((query, from)),
            Says::Later(wait, addresses) => {
                let socket = self.socket.try_clone().expect("a descriptor is left");
                thread::spawn(move || {
                    thread::sleep(wait);
                    let _ = socket.send_to(&message(&query, &Says::Addresses(addresses)), from);
                });
            }
            says => send(&says).expect("a message can be sent"),
        }
    }

    /// Its turn is that of the question for IPv4 addresses, which comes once for each lookup.
    fn says(&self, name: &str, wants: u8) -> Says {
        let mut sayings = self.sayings.lock().unwrap();
        match sayings.get_mut(name) {
            None => Says::Code(3),
            Some(Says::InTurn(turns)) => {
                if wants == V4 {
                    turns.rotate_left(1);
                }
                turns.last().cloned().expect("there is a turn")
            }
            Some(says) => says.clone(),
        }
    }
}

const V4: u8 = 1;
const V6: u8 = 28;

fn question_bytes(query: &[u8]) -> usize {
    query[12..].iter().position(|&byte| byte == 0).expect("a name ends") + 5
}

fn wants(query: &[u8]) -> u8 {
    query[12 + question_bytes(query) - 3]
}

fn name_of(query: &[u8]) -> String {
    let mut rest = &query[12..];
    let mut labels = Vec::new();
    while rest[0] > 0 {
        let (label, next) = rest[1..].split_at(rest[0].into());
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        rest = next;
    }
    labels.join(".")
}

fn message(query: &[u8], says: &Says) -> Vec<u8> {
    let question = &query[12..12 + question_bytes(query)];
    let (code, addresses) = match says {
        Says::Addresses(addresses) => (0, addresses.as_slice()),
        Says::Code(code) => (*code, [].as_slice()),
        _ => return b"rubbish".to_vec(),
    };
    let wanted: Vec<_> =
        addresses.iter().filter(|it| it.is_ipv4() == (wants(query) == V4)).copied().collect();
    let wanted = if [V4, V6].contains(&wants(query)) { wanted } else { Vec::new() };
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80 | code, 0, 1, 0, wanted.len() as u8, 0, 0, 0, 0]);
    answer.extend(question);
    for address in wanted {
        let bytes = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        answer.extend([0xc0, 12, 0, wants(query), 0, 1, 0, 0, 0, 0, 0, bytes.len() as u8]);
        answer.extend(bytes);
    }
    answer
}
