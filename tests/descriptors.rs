//! However its fetches end, a client has no more descriptors open than its pool allows, and none
//! when it is gone. Alone in its process, because the process is what is counted.

mod support;

use std::time::Duration;

use experiment::client::Client;
use experiment::config::Config;
use experiment::machine::cancel::Cancel;
use experiment::remote::options::FetchOptions;
use experiment::rules::deadline::Limit;
use mock_service::{BlackHole, MockService, Script, Step};
use support::net::open_descriptors;
use support::proxy::{Conduct, Proxy};
use support::{bounded, config, large_user, resolve_to, stall, wait_until};

const POOL: usize = 4;
const ROUNDS: usize = 3;

/// Has every place of the pool used several times, from as many threads.
fn use_up(settings: &mut Config, user_bytes: usize) -> Client {
    settings.set_connection_pool_max_size(POOL as u32).unwrap();
    let client = support::client(settings);
    let user = large_user(user_bytes);
    std::thread::scope(|scope| {
        for _ in 0..POOL {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let _ = client.fetch(&user, &FetchOptions::default());
                }
            });
        }
    });
    client
}

/// Each connection has a socket and a bell. The other ends, which are this process's too, may be
/// closed a moment later, by threads of their own.
fn leaves_nothing(what: &str, outside: usize, client: Client) {
    wait_until(what, || open_descriptors() <= outside + 2 * POOL);
    let _ = client.close(Limit::millis(0));
    wait_until(what, || open_descriptors() <= outside);
    drop(client);
}

#[test]
fn no_way_in_which_a_fetch_can_end_leaves_a_descriptor_open() {
    const BOUND: Duration = Duration::from_millis(30);
    let mut kinds: Vec<_> = stall::all()
        .into_iter()
        .map(|stall| (stall.name, stall.script, stall.user_bytes))
        .collect();
    kinds.push(("served", Script::service(), 0));
    kinds.push(("closed at once", Script::service().connections([vec![Step::Close]]), 0));
    kinds.push(("reset at once", Script::service().connections([vec![Step::Reset]]), 0));
    let start = open_descriptors();
    for (name, script, user_bytes) in kinds {
        let service = MockService::start(script);
        let client = use_up(&mut bounded(&service.url(), BOUND), user_bytes);
        drop(service); // its ends of the connections are descriptors of this process too
        leaves_nothing(name, start, client);
    }

    let hole = BlackHole::open();
    let outside = open_descriptors();
    let mut settings = bounded(&hole.url().replace("127.0.0.1", "hole.test"), BOUND);
    let address = hole.address().ip();
    resolve_to(&mut settings, &[address, address, address]);
    leaves_nothing("never connected", outside, use_up(&mut settings, 0));
    let mut settings = bounded("http://name.test", BOUND);
    settings.set_lookup(std::sync::Arc::new(|_| Err(std::io::Error::other("no such host"))));
    leaves_nothing("never found", outside, use_up(&mut settings, 0));
    let refused = MockService::refused_url(); // takes two for the process, once
    let outside = open_descriptors();
    leaves_nothing("refused", outside, use_up(&mut bounded(&refused, BOUND), 0));
    let mut settings = bounded(&refused.replace("http", "https"), BOUND);
    leaves_nothing("refused over TLS", outside, use_up(&mut settings, 0));

    let service = MockService::start(Script::service());
    let proxy = Proxy::start(Conduct::Answer("HTTP/1.1 502 Bad\r\n\r\n"));
    let outside = open_descriptors();
    let mut settings = config(&service.url());
    settings.set_proxy_url(&proxy.url()).unwrap();
    leaves_nothing("refused by the proxy", outside, use_up(&mut settings, 0));

    let cancel = Cancel::new();
    cancel.fire();
    let client = support::client(&config(&service.url()));
    let options = FetchOptions { cancel: Some(cancel), ..FetchOptions::default() };
    client.fetch(&large_user(0), &options).result.unwrap_err();
    leaves_nothing("canceled", outside, client);
}
