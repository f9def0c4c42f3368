//! What the acceptor, the connections and the handle share: the script, and what was seen.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::record::Record;
use crate::request::Request;
use crate::script::{Answer, Playing, Script, Step};
use crate::socket::{self, Peer};

/// Where the script is played: what the acceptor, the connections and the handle share.
pub(crate) struct Stage {
    started: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    playing: Playing,
    entrance_closed: bool,
    requests_arrived: usize,
    record: Record,
    /// The connections whose threads are running, by number.
    present: HashMap<usize, Present>,
}

struct Present {
    socket: Arc<TcpStream>,
    open: bool,
}

impl Stage {
    pub(crate) fn new(script: Script) -> Stage {
        Stage {
            started: Instant::now(),
            state: Mutex::new(State {
                playing: script.into(),
                entrance_closed: false,
                requests_arrived: 0,
                record: Record::default(),
                present: HashMap::new(),
            }),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn play(&self, script: Script) {
        self.lock().playing = script.into();
    }

    /// What was seen until now, not until the connections' threads last found the time to look.
    pub(crate) fn record<T>(&self, read: impl FnOnce(&Record) -> T) -> T {
        let mut state = self.lock();
        state.look_for_departures();
        read(&state.record)
    }

    pub(crate) fn wait_until(&self, timeout: Duration, wanted: impl Fn(&Record) -> bool) -> bool {
        let unwanted = |state: &mut State| !wanted(&state.record);
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, unwanted);
        let (_state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        !result.timed_out()
    }

    /// Nobody enters from now on.
    pub(crate) fn close_entrance(&self) {
        self.lock().entrance_closed = true;
    }

    pub(crate) fn is_entrance_closed(&self) -> bool {
        self.lock().entrance_closed
    }

    /// A test's predicate may have panicked under the lock; the state is whole all the same.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// A connection was accepted: numbers it, and finds its opening.
    pub(crate) fn entered(&self, socket: Arc<TcpStream>) -> (usize, Arc<Vec<Step>>) {
        self.change(|state| {
            state.record.connections_accepted += 1;
            let number = state.record.connections_accepted;
            state.present.insert(number, Present { socket, open: true });
            state.record.connections_open += 1;
            state.note_maximum();
            (number, state.playing.openings.take())
        })
    }

    /// Numbers a request whose head has arrived, and finds its answer.
    pub(crate) fn arrived(&self, request: &mut Request) -> Arc<Answer> {
        let mut state = self.lock();
        state.number(request, self.started);
        state.playing.answers.take()
    }

    pub(crate) fn seen(&self, request: &Request) {
        self.change(|state| state.record.add(request, state.playing.keep));
    }

    pub(crate) fn completed(&self, request: &Request) {
        self.change(|state| state.record.complete(request, state.playing.keep));
    }

    pub(crate) fn malformed(&self, request: &mut Request) {
        self.change(|state| {
            state.number(request, self.started);
            state.record.add(request, state.playing.keep);
        });
    }

    /// The peer of this connection has sent its end; the script may go on.
    pub(crate) fn peer_left(&self, number: usize) {
        self.change(|state| state.close(number));
    }

    /// The connection's thread is at its end.
    pub(crate) fn left(&self, number: usize) {
        self.change(|state| {
            state.close(number);
            state.present.remove(&number);
        });
    }

    /// Ends the connections, and waits until they have: a socket that is shut down wakes whoever
    /// reads, writes or polls it.
    pub(crate) fn end_connections(&self) {
        let state = self.lock();
        for present in state.present.values() {
            // Fails if the peer was faster.
            let _ = present.socket.shutdown(Shutdown::Both);
        }
        let running = |state: &mut State| !state.present.is_empty();
        drop(self.changed.wait_while(state, running));
    }
}

impl State {
    fn number(&mut self, request: &mut Request, started: Instant) {
        self.requests_arrived += 1;
        request.number = self.requests_arrived;
        request.at = started.elapsed();
    }

    fn close(&mut self, number: usize) {
        if let Some(present) = self.present.get_mut(&number)
            && present.open
        {
            present.open = false;
            self.record.connections_open -= 1;
        }
    }

    /// A client that closes one connection and opens another has one, although the first one's
    /// thread may not have woken yet: so a new maximum is looked at twice.
    fn note_maximum(&mut self) {
        if self.record.connections_open > self.record.connections_open_max {
            self.look_for_departures();
            let open = self.record.connections_open;
            self.record.connections_open_max = self.record.connections_open_max.max(open);
        }
    }

    fn look_for_departures(&mut self) {
        let open = self.present.iter().filter(|(_, present)| present.open);
        let (numbers, sockets): (Vec<usize>, Vec<_>) =
            open.map(|(number, present)| (*number, &*present.socket)).unzip();
        let peers = socket::look(sockets.into_iter()).unwrap_or_default();
        for (number, peer) in numbers.into_iter().zip(peers) {
            if peer != Peer::Present {
                self.close(number);
            }
        }
    }
}
