//! Listeners at which the network itself fails.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;

/// A listener that never sees a packet: each is dropped on arrival, so that the client's first one
/// is repeated by its system and never answered, as behind a firewall.
pub struct Dropping(TcpListener);

impl Dropping {
    /// On this address; port 0 is any.
    pub fn listen(address: SocketAddr) -> Dropping {
        let listener = TcpListener::bind(address).unwrap();
        // A program for the kernel's packet filter: keep 0 bytes of whatever comes.
        let mut nothing = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };
        let program = libc::sock_fprog { len: 1, filter: &raw mut nothing };
        set_option(&listener, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program);
        Dropping(listener)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

/// A server that accepts and reads nothing, behind a path of small packets. On loopback packets are
/// so large that the buffers of the two sockets would take megabytes.
pub struct Narrow(TcpListener);

impl Narrow {
    pub fn listen() -> Narrow {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (packet_bytes, buffer_bytes): (libc::c_int, libc::c_int) = (536, 16 << 10);
        set_option(&listener, libc::IPPROTO_TCP, libc::TCP_MAXSEG, packet_bytes);
        set_option(&listener, libc::SOL_SOCKET, libc::SO_RCVBUF, buffer_bytes);
        Narrow(listener)
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }
}

fn set_option<T>(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: T) {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value outlives the call, and has the type that the option is documented with.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size)
    };
    assert_eq!(result, 0, "the kernel takes option {name} of a socket");
}

/// How many connections of this machine to `port` have been begun and not been answered.
pub fn connecting_to(port: u16) -> usize {
    const SYN_SENT: &str = "02";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let to_port = format!(":{port:04X}");
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 3 && row[2].ends_with(&to_port) && row[3] == SYN_SENT).count()
}

/// The descriptors that this process has open.
pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1 // the one that reads them
}
