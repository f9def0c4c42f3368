//! What befalls the process itself.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mock_service::{Answer, MockService, Script, Step};
use rcgen::date_time_ymd;
use serde_json::json;

use super::send;
use crate::fault::{Fault, Gets, INVALID, NETWORK, Scene, TLS, scripted};
use crate::support::tls::{Authority, NAMES, TlsServer};
use crate::victim::{Victim, Way};
use crate::world::{Says, World};

const KIND: &str = "Process";
const WAITS: Gets = Gets::TimesOut("first_byte");
/// Who fetches on the caller's own thread, and who on one of the library.
const OWN_THREAD: [Way; 2] = [Way::C, Way::Python];
const LIBRARYS_THREAD: [Way; 3] = [Way::CAsync, Way::Go, Way::Ruby];

pub fn process(world: &World) -> Vec<Fault> {
    let mut faults = limits(world);
    faults.extend(clocks());
    faults.extend(signals());
    faults
}

fn silence() -> Script {
    Script::answers([Answer::steps([Step::Hold])])
}

/// Within the time, but late enough for something to happen before.
fn late() -> Script {
    Script::answers([Answer::service().delayed(200)])
}

fn limits(world: &World) -> Vec<Fault> {
    let flood = || {
        let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        let head = send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        Script::answers([Answer::steps([head, Step::repeat(chunk, 1 << 13)])])
    };
    vec![
        Fault::new(KIND, "no descriptor is left", NETWORK, |_| {
            let service = MockService::start(Script::service());
            Scene::at(service.url())
                .with(json!({"connection_idle_timeout_millis": 0}))
                .fails(|victim| limit(victim, libc::RLIMIT_NOFILE, first_free_descriptor(victim)))
                .lifts(|victim| limit(victim, libc::RLIMIT_NOFILE, 1024))
                .keeping(service)
        })
        .in_an_own_process(&[]),
        Fault::new(KIND, "no memory is left for a body of 512 MB", INVALID, move |_| {
            scripted(flood())
                .fails(|victim| limit(victim, libc::RLIMIT_AS, memory_of(victim) + (64 << 20)))
                .lifts(|victim| limit(victim, libc::RLIMIT_AS, libc::RLIM_INFINITY))
        })
        .settings(json!({"max_response_bytes": 1 << 30}))
        .bound_millis(5000)
        .in_an_own_process(&[]),
        no_thread(world, "no thread can begin, and none is needed", Gets::Own, false)
            .except(&LIBRARYS_THREAD, "each fetch is made by a thread of the library"),
        no_thread(
            world,
            "no thread can begin to fetch",
            Gets::Fails("EXP_ERR_QUEUE_FULL", 0),
            false,
        )
        .except(&OWN_THREAD, "the caller's own thread fetches"),
        no_thread(world, "no thread can begin to look up a name", NETWORK, true)
            .except(&LIBRARYS_THREAD, "none can begin to fetch either"),
    ]
}

fn no_thread(world: &World, name: &str, gets: Gets, needs_name: bool) -> Fault {
    let world = world.share();
    Fault::new(KIND, name, gets, move |_| {
        let service = MockService::start(Script::service());
        let name = world.name();
        name.is(Says::Addresses(vec![service.address().ip()]));
        let url = if needs_name { name.url(service.address().port()) } else { service.url() };
        Scene::at(url)
            .fails(|victim| std::fs::write(file("no-threads", victim.way), "").unwrap())
            .lifts(|victim| drop(std::fs::remove_file(file("no-threads", victim.way))))
            .keeping(service)
    })
    .on_a_new_connection()
    .in_an_own_process(&[("LD_PRELOAD", "{no_threads}"), ("FAULTS_NO_THREADS", "{no-threads}")])
}

