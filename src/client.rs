//! The client, across forks: in each process it has a session of its own.

use std::mem;
use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::config::{self, Config};
use crate::machine::logger::Logger;
use crate::model::User;
use crate::remote::options::FetchOptions;
use crate::remote::pending::{Pending, Sink};
use crate::remote::session::Session;
use crate::rules::deadline::Limit;
use crate::rules::error::Error;
pub use crate::rules::fetch::Fetched;
use crate::rules::metrics::{Gauges, Metrics};

/// Fetches variants; any number of threads at once.
///
/// After a fork it works in parent and child alike. The parent notices nothing. The child begins
/// anew, with fresh locks and no connection, when it first uses the client.
#[derive(Debug)]
pub struct Client {
    here: Box<Generation>,
}

/// The session of one process, and that of the child which this process may be.
#[derive(Debug)]
struct Generation {
    session: Arc<Session>,
    child: OnceBox<Generation>,
}

impl Generation {
    fn new(session: Session) -> Box<Self> {
        Box::new(Generation { session: Arc::new(session), child: OnceBox::new() })
    }

    /// What the child has that this process is. No lock: a child forked during initialisation must
    /// not wait for a thread that it does not have. If two threads race, the first value wins.
    fn child(&self) -> &Generation {
        self.child.get_or_init(|| Generation::new(self.session.in_child()))
    }
}

impl Client {
    /// Reads the environment and the `ca_file` if they are wanted; opens no connection and starts
    /// no thread.
    pub fn new(api_key: &str, config: &Config) -> Result<Self, Error> {
        config::check_api_key(api_key)?;
        Ok(Client { here: Generation::new(Session::new(api_key, config)?) })
    }

    /// This process's session.
    fn session(&self) -> &Arc<Session> {
        let mut generation = &*self.here;
        while generation.session.is_inherited() {
            generation = generation.child();
        }
        &generation.session
    }

    /// Fetches the variants of `user`, on this thread, within the bounds of the configuration and
    /// of `options`.
    pub fn fetch(&self, user: &User, options: &FetchOptions) -> Fetched {
        self.session().fetch(user, options)
    }

    /// Makes an asynchronous fetch ready; `start` sets it going. `token` is what the host knows it
    /// by.
    pub fn prepare(
        &self,
        user: &User,
        options: &FetchOptions,
        token: usize,
        sink: Sink,
    ) -> Result<Arc<Pending>, Error> {
        self.session().prepare(user, options, token, sink)
    }

    /// Starts a fetch. If this succeeds, its sink is told exactly once, on another thread,
    /// maybe before this returns; otherwise never.
    pub fn start(&self, pending: &Arc<Pending>) -> Result<(), Error> {
        self.session().start(pending)
    }

    /// Refuses new fetches and ends those that wait, without waiting itself.
    pub fn begin_close(&self) {
        self.session().begin_close();
    }

    /// Closes the client: new fetches are refused, waiting ones end as `Closed`, and those that
    /// run are waited for. What still runs after `limit` is cut off, and that is a timeout.
    pub fn close(&self, limit: Limit) -> Result<(), Error> {
        self.session().close(limit)
    }

    /// What this process has done with the client so far.
    pub fn metrics(&self) -> &Metrics {
        self.session().metrics()
    }

    /// Where its messages go.
    pub fn logger(&self) -> &Arc<Logger> {
        self.session().logger()
    }

    /// How the pool stands now.
    pub fn gauges(&self) -> Gauges {
        self.session().gauges()
    }
}

impl Drop for Generation {
    /// What a child inherited is leaked: its locks may be held by threads that are not there, and
    /// its connections are the parent's.
    fn drop(&mut self) {
        if self.session.is_inherited() {
            self.session.close_copies();
            mem::forget(Arc::clone(&self.session));
        }
    }
}
