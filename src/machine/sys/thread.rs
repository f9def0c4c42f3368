//! Threads that are no nuisance to their host, and calls that pthread_cancel(3) does not end half-way.

use std::io;
use std::mem;
use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use super::time::timespec;
use crate::rules::deadline::Deadline;

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

#[cfg(test)]
mod tests {

    use super::*;

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
