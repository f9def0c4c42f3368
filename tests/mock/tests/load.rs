//! The service has to be faster than what is measured with it.

mod support;

use std::thread;
use std::time::Instant;

use mock_service::{Keep, MockService, Script};
use support::{Client, USER};

const CLIENTS: usize = 8;
const REQUESTS: usize = 20_000;

/// `cargo test --release -p mock-service --test load -- --ignored --nocapture`
#[test]
#[ignore = "measures; says nothing in a debug build or on a busy machine"]
fn twenty_thousand_requests_a_second() {
    let service = MockService::start(Script::service().keep(Keep::Nothing));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| ask(&service));
        }
    });
    let rate = (CLIENTS * REQUESTS) as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} requests a second over {CLIENTS} connections");
    assert_eq!(service.requests_total(), CLIENTS * REQUESTS);
    assert!(rate >= 20_000.0);
}

fn ask(service: &MockService) {
    let mut client = Client::of(service);
    let length = {
        let response = client.post(USER).response();
        response.head.len() + response.body.len()
    };
    for _ in 1..REQUESTS {
        client.post(USER).exactly(length);
    }
}
