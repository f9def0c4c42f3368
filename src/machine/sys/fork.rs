//! What a forked child must know: that it is one, and which descriptors it may close.

use std::mem::{self, ManuallyDrop};
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// A number that differs between a process and every process forked from it, by any means.
///
/// It lives in a page that is wiped in the child twice over: by the kernel (MADV_WIPEONFORK, Linux
/// 4.14), which also sees a raw clone(2), and by a handler of pthread_atfork(3), which also works
/// where madvise(2) answers 0 and does nothing (qemu-user, some sandboxes). Asking costs a load and
/// no system call.
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

/// Stands in for the page where none can be mapped.
static UNMAPPED: AtomicU64 = AtomicU64::new(0);

fn fork_page() -> &'static AtomicU64 {
    let mut page = FORK_PAGE.load(Ordering::Acquire);
    if page.is_null() {
        // Before anybody is told a generation. Two threads that come first together leave one page
        // unused, for good, and one handler too many, which does no harm.
        wipe_after_fork();
        let made = map_page().unwrap_or((&raw const UNMAPPED).cast_mut());
        let first =
            FORK_PAGE.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        page = first.map_or_else(|winner| winner, |_| made);
    }
    // SAFETY: non-NULL values of FORK_PAGE are UNMAPPED or a mapped, aligned page that is never
    // unmapped; an AtomicU64 is valid for any bits.
    unsafe { &*page }
}

/// A page that the kernel wipes in a child, where it can and does as it says.
fn map_page() -> Option<*mut AtomicU64> {
    const BYTES: usize = mem::size_of::<AtomicU64>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
    let page = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // What it answers does not matter: the handler wipes the page as well.
    // SAFETY: the range is the mapping made above.
    unsafe { libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) };
    Some(page.cast())
}

fn wipe_after_fork() {
    extern "C" fn wipe() {
        let page = FORK_PAGE.load(Ordering::Acquire);
        if !page.is_null() {
            // SAFETY: as in `fork_page`.
            unsafe { &*page }.store(0, Ordering::Release);
        }
    }
    // SAFETY: the handler only stores to memory that is never freed, and the library is never
    // unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(wipe)) };
}

/// Something with a descriptor that only the process that made it closes.
///
/// A forked child may have closed the number and opened something of the host's under it. So there it
/// is left open; which of a child's copies have to go is [`Descriptors`]' affair.
#[derive(Debug)]
pub struct Ours<T> {
    inner: ManuallyDrop<T>,
    generation: u64,
}

impl<T> Ours<T> {
    pub fn new(inner: T) -> Self {
        Ours { inner: ManuallyDrop::new(inner), generation: fork_generation() }
    }

    /// Whether this process is the one that made it. In any other the number may be somebody else's.
    pub fn is_here(&self) -> bool {
        self.generation == fork_generation()
    }
}

impl<T> Deref for Ours<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Drop for Ours<T> {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: it is dropped here alone, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

/// The sockets that a forked child must close its copies of, readable without a lock.
#[derive(Debug)]
pub struct Descriptors(Box<[Cell]>);

#[derive(Debug)]
struct Cell {
    fd: AtomicI32,
    /// Which socket that is. The kernel gives no other socket the same.
    cookie: AtomicU64,
}

impl Descriptors {
    const FREE: RawFd = -1;
    const CLAIMED: RawFd = -2;

    pub fn new(capacity: usize) -> Arc<Self> {
        let cell = || Cell { fd: AtomicI32::new(Self::FREE), cookie: AtomicU64::new(0) };
        Arc::new(Descriptors((0..capacity).map(|_| cell()).collect()))
    }

    /// Enters a socket until the guard is dropped, which must be before it is closed: a child forked
    /// in between keeps its copy. What cannot be told from others for certain is not entered, and a
    /// child's copy of it stays open.
    pub fn enlist(self: &Arc<Self>, socket: &impl AsRawFd) -> Enlisted {
        let fd = socket.as_raw_fd();
        let claim = |cookie| {
            let cell = self.0.iter().position(|cell| {
                let claimed = cell.fd.compare_exchange(
                    Self::FREE,
                    Self::CLAIMED,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                );
                claimed.is_ok()
            })?;
            // A child forked in between finds a cell without a number.
            self.0[cell].cookie.store(cookie, Ordering::SeqCst);
            self.0[cell].fd.store(fd, Ordering::SeqCst);
            Some(cell)
        };
        Enlisted { cell: cookie(fd).and_then(claim), table: Arc::clone(self) }
    }

