//! Sockets that never block, and names' addresses.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::check;

/// Begins to connect without waiting: the socket is writable once that is over, and
/// `TcpStream::take_error` then tells how it went.
pub fn begin_connect(address: &SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket(2) takes no pointers.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: `fd` was just made and belongs to nobody else.
    let stream = TcpStream::from(above_stdio(unsafe { OwnedFd::from_raw_fd(fd) })?);
    let fd = stream.as_raw_fd();
    stream.set_nodelay(true)?;
    let connected = match address {
        SocketAddr::V4(v4) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            connect(fd, &address)
        }
        SocketAddr::V6(v6) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            connect(fd, &address)
        }
    };
    match connected {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(stream),
    }
}

/// The same descriptor under a number that is not standard input, output or error: where the host has
/// closed those, what it prints goes to whatever has their numbers.
pub(super) fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    let least = libc::STDERR_FILENO + 1;
    if fd.as_raw_fd() >= least {
        return Ok(fd);
    }
    // SAFETY: fcntl(2) takes no pointer with this command.
    let moved = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) })?;
    // SAFETY: `moved` was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(moved) })
}

fn connect<T>(fd: RawFd, address: &T) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `address` is one of the sockaddr structures, alive for the call, `length` its size.
    check(unsafe { libc::connect(fd, ptr::from_ref(address).cast(), length) }).map(drop)
}

/// Receives what is there, without waiting whatever the socket's mode: that belongs to all copies of the
/// socket, those of other processes too.
pub fn receive(socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    let (fd, room) = (socket.as_raw_fd(), into.as_mut_ptr().cast());
    // SAFETY: `into` has as much room as its length says.
    amount(unsafe { libc::recv(fd, room, into.len(), libc::MSG_DONTWAIT) })
}

/// Sends as much as the system takes, without waiting, and raises no SIGPIPE.
pub fn send(socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `bytes` has as many bytes as its length says.
    amount(unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

fn amount(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Looks a host's name up; blocks as long as it likes.
pub type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Asks the operating system for the addresses of a name (getaddrinfo(3)).
pub fn look_up(host: &str) -> io::Result<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in (host, 0).to_socket_addrs()? {
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::{Interest, wait_ready};
    use super::*;
    use crate::rules::deadline::Deadline;

    #[test]
    fn a_connection_begins_without_waiting_and_reports_when_it_is_made() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = begin_connect(&listener.local_addr().unwrap()).unwrap();
        let sources = [(stream.as_raw_fd(), Interest::Writable)];
        assert_eq!(wait_ready(&sources, Deadline::NEVER).unwrap(), 1);
        assert!(stream.take_error().unwrap().is_none());
        assert!(stream.peer_addr().is_ok());
    }

    #[test]
    fn a_socket_that_somebody_has_made_block_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let error = receive(&stream, &mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let error = loop {
            if let Err(error) = send(&stream, &[0; 1 << 16]) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
