//! The seam to the operating system: every system call that std does not offer, behind safe
//! functions. Linux is what is compiled and run; another system gets its own version of this room.
//!
//! Waits here are measured by `Instant::now` and not by `crate::machine::clock`: the kernel knows no simulated
//! time, and `clock` itself is built on this room.
//!
//! Sockets, poll(2) and threads are here; `fork.rs` has what a forked child must know, `wake.rs` what
//! wakes threads. With `ffi/`, the only place where `unsafe` is allowed.
#![allow(unsafe_code)]

mod fork;
mod wake;

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

pub use self::fork::{Descriptors, Enlisted, Ours, fork_generation};
pub use self::wake::{Latch, LatchGuard, Signal, futex_wait, futex_wake, keeping_errno};
use crate::rules::deadline::Deadline;

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
fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
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

/// Since the machine was started, the time included in which it slept, where that is known.
pub fn boot_time() -> Duration {
    time_of(libc::CLOCK_BOOTTIME).unwrap_or_else(monotonic_time)
}

/// Since the machine was started, without the time in which it slept.
pub fn monotonic_time() -> Duration {
    time_of(libc::CLOCK_MONOTONIC).unwrap_or_default()
}

fn time_of(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is alive for the call.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) }).ok()?;
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// What a descriptor is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    Readable,
    Writable,
}

/// Waits until one of `sources` is ready (or failed, or hung up), or until `deadline`.
///
/// Bit i of the result is set when source i is ready; 0 when the deadline passed. A signal ends
/// the wait as `io::ErrorKind::Interrupted`, so that the caller can ask the host's hook.
pub fn wait_ready(sources: &[(RawFd, Interest)], deadline: Deadline) -> io::Result<u32> {
    let mut polled = [libc::pollfd { fd: -1, events: 0, revents: 0 }; MAX_SOURCES];
    for (slot, &(fd, interest)) in polled.iter_mut().zip(sources) {
        slot.fd = fd;
        slot.events = match interest {
            Interest::Readable => libc::POLLIN,
            Interest::Writable => libc::POLLOUT,
        };
    }
    check(poll(&mut polled[..sources.len().min(MAX_SOURCES)], deadline))?;
    let ready = polled.iter().enumerate().filter(|(_, source)| source.revents != 0);
    Ok(ready.fold(0, |bits, (i, _)| bits | 1 << i))
}

/// poll(2) as long as whole milliseconds are left: the kernel keeps its deadline also if the process
/// is stopped meanwhile, whereas ppoll(2) goes on with what was left of its timeout when it is
/// continued. That is for what is below a millisecond.
fn poll(sources: &mut [libc::pollfd], deadline: Deadline) -> libc::c_int {
    let count = sources.len() as libc::nfds_t;
    loop {
        let left = deadline.remaining(Instant::now());
        let millis = left
            .map_or(-1, |left| libc::c_int::try_from(left.as_millis()).unwrap_or(libc::c_int::MAX));
        if millis == 0 {
            let left = left.map(timespec);
            let timeout = left.as_ref().map_or(ptr::null(), ptr::from_ref);
            // SAFETY: `sources` has `count` elements; `timeout` points to a timespec that outlives
            // the call; the signal mask is left alone.
            return unsafe { libc::ppoll(sources.as_mut_ptr(), count, timeout, ptr::null()) };
        }
        // SAFETY: `sources` has `count` elements.
        let result = unsafe { libc::poll(sources.as_mut_ptr(), count, millis) };
        if result != 0 {
            return result;
        }
    }
}

/// What this thread has had of the processor: no waits, and nothing of what others do meanwhile.
#[cfg(feature = "count-gaps")]
pub fn thread_time() -> Duration {
    // SAFETY: all zeroes is a valid timespec.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: `time` is alive for the call, which fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How many descriptors one wait takes: sockets that race to connect, and a signal to stop.
pub const MAX_SOURCES: usize = 8;

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        // A wait beyond the type's range is as good as one without end.
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(duration.subsec_nanos() as i32),
    }
}

unsafe extern "C" {
    /// libc does not declare it for Linux.
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
    /// Nor this. The time is by CLOCK_REALTIME.
    fn pthread_timedjoin_np(
        thread: libc::pthread_t,
        result: *mut *mut libc::c_void,
        until: *const libc::timespec,
    ) -> libc::c_int;
}

const CANCEL_DISABLE: libc::c_int = 1;

