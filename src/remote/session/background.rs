//! The asynchronous half of a session: fetches that are submitted, run by workers, and delivered.

use std::cell::Cell;
use std::mem;
use std::ptr;
use std::sync::{Arc, Weak};

use super::Session;
use crate::machine::cancel::Stop;
use crate::machine::catch::catch;
use crate::machine::clock;
use crate::machine::executor::Work;
use crate::machine::gaps;
use crate::machine::sync::thread;
use crate::model::User;
use crate::remote::options::FetchOptions;
use crate::remote::pending::{Line, Pending, Sink};
use crate::remote::vardata::Vardata;
use crate::rules::dispatch::{Decided, Id, Run};
use crate::rules::error::Error;
use crate::rules::fetch::{Fetch, Refusal, Step};

thread::thread_local! {
    /// The session whose thread this is, by address; it lives as long as the thread.
    static WORKS_FOR: Cell<usize> = const { Cell::new(0) };
}

impl Session {
    /// Makes a fetch ready to be started; nothing happens before that. `token` is what the host
    /// knows it by.
    pub fn prepare(
        self: &Arc<Self>,
        user: &User,
        options: &FetchOptions,
        token: usize,
        sink: Sink,
    ) -> Result<Arc<Pending>, Error> {
        let _inside = gaps::fetch();
        let user = self.encode(user).map_err(|error| self.refused(error))?;
        let line = Arc::downgrade(self) as Weak<dyn Line>;
        let alarm = self.connections.alarm();
        Ok(Pending::new(line, alarm, &self.logger, user, options.clone(), token, sink))
    }

    /// Starts a fetch. If this succeeds, its sink is told exactly once, on another thread,
    /// maybe before this returns; otherwise never.
    pub fn start(self: &Arc<Self>, pending: &Arc<Pending>) -> Result<(), Error> {
        self.try_start(pending).map_err(|error| self.refused(error))
    }

    fn try_start(self: &Arc<Self>, pending: &Arc<Pending>) -> Result<(), Error> {
        let running = self.life.run();
        let workers = self.connections.admit(self.config.max_pending as usize)?;
        if let Err(error) = self.life.executor.provide(self, workers) {
            self.connections.dismiss();
            return Err(error);
        }
        pending.attach();
        mem::forget(running); // until it is delivered
        self.connections.submit(pending, |now| {
            let random = self.random ^ self.metrics.fetches.increment();
            Fetch::begin(&self.rules, pending.options.deadline, random, now)
        });
        if pending.switch().is_fired() {
            pending.cancel();
        }
        Ok(())
    }

    /// Whether this is one of the session's own threads.
    pub(super) fn runs_here(&self) -> bool {
        WORKS_FOR.with(Cell::get) == ptr::from_ref(self).addr()
    }

    fn run(&self, Run { id, pending, mut fetch, lease }: Run<Arc<Pending>>) {
        let leased = self.connections.leased(lease);
        let bounds = fetch.leased(clock::now());
        let mut stop = Stop::new(Some(Arc::clone(pending.switch())), None);
        let exchanged = catch(|| {
            let _inside = gaps::fetch();
            if pending.switch().is_fired() {
                return Err(Error::canceled());
            }
            let (user, options) = (&*pending.user, &pending.options);
            let request = Vardata { template: &self.template, user, options };
            let (result, timings) = leased.exchange(bounds, &request, &stop)?;
            let result = result.and_then(|body| self.decode(body, bounds.until, &mut stop));
            Ok((result, timings))
        });
        let now = clock::now();
        let step = match exchanged {
            Ok(Ok((result, timings))) => fetch.exchanged(result, &timings, now),
            Ok(Err(error)) => fetch.refused(Refusal::Failed(error), now),
            Err(defect) => Step::Done(Err(defect)),
        };
        match step {
            Step::Done(result) => self.deliver(Decided { pending, fetch, result }, || {
                self.connections.notified();
                self.connections.worker_comes();
            }),
            step => self.connections.go_on(id, pending, fetch, step),
        }
    }

    /// Tells of an outcome. `notified` comes when the host has been told, before anybody learns that it
    /// has: the thread that did it is free then for whatever the host starts next.
    fn deliver(
        &self,
        Decided { pending, fetch, result }: Decided<Arc<Pending>>,
        notified: impl FnOnce(),
    ) {
        let _running = self.life.running();
        let fetched = fetch.ended(result);
        self.ended(&fetched, pending.began.elapsed());
        self.connections.begin_notifying();
        if let Err(defect) = pending.deliver(fetched, notified) {
            self.log_defect(&defect);
        }
    }
}

impl Line for Session {
    fn cancel(&self, id: Id) {
        self.connections.cancel(id);
    }
}

impl Work for Session {
    fn workers_at_most(&self) -> usize {
        self.config.pool_size as usize
    }

    fn is_closing(&self) -> bool {
        self.life.closing.is_fired()
    }

    fn worker_comes(&self) {
        self.connections.worker_comes();
    }

    fn make_exchanges(self: Arc<Self>) {
        WORKS_FOR.with(|session| session.set(Arc::as_ptr(&self).addr()));
        while !self.is_inherited()
            && let Some(run) = self.connections.next_run()
        {
            self.run(run);
        }
    }

    fn keep_time(self: Arc<Self>) {
        WORKS_FOR.with(|session| session.set(Arc::as_ptr(&self).addr()));
        while !self.is_inherited()
            && let Some(decided) = self.connections.next_decided()
        {
            self.deliver(decided, || self.connections.notified());
        }
    }

    fn log_defect(&self, defect: &Error) {
        Session::log_defect(self, defect);
    }
}
