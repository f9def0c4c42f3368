//! A client that exists when its process forks: parent and child each go on, on connections of
//! their own.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use experiment::client::Client;
use experiment::config::Config;
use experiment::machine::cancel::Hook;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::rules::deadline::Limit;
use experiment::rules::error::Status;
use mock_service::{Answer, MockService, Script, Step};

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

/// Fetches with a hook that forks, while another thread takes the client's lock again and again. The
/// child comes back from the fetch as canceled, soon, and without the locks of its parent; it can
/// fetch anew. The parent notices nothing.
fn a_hook_forks_in(client: &Client, silent: bool) {
    thread_local!(static CHILD: Cell<Option<i32>> = const { Cell::new(None) });
    CHILD.set(None);
    let hook = || {
        if CHILD.get().is_none() {
            // SAFETY: see `forked`.
            CHILD.set(Some(unsafe { libc::fork() }));
            if CHILD.get() == Some(0) {
                // SAFETY: see `forked`.
                unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
            }
        }
        false
    };
    let interrupt: Arc<Hook> = Arc::new(hook);
    let mut options = FetchOptions { interrupt: Some(interrupt), ..FetchOptions::default() };
    options.deadline = Limit::millis(300);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                client.gauges();
            }
        });
        let began = Instant::now();
        let error = client.fetch(&User::new(), &options).result.unwrap_err();
        if CHILD.get() == Some(0) {
            let mut good = error.status == Status::Canceled && began.elapsed() < PATIENCE / 2;
            // It has a session of its own.
            let own = client.fetch(&User::new(), &FetchOptions::default()).result;
            good &= silent || !matches!(own, Err(error) if error.status == Status::Canceled);
            // SAFETY: leaves at once.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        over.store(true, Ordering::Relaxed);
        assert_ne!(error.status, Status::Canceled, "the parent's fetch goes on");
        let mut status = -1;
        // SAFETY: it is a child of this process, `status` is alive.
        unsafe { libc::waitpid(CHILD.get().unwrap(), &raw mut status, 0) };
        assert_eq!(status, 0);
    });
}

fn short(service: &MockService) -> Config {
    let mut config = Config::default();
    config.set_server_url(&service.url()).unwrap();
    config.set_fetch_timeout(500).unwrap();
    config.set_connection_pool_max_size(1).unwrap();
    config
}

#[test]
fn a_fetch_whose_hook_forks_is_canceled_in_the_child_in_the_middle_of_its_exchange() {
    let service = MockService::start(Script::answers([Answer::steps([Step::Hold])]));
    for _ in 0..5 {
        a_hook_forks_in(&Client::new("key", &short(&service)).unwrap(), true);
    }
}

#[test]
fn a_fetch_whose_hook_forks_is_canceled_in_the_child_in_line() {
    let service = MockService::start(Script::answers([Answer::steps([Step::Hold])]));
    for _ in 0..5 {
        let client = Client::new("key", &short(&service)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| drop(client.fetch(&User::new(), &FetchOptions::default())));
            while client.gauges().leased == 0 {
                thread::yield_now();
            }
            a_hook_forks_in(&client, true);
        });
    }
}

#[test]
fn a_fetch_whose_hook_forks_is_canceled_in_the_child_between_two_attempts() {
    let service = MockService::start(Script::answers([Answer::reply(503, &[], "")]));
    for _ in 0..5 {
        let mut config = short(&service);
        config.set_fetch_retries(20).unwrap();
        config.set_fetch_retry_backoff_min(80).unwrap();
        config.set_fetch_retry_backoff_max(80).unwrap();
        config.set_fetch_retry_budget(100).unwrap();
        a_hook_forks_in(&Client::new("key", &config).unwrap(), false);
    }
}

#[test]
fn a_child_of_a_child_works_too() {
    let service = MockService::start(Script::service());
    let client = client(&service);
    assert!(forked(|| fetch(&client, "child") && forked(|| fetch(&client, "grandchild"))));
    assert!(fetch(&client, "parent"));
}
