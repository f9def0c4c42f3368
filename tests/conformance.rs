//! The cases that every language runs, in Rust. Their format is in `tests/conformance/README.md`.

#[path = "conformance/cases.rs"]
mod cases;
#[cfg(feature = "count-gaps")]
#[path = "support/gaps.rs"]
mod gaps;
#[path = "conformance/words.rs"]
mod words;

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use cases::{Act, Case, Fetch, Object, Step};
use experiment::client::{Client, Fetched};
use experiment::machine::cancel::Cancel;
use experiment::machine::completions::Completions;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::remote::pending::Sink;
use experiment::rules::deadline::{Deadline, Limit};
use mock_service::MockService;
use serde_json::{Value, json};
use words::{Log, is_as_expected, of_error};

const API_KEY: &str = "conformance-key";

/// Cases wait more than they work. What one of them does is counted alone.
const THREADS: usize = if cfg!(feature = "count-gaps") { 1 } else { 4 };

#[derive(Clone, Copy, Debug)]
enum Way {
    Blocking,
    Callback,
    Completions,
}

#[test]
fn the_cases_hold_whichever_way_a_fetch_is_made() {
    let only = env::var("CONFORMANCE_ONLY").unwrap_or_default();
    let cases = cases::read().into_iter().filter(|case| case.name.contains(&only));
    let (excepted, cases): (Vec<_>, Vec<_>) =
        cases.partition(|case| case.except.contains_key("rust"));
    excepted.iter().for_each(|case| say(&format!("excepted: {}", case.name)));
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Relaxed)) {
            let ways = [Way::Blocking, Way::Callback, Way::Completions];
            let faults = ways.map(|way| played(case, way)).concat();
            faults.iter().for_each(|fault| say(&format!("FAILED: {}: {fault}", case.name)));
            failed.fetch_add(usize::from(!faults.is_empty()), Relaxed);
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    #[cfg(feature = "count-gaps")]
    GAPS.lock().unwrap().iter().for_each(|gaps| say(gaps.to_string().trim_end()));
    let (failed, excepted) = (failed.into_inner(), excepted.len());
    let passed = cases.len() - failed;
    say(&format!("conformance rust: {passed} passed, {failed} failed, {excepted} excepted"));
    assert!(failed == 0 && passed > 0);
}

/// What was wrong with a case, one way.
#[cfg(not(feature = "count-gaps"))]
fn played(case: &Case, way: Way) -> Vec<String> {
    Run::of(case, way)
}

/// Where a fetch went on for too long without a look at its bounds. What else is wrong is found where
/// nothing is counted.
#[cfg(feature = "count-gaps")]
fn played(case: &Case, way: Way) -> Vec<String> {
    let mut gaps = GAPS.lock().unwrap();
    let run = || drop(Run::of(case, way));
    let too_long = gaps.get_or_insert_default().of(&case.name, run, gaps::counted_here);
    too_long.iter().map(|gap| format!("{way:?}: {gap}")).collect()
}

#[cfg(feature = "count-gaps")]
static GAPS: Mutex<Option<gaps::Gaps>> = Mutex::new(None);