fn set_cancel_state(state: libc::c_int) -> libc::c_int {
    let mut old = CANCEL_DISABLE;
    // SAFETY: `old` is alive for the call, which fails for no state that it told itself.
    unsafe { pthread_setcancelstate(state, &raw mut old) };
    old
}

/// Runs something that pthread_cancel(3) does not end half-way: it unwinds, and not through Rust. A
/// cancellation acts afterwards, at the host's next cancellation point. Costs no system call.
pub fn uncanceled<R>(run: impl FnOnce() -> R) -> R {
    let before = set_cancel_state(CANCEL_DISABLE);
    let result = run();
    set_cancel_state(before);
    result
}

/// The thread goes on uncanceled, whatever the host's code has just done to its state.
pub fn stay_uncanceled() {
    set_cancel_state(CANCEL_DISABLE);
}

/// Starts a thread that is no nuisance to its host: every signal blocked, so that none is ever
/// handled on it; not to be canceled; named; its stack not left to an environment variable.
pub fn spawn(
    name: &str,
    stack_bytes: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let builder = thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes);
    with_signals_blocked(|| {
        builder.spawn(|| {
            stay_uncanceled();
            run();
        })
    })
}

/// Waits for a thread to be gone, the destructors of its thread-locals included. Gives it back if
/// `until` comes first.
pub fn join_until(thread: JoinHandle<()>, until: Deadline) -> Result<(), JoinHandle<()>> {
    /// The clock that the system waits by can be set, so it is not left alone with a long wait.
    const AT_ONCE: Duration = Duration::from_millis(100);
    loop {
        let left = until.remaining(Instant::now());
        let wall = SystemTime::now() + left.unwrap_or(AT_ONCE).min(AT_ONCE);
        let wall = timespec(wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        let id = thread.as_pthread_t();
        // SAFETY: the handle says that the thread was neither joined nor detached; `wall` is alive.
        if unsafe { pthread_timedjoin_np(id, ptr::null_mut(), &raw const wall) } == 0 {
            let _joined = thread.into_pthread_t(); // so that it is not detached as well
            return Ok(());
        }
        if left == Some(Duration::ZERO) {
            return Err(thread);
        }
    }
}

/// A new thread starts with the mask of the one that makes it, so that mask is closed meanwhile.
fn with_signals_blocked<R>(run: impl FnOnce() -> R) -> R {
    // SAFETY: all zeroes is a valid sigset_t, and the calls below fill both before they are read.
    let (mut all, mut old): (libc::sigset_t, libc::sigset_t) = unsafe { mem::zeroed() };
    // SAFETY: both sets are alive and of the right type; the call cannot fail with SIG_SETMASK.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
    }
    let result = run();
    // SAFETY: `old` was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, ptr::null_mut()) };
    result
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

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

    #[test]
    fn a_wait_for_nothing_ends_at_its_deadline_and_not_before() {
        let signal = Signal::new().unwrap();
        let until = Instant::now() + Duration::from_millis(5);
        let ready = wait_ready(&[(signal.fd(), Interest::Readable)], Deadline::at(until));
        assert_eq!(ready.unwrap(), 0);
        assert!(Instant::now() >= until);
    }

    #[test]
    fn a_thread_is_waited_for_until_it_is_gone_or_the_time_is_over() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let wait = move || {
            let _ = ended.recv();
        };
        let thread = spawn("exp-test", 1 << 20, wait).unwrap();
        let began = Instant::now();
        let thread = join_until(thread, Deadline::at(began + Duration::from_millis(5)));
        let thread = thread.expect_err("it is still there");
        assert!(Instant::now() >= began + Duration::from_millis(5));
        drop(end);
        join_until(thread, Deadline::NEVER).expect("it is gone");
    }

    #[test]
    fn a_thread_of_ours_has_every_signal_blocked_and_its_maker_keeps_its_own_mask() {
        fn blocked(signal: libc::c_int) -> bool {
            // SAFETY: the set is alive and filled by the call before it is read.
            unsafe {
                let mut mask: libc::sigset_t = mem::zeroed();
                libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), &raw mut mask);
                libc::sigismember(&raw const mask, signal) == 1
            }
        }
        let inside = spawn("exp-test", 1 << 20, || {
            assert!(
                [libc::SIGINT, libc::SIGTERM, libc::SIGPIPE, libc::SIGALRM].map(blocked)
                    == [true; 4]
            );
        });
        inside.unwrap().join().unwrap();
        assert!(!blocked(libc::SIGINT));
    }
}
