//! Asynchronous fetches, where a test has to see what the service saw, or what the books say. Their
//! contract with the host is tested in C (`tests/c/async.c`, `completions.c`).

mod common;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use experiment::client::{Client, Fetched};
use experiment::config::NO_LIMIT;
use experiment::machine::completions::Completions;
use experiment::machine::logger::Level;
use experiment::remote::options::FetchOptions;
use experiment::remote::pending::{Pending, Sink};
use experiment::rules::deadline::{Deadline, Limit};
use experiment::rules::error::Status;
use mock_service::{Answer, MockService, Script};

/// Starts a fetch, and what tells of its end.
fn start(client: &Client, options: &FetchOptions) -> (Arc<Pending>, mpsc::Receiver<Fetched>) {
    let (sender, receiver) = mpsc::channel();
    let callback = move |fetched| sender.send(fetched).unwrap();
    let sink = Sink::Callback(Box::new(callback));
    let pending = client.prepare(&user(draw()), options, 0, sink).unwrap();
    client.start(&pending).unwrap();
    (pending, receiver)
}

fn end(receiver: &mpsc::Receiver<Fetched>) -> Fetched {
    receiver.recv_timeout(SOON).expect("it is told")
}

#[test]
fn threads_and_asynchronous_fetches_stand_in_one_line() {
    // The first keeps the connection while the others get in line, which takes milliseconds, or a hundred
    // where the machine is busy.
    let answers = [Answer::service().delayed(1000), Answer::service()];
    let service = MockService::start(Script::answers(answers));
    let client = Settings { acquire: Some(NO_LIMIT), ..Settings::default() }.client(&service);
    let (_, first) = start(&client, &FetchOptions::default());
    until_requests(&service, 1);
    thread::scope(|scope| {
        for place in 0..10 {
            if place % 2 == 0 {
                let client = &client;
                scope.spawn(move || client.fetch(&named(place), &FetchOptions::default()));
            } else {
                let sink = Sink::Callback(Box::new(|_| {}));
                let prepared =
                    client.prepare(&named(place), &FetchOptions::default(), 0, sink).unwrap();
                client.start(&prepared).unwrap();
            }
            until("it waits", || client.gauges().waiting == place + 1);
        }
    });
    variants(&end(&first));
    client.close(Limit::millis(10_000)).unwrap();
    let places: Vec<_> = service.requests().iter().skip(1).map(place_of).collect();
    assert_eq!(places, (0..10).collect::<Vec<_>>());
    check_books(&client);
}

fn named(place: usize) -> experiment::model::User {
    let mut user = experiment::model::User::new();
    user.set_text("user_id", &format!("place-{place}")).unwrap();
    user
}

fn place_of(request: &mock_service::Request) -> usize {
    let body = String::from_utf8_lossy(&request.body.0).into_owned();
    let at = body.find("place-").expect("all of them are named") + "place-".len();
    body[at..].chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[test]
fn a_cancel_closes_the_connection_and_the_next_fetch_is_clean() {
    let service =
        MockService::start(Script::answers([Answer::service(), silence(), Answer::service()]));
    let client = client(&service);
    good(&client);
    let (pending, told) = start(&client, &FetchOptions::default());
    until_requests(&service, 2);
    within(Duration::ZERO, || {
        pending.cancel();
        assert_eq!(error(&end(&told)).status, Status::Canceled);
    });
    until_disconnected(&service);
    good(&client);
    client.close(Limit::millis(1000)).unwrap();
    check_books(&client);
}

#[test]
fn a_switch_that_has_fired_sends_nothing_and_one_lets_go_of_what_is_over() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    let (options, cancel) = cancelable();
    for _ in 0..200 {
        let (pending, told) = start(&client, &options);
        variants(&end(&told));
        until("nobody else holds it", || Arc::strong_count(&pending) == 1);
    }
    cancel.fire();
    let requests = service.requests_total();
    let (_, told) = start(&client, &options);
    let fetched = end(&told);
    assert_eq!((error(&fetched).status, fetched.attempts), (Status::Canceled, 1));
    assert_eq!(service.requests_total(), requests);
    client.close(Limit::millis(1000)).unwrap();
    check_books(&client);
}

#[test]
fn as_many_run_at_once_as_there_are_connections_whatever_pauses_meanwhile() {
    let unavailable = Answer::reply(503, &[], "");
    let slow = Answer::service().delayed(300);
    let service = MockService::start(Script::answers([unavailable, slow]));
    let settings = Settings { pool: 2, retries: 1, backoff_min: 100, ..Settings::default() };
    let client = settings.client(&service);
    let (_, pausing) = start(&client, &FetchOptions::default());
    until("it pauses", || client.metrics().attempts.value() == 1 && client.gauges().leased == 0);
    // With the worker of the one that pauses: that one needs another when it goes on.
    let (_, running) = start(&client, &FetchOptions::default());
    within(millis(700), || {
        variants(&end(&pausing));
        variants(&end(&running));
    });
    assert_eq!(service.connections_open_max(), 2);
    client.close(Limit::millis(1000)).unwrap();
    check_books(&client);
}

#[test]
fn a_callback_that_panics_ends_its_own_fetch_and_nothing_else() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    for _ in 0..3 {
        let sink = Sink::Callback(Box::new(|_| panic!("a test")));
        let pending = client.prepare(&user(1), &FetchOptions::default(), 0, sink).unwrap();
        client.start(&pending).unwrap();
        assert!(pending.wait(Deadline::after(std::time::Instant::now(), Limit::millis(10_000))));
    }
    variants(&end(&start(&client, &FetchOptions::default()).1));
    client.close(Limit::millis(1000)).unwrap();
    check_books(&client);
}

