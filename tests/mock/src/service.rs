//! The handle that tests hold, and the accept loop.

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::connection::Connection;
use crate::record::Record;
use crate::request::Request;
use crate::script::Script;
use crate::stage::Stage;
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
        Ok(MockService { address, stage, acceptor: Mutex::new(Some(acceptor)) })
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
        self.stage.play(script);
    }

    /// Everything seen until now.
    pub fn record(&self) -> Record {
        self.stage.record(Record::clone)
    }

    /// The requests seen until now.
    pub fn requests(&self) -> Vec<Request> {
        self.stage.record(|record| record.requests.clone())
    }

    /// How many requests have arrived.
    pub fn requests_total(&self) -> usize {
        self.stage.record(|record| record.requests_total)
    }

    /// How many connections were accepted.
    pub fn connections_accepted(&self) -> usize {
        self.stage.record(|record| record.connections_accepted)
    }

    /// How many connections are open now. One whose end the client has sent is not.
    pub fn connections_open(&self) -> usize {
        self.stage.record(|record| record.connections_open)
    }

    /// How many connections were open at once, at most.
    pub fn connections_open_max(&self) -> usize {
        self.stage.record(|record| record.connections_open_max)
    }

    /// Waits until what was seen is as wanted; false if it is not within the timeout.
    #[must_use]
    pub fn wait_until(&self, timeout: Duration, wanted: impl Fn(&Record) -> bool) -> bool {
        self.stage.wait_until(timeout, wanted)
    }

    /// Stops listening and ends every connection, whatever is being played to it. When this
    /// returns, the port is closed.
    pub fn stop(&self) {
        let mut acceptor = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(acceptor) = acceptor.take() else {
            return;
        };
        self.stage.close_entrance();
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
        if stage.is_entrance_closed() {
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
