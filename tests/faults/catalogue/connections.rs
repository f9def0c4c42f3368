//! Requests on their way, and connections that were kept.

use std::thread::sleep;
use std::time::Duration;

use mock_service::{Answer, MockService, Script, Step};
use serde_json::json;

use super::{GOOD, answers, send};
use crate::fault::{Fault, Gets, NETWORK, Scene, http, scripted, scripted_after};
use crate::victim::Victim;

/// More than the buffers on both sides hold.
const LARGE: usize = 512 << 10;

pub fn requests() -> Vec<Fault> {
    const KIND: &str = "Request";
    let opening = |name: &str, steps: Vec<Step>| {
        Fault::new(KIND, name, NETWORK, move |_| {
            scripted(Script::service().connections([steps.clone()]))
        })
        .on_a_new_connection()
    };
    let reading = |name: &str, gets: Gets, answer: Answer| {
        answers(KIND, name, gets, vec![answer.after_head()]).user_bytes(LARGE).bound_millis(1000)
    };
    vec![
        opening("closed before anything is read", vec![Step::Close]),
        opening("reset before anything is read", vec![Step::Reset]),
        opening(
            "closed a moment after the connection is made",
            vec![Step::WaitMillis(5), Step::Close],
        ),
        answers(
            KIND,
            "closed after the request, without an answer",
            NETWORK,
            vec![Answer::steps([Step::Close])],
        ),
        answers(
            KIND,
            "reset after the request, without an answer",
            NETWORK,
            vec![Answer::steps([Step::Reset])],
        ),
        answers(
            KIND,
            "reset after the first byte of the answer",
            NETWORK,
            vec![Answer::steps([send("H"), Step::WaitMillis(10), Step::Reset])],
        ),
        reading(
            "512 KB of user, closed while they are read",
            NETWORK,
            Answer::steps([Step::Close]),
        ),
        reading("512 KB of user, reset while they are read", NETWORK, Answer::steps([Step::Reset])),
        reading(
            "512 KB of user that nobody reads",
            Gets::TimesOut("send"),
            Answer::steps([Step::Hold]),
        ),
        reading(
            "512 KB of user, refused with 413 before they are read",
            http(413),
            Answer::reply(413, &[], "too large"),
        ),
        // Expected, and not so yet: who cannot send any more still reads what has come.
        reading(
            "512 KB of user, refused with 413 and closed before they are read",
            http(413),
            Answer::reply(413, &[], "too large").then(Step::Close),
        ),
        reading(
            "512 KB of user, refused with 413 before they are read, and the connection is kept",
            http(413),
            Answer::reply(413, &[], "too large").then(Step::Hold),
        ),
        // Tried again it would come too late.
        reading(
            "512 KB of user, refused with 401 before they are read, and retries",
            http(401),
            Answer::reply(401, &[], "no").then(Step::Hold),
        )
        .settings(json!({"fetch_retries": 2, "fetch_retry_backoff_min_millis": 5000})),
        reading(
            "512 KB of user, answered before they are read",
            Gets::Variants,
            Answer::steps([send(GOOD)]),
        ),
    ]
}

const KEPT: &str = "Kept connection";

pub fn kept() -> Vec<Fault> {
    let after = |name: &str, gets: Gets, before: Answer, then: Vec<Answer>| {
        Fault::new(KEPT, name, gets, move |_| {
            let (before, then) = (before.clone(), then.clone());
            scripted_after(Script::answers([before]), Script::answers(then)).waits(100)
        })
    };
    let good = Answer::service;
    let with_408 = Answer::steps([
        Step::Service,
        send("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"),
        Step::Close,
    ]);
    let another = r#"{"demo-nonce":{"key":"on","payload":"nobody"}}"#;
    let another = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{another}", another.len());
    let twice = Answer::steps([Step::Service, Step::WaitMillis(20), send(another)]);
    vec![
        after("a second answer, while idle", Gets::Own, twice, vec![good()]),
        after("closed while idle", Gets::Own, good().then(Step::Close), vec![good()]),
        after("reset while idle", Gets::Own, good().then(Step::Reset), vec![good()]),
        after("closed while idle, with an answer to no request", Gets::Own, with_408, vec![good()]),
        after(
            "closed at the instant of the request",
            Gets::Own,
            good(),
            vec![Answer::steps([Step::Close]), good()],
        ),
        after(
            "reset at the instant of the request",
            Gets::Own,
            good(),
            vec![Answer::steps([Step::Reset]), good()],
        ),
        after(
            "closed, and its replacement too",
            NETWORK,
            good(),
            vec![Answer::steps([Step::Close])],
        ),
        after("answered and reset", Gets::Own, good(), vec![good().then(Step::Reset), good()]),
        after(
            "one request for each connection",
            Gets::Own,
            good().then(Step::Close),
            vec![good().then(Step::Close)],
        ),
        idle_for_too_long(),
        replaced_while_stopped(),
    ]
}

fn idle_for_too_long() -> Fault {
    Fault::new(KEPT, "idle for longer than it may be", Gets::Own, |_| {
        scripted(Script::service()).waits(80)
    })
    .settings(json!({"connection_idle_timeout_millis": 50}))
}

/// What a suspended machine looks like to a process.
fn replaced_while_stopped() -> Fault {
    let name = "the server is another one when the process wakes, as after a suspend";
    Fault::new(KEPT, name, Gets::Own, |_| {
        let port = crate::world::port();
        let start =
            move || MockService::start_on(port, Script::service()).expect("the port is ours");
        let service = std::cell::RefCell::new(start());
        Scene::at(format!("http://127.0.0.1:{port}")).fails(move |victim: &Victim| {
            victim.signal(libc::SIGSTOP);
            service.borrow().stop();
            *service.borrow_mut() = start();
            sleep(Duration::from_millis(100));
            victim.signal(libc::SIGCONT);
        })
    })
}
