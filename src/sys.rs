//! The seam to the operating system: every system call that std does not offer, behind safe
//! functions. Linux is what is compiled and run; another system gets its own version of this file.
//!
//! With `ffi/`, the only place where `unsafe` is allowed.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock;
use crate::deadline::Deadline;

/// Begins to connect without waiting: the socket is writable once that is over, and
/// `TcpStream::take_error` then tells how it went.
pub fn begin_connect(address: &SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket(2) takes no pointers.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: `fd` was just made and belongs to nobody else.
    let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
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

fn connect<T>(fd: RawFd, address: &T) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `address` is one of the sockaddr structures, alive for the call, `length` its size.
    check(unsafe { libc::connect(fd, ptr::from_ref(address).cast(), length) }).map(drop)
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
        let left = deadline.remaining(clock::now());
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

/// How many descriptors one wait takes: sockets that race to connect, and a signal to stop.
pub const MAX_SOURCES: usize = 8;

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        // A wait beyond the type's range is as good as one without end.
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(duration.subsec_nanos() as i32),
    }
}

/// A descriptor that one thread raises and another waits for among its sockets (eventfd(2)).
#[derive(Debug)]
pub struct Signal(OwnedFd);

impl Signal {
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd(2) takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: `fd` was just made and belongs to nobody else.
        Ok(Signal(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable, until `clear`.
    pub fn raise(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the buffer holds the eight bytes that are named. The result says nothing new: a
        // full counter is readable already.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    pub fn clear(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the buffer has room for the eight bytes that are asked for. An error means that
        // the counter was zero.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsRawFd for Signal {
    fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }
}

/// The descriptors that a forked child must close its copies of, readable without a lock.
#[derive(Debug)]
pub struct Descriptors(Box<[AtomicI32]>);

impl Descriptors {
    const FREE: RawFd = -1;

    pub fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Descriptors((0..capacity).map(|_| AtomicI32::new(Self::FREE)).collect()))
    }

    /// Enters a descriptor until the guard is dropped, which must be before it is closed: a child
    /// forked in between keeps its copy, which is better than closing what has the number by then.
    pub fn enlist(self: &Arc<Self>, fd: &impl AsRawFd) -> Enlisted {
        let fd = fd.as_raw_fd();
        let claim = |cell: &AtomicI32| {
            cell.compare_exchange(Self::FREE, fd, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        Enlisted { cell: self.0.iter().position(claim), table: Arc::clone(self) }
    }

    /// In a forked child: closes its copies, and nothing else. No shutdown(2): the connections are
    /// the parent's.
    pub fn close_copies(&self) {
        for cell in &self.0 {
            let fd = cell.swap(Self::FREE, Ordering::SeqCst);
            if fd != Self::FREE {
                // SAFETY: the number was in the table when the process was forked, so it was open
                // then, and in the child it belongs to state that is never used again.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// A descriptor's place in the table.
#[derive(Debug)]
pub struct Enlisted {
    table: Arc<Descriptors>,
    cell: Option<usize>,
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        if let Some(cell) = self.cell {
            self.table.0[cell].store(Descriptors::FREE, Ordering::SeqCst);
        }
    }
}

/// Starts a thread that is no nuisance to its host: every signal blocked, so that none is ever
/// handled on it; named; its stack not left to an environment variable.
pub fn spawn(
    name: &str,
    stack_bytes: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let builder = thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes);
    with_signals_blocked(|| builder.spawn(run))
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

/// A number that differs between a process and every process forked from it, by any means.
///
/// It lives in a page that the kernel wipes in the child (MADV_WIPEONFORK, Linux 4.14), so asking
/// costs a load and no system call. Where that is not to be had, `pthread_atfork` wipes it, which
/// does not see a raw clone(2).
pub fn fork_generation() -> u64 {
    let page = fork_page();
    match page.load(Ordering::Acquire) {
        0 => {
            let next = LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
            match page.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => next,
                Err(current) => current,
            }
        }
        generation => generation,
    }
}

static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);

/// Where the generation stands; NULL until first asked for. Not a `OnceLock`: a child that is
/// forked in the middle of its initialisation would wait for a thread that it does not have.
static FORK_PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Stands in for the page where the kernel cannot wipe one.
static UNWIPED: AtomicU64 = AtomicU64::new(0);

fn fork_page() -> &'static AtomicU64 {
    let mut page = FORK_PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let made = wiped_page().unwrap_or_else(wiped_by_handler);
        let first =
            FORK_PAGE.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        // Two threads that come first together leave one page unused, for good.
        page = first.map_or_else(|winner| winner, |_| made);
    }
    // SAFETY: non-NULL values of FORK_PAGE are UNWIPED or a mapped, aligned page of zeroes that is
    // never unmapped; an AtomicU64 is valid for any bits.
    unsafe { &*page }
}

fn wiped_page() -> Option<*mut AtomicU64> {
    const BYTES: usize = mem::size_of::<AtomicU64>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
    let page = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the range is the mapping made above.
    let wiped = unsafe { libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) } == 0;
    wiped.then_some(page.cast())
}

fn wiped_by_handler() -> *mut AtomicU64 {
    extern "C" fn wipe() {
        UNWIPED.store(0, Ordering::Release);
    }
    // SAFETY: the handler only stores to a static, and the library is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
    (&raw const UNWIPED).cast_mut()
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
    fn a_wait_for_nothing_ends_at_its_deadline_and_not_before() {
        let signal = Signal::new().unwrap();
        let until = clock::now() + Duration::from_millis(5);
        let ready = wait_ready(&[(signal.fd(), Interest::Readable)], Deadline::at(until));
        assert_eq!(ready.unwrap(), 0);
        assert!(clock::now() >= until);
    }

    #[test]
    fn a_raised_signal_is_ready_until_it_is_cleared() {
        let signal = Signal::new().unwrap();
        let ready = |signal: &Signal| {
            wait_ready(&[(signal.fd(), Interest::Readable)], Deadline::at(clock::now())).unwrap()
        };
        signal.raise();
        signal.raise();
        assert_eq!(ready(&signal), 1);
        signal.clear();
        assert_eq!(ready(&signal), 0);
    }

    #[test]
    fn a_descriptor_is_listed_until_its_guard_is_dropped() {
        let table = Descriptors::new(2);
        let signal = Signal::new().unwrap();
        let (first, second) = (table.enlist(&signal), table.enlist(&signal));
        assert_eq!(table.enlist(&signal).cell, None, "a full table lists no more");
        drop(first);
        let listed: Vec<_> = table.0.iter().map(|cell| cell.load(Ordering::SeqCst)).collect();
        assert_eq!(listed, [Descriptors::FREE, signal.fd()]);
        drop(second);
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

    #[test]
    fn a_forked_child_sees_another_generation_and_the_parent_its_own() {
        let before = fork_generation();
        assert_eq!(before, fork_generation());
        // SAFETY: the child calls nothing but atomics and _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let differs = fork_generation() != before && fork_generation() != 0;
            // SAFETY: leaves at once, without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!differs)) };
        }
        let mut status = 0;
        // SAFETY: `child` is a child of this process and `status` is alive.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(fork_generation(), before);
    }
}
