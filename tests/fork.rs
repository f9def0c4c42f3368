//! A client that exists when its process forks: parent and child each go on, on connections of
//! their own.

use std::time::Duration;

use experiment::client::Client;
use experiment::config::Config;
use experiment::model::User;
use experiment::options::FetchOptions;
use mock_service::{MockService, Script};

/// Within this, what has to happen on an idle loopback has happened; beyond it, it never will.
const PATIENCE: Duration = Duration::from_secs(10);

fn client(service: &MockService) -> Client {
    let mut config = Config::default();
    config.set_server_url(&service.url()).unwrap();
    config.set_fetch_timeout(5_000).unwrap();
    Client::new("key", &config).unwrap()
}

fn fetch(client: &Client, user_id: &str) -> bool {
    let mut user = User::new();
    user.set_text("user_id", user_id).unwrap();
    let variants = client.fetch(&user, &FetchOptions::default()).result.unwrap();
    let echoed = variants.get("demo-nonce").unwrap().payload_json().unwrap();
    echoed.as_str() == format!("\"{user_id}\"")
}

/// Runs `in_child` in a forked process; true if it returned true within the patience.
fn forked(in_child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `in_child` and leaves by _exit; glibc keeps malloc usable in it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: an alarm ends a child that hangs, and _exit runs nothing of the parent's.
        unsafe {
            libc::alarm(PATIENCE.as_secs() as u32);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(in_child));
            libc::_exit(i32::from(!matches!(done, Ok(true))));
        }
    }
    let mut status = -1;
    // SAFETY: `child` is a child of this process, `status` is alive.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status == 0
}

#[test]
fn parent_and_child_fetch_on_connections_of_their_own() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    assert!(fetch(&client, "before"));
    assert!(forked(|| fetch(&client, "child") && fetch(&client, "child again")));
    assert!(fetch(&client, "after"));
    let connection_of = |user: &str| {
        let requests = service.requests();
        let of = |request: &&mock_service::Request| {
            String::from_utf8_lossy(&request.body.0).contains(&format!("\"{user}\""))
        };
        requests.iter().find(of).unwrap().connection
    };
    assert_eq!(connection_of("before"), connection_of("after"));
    assert_ne!(connection_of("before"), connection_of("child"));
    assert_eq!(connection_of("child"), connection_of("child again"));
}

#[test]
fn the_service_sees_the_parent_close_while_the_child_lives() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    assert!(fetch(&client, "before"));
    let (mut read, mut write) = std::io::pipe().unwrap();
    // SAFETY: see `forked`; this child waits until the parent is done.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(write);
        let fetched = fetch(&client, "child");
        let _ = std::io::Read::read(&mut read, &mut [0]);
        // SAFETY: leaves at once.
        unsafe { libc::_exit(i32::from(!fetched)) };
    }
    let child_fetched = service.wait_until(PATIENCE, |record| record.requests_total == 2);
    drop(client);
    let parents_is_gone = service.wait_until(PATIENCE, |record| record.connections_open == 1);
    std::io::Write::write_all(&mut write, b"x").unwrap();
    let mut status = -1;
    // SAFETY: `child` is a child of this process, `status` is alive.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(child_fetched && parents_is_gone && status == 0);
}

#[test]
fn a_child_that_only_frees_its_client_leaves_the_parents_connections_alone() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    assert!(fetch(&client, "before"));
    let mut kept = Some(client);
    assert!(forked(|| {
        drop(kept.take());
        true
    }));
    assert!(fetch(kept.as_ref().unwrap(), "after"));
    assert_eq!(service.connections_accepted(), 1);
}

#[test]
fn a_child_of_a_child_works_too() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    assert!(forked(|| fetch(&client, "child") && forked(|| fetch(&client, "grandchild"))));
    assert!(fetch(&client, "parent"));
}
