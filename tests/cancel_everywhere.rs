//! Whoever cancels a fetch has it back at once, wherever it is; no other connection or descriptor
//! notices. And whoever has an interrupt hook is asked often enough.

mod support;

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use experiment::client::{Client, Fetched};
use experiment::config::Config;
use experiment::machine::cancel::{Cancel, HOOK_INTERVAL};
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::rules::error::Status;
use experiment::rules::metrics::CloseReason;
use mock_service::{Answer, MockService, Script, Step};
use support::net::{Dropping, connecting_to};
use support::stall;
use support::tls::{Authority, NAMES, stalling_after};
use support::{
    LOCALHOST, PROMISE, SLACK, TRIES, client, config, fetch, large_user, named_url, wait_until,
};

fn with_cancel(cancel: &Arc<Cancel>) -> FetchOptions {
    FetchOptions { cancel: Some(Arc::clone(cancel)), ..FetchOptions::default() }
}

/// Begins a fetch, waits until it is where it is to be, and cancels it; several times if it comes
/// back late, see [`TRIES`].
#[track_caller]
fn comes_back(client: &Client, user: &User, is_there: impl Fn() -> bool) {
    let mut times = Vec::new();
    for _ in 0..TRIES {
        let cancel = Cancel::new();
        let options = with_cancel(&cancel);
        let (fetched, took) = thread::scope(|scope| {
            let fetch = scope.spawn(|| (client.fetch(user, &options), Instant::now()));
            wait_until("the fetch is where it is to be canceled", &is_there);
            assert!(!fetch.is_finished(), "it is still under way");
            let fired = Instant::now();
            cancel.fire();
            let (fetched, back) = fetch.join().unwrap();
            (fetched, back.duration_since(fired))
        });
        let error = fetched.result.expect_err("it is canceled");
        assert_eq!((error.status, error.retryable), (Status::Canceled, false), "{error}");
        assert_eq!(error.phase, None, "it is no timeout");
        times.push(took);
        if took <= PROMISE + SLACK {
            assert_eq!(client.metrics().failures(Status::Canceled), times.len() as u64);
            return;
        }
    }
    panic!("canceled fetches came back after {times:?}");
}

/// The same while the service plays this; the next fetch is then served, on another connection.
#[track_caller]
fn comes_back_from(stall: stall::Stall, configure: impl Fn(&mut Config)) {
    let service = MockService::start(stall.script);
    let mut settings = config(&service.url());
    configure(&mut settings);
    let client = client(&settings);
    let seen = AtomicUsize::new(0);
    // The service has read the head, and the pool has its lease out.
    comes_back(&client, &large_user(stall.user_bytes), || {
        let is_new = service.requests_total() > seen.load(Ordering::SeqCst);
        if is_new {
            seen.store(service.requests_total(), Ordering::SeqCst);
        }
        is_new
    });
    assert_eq!(client.metrics().connections_closed(CloseReason::Failed), seen.into_inner() as u64);
    service.set_script(Script::service());
    let fetched = fetch(&client).unwrap();
    assert!(!fetched.timings.reused, "the canceled connection is not used again");
}

#[test]
fn while_it_sends() {
    comes_back_from(stall::unread_user(), |_| {});
}

#[test]
fn while_it_waits_for_the_head() {
    comes_back_from(stall::silence(), |_| {});
    comes_back_from(stall::dripped_head(), |_| {});
    comes_back_from(stall::endless_early_hints(), |_| {});
}

#[test]
fn while_it_reads_the_body() {
    comes_back_from(stall::body_that_stops(), |_| {});
    comes_back_from(stall::dripped_body(), |_| {});
    comes_back_from(stall::endless_empty_gzip(), |_| {});
    comes_back_from(stall::flood(), |config| config.set_max_response_bytes(1 << 30).unwrap());
}

