//! Everything at once: faults of every kind, drawn at random, for many threads.
//!
//! `CHAOS_SEED=N cargo test --test chaos` draws the same again; which fetch meets which fault is up to
//! the system's scheduler. (`tests/simulation` repeats that too, without sockets. Chaos across forks is
//! `tests/c/forks.c`.)

mod common;

use std::thread;

use common::*;
use experiment::remote::options::FetchOptions;
use experiment::rules::deadline::Limit;
use experiment::rules::error::Status;
use mock_service::{Answer, Keep, MockService, Script, Step};

/// Whatever a fetch finds here is nobody's.
fn nobodys() -> String {
    let body = r#"{"demo-nonce":{"key":"on","payload":0}}"#;
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn fault(drawn: &mut Drawn) -> Answer {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n";
    match drawn.below(20) {
        0 => Answer::reply(500, &[], "x".repeat(drawn.below(100_000) as usize)),
        1 => Answer::reply(429, &[("Retry-After", "0")], "slow"),
        2 => Answer::reply(400, &[], ""),
        3 => Answer::steps([Step::Close]),
        4 => Answer::steps([Step::Reset]).after_head(),
        5 => Answer::steps([Step::send(head), Step::Close]),
        6 => Answer::steps([Step::send(head), Step::drip(" ".repeat(50), drawn.below(8))]),
        7 => silence(),
        8 => Answer::service().then(Step::Close),
        9 => Answer::service().then(Step::Reset),
        10 => raw(format!("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n{}", nobodys())),
        11 => raw(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ),
        12 => raw("rubbish\r\n\r\n"),
        13 => Answer::steps([Step::send("HTTP/1.1 103 Early Hints\r\n\r\n"), Step::Service]),
        14 => Answer::service().delayed(drawn.below(60)),
        15 => raw(format!("HTTP/1.1 204 No Content\r\n\r\n{}", nobodys())),
        16 => Answer::json(200, "[]"),
        _ => Answer::service(),
    }
}

#[test]
fn whatever_happens_each_answer_is_the_fetchs_own_and_the_counters_add_up() {
    const THREADS: u64 = 64;
    const FETCHES: u64 = 40;
    const POOL: u32 = 8;
    let seed = std::env::var("CHAOS_SEED").map_or(0x5eed_5eed, |seed| seed.parse().unwrap());
    println!("CHAOS_SEED={seed}");
    let mut drawn = Drawn(seed | 1);
    let answers: Vec<Answer> =
        (0..4000).map(|_| fault(&mut drawn)).chain([Answer::service()]).collect();
    let service = MockService::start(Script::answers(answers).keep(Keep::Nothing));
    let settings = Settings {
        pool: POOL,
        fetch_timeout: 60,
        retry_timeout: 40,
        acquire: Some(200),
        retries: 1,
        backoff_min: 1,
        jitter: true,
        ..Settings::default()
    };
    let client = settings.client(&service);
    let worst = millis(200 + 60 + 200 + 40 + 1);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let client = &client;
            scope.spawn(move || {
                let mut drawn = Drawn((thread + 1) * (seed | 1));
                for _ in 0..FETCHES {
                    let (mut options, cancel) = cancelable();
                    match drawn.below(10) {
                        0 => options.deadline = Limit::millis(drawn.below(60)),
                        1 => cancel.fire(),
                        2 => options.tracks_exposure = Some(true),
                        3 => {
                            let soon = millis(drawn.below(50));
                            scope.spawn(move || {
                                thread::sleep(soon);
                                cancel.fire();
                            });
                        }
                        _ => {}
                    }
                    fetch_one(client, &options, worst);
                }
            });
        }
    });
    check_books(&client);
    let metrics = client.metrics();
    assert_eq!(metrics.fetches.value(), THREADS * FETCHES);
    assert!(metrics.fetches_ok.value() > THREADS * FETCHES / 4, "{}", metrics.fetches_ok.value());
    for status in [
        Status::Timeout,
        Status::Network,
        Status::HttpStatus,
        Status::InvalidResponse,
        Status::Canceled,
    ] {
        assert!(metrics.failures(status) > 0, "{status:?} never happened");
    }
    for status in
        [Status::InvalidArgument, Status::Tls, Status::Closed, Status::QueueFull, Status::Internal]
    {
        assert_eq!(metrics.failures(status), 0, "{status:?}");
    }
    assert!(service.connections_open_max() <= POOL as usize);
    // It may have seen one more that the client gave up at the moment it was made.
    let opened = metrics.connections_opened.value() as usize;
    until("the service has seen all that were opened", || service.connections_accepted() >= opened);
    let sent = metrics.attempts.value() + metrics.stale_repeats.value();
    assert!(service.requests_total() as u64 <= sent, "a request that nobody counted");
    service.set_script(Script::service());
    good(&client);
    client.close(Limit::millis(1000)).unwrap();
    until_disconnected(&service);
    assert_eq!(closed(client.metrics()), client.metrics().connections_opened.value());
}

fn fetch_one(
    client: &experiment::client::Client,
    options: &FetchOptions,
    worst: std::time::Duration,
) {
    let nonce = draw();
    let (fetched, took) = timed(|| client.fetch(&user(nonce), options));
    check_bound(took, worst);
    if let Ok(variants) = &fetched.result {
        match variants.get("demo-nonce") {
            Some(_) => assert_eq!(nonce_of(variants), Some(nonce), "the answer of another"),
            None => assert!(variants.is_empty(), "what else is sent is the empty object"),
        }
    }
}