    /// In a forked child: closes its copies, and nothing else. No shutdown(2): the connections are
    /// the parent's. A number that leads to something else by now is the host's.
    pub fn close_copies(&self) {
        for cell in &self.0 {
            let fd = cell.fd.swap(Self::FREE, Ordering::SeqCst);
            if fd >= 0 && cookie(fd) == Some(cell.cookie.load(Ordering::SeqCst)) {
                // SAFETY: it is the copy of a socket that was in the table when the process was
                // forked, and in the child it belongs to state that is never used again.
                unsafe { libc::close(fd) };
            }
        }
    }
}

/// What tells a socket from every other, and from what is no socket.
fn cookie(fd: RawFd) -> Option<u64> {
    let mut cookie = 0u64;
    let mut length = mem::size_of::<u64>() as libc::socklen_t;
    // SAFETY: `cookie` has room for the eight bytes that `length` says, and both are alive.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    (result == 0 && cookie != 0).then_some(cookie)
}

/// A socket's place in the table.
#[derive(Debug)]
pub struct Enlisted {
    table: Arc<Descriptors>,
    cell: Option<usize>,
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        if let Some(cell) = self.cell {
            self.table.0[cell].fd.store(Descriptors::FREE, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;

    use super::*;

    fn socket() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    }

    /// Runs `in_child` in a forked process; true if it returned true. It may use what is async-signal-safe
    /// only: other tests' threads may hold any lock.
    fn forked(in_child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child runs `in_child`, and leaves without running the parent's exit handlers.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(!in_child()));
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0) == child && status == 0
        }
    }

    fn is_open(fd: RawFd) -> bool {
        // SAFETY: takes no pointer.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    }

    #[test]
    fn a_socket_is_listed_until_its_guard_is_dropped() {
        let table = Descriptors::new(2);
        let socket = socket();
        let (first, second) = (table.enlist(&socket), table.enlist(&socket));
        assert_eq!(table.enlist(&socket).cell, None, "a full table lists no more");
        drop(first);
        let listed: Vec<_> = table.0.iter().map(|cell| cell.fd.load(Ordering::SeqCst)).collect();
        assert_eq!(listed, [Descriptors::FREE, socket.as_raw_fd()]);
        drop(second);
    }

    #[test]
    fn what_is_no_socket_is_not_listed() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Descriptors::new(1).enlist(&file).cell, None);
    }

    #[test]
    fn a_child_closes_its_copies_and_nothing_that_has_got_their_number() {
        let table = Descriptors::new(2);
        let (copied, replaced, hosts) = (socket(), socket(), socket());
        let _enlisted = (table.enlist(&copied), table.enlist(&replaced));
        let [copied, replaced, hosts] = [&copied, &replaced, &hosts].map(AsRawFd::as_raw_fd);
        assert!(forked(|| {
            // SAFETY: takes no pointer; both numbers are open, and nobody in the child uses them.
            unsafe { libc::dup2(hosts, replaced) };
            table.close_copies();
            !is_open(copied) && is_open(replaced) && is_open(hosts)
        }));
        assert!(is_open(copied) && is_open(replaced));
    }

    #[test]
    fn what_is_ours_is_closed_where_it_was_made_and_left_alone_in_a_child() {
        let ours = Ours::new(OwnedFd::from(socket()));
        let fd = ours.as_raw_fd();
        let mut ours = Some(ours);
        assert!(forked(|| {
            drop(ours.take());
            is_open(fd)
        }));
        drop(ours);
    }

    #[test]
    fn a_forked_child_sees_another_generation_and_the_parent_its_own() {
        let before = fork_generation();
        assert_eq!(before, fork_generation());
        assert!(forked(|| fork_generation() != before && fork_generation() != 0));
        assert_eq!(fork_generation(), before);
    }

    #[test]
    fn a_page_that_the_kernel_does_not_wipe_is_wiped_by_the_handler() {
        fork_generation();
        let page = FORK_PAGE.load(Ordering::Acquire);
        const WIPE_NOT: libc::c_int = libc::MADV_KEEPONFORK;
        let bytes = mem::size_of::<AtomicU64>();
        // SAFETY: the page is mapped, and keeping it in a child changes nothing here.
        assert_eq!(unsafe { libc::madvise(page.cast(), bytes, WIPE_NOT) }, 0);
        let before = fork_generation();
        let differs = forked(|| fork_generation() != before);
        // SAFETY: as above.
        unsafe { libc::madvise(page.cast(), bytes, libc::MADV_WIPEONFORK) };
        assert!(differs);
    }
}
