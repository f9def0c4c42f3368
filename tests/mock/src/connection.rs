//! One connection, from its opening to its end.

use std::convert::Infallible;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::request::Request;
use crate::response::well_formed;
use crate::script::{After, Step};
use crate::socket::{self, Peer};
use crate::stage::Stage;
use crate::variants;

/// A flood goes out in writes of about this size.
const BLOCK: usize = 64 * 1024;

pub(crate) struct Connection {
    number: usize,
    stage: Arc<Stage>,
    socket: Arc<TcpStream>,
    input: BufReader<Input>,
    peer_finished: bool,
}

/// The reading side of the socket; std reads through `&TcpStream`, but not through `Arc`.
struct Input(Arc<TcpStream>);

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(into)
    }
}

/// Why a connection is not served any longer.
enum End {
    /// Because the peer, or the service, has left.
    Gone,
    /// By our FIN.
    Close,
    /// By our reset.
    Reset,
}

impl From<io::Error> for End {
    /// Whatever goes wrong with a socket of this machine, it is of no use any longer.
    fn from(_: io::Error) -> End {
        End::Gone
    }
}

impl Connection {
    pub(crate) fn new(number: usize, stage: Arc<Stage>, socket: Arc<TcpStream>) -> Connection {
        Connection {
            number,
            stage,
            input: BufReader::new(Input(socket.clone())),
            socket,
            peer_finished: false,
        }
    }

    pub(crate) fn run(mut self, opening: &[Step]) {
        // What fails while ending needs no ending.
        let _ = match self.serve(opening) {
            Err(End::Gone) => Ok(()),
            Err(End::Close) => self.finish(),
            Err(End::Reset) => socket::reset_on_close(&self.socket),
        };
    }

    fn serve(&mut self, opening: &[Step]) -> Result<Infallible, End> {
        self.play(opening, &Request::default())?;
        loop {
            self.answer_next()?;
        }
    }

    fn answer_next(&mut self) -> Result<(), End> {
        let mut request = Request::read_head(&mut self.input).ok_or(End::Gone)?;
        request.connection = self.number;
        if request.problem.is_some() {
            return self.refuse(request);
        }
        let answer = self.stage.arrived(&mut request);
        if answer.after == After::Body {
            request.read_body(&mut self.input);
        }
        self.stage.seen(&request);
        self.play(&answer.steps, &request)?;
        if answer.after == After::Head {
            request.read_body(&mut self.input);
            self.stage.completed(&request);
        }
        if request.is_last() {
            return Err(End::Close);
        }
        Ok(())
    }

    /// A malformed request is no cue of the script: it takes no answer from it.
    fn refuse(&mut self, mut request: Request) -> Result<(), End> {
        self.stage.malformed(&mut request);
        let problem = request.problem.unwrap_or_default();
        let headers = [("Connection", "close")];
        self.send(&well_formed(400, &headers, problem.as_bytes()))?;
        Err(End::Close)
    }

    fn play(&mut self, steps: &[Step], request: &Request) -> Result<(), End> {
        for step in steps {
            match step {
                Step::Send(bytes) => self.send(bytes)?,
                Step::Repeat { bytes, times } => self.repeat(bytes, *times)?,
                Step::Drip { bytes, every_millis } => self.drip(bytes, *every_millis)?,
                Step::WaitMillis(millis) => self.pause(after(Instant::now(), *millis))?,
                Step::Service => self.send(&variants::answer(request))?,
                Step::Hold => self.hold()?,
                Step::Close => return Err(End::Close),
                Step::Reset => return Err(End::Reset),
            }
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), End> {
        Ok((&*self.socket).write_all(bytes)?)
    }

    fn repeat(&mut self, bytes: &[u8], times: u64) -> Result<(), End> {
        let in_block = (BLOCK / bytes.len().max(1)).max(1) as u64;
        let block = bytes.repeat(in_block.min(times) as usize);
        let mut left = times;
        while left > 0 && !bytes.is_empty() {
            let now = left.min(in_block);
            self.send(&block[..now as usize * bytes.len()])?;
            left -= now;
        }
        Ok(())
    }

    fn drip(&mut self, bytes: &[u8], every_millis: u64) -> Result<(), End> {
        let start = Instant::now();
        for (place, byte) in bytes.iter().enumerate() {
            self.pause(after(start, every_millis.saturating_mul(place as u64)))?;
            self.send(&[*byte])?;
        }
        Ok(())
    }

    /// Lets time pass. A peer that finishes meanwhile is taken note of, and still gets the rest: it
    /// may have ended only its own half.
    fn pause(&mut self, until: Option<Instant>) -> Result<(), End> {
        loop {
            match socket::watch(&self.socket, self.peer_finished, until)? {
                Peer::Present => return Ok(()),
                Peer::Finished => {
                    self.peer_finished = true;
                    self.stage.peer_left(self.number);
                }
                Peer::Gone => return Err(End::Gone),
            }
        }
    }

    fn hold(&mut self) -> Result<(), End> {
        socket::watch(&self.socket, false, None)?;
        Err(End::Gone)
    }

    /// Reads what has come already: closed over unread bytes, a socket sends a reset after its FIN,
    /// and on some systems the peer then loses an answer that it has not read yet.
    fn finish(&mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)?;
        self.socket.set_nonblocking(true)?;
        let mut rest = [0; 4096];
        while (&*self.socket).read(&mut rest)? > 0 {}
        Ok(())
    }
}

impl Drop for Connection {
    /// Comes before the socket is closed: whoever sees the end finds it counted.
    fn drop(&mut self) {
        self.stage.left(self.number);
    }
}

/// `None`, which is never, if that is beyond what the clock can hold.
fn after(start: Instant, millis: u64) -> Option<Instant> {
    start.checked_add(Duration::from_millis(millis))
}