fn clocks() -> Vec<Fault> {
    let jumps = |name: &str, gets: Gets, script: fn() -> Script, jump: &'static str| {
        Fault::new(KIND, name, gets, move |_| {
            scripted(script())
                .meanwhile(move |victim| {
                    sleep(Duration::from_millis(80));
                    set_clock(victim, jump);
                })
                .lifts(|victim| set_clock(victim, "+0"))
        })
        .in_an_own_process(CLOCK)
    };
    vec![
        jumps(
            "the wall clock goes back a day while the fetch waits in vain",
            WAITS,
            silence,
            "-1d",
        ),
        jumps(
            "the wall clock goes forward a day while the fetch waits in vain",
            WAITS,
            silence,
            "+1d",
        ),
        jumps("the wall clock goes back a day while the fetch waits", Gets::Own, late, "-1d"),
        jumps("the wall clock goes forward a day while the fetch waits", Gets::Own, late, "+1d"),
        Fault::new(KIND, "the wall clock says that a good certificate has expired", TLS, |_| {
            let authority = Authority::new();
            let until_2090 =
                authority.certify_as(&NAMES, |it| it.not_after = date_time_ymd(2090, 1, 1));
            let config = until_2090.server_config(&[&rustls::version::TLS13]);
            let server = TlsServer::start(config);
            let settings =
                json!({"ca_file": authority.file(), "connection_idle_timeout_millis": 0});
            let scene = Scene::at(server.url()).with(settings).keeping((authority, server));
            scene
                .fails(|victim| set_clock(victim, "+30000d"))
                .lifts(|victim| set_clock(victim, "+0"))
        })
        .in_an_own_process(CLOCK),
    ]
}

/// libfaketime, which reads a file each time it is asked, and leaves the monotonic clock alone.
const CLOCK: &[(&str, &str)] = &[
    ("LD_PRELOAD", "{faketime}"),
    ("FAKETIME_TIMESTAMP_FILE", "{clock}"),
    ("FAKETIME_NO_CACHE", "1"),
    ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ("DONT_FAKE_MONOTONIC", "1"),
];

fn set_clock(victim: &Victim, by: &str) {
    std::fs::write(file("clock", victim.way), by).expect("the temporary folder can be written to");
}

fn signals() -> Vec<Fault> {
    let stopped = |name: &str, gets: Gets, script: fn() -> Script, millis: u64| {
        Fault::new(KIND, name, gets, move |_| {
            scripted(script()).meanwhile(move |victim| {
                sleep(Duration::from_millis(50));
                victim.signal(libc::SIGSTOP);
                sleep(Duration::from_millis(millis));
                victim.signal(libc::SIGCONT);
            })
        })
    };
    let storm = |name: &str, gets: Gets, script: fn() -> Script, how: &'static str| {
        let fault =
            Fault::new(KIND, name, gets, move |_| scripted(script()).meanwhile(alarm_often))
                .in_an_own_process(&[("FAULTS_ALARMS", how)]);
        match how {
            "restart" => fault,
            _ => fault
                .except(&[Way::Go, Way::Ruby], "its runtime decides how handlers are installed"),
        }
    };
    vec![
        stopped("stopped for 100 ms while it waits (SIGSTOP)", Gets::Own, late, 100),
        // Expected, and not so yet: back as soon as the process goes on.
        stopped(
            "stopped until its time is over (SIGSTOP)",
            Gets::Either(&["EXP_ERR_TIMEOUT"]),
            silence,
            450,
        )
        .settings(json!({"fetch_timeout_millis": 300}))
        .bound_millis(500),
        storm("SIGALRM each 0.5 ms, with SA_RESTART", Gets::Own, late, "restart"),
        storm("SIGALRM each 0.5 ms, with SA_RESTART, in vain", WAITS, silence, "restart"),
        storm("SIGALRM each 0.5 ms, without SA_RESTART", Gets::Own, late, "interrupt"),
        storm("SIGALRM each 0.5 ms, without SA_RESTART, in vain", WAITS, silence, "interrupt"),
    ]
}

fn alarm_often(victim: &Victim) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(350) {
        victim.signal(libc::SIGALRM);
        sleep(Duration::from_micros(500));
    }
}

/// A file by which this victim is told something.
pub fn file(what: &str, way: Way) -> PathBuf {
    let name = format!("exp-faults-{}-{what}-{way:?}", std::process::id());
    std::env::temp_dir().join(name)
}

fn limit(victim: &Victim, resource: libc::__rlimit_resource_t, value: u64) {
    let mut both = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let id = victim.id() as libc::pid_t;
    // SAFETY: both outlive the calls.
    unsafe {
        assert_eq!(libc::prlimit(id, resource, std::ptr::null(), &raw mut both), 0);
        both.rlim_cur = value.min(both.rlim_max);
        assert_eq!(libc::prlimit(id, resource, &raw const both, std::ptr::null_mut()), 0);
    }
}

fn first_free_descriptor(victim: &Victim) -> u64 {
    let is_free =
        |number: &u64| !PathBuf::from(format!("/proc/{}/fd/{number}", victim.id())).exists();
    (0..).find(is_free).expect("one is free")
}

/// Address space in use.
fn memory_of(victim: &Victim) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{}/statm", victim.id())).unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}
