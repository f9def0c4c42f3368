//! Statuses, and where redirects lead.

use std::rc::Rc;

use mock_service::{Answer, MockService, Script, Step};
use serde_json::json;

use super::{answers, send, steps};
use crate::fault::{Fault, Gets, http, scripted};
use crate::support::stall::gzip;

const KIND: &str = "Status";

pub fn statuses() -> Vec<Fault> {
    let mut faults = Vec::new();
    for status in [
        201, 202, 204, 205, 300, 304, 400, 401, 403, 404, 405, 408, 413, 418, 500, 501, 502, 503,
        504, 599,
    ] {
        let answer =
            Answer::reply(status, &[], if [204, 304].contains(&status) { "" } else { "why" });
        faults.push(answers(KIND, &status.to_string(), http(status), vec![answer]));
    }
    faults.extend([301, 302, 303, 307, 308].map(redirect));
    faults.extend(retry_after());
    faults.extend(odd());
    faults
}

/// The key and the user are sent to no other server.
fn redirect(status: u16) -> Fault {
    Fault::new(KIND, format!("{status} to elsewhere"), http(status), move |_| {
        let elsewhere = Rc::new(MockService::start(Script::service()));
        let location = format!("{}/sdk/v2/vardata?v=0", elsewhere.url());
        let answer = Answer::reply(status, &[("Location", &location)], "");
        scripted(Script::answers([answer])).checks(move || match elsewhere.connections_accepted() {
            0 => Ok(()),
            _ => Err("the redirect was followed".to_owned()),
        })
    })
}

/// In each form; without retries it is only told.
fn retry_after() -> Vec<Fault> {
    let forms = [
        ("none", None),
        ("in seconds", Some("2")),
        ("as a date", Some("Fri, 31 Dec 2100 23:59:59 GMT")),
        ("as a date that has passed", Some("Fri, 31 Dec 1999 23:59:59 GMT")),
        ("that is no time", Some("soon")),
        ("that is negative", Some("-1")),
        ("with a fraction", Some("0.5")),
        ("beyond 64 bits", Some("99999999999999999999")),
    ];
    let mut faults = Vec::from(forms.map(|(form, value)| {
        let headers: Vec<_> = value.map(|value| ("Retry-After", value)).into_iter().collect();
        let name = format!("429 with a Retry-After {form}");
        answers(KIND, &name, http(429), vec![Answer::reply(429, &headers, "slow down")])
    }));
    let retried = |name: &str, gets: Gets, seconds: &str| {
        let refusal = Answer::reply(429, &[("Retry-After", seconds)], "");
        answers(KIND, name, gets, vec![refusal, Answer::service()]).settings(json!({
            "fetch_retries": 1,
            "fetch_retry_timeout_millis": 300,
            "fetch_retry_backoff_min_millis": 0,
            "fetch_retry_backoff_max_millis": 500,
        }))
    };
    faults.push(retried("429 with a Retry-After that has passed, and a retry", Gets::Own, "0"));
    faults.push(retried("429 that asks for more than a retry may wait", http(429), "60"));
    faults
}

fn odd() -> Vec<Fault> {
    let nobodys = r#"{"demo-nonce":{"key":"on","payload":"nobody"}}"#;
    let hidden = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{nobodys}", nobodys.len());
    vec![
        steps(
            KIND,
            "204 with a body, which is an answer",
            http(204),
            [send(format!("HTTP/1.1 204 No Content\r\n\r\n{hidden}"))],
        ),
        steps(
            KIND,
            "304 with a body, which is an answer",
            http(304),
            [send(format!("HTTP/1.1 304 Not Modified\r\n\r\n{hidden}"))],
        ),
        steps(
            KIND,
            "503 with a body that stops",
            http(503),
            [send("HTTP/1.1 503 No\r\nContent-Length: 1000\r\n\r\nx"), Step::Hold],
        ),
        steps(
            KIND,
            "503 with a body without end",
            http(503),
            [send("HTTP/1.1 503 No\r\n\r\n"), Step::repeat("x".repeat(1000), u64::MAX)],
        ),
        steps(
            KIND,
            "503 with trailers without end",
            http(503),
            [
                send("HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"),
                Step::repeat("X: y\r\n".repeat(1000), u64::MAX),
            ],
        ),
        steps(
            KIND,
            "503 with chunks of one byte without end",
            http(503),
            [
                send("HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n"),
                Step::repeat("1\r\nx\r\n".repeat(1000), u64::MAX),
            ],
        ),
        steps(
            KIND,
            "503 with gzip without end",
            http(503),
            [
                send("HTTP/1.1 503 No\r\nContent-Encoding: gzip\r\n\r\n"),
                Step::repeat(gzip(b"").repeat(100), u64::MAX),
            ],
        ),
        steps(
            KIND,
            "401 with a body that drips",
            http(401),
            [
                send("HTTP/1.1 401 No\r\nContent-Length: 1000\r\n\r\n"),
                Step::drip("x".repeat(1000), 20),
            ],
        ),
        answers(
            KIND,
            "503, and variants on the retry",
            Gets::Own,
            vec![Answer::reply(503, &[], "no"), Answer::service()],
        )
        .settings(json!({"fetch_retries": 1, "fetch_retry_backoff_min_millis": 0})),
    ]
}