#[test]
fn while_it_waits_to_try_again() {
    let service = MockService::start(Script::answers([Answer::reply(503, &[], "no")]));
    let mut settings = config(&service.url());
    settings.set_fetch_retries(5).unwrap();
    settings.set_fetch_retry_backoff_min(10_000).unwrap();
    let client = client(&settings);
    let seen = AtomicUsize::new(0);
    comes_back(&client, &User::new(), || {
        let is_pausing =
            service.requests_total() > seen.load(Ordering::SeqCst) && client.gauges().leased == 0;
        if is_pausing {
            seen.store(service.requests_total(), Ordering::SeqCst);
        }
        is_pausing
    });
    service.set_script(Script::service());
    assert!(fetch(&client).unwrap().timings.reused, "nothing was wrong with the connection");
}

#[test]
fn while_it_waits_for_a_connection() {
    let service = MockService::start(Script::answers([Answer::steps([Step::Hold])]));
    let client = client(&config(&service.url()));
    let (first, other) = (Cancel::new(), with_cancel(&Cancel::new()));
    let options = with_cancel(&first);
    thread::scope(|scope| {
        scope.spawn(|| client.fetch(&User::new(), &options).result.unwrap_err());
        wait_until("the pool is used up", || service.requests_total() == 1);
        let waiting = scope.spawn(|| {
            wait_until("another waits behind the one to be canceled", || {
                client.gauges().waiting == 1
            });
            fetch_result(&client, &other)
        });
        // It is first in line; the one behind it keeps its place.
        comes_back(&client, &User::new(), || client.gauges().waiting == 2);
        service.set_script(Script::service());
        first.fire();
        assert!(waiting.join().unwrap().result.is_ok());
    });
    fetch(&client).unwrap();
}

fn fetch_result(client: &Client, options: &FetchOptions) -> Fetched {
    client.fetch(&support::user().0, options)
}

#[test]
fn while_it_looks_up_a_name() {
    let service = MockService::start(Script::service());
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let inside = Arc::new(AtomicUsize::new(0));
    let entered = Arc::clone(&inside);
    let mut settings = config(&named_url("http", "service.test", service.address()));
    settings.set_lookup(Arc::new(move |_| {
        entered.fetch_add(1, Ordering::SeqCst);
        let _ = gate.lock().unwrap().recv();
        Ok(vec![LOCALHOST])
    }));
    let client = client(&settings);
    let seen = AtomicUsize::new(0);
    comes_back(&client, &User::new(), || {
        let is_new = inside.load(Ordering::SeqCst) > seen.load(Ordering::SeqCst);
        seen.store(inside.load(Ordering::SeqCst), Ordering::SeqCst);
        is_new
    });
    assert_eq!(client.metrics().lookups_abandoned.value(), seen.into_inner() as u64);
    drop(release);
    fetch(&client).unwrap();
}

#[test]
fn while_it_connects() {
    let listener = Dropping::listen((Ipv4Addr::LOCALHOST, 0).into());
    let port = listener.address().port();
    let client = client(&config(&format!("http://{}", listener.address())));
    comes_back(&client, &User::new(), || connecting_to(port) == 1);
    assert_eq!(connecting_to(port), 0);
}

#[test]
fn while_it_shakes_hands() {
    let authority = Authority::new();
    let identity = authority.certify(&NAMES);
    let server = Arc::new(identity.server_config(rustls::ALL_VERSIONS));
    for records in [0, 1, 2] {
        let address = stalling_after(Arc::clone(&server), records);
        let mut settings = config(&format!("https://{address}"));
        settings.set_ca_file(authority.file()).unwrap();
        let client = client(&settings);
        let opened = AtomicUsize::new(0);
        comes_back(&client, &User::new(), || {
            let now = client.metrics().connections_opened.value() as usize;
            let is_new = now > opened.load(Ordering::SeqCst);
            opened.store(now, Ordering::SeqCst);
            is_new
        });
    }
}

#[test]
fn before_it_begins() {
    let service = MockService::start(Script::service());
    let client = client(&config(&service.url()));
    let cancel = Cancel::new();
    cancel.fire();
    for _ in 0..3 {
        let fetched = client.fetch(&User::new(), &with_cancel(&cancel));
        assert_eq!(fetched.result.unwrap_err().status, Status::Canceled);
    }
    assert_eq!(service.connections_accepted(), 0);
    fetch(&client).unwrap();
}

