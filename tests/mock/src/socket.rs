//! The few things std cannot say to a socket. The only unsafe code of this crate.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

/// The peer has sent its FIN. Reported even while bytes of it are still unread.
#[cfg(any(target_os = "linux", target_os = "android"))]
const FINISHED: i16 = libc::POLLRDHUP;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const FINISHED: i16 = libc::POLLHUP;

/// What is known of the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Nothing has happened.
    Present,
    /// It has sent a FIN, and may still be reading.
    Finished,
    /// It has sent a reset, or the connection was shut down from here.
    Gone,
}

/// Waits for the peer to leave, until then at the latest; for ever if there is no `until`. A peer
/// whose FIN is `known` leaves only by a reset.
pub(crate) fn watch(socket: &TcpStream, known: bool, until: Option<Instant>) -> io::Result<Peer> {
    let mut watched = [watched(socket, if known { 0 } else { FINISHED })];
    poll(&mut watched, until)?;
    Ok(peer(&watched[0]))
}

/// How the peers of all these connections are, at this moment.
pub(crate) fn look<'a>(sockets: impl Iterator<Item = &'a TcpStream>) -> io::Result<Vec<Peer>> {
    let settled = sockets.inspect(|socket| settle(socket));
    let mut watched: Vec<_> = settled.map(|socket| watched(socket, FINISHED)).collect();
    poll(&mut watched, Some(Instant::now()))?;
    Ok(watched.iter().map(peer).collect())
}

/// A FIN that comes while a thread of ours is inside a call on the socket is put aside until that
/// call lets go of it. To set any option is to wait for that.
fn settle(socket: &TcpStream) {
    // Fails if the peer is gone, which is seen next.
    let _ = socket.set_nodelay(true);
}

fn watched(socket: &TcpStream, events: i16) -> libc::pollfd {
    libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 }
}

fn peer(watched: &libc::pollfd) -> Peer {
    if watched.revents & (libc::POLLHUP | libc::POLLERR) != 0 {
        Peer::Gone
    } else if watched.revents != 0 {
        Peer::Finished
    } else {
        Peer::Present
    }
}

fn poll(watched: &mut [libc::pollfd], until: Option<Instant>) -> io::Result<()> {
    loop {
        let millis = until.map_or(-1, millis_from_now);
        // SAFETY: the pointer and the length are those of one slice, borrowed for the call.
        let count =
            unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, millis) };
        if count > 0 {
            return Ok(());
        }
        if count == 0 {
            // A wait longer than poll can count is made of several.
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
        } else {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Rounded up: a wait never ends before its time.
fn millis_from_now(until: Instant) -> i32 {
    let left = until.saturating_duration_since(Instant::now());
    let millis = left.as_nanos().div_ceil(1_000_000);
    i32::try_from(millis).unwrap_or(i32::MAX)
}

/// Makes closing the socket send a reset in place of a FIN.
pub(crate) fn reset_on_close(socket: &TcpStream) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the pointer and the length are those of one value, borrowed for the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as libc::socklen_t,
        )
    };
    result_of(status)
}

/// Leaves room for as few connections as the system allows to wait for `accept`.
pub(crate) fn shorten_backlog(listener: &TcpListener) -> io::Result<()> {
    // SAFETY: takes no pointer; listening again on a listening socket changes its backlog.
    result_of(unsafe { libc::listen(listener.as_raw_fd(), 0) })
}

fn result_of(status: i32) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
