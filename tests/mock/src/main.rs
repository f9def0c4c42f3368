//! `mock-service`: a mock of the evaluation service for tests and demos in any language. Runs until
//! its standard input ends, so that it never outlives whoever started it. See the README.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use mock_service::{BlackHole, MockService, Script};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

const USAGE: &str = "usage: mock-service [--script FILE] [--port N]";

fn main() -> ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mock-service: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let (script, port) = parse(arguments)?;
    let mut services = Services::default();
    let service = MockService::start_on(port, script)?;
    say(&json!({"url": service.url()}))?;
    services.add(Running::Service(service));
    for line in io::stdin().lock().split(b'\n') {
        let answer = serde_json::from_slice(&line?)
            .map_err(|error| error.to_string())
            .and_then(|order| services.obey(order));
        say(&answer.unwrap_or_else(|error| json!({"error": error})))?;
    }
    Ok(())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<(Script, u16), Box<dyn Error>> {
    let (mut script, mut port) = (Script::service(), 0);
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        match option.as_str() {
            "--script" => script = serde_json::from_str(&fs::read_to_string(value)?)?,
            "--port" => port = value.parse()?,
            _ => return Err(USAGE.into()),
        }
    }
    Ok((script, port))
}

fn say(answer: &Value) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{answer}")?;
    stdout.flush()
}

/// One line of the standard input.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    Play(Script),
    Refused(IgnoredAny),
    BlackHole(IgnoredAny),
    Seen(usize),
    Stop(usize),
    StopAll(IgnoredAny),
}

enum Running {
    Service(MockService),
    BlackHole { _until_dropped: BlackHole },
}

/// What is running, by its id. The service that the command started with is 0.
#[derive(Default)]
struct Services {
    started: usize,
    running: BTreeMap<usize, Running>,
}

impl Services {
    fn obey(&mut self, order: Order) -> Result<Value, String> {
        match order {
            Order::Play(script) => self.play(script),
            Order::Refused(_) => Ok(json!({"url": MockService::refused_url()})),
            Order::BlackHole(_) => Ok(self.open_black_hole()),
            Order::Seen(id) => self.seen(id),
            Order::Stop(id) => self.stop(id),
            Order::StopAll(_) => Ok(self.stop_all()),
        }
    }

    fn add(&mut self, running: Running) -> usize {
        let id = self.started;
        self.started += 1;
        self.running.insert(id, running);
        id
    }

    fn play(&mut self, script: Script) -> Result<Value, String> {
        let service = MockService::start_on(0, script).map_err(|error| error.to_string())?;
        let url = service.url();
        Ok(json!({"id": self.add(Running::Service(service)), "url": url}))
    }

    fn open_black_hole(&mut self) -> Value {
        let hole = MockService::black_hole();
        let url = hole.url();
        let id = self.add(Running::BlackHole { _until_dropped: hole });
        json!({"id": id, "url": url})
    }

    fn seen(&self, id: usize) -> Result<Value, String> {
        match self.running.get(&id) {
            Some(Running::Service(service)) => Ok(json!(service.record())),
            _ => Err(format!("no service {id}")),
        }
    }

    fn stop(&mut self, id: usize) -> Result<Value, String> {
        let stopped = self.running.remove(&id);
        stopped.map(|_| json!({"stopped": [id]})).ok_or_else(|| format!("no service {id}"))
    }

    /// All but the one that lives as long as the command.
    fn stop_all(&mut self) -> Value {
        let played = self.running.split_off(&1);
        json!({"stopped": played.keys().collect::<Vec<_>>()})
    }
}