#[test]
fn one_switch_ends_all_that_carry_it_and_nothing_else() {
    let service = MockService::start(Script::answers([Answer::steps([Step::Hold])]));
    let mut settings = config(&service.url());
    settings.set_connection_pool_max_size(16).unwrap();
    let client = client(&settings);
    let (cancel, other) = (Cancel::new(), Cancel::new());
    let (options, others) = (with_cancel(&cancel), with_cancel(&other));
    thread::scope(|scope| {
        let fetches: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| client.fetch(&User::new(), &options).result.unwrap_err()))
            .collect();
        let innocent: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| client.fetch(&User::new(), &others).result.unwrap_err()))
            .collect();
        wait_until("all are under way", || service.requests_total() == 16);
        cancel.fire();
        for fetch in fetches {
            assert_eq!(fetch.join().unwrap().status, Status::Canceled);
        }
        assert!(innocent.iter().all(|fetch| !fetch.is_finished()));
        assert_eq!(service.requests_total(), 16);
        other.fire();
    });
}

/// A number that is as good as random (SplitMix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn cancels_at_any_moment_touch_no_descriptor_but_their_own() {
    const FETCHERS: usize = 4;
    const STRANGERS: usize = 4;
    const FOR: Duration = Duration::from_secs(2);
    let service =
        MockService::start(Script::answers([Answer::service()]).keep(mock_service::Keep::Nothing));
    let mut settings = config(&service.url());
    settings.set_connection_pool_max_size(FETCHERS as u32).unwrap();
    settings.set_connection_max_lifetime(2).unwrap(); // so that numbers change hands all the time
    let client = client(&settings);
    let (canceled, served, strangers) = Default::default();
    let counters: [&AtomicUsize; 3] = [&canceled, &served, &strangers];
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..FETCHERS as u64 {
            let (client, over) = (&client, &over);
            scope.spawn(move || {
                let mut state = seed;
                while !over.load(Ordering::Relaxed) {
                    let cancel = Cancel::new();
                    let micros = random(&mut state) % 300;
                    let firing = Arc::clone(&cancel);
                    // Fires while the fetch is anywhere, or just after it, when its descriptors may
                    // be another's already.
                    let (go, gone) = mpsc::channel();
                    let firer = thread::spawn(move || {
                        gone.recv().unwrap();
                        let at = Instant::now() + Duration::from_micros(micros);
                        while Instant::now() < at {
                            std::hint::spin_loop();
                        }
                        firing.fire();
                    });
                    go.send(()).unwrap();
                    match support::fetch_with(client, &with_cancel(&cancel)) {
                        Ok(_) => counters[1].fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            assert_eq!(error.status, Status::Canceled, "{error}");
                            counters[0].fetch_add(1, Ordering::Relaxed)
                        }
                    };
                    firer.join().unwrap();
                }
            });
        }
        for _ in 0..STRANGERS {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // Sockets that are nobody's business: what goes in must come out, and nothing
                    // else, and they must not end by themselves.
                    let (mut one, mut other) = UnixStream::pair().unwrap();
                    one.set_nonblocking(true).unwrap();
                    for byte in 0..4 {
                        other.write_all(&[byte]).unwrap();
                        let mut read = [0xff; 8];
                        assert_eq!(one.read(&mut read).unwrap(), 1, "a stranger wrote or ended it");
                        assert_eq!(read[0], byte);
                    }
                    let nothing = one.read(&mut [0]).unwrap_err();
                    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
                    counters[2].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(FOR);
        over.store(true, Ordering::Relaxed);
    });
    let [canceled, served, strangers] = counters.map(|counter| counter.load(Ordering::Relaxed));
    println!("{canceled} canceled, {served} served, {strangers} pairs of strangers unharmed");
    assert!(canceled > 100 && served > 100 && strangers > 1000);
    assert_eq!(client.metrics().stale_repeats.value(), 0, "no connection was ended from outside");
    drop(client);
    assert!(service.wait_until(support::PATIENCE, |seen| seen.connections_open == 0));
}

