//! The handle that tests hold, and the accept loop.

use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::record::Record;
use crate::request::Request;
use crate::script::{Answer, Playing, Script, Step};
use crate::socket::{self, Peer};
use crate::unreachable::{self, BlackHole};

/// A service that runs until it is stopped or dropped, on a port of its own of this machine.
///
/// Everything about it can be asked at any time, also after it was stopped.
pub struct MockService {
    address: SocketAddr,
    stage: Arc<Stage>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

impl MockService {
    /// Starts a service that plays this script.
    ///
    /// # Panics
    ///
    /// If the machine has no port or no thread left: no test can go on without.
    pub fn start(script: Script) -> MockService {
        MockService::start_on(0, script).expect("this machine has a port and a thread to spare")
    }

    /// The same on this port; 0 is any.
    pub fn start_on(port: u16, script: Script) -> io::Result<MockService> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let address = listener.local_addr()?;
        let stage = Arc::new(Stage::new(script));
        let accepting = stage.clone();
        let acceptor = thread::Builder::new()
            .name("mock-accept".into())
            .spawn(move || accept_all(&accepting, &listener))?;
        Ok(MockService {
            address,
            stage,
            acceptor: Mutex::new(Some(acceptor)),
        })
    }

    /// Where it is: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Plays another script from its beginning. Steps that are being played are played to their end.
    pub fn set_script(&self, script: Script) {
        self.stage.lock().playing = script.into();
    }

    /// Everything seen until now.
    pub fn record(&self) -> Record {
        self.stage.look().record.clone()
    }

    /// The requests seen until now.
    pub fn requests(&self) -> Vec<Request> {
        self.stage.lock().record.requests.clone()
    }

    /// How many requests have arrived.
    pub fn requests_total(&self) -> usize {
        self.stage.lock().record.requests_total
    }

    /// How many connections were accepted.
    pub fn connections_accepted(&self) -> usize {
        self.stage.lock().record.connections_accepted
    }

    /// How many connections are open now. One whose end the client has sent is not.
    pub fn connections_open(&self) -> usize {
        self.stage.look().record.connections_open
    }

    /// How many connections were open at once, at most.
    pub fn connections_open_max(&self) -> usize {
        self.stage.lock().record.connections_open_max
    }

    /// Waits until what was seen is as wanted; false if it is not within the timeout.
    #[must_use]
    pub fn wait_until(&self, timeout: Duration, wanted: impl Fn(&Record) -> bool) -> bool {
        let state = self.stage.lock();
        let unwanted = |state: &mut State| !wanted(&state.record);
        let waited = self
            .stage
            .changed
            .wait_timeout_while(state, timeout, unwanted);
        let (_state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        !result.timed_out()
    }

    /// Stops listening and ends every connection, whatever is being played to it. When this
    /// returns, the port is closed.
    pub fn stop(&self) {
        let mut acceptor = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(acceptor) = acceptor.take() else {
            return;
        };
        self.stage.lock().stopping = true;
        // Wakes the acceptor. With no descriptor left to do so, it goes with the process.
        if TcpStream::connect(self.address).is_ok() {
            // If it has panicked, the test's output says so already.
            let _ = acceptor.join();
        }
        self.stage.end_connections();
    }

    /// A URL at which every connection is refused, as long as this process lives.
    pub fn refused_url() -> String {
        unreachable::refused_url()
    }

    /// An address at which no attempt to connect ever ends.
    pub fn black_hole() -> BlackHole {
        BlackHole::open()
    }
}

impl Drop for MockService {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Debug for MockService {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        to.debug_tuple("MockService").field(&self.address).finish()
    }
}

fn accept_all(stage: &Arc<Stage>, listener: &TcpListener) {
    loop {
        let accepted = listener.accept();
        if stage.lock().stopping {
            return;
        }
        match accepted.and_then(|(socket, _)| begin(stage, socket)) {
            Ok(()) => {}
            // Descriptors or threads have run out; they come back when connections end.
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn begin(stage: &Arc<Stage>, socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = Arc::new(socket);
    let (number, opening) = stage.entered(socket.clone());
    // Should there be no thread for it, the connection ends here, and is counted as ended.
    let connection = Connection::new(number, stage.clone(), socket);
    thread::Builder::new()
        .name(format!("mock-{number}"))
        .stack_size(256 * 1024)
        .spawn(move || connection.run(&opening))?;
    Ok(())
}

/// Where the script is played: what the acceptor, the connections and the handle share.
pub(crate) struct Stage {
    started: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    playing: Playing,
    stopping: bool,
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
    fn new(script: Script) -> Stage {
        Stage {
            started: Instant::now(),
            state: Mutex::new(State {
                playing: script.into(),
                stopping: false,
                requests_arrived: 0,
                record: Record::default(),
                present: HashMap::new(),
            }),
            changed: Condvar::new(),
        }
    }

    /// A test's predicate may have panicked under the lock; the state is whole all the same.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state as it is now, not as the connections' threads have found the time to see it.
    fn look(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.look_for_departures();
        state
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    fn entered(&self, socket: Arc<TcpStream>) -> (usize, Arc<Vec<Step>>) {
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

    /// Shut down, a socket wakes whoever reads, writes or polls it.
    fn end_connections(&self) {
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
        let (numbers, sockets): (Vec<usize>, Vec<_>) = open
            .map(|(number, present)| (*number, &*present.socket))
            .unzip();
        let peers = socket::look(sockets.into_iter()).unwrap_or_default();
        for (number, peer) in numbers.into_iter().zip(peers) {
            if peer != Peer::Present {
                self.close(number);
            }
        }
    }
}