#[test]
fn closing_from_a_log_line_of_a_worker_does_not_wait_for_itself() {
    let service = MockService::start(Script::service());
    let (sender, receiver) = mpsc::channel();
    let place: Arc<Mutex<Option<Arc<Client>>>> = Arc::default();
    let client_place = Arc::clone(&place);
    let mut config = Settings::default().config(&service.url());
    let sink = move |_: Level, line: &str| {
        if line.starts_with("fetch:")
            && let Some(client) = client_place.lock().unwrap().take()
        {
            sender.send(client.close(Limit::None)).unwrap();
        }
    };
    config.set_log(Level::Debug, Arc::new(sink));
    let client = Arc::new(client_of(&config));
    *place.lock().unwrap() = Some(Arc::clone(&client));
    let (_, told) = start(&client, &FetchOptions::default());
    let closed = receiver.recv_timeout(SOON).expect("it comes back");
    assert_eq!(closed.expect_err("it still runs").status, Status::Timeout);
    variants(&end(&told));
    client.close(Limit::millis(5000)).unwrap();
}

/// Asynchronous fetches that a thread keeps going.
fn submit_some(
    client: &Client,
    completions: &Arc<Completions<Arc<Pending>>>,
    count: usize,
) -> usize {
    let mut refused = 0;
    for i in 0..count {
        let sink = Sink::Completions(Arc::clone(completions));
        let pending = client.prepare(&user(draw()), &FetchOptions::default(), 0, sink).unwrap();
        match client.start(&pending) {
            Ok(()) if i % 5 == 0 => pending.cancel(),
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.status, Status::QueueFull);
                refused += 1;
            }
        }
    }
    refused
}

#[test]
fn a_refused_fetch_is_counted_and_one_a_second_is_logged() {
    let service = MockService::start(Script::answers([silence()]));
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let mut config = Settings::default().config(&service.url());
    config.set_max_pending_fetches(1).unwrap();
    config.set_log(
        Level::Warn,
        Arc::new(move |_: Level, line: &str| kept.lock().unwrap().push(line.to_owned())),
    );
    let client = Client::new("key", &config).unwrap();
    let completions = Completions::new().unwrap();
    let (pending, _told) = start(&client, &FetchOptions::default());
    let began = Instant::now();
    assert_eq!(submit_some(&client, &completions, 100), 100);
    assert_eq!(client.metrics().refused(Status::QueueFull), 100);
    assert_eq!(client.metrics().failures(Status::QueueFull), 0, "they did not begin");
    let lines = lines.lock().unwrap();
    let refused: Vec<_> = lines.iter().filter(|it| it.contains("fetch refused")).collect();
    let at_most = began.elapsed().as_secs() as usize + 2;
    assert!((1..=at_most).contains(&refused.len()), "{refused:?}");
    assert!(refused[0].contains("max_pending_fetches"), "{}", refused[0]);
    pending.cancel();
}

#[test]
fn the_books_add_up_under_64_threads_and_a_parser_reads_them() {
    const THREADS: usize = 64;
    const EACH: usize = 25;
    let answers = [Answer::service(), Answer::reply(503, &[], ""), Answer::service()];
    let answers: Vec<_> = answers.into_iter().cycle().take(3000).collect();
    let service = MockService::start(Script::answers(answers));
    let client = Settings { pool: 4, retries: 1, ..Settings::default() }.client(&service);
    let completions = Completions::new().unwrap();
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for i in 0..THREADS {
            let (client, completions, refused) = (&client, &completions, &refused);
            scope.spawn(move || {
                if i % 2 == 0 {
                    (0..EACH).for_each(|_| drop(fetch(client)));
                } else {
                    let count = submit_some(client, completions, EACH);
                    refused.fetch_add(count, Ordering::SeqCst);
                }
            });
        }
    });
    until("all have ended", || client.gauges().pending == 0);
    client.close(Limit::millis(10_000)).unwrap();
    let mut taken = 0;
    while let Some(pending) = completions.next() {
        pending.take().expect("it is over");
        taken += 1;
    }
    let refused = refused.load(Ordering::SeqCst);
    assert_eq!(taken, THREADS / 2 * EACH - refused);
    assert_eq!(client.metrics().fetches.value() as usize, THREADS * EACH - refused);
    check_books(&client);
    parse(&client.metrics().to_openmetrics(client.gauges()), THREADS * EACH - refused);
}

/// Has the text read by the parser that Prometheus' own client brings.
fn parse(text: &str, fetches: usize) {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("openmetrics");
    let python = folder.join("bin/python");
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{command:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    let has_parser = |python: &std::path::Path| {
        let mut command = Command::new(python);
        command.args(["-c", "import prometheus_client.openmetrics.parser"]).output()
    };
    if !has_parser(&python).is_ok_and(|output| output.status.success()) {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
        run(Command::new(&python).args([
            "-m",
            "pip",
            "install",
            "-q",
            "prometheus_client==0.22.1",
        ]));
    }
    let file = folder.join("metrics.txt");
    std::fs::write(&file, text).unwrap();
    let program = "import sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
        families = {f.name: f for f in parse(open(sys.argv[1]).read())}\n\
        total = lambda name: sum(s.value for s in families[name].samples if s.name == name + '_total')\n\
        print(int(total('experiment_fetches')), families['experiment_fetch_seconds'].type)";
    let read = run(Command::new(&python).args(["-c", program]).arg(&file));
    assert_eq!(read.trim(), format!("{fetches} histogram"));
}