/// What a hook was asked, and on which thread.
#[derive(Default)]
struct Asked(Mutex<Vec<(Instant, thread::ThreadId)>>);

impl Asked {
    fn note(&self) {
        self.0.lock().unwrap().push((Instant::now(), thread::current().id()));
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn with_hook(asked: &Arc<Asked>, stop: impl Fn() -> bool + Send + Sync + 'static) -> FetchOptions {
    let asked = Arc::clone(asked);
    let hook = move || {
        asked.note();
        stop()
    };
    FetchOptions { interrupt: Some(Arc::new(hook)), ..FetchOptions::default() }
}

/// Lets a fetch time out after half a second, and looks at how often its hook was asked.
fn is_asked_every_interval(client: &Client, user: &User) {
    let asked = Arc::new(Asked::default());
    let options = with_hook(&asked, || false);
    let began = Instant::now();
    let error = client.fetch(user, &options).result.unwrap_err();
    assert_eq!(error.status, Status::Timeout, "{error}");
    let asked = asked.0.lock().unwrap();
    let whole = (began.elapsed().as_millis() / HOOK_INTERVAL.as_millis()) as usize;
    assert!(asked.len() <= whole, "asked {} times in {:?}", asked.len(), began.elapsed());
    // Each wait may begin late on a machine that is busy, so that some turns are missed.
    assert!(asked.len() >= 5, "asked {} times in {:?}", asked.len(), began.elapsed());
    assert!(asked.iter().all(|(_, thread)| *thread == thread::current().id()));
}

const HALF_A_SECOND: u64 = 500;

#[test]
fn the_hook_is_asked_every_interval_while_a_server_is_silent_drips_or_floods() {
    for stall in [
        stall::silence(),
        stall::dripped_body(),
        stall::endless_empty_gzip(),
        stall::endless_early_hints(),
        stall::unread_user(),
    ] {
        println!("{}", stall.name);
        let service = MockService::start(stall.script);
        let mut settings = config(&service.url());
        settings.set_fetch_timeout(HALF_A_SECOND).unwrap();
        is_asked_every_interval(&client(&settings), &large_user(stall.user_bytes));
    }
}

#[test]
fn the_hook_is_asked_every_interval_while_connecting_and_looking_up() {
    let listener = Dropping::listen((Ipv4Addr::LOCALHOST, 0).into());
    let mut settings = config(&format!("http://{}", listener.address()));
    settings.set_fetch_timeout(HALF_A_SECOND).unwrap();
    is_asked_every_interval(&client(&settings), &User::new());
    let mut settings = config("http://service.test");
    settings.set_fetch_timeout(HALF_A_SECOND).unwrap();
    settings.set_lookup(Arc::new(|_| {
        thread::sleep(Duration::from_millis(2 * HALF_A_SECOND)); // a lookup cannot be canceled
        Err(std::io::Error::other("too late"))
    }));
    is_asked_every_interval(&client(&settings), &User::new());
}

#[test]
fn the_hook_is_asked_every_interval_while_waiting_in_line_and_to_try_again() {
    let service = MockService::start(Script::answers([Answer::steps([Step::Hold])]));
    let mut settings = config(&service.url());
    settings.set_fetch_pool_acquire_timeout(HALF_A_SECOND).unwrap();
    let crowded = client(&settings);
    let cancel = Cancel::new();
    let options = with_cancel(&cancel);
    thread::scope(|scope| {
        scope.spawn(|| crowded.fetch(&User::new(), &options));
        wait_until("the pool is used up", || service.requests_total() == 1);
        is_asked_every_interval(&crowded, &User::new());
        cancel.fire();
    });
    service.set_script(Script::answers([Answer::reply(503, &[], ""), Answer::steps([Step::Hold])]));
    let mut settings = config(&service.url());
    settings.set_fetch_retries(1).unwrap();
    settings.set_fetch_retry_backoff_min(HALF_A_SECOND).unwrap();
    settings.set_fetch_retry_timeout(1).unwrap();
    is_asked_every_interval(&client(&settings), &User::new());
}

#[test]
fn a_hook_that_says_so_ends_the_fetch_as_canceled() {
    let service = MockService::start(Script::answers([Answer::steps([Step::Hold])]));
    let client = client(&config(&service.url()));
    let mut times = Vec::new();
    for _ in 0..TRIES {
        let asked = Arc::new(Asked::default());
        let options = with_hook(&asked, || true);
        let began = Instant::now();
        let error = client.fetch(&User::new(), &options).result.unwrap_err();
        assert_eq!(error.status, Status::Canceled);
        assert_eq!(asked.count(), 1, "it is not asked again");
        times.push(began.elapsed());
        if began.elapsed() <= HOOK_INTERVAL + PROMISE + SLACK {
            return;
        }
    }
    panic!("{times:?}");
}

/// Has a signal do nothing but interrupt, with or without the system call being begun again.
fn handle(signal: libc::c_int, flags: libc::c_int) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler calls nothing; all zeroes is a valid sigaction.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn the_hook_is_asked_when_a_signal_interrupts() {
    let service = MockService::start(Script::answers([Answer::steps([Step::Hold])]));
    let mut settings = config(&service.url());
    settings.set_fetch_timeout(1000).unwrap();
    let client = client(&settings);
    for (signal, flags) in [(libc::SIGUSR1, 0), (libc::SIGUSR2, libc::SA_RESTART)] {
        handle(signal, flags);
        let asked = Arc::new(Asked::default());
        let options = with_hook(&asked, || false);
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let (client, options) = (&client, &options);
            let fetch = scope.spawn(move || {
                // SAFETY: takes no arguments.
                tell.send(unsafe { libc::pthread_self() }).unwrap();
                client.fetch(&User::new(), options)
            });
            let thread = told.recv().unwrap();
            // A signal right after each turn of the hook: the next turn is due in 50 ms, and if it
            // comes earlier, then for the signal.
            let mut seen = 0;
            while !fetch.is_finished() {
                if asked.count() > seen {
                    seen = asked.count();
                    // SAFETY: the thread runs, or has not been joined yet.
                    unsafe { libc::pthread_kill(thread, signal) };
                }
                thread::yield_now();
            }
            assert_eq!(fetch.join().unwrap().result.unwrap_err().status, Status::Timeout);
        });
        let asked = asked.0.lock().unwrap();
        let soon =
            asked.windows(2).filter(|two| two[1].0 - two[0].0 < HOOK_INTERVAL * 8 / 10).count();
        println!("flags {flags:#x}: asked {} times, {soon} of them early", asked.len());
        // Every turn is answered by a signal, so that most turns are early; half of that will do.
        assert!(soon >= 10, "asked {} times, {soon} of them early", asked.len());
    }
}

#[test]
fn a_signal_without_a_hook_changes_nothing() {
    handle(libc::SIGURG, 0);
    let body = format!(r#"{{"a":{{"key":"{}"}}}}"#, "x".repeat(60));
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let answer = Answer::steps([Step::drip(head, 1), Step::drip(body, 1)]);
    let service = MockService::start(Script::answers([answer]));
    let client = client(&config(&service.url()));
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let client = &client;
        let fetch = scope.spawn(move || {
            // SAFETY: takes no arguments.
            tell.send(unsafe { libc::pthread_self() }).unwrap();
            client.fetch(&User::new(), &FetchOptions::default())
        });
        let thread = told.recv().unwrap();
        while !fetch.is_finished() {
            // SAFETY: the thread runs, or has not been joined yet.
            unsafe { libc::pthread_kill(thread, libc::SIGURG) };
            thread::sleep(Duration::from_micros(100));
        }
        let fetched = fetch.join().unwrap();
        assert_eq!(fetched.result.map(|variants| variants.len()), Ok(1));
        assert_eq!(fetched.attempts, 1);
    });
}
