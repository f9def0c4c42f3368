//! The threads of asynchronous fetches: workers that make the exchanges, as many as there are
//! connections at most, and one that keeps the time. None before the first fetch is submitted, none
//! left when the client is closed. Knows no HTTP.

use std::io;
use std::sync::Arc;

use crate::machine::catch::catch;
use crate::machine::clock;
use crate::machine::sync::atomic::{AtomicUsize, Ordering};
use crate::machine::sync::thread::{self, JoinHandle};
use crate::machine::sync::{Condvar, Mutex};
use crate::rules::deadline::Deadline;
use crate::rules::error::{Error, Status};

/// Host callbacks run on these threads, so they get what threads commonly have.
const STACK_BYTES: usize = 2 << 20;

/// What the threads are there for.
pub trait Work: Send + Sync + 'static {
    fn workers_at_most(&self) -> usize;

    /// Whether no thread may be started any more.
    fn is_closing(&self) -> bool;

    /// One more worker was started.
    fn worker_comes(&self);

    /// What a worker does, until the client is closed.
    fn make_exchanges(self: Arc<Self>);

    /// What the thread does that keeps the time, until then.
    fn keep_time(self: Arc<Self>);

    fn log_defect(&self, defect: &Error);
}

/// The threads of one work.
#[derive(Debug, Default)]
pub struct Executor {
    threads: Mutex<Threads>,
    /// As in `threads`, for a look without the lock. If there are any, there is a timer.
    workers: AtomicUsize,
    /// Signalled when one has been waited for.
    joined: Condvar,
}

#[derive(Debug, Default)]
struct Threads {
    timer: bool,
    handles: Vec<JoinHandle<()>>,
    /// Threads that somebody waits for, out of the list.
    joining: usize,
}

impl Executor {
    /// Sees to it that there are a timer and `workers` workers, or as many as the session may have.
    /// Fails if there are none and none can be started, or if the session is closing: none is started
    /// then.
    pub fn provide(&self, work: &Arc<impl Work>, workers: usize) -> Result<(), Error> {
        let workers = workers.min(work.workers_at_most());
        if self.workers.load(Ordering::SeqCst) >= workers {
            return Ok(());
        }
        let mut threads = self.threads.lock();
        if work.is_closing() {
            return Err(Error::closed());
        }
        match self.start(&mut threads, work, workers) {
            // Where no more can be had, those that are there do it all.
            Err(error) if self.workers.load(Ordering::SeqCst) == 0 => {
                let message = format!("no thread can be started to run the fetch: {error}");
                Err(Error::new(Status::QueueFull, message))
            }
            _ => Ok(()),
        }
    }

    fn start(
        &self,
        threads: &mut Threads,
        work: &Arc<impl Work>,
        workers: usize,
    ) -> io::Result<()> {
        if !threads.timer {
            let timer = Arc::clone(work);
            let handle =
                thread::spawn("exp-timer", STACK_BYTES, move || guarded(&timer, Work::keep_time))?;
            threads.timer = true;
            threads.handles.push(handle);
        }
        while self.workers.load(Ordering::SeqCst) < workers {
            let worker = Arc::clone(work);
            let handle = thread::spawn("exp-worker", STACK_BYTES, move || {
                guarded(&worker, Work::make_exchanges)
            })?;
            threads.handles.push(handle);
            self.workers.fetch_add(1, Ordering::SeqCst);
            work.worker_comes();
        }
        Ok(())
    }

    /// Waits for the threads to be gone, which they are about to be, the session being over; false if
    /// `until` comes first. Whoever comes second waits too.
    pub fn join(&self, until: Deadline) -> bool {
        let mut threads = self.threads.lock();
        loop {
            if let Some(handle) = threads.handles.pop() {
                threads.joining += 1;
                drop(threads);
                let left = thread::join_until(handle, until).err();
                threads = self.threads.lock();
                threads.joining -= 1;
                self.joined.notify_all();
                if left.is_some() {
                    threads.handles.extend(left);
                    return false;
                }
                continue;
            }
            if threads.joining == 0 {
                return true;
            }
            threads = match until.instant() {
                None => self.joined.wait(threads),
                Some(instant) if instant <= clock::now() => return false,
                Some(instant) => self.joined.wait_until(threads, instant),
            };
        }
    }
}

/// What a thread runs. A defect outside of exchanges and callbacks, which have guards of their own,
/// ends the thread; it is logged, and printed nowhere.
fn guarded<W: Work>(work: &Arc<W>, run: impl FnOnce(Arc<W>)) {
    if let Err(defect) = catch(|| run(Arc::clone(work))) {
        work.log_defect(&defect);
    }
}