/// To the terminal: of a test that passes, the harness shows nothing that is printed.
fn say(line: &str) {
    io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// One case, one way, and what has been found wrong so far.
struct Run {
    way: Way,
    faults: Mutex<Vec<String>>,
}

impl Run {
    fn of(case: &Case, way: Way) -> Vec<String> {
        let run = Run { way, faults: Mutex::default() };
        match case.server.as_ref().map_or("{}", |server| server.get()) {
            "\"refused\"" => run.play(case, &MockService::refused_url()),
            "\"black_hole\"" => run.play(case, &MockService::black_hole().url()),
            script => {
                let service = MockService::start(serde_json::from_str(script).expect(&case.name));
                run.play(case, &service.url());
                run.check_received(case, &service);
            }
        }
        run.faults.into_inner().unwrap()
    }

    fn expect(&self, holds: bool, expected: impl ToString, came: impl ToString) {
        if !holds {
            let fault = format!("expected {}, came {}", expected.to_string(), came.to_string());
            self.faults.lock().unwrap().push(format!("{:?}: {fault}", self.way));
        }
    }

    fn play(&self, case: &Case, url: &str) {
        let log = Log::default();
        let api_key = case.client.get("api_key").and_then(Value::as_str);
        let config = words::config(&case.client, url, &log);
        let client = config.and_then(|config| Client::new(api_key.unwrap_or(API_KEY), &config));
        match (client, &case.creation) {
            (Ok(client), None) => case.steps.iter().for_each(|step| self.take(step, &client)),
            (Err(error), Some(expected)) => self.check(expected, &of_error(&error, 0)),
            (made, _) => self.expect(false, "the client made or refused", format!("{made:?}")),
        }
        let lines = log.lock().unwrap();
        for expected in &case.logs {
            let logged = lines.iter().any(|line| is_as_expected(expected, line));
            self.expect(logged, json!(expected), json!(*lines));
        }
        self.look_for_key(&json!(*lines));
    }

    fn take(&self, step: &Step, client: &Client) {
        let act = |act: &Act| match act {
            Act::Fetch(fetch) => self.fetch(fetch, client),
            Act::Sleep(sleep) => thread::sleep(Duration::from_millis(sleep.sleep)),
            Act::Close(close) => {
                thread::sleep(Duration::from_millis(close.begins_after_millis));
                let _ = client.close(Limit::millis(close.close));
            }
        };
        thread::scope(|scope| {
            step.acts().iter().for_each(|one| drop(scope.spawn(move || act(one))))
        });
    }

    fn fetch(&self, fetch: &Fetch, client: &Client) {
        thread::sleep(Duration::from_millis(fetch.begins_after_millis));
        let began = Instant::now();
        let fetched = self.fetched(fetch, client);
        let took = began.elapsed().as_millis() as u64;
        let time = fetch.not_before_millis..=fetch.within_millis;
        self.expect(time.contains(&took), format!("{time:?} ms"), took);
        self.check(&fetch.gets, &words::of_fetched(&fetched, fetch.fetch));
    }

    fn fetched(&self, fetch: &Fetch, client: &Client) -> Fetched {
        let cancel = Cancel::new();
        let user = words::user(fetch.user.as_ref());
        let options =
            FetchOptions { cancel: Some(Arc::clone(&cancel)), ..words::options(&fetch.options) };
        if let Some(millis) = fetch.cancel_after_millis {
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(millis));
                cancel.fire();
            });
        }
        match self.way {
            Way::Blocking => client.fetch(&user, &options),
            Way::Callback => {
                let (tell, told) = mpsc::channel();
                let callback = Box::new(move |fetched| tell.send(fetched).unwrap());
                start(client, &user, &options, Sink::Callback(callback))
                    .unwrap_or_else(|| told.recv().unwrap())
            }
            Way::Completions => {
                let completions = Completions::new().unwrap();
                let sink = Sink::Completions(Arc::clone(&completions));
                start(client, &user, &options, sink).unwrap_or_else(|| {
                    completions.wait(Deadline::NEVER);
                    completions.next().unwrap().take().ok().unwrap()
                })
            }
        }
    }

    fn check(&self, expected: &Object, came: &Value) {
        self.expect(is_as_expected(expected, came), json!(expected), came);
        self.look_for_key(&came["message"]);
    }

    fn look_for_key(&self, told: &Value) {
        self.expect(!told.to_string().contains(API_KEY), "no API key", told);
    }

    fn check_received(&self, case: &Case, service: &MockService) {
        let accepted = service.connections_accepted();
        let wanted = case.connections.unwrap_or(accepted);
        self.expect(accepted == wanted, format!("{wanted} connections"), accepted);
        let Some(expected) = &case.requests else { return };
        let came = service.requests();
        self.expect(
            came.len() == expected.len(),
            format!("{} requests", expected.len()),
            came.len(),
        );
        for (expected, request) in expected.iter().zip(came) {
            self.check(expected, &words::of_request(&request));
        }
    }
}

/// Starts an asynchronous fetch; what it came to, if it could not be started.
fn start(client: &Client, user: &User, options: &FetchOptions, sink: Sink) -> Option<Fetched> {
    let started = client.prepare(user, options, 0, sink).and_then(|it| client.start(&it));
    started.err().map(Fetched::not_begun)
}
