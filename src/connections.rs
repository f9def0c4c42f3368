//! The connections of a session: who leases which and waits how long, and when unused ones close.
//!
//! The rules are the pool's ([`crate::pool`]); this is where threads wait by them, and where the
//! connections are that its slots stand for.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::{Bell, Cancel, Stop};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::error::{Error, Status};
use crate::fetch::{Bounds, Refusal};
use crate::metrics::{CloseReason, Gauges};
use crate::options::FetchOptions;
use crate::pool::{Answer, Lease, Pool, Ticket, Waiter};
use crate::sync::Mutex;
use crate::sys;
use crate::timings::Timings;
use crate::transport::{Connection, Exchange, Transport};

/// See the module.
#[derive(Debug)]
pub struct Connections {
    /// The process they belong to.
    generation: u64,
    transport: Transport,
    pool: Mutex<Pool<Arc<Bell>>>,
    /// One place for each of the pool's slots, filled when the slot is first leased. Only the
    /// holder of the lease opens or uses what is in it.
    places: Box<[Mutex<Option<Connection>>]>,
    idle_timeout: Duration,
    closing: Arc<Cancel>,
}

impl Connections {
    /// None is open yet. Once `closing` has fired, none is kept.
    pub fn new(config: &Config, transport: Transport, closing: Arc<Cancel>) -> Self {
        let size = NonZeroUsize::new(config.pool_size as usize).unwrap_or(NonZeroUsize::MIN);
        Connections {
            generation: sys::fork_generation(),
            transport,
            pool: Mutex::new(Pool::new(size)),
            places: (0..size.get()).map(|_| Mutex::new(None)).collect(),
            idle_timeout: config.idle_timeout,
            closing,
        }
    }

    /// Whether this process was forked from the one they belong to.
    pub fn are_inherited(&self) -> bool {
        self.generation != sys::fork_generation()
    }

    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Waits in line for a connection until `until`.
    pub fn lease(&self, until: Deadline, stop: &mut Stop) -> Result<Leased<'_>, Refusal> {
        if stop.is_asked(Instant::now(), false) {
            return Err(Refusal::Failed(Error::canceled()));
        }
        let mut bell = None;
        let answer = {
            let mut pool = self.pool.lock();
            let waker = || Arc::clone(bell.insert(Bell::new()));
            pool.acquire(Instant::now(), until, Waiter::Thread, waker)
        };
        match self.settle(answer) {
            Ok(settled) => settled,
            Err(ticket) => {
                let bell = bell.expect("the pool had it made, for this wait");
                self.wait(ticket, &bell, until, stop)
            }
        }
    }

    fn wait(
        &self,
        mut ticket: Ticket,
        bell: &Arc<Bell>,
        until: Deadline,
        stop: &mut Stop,
    ) -> Result<Leased<'_>, Refusal> {
        let _attached = stop.attach(bell);
        loop {
            let stopped = stop.sleep(bell, until);
            let mut pool = self.pool.lock();
            let now = Instant::now();
            if stopped {
                let woken = pool.withdraw(now, ticket);
                drop(pool);
                ring(woken);
                return Err(Refusal::Failed(Error::canceled()));
            }
            let woken = pool.expire(now);
            let answer = pool.collect(ticket);
            drop(pool);
            ring(woken);
            ticket = match self.settle(answer) {
                Ok(settled) => return settled,
                Err(ticket) => ticket,
            };
        }
    }

    /// What the pool's answer means, or the ticket to go on waiting with.
    fn settle(&self, answer: Answer) -> Result<Result<Leased<'_>, Refusal>, Ticket> {
        match answer {
            Answer::Leased(lease) => Ok(Ok(Leased { connections: self, lease: Some(lease) })),
            Answer::Expired(snapshot) => Ok(Err(Refusal::Expired(snapshot))),
            Answer::Closed => Ok(Err(Refusal::Failed(Error::closed()))),
            Answer::Waiting(ticket) => Err(ticket),
        }
    }

    /// Gives a lease back, and closes what has been unused for too long.
    fn give_back(&self, lease: Lease) {
        let warm = self.places[lease.slot()].lock().as_ref().is_some_and(Connection::is_open);
        let mut pool = self.pool.lock();
        let now = Instant::now();
        let woken = pool.release(now, lease, warm);
        let unused = self.take_unused(&mut pool, now);
        drop(pool);
        ring(woken);
        self.close_all(unused);
    }

    /// Takes out of reach, under the pool's lock, the connections that nobody has used for too
    /// long; all unused ones, once closing.
    fn take_unused(&self, pool: &mut Pool<Arc<Bell>>, now: Instant) -> Vec<Connection> {
        let idle_for = if self.closing.is_fired() { Duration::ZERO } else { self.idle_timeout };
        let slots = pool.reap(now, idle_for);
        slots.into_iter().filter_map(|slot| self.places[slot].lock().take()).collect()
    }

    fn close_all(&self, connections: Vec<Connection>) {
        let closing = self.closing.is_fired();
        let reason = if closing { CloseReason::Shutdown } else { CloseReason::Idle };
        for mut connection in connections {
            self.transport.close(&mut connection, reason);
        }
    }

    /// Refuses new leases and ends the waits for one. Leases that are out come back by themselves.
    pub fn close(&self) {
        // First of all, so that whoever gives a lease back after this keeps no connection.
        self.closing.fire();
        let mut pool = self.pool.lock();
        let now = Instant::now();
        let woken = pool.close(now);
        let unused = self.take_unused(&mut pool, now);
        drop(pool);
        ring(woken);
        self.close_all(unused);
    }

    /// How the pool stands now.
    pub fn gauges(&self) -> Gauges {
        let pool = self.pool.lock().snapshot(Instant::now());
        Gauges { leased: pool.leased, idle: pool.idle_warm, waiting: pool.waiting }
    }
}

/// A lease that finds its way back, also when the exchange panics.
#[derive(Debug)]
pub struct Leased<'a> {
    connections: &'a Connections,
    lease: Option<Lease>,
}

impl Leased<'_> {
    /// Makes one exchange and gives the connection back. Fails without one if there is no
    /// descriptor left to open a connection with.
    pub fn exchange(
        self,
        Bounds { timeout, until: deadline }: Bounds,
        user: &[u8],
        options: &FetchOptions,
        stop: &Stop,
    ) -> Result<(Result<Vec<u8>, Error>, Timings), Error> {
        let Connections { transport, places, .. } = self.connections;
        let slot = self.lease.as_ref().map_or(0, Lease::slot);
        let mut place = places[slot].lock();
        let connection = match place.as_mut() {
            Some(connection) => connection,
            None => place.insert(transport.connection().map_err(|error| {
                Error::new(Status::Network, format!("no connection can be opened: {error}"))
            })?),
        };
        let exchange = Exchange { user, options, timeout, deadline, stop: stop.clone() };
        Ok(transport.exchange(connection, &exchange))
    }
}

impl Drop for Leased<'_> {
    fn drop(&mut self) {
        // In a child that was forked in the middle of the exchange, the pool is the parent's.
        if let Some(lease) = self.lease.take()
            && !self.connections.are_inherited()
        {
            self.connections.give_back(lease);
        }
    }
}

fn ring(bells: Vec<Arc<Bell>>) {
    for bell in bells {
        bell.ring();
    }
}
