//! No fetch goes on for longer than 5 ms of work without a look at its bounds, whatever it is sent: the
//! corpora of `fuzz/`, and inputs as large as they may be. The cases of `tests/conformance` and the faults
//! of `tests/faults` are counted where they are run; `packaging/test-gaps` runs all of it.

#[path = "../fuzz/src/service.rs"]
#[allow(dead_code, unused_unsafe, reason = "it is another crate's")]
mod service;
#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use experiment::client::Client;
use experiment::config::Config;
use experiment::model::User;
use experiment::remote::options::FetchOptions;
use experiment::rules::deadline::Limit;
use mock_service::{Answer, MockService, Script, Step};
use rustls::version::{TLS12, TLS13};
use service::{Play, Service, Then};
use support::gaps::{Gaps, counted_here};
use support::stall::{self, gzip};
use support::tls::{
    Authority, Identity, NAMES, TlsServer, flooding_with_tickets, of_one_name, read_request,
    with_others_of_one_name,
};
use support::{bounded, config, large_user, user};

/// What never ends is left after so long.
const BOUND: Duration = Duration::from_millis(300);
const EVER: u64 = u64::MAX;
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// What the library reads to be worse than it is: a gap in each fetch, or no look at all.
const PLANTED: &str = "EXPERIMENT_GAPS_PLANTED";
const BLIND: &str = "EXPERIMENT_GAPS_BLIND";

struct Tests {
    only: String,
    max_response_bytes: u64,
    gaps: Gaps,
    passed: usize,
    failed: usize,
}

impl Tests {
    fn run(&mut self, name: &str, run: impl FnMut()) {
        if !name.contains(&self.only) {
            return;
        }
        let too_long = self.gaps.of(name, run, counted_here);
        for gap in &too_long {
            println!("FAILED: {name}: {gap}");
        }
        if too_long.is_empty() { self.passed += 1 } else { self.failed += 1 }
    }

    /// One or more fetches of a client.
    fn fetch(&mut self, name: &str, config: &Config, users: &[User]) {
        self.run(name, || {
            let client = Client::new("key", config).expect(name);
            for user in users {
                let _ = client.fetch(user, &FetchOptions::default());
            }
        });
    }

    fn script(&mut self, name: &str, script: Script) {
        let service = MockService::start(script);
        let mut config = bounded(&service.url(), BOUND);
        config.set_max_response_bytes(self.max_response_bytes).unwrap();
        self.fetch(name, &config, &[user().0]);
    }

    fn steps(&mut self, name: &str, steps: impl IntoIterator<Item = Step>) {
        self.script(name, Script::answers([Answer::steps(steps)]));
    }

    /// In time enough to take all of it.
    fn body(&mut self, name: &str, head: &str, body: &[u8]) {
        let head = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {}\r\n\r\n", body.len());
        let answer = Answer::steps([Step::send([head.as_bytes(), body].concat())]);
        let service = MockService::start(Script::answers([answer]));
        let mut config = config(&service.url());
        config.set_max_response_bytes(self.max_response_bytes).unwrap();
        self.fetch(name, &config, &[user().0]);
    }

    fn tls(&mut self, name: &str, authority: &Authority, server: &TlsServer, users: &[User]) {
        let mut config = bounded(&server.url(), BOUND);
        config.set_ca_file(authority.file()).unwrap();
        self.fetch(name, &config, users);
    }
}

fn main() -> ExitCode {
    let only = std::env::var("GAPS_ONLY").unwrap_or_default();
    let mut tests =
        Tests { only, max_response_bytes: ALLOWED, gaps: Gaps::default(), passed: 0, failed: 0 };
    if [PLANTED, BLIND].iter().all(|variable| std::env::var_os(variable).is_none()) {
        tests.run("a gap that is planted is found", a_planted_gap_is_found);
        tests.run("looks that are left out are found", looks_left_out_are_found);
    }
    corpora(&mut tests);
    bodies(&mut tests);
    endless(&mut tests);
    users(&mut tests);
    kept(&mut tests);
    closes(&mut tests);
    encrypted(&mut tests);
    let Tests { gaps, passed, failed, .. } = tests;
    print!("{gaps}");
    if std::env::var_os("GAPS_TOTALS").is_some() {
        experiment::machine::gaps::totals()
            .for_each(|(what, bytes)| println!("in all {bytes} {what}"));
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// This program again, all of it, for the one input of this name: it must fail, and name these counts.
fn fails_with(variable: &str, name: &str, counts: &[&str]) {
    let mut this = Command::new(std::env::current_exe().expect("this program is a file"));
    let this = this.env(variable, "10").env("GAPS_ONLY", name).output();
    let output = this.expect("it can be run again");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "it passed: {said}");
    for count in counts {
        let is_named = |line: &str| {
            line.starts_with(&format!("FAILED: {name}: ")) && line.contains(&format!(" {count} "))
        };
        assert!(said.lines().any(is_named), "no gap by {count}: {said}");
    }
}

/// Twice the time that is allowed, in a fetch that takes hardly any.
fn a_planted_gap_is_found() {
    fails_with(PLANTED, "a user of 100 bytes", &["micros"]);
}

/// By each count for itself, on however fast a machine.
fn looks_left_out_are_found() {
    fails_with(BLIND, "one payload of lists", &["received", "body", "decoded", "micros"]);
    fails_with(BLIND, "a large user is not read", &["sent"]);
    fails_with(BLIND, "200: trailers without end", &["framed"]);
    fails_with(BLIND, "TLS 1.2: large users", &["encrypted"]);
    fails_with(BLIND, "a body without end, encrypted", &["decrypted"]);
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect(target).map(|entry| entry.expect(target).path()).collect();
    paths.sort();
    let name = |path: &Path| format!("{target}/{}", path.file_name().unwrap().display());
    paths.iter().map(|path| (name(path), fs::read(path).expect(target))).collect()
}

/// Each input as what a fetch meets, rather than as what its target makes of it.
fn corpora(tests: &mut Tests) {
    let service = Service::start();
    let client = |bound| support::client(&bounded(service.url(), bound));
    for (name, input) in corpus("answer") {
        let [flags, chunk, bytes @ ..] = &input[..] else { continue };
        tests.run(&name, || {
            let then =
                [Then::Finish, Then::Close, Then::Finish, Then::Keep][usize::from(flags & 3)];
            let chunk = usize::from(*chunk).max(1);
            let client = client(Duration::from_millis(20));
            service.play(Play { bytes: bytes.to_vec(), chunk, early: flags & 4 != 0, then });
            let _ = client.fetch(&User::new(), &FetchOptions::default());
            service.settle();
        });
    }
    for (name, body) in corpus("variants") {
        tests.run(&name, || {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let bytes = [head.as_bytes(), &body].concat();
            let chunk = bytes.len();
            service.play(Play { bytes, chunk, early: false, then: Then::Keep });
            let _ = client(BOUND).fetch(&User::new(), &FetchOptions::default());
            service.settle();
        });
    }
    for (name, input) in corpus("user_json") {
        let text = String::from_utf8_lossy(&input).into_owned();
        let json = text.split('\0').next().unwrap_or_default();
        let user = User::from_json(json).unwrap_or_default();
        tests.run(&name, || drop(client(BOUND).fetch(&user, &FetchOptions::default())));
    }
}

const LARGE: usize = 8 << 20;
/// The default is 8 MiB; those that are not full at that are a little larger.
const ALLOWED: u64 = 16 << 20;

fn bodies(tests: &mut Tests) {
    let filled = |before: &str, unit: &str, after: &str, bytes: usize| {
        let units = (bytes - before.len() - after.len()) / unit.len();
        format!("{before}{}{after}", unit.repeat(units)).into_bytes()
    };
    let entries = |entry: &dyn Fn(usize) -> String, count: usize| {
        let entries: Vec<String> = (0..count).map(entry).collect();
        format!("{{{}}}", entries.join(",")).into_bytes()
    };
    let variant = |i| format!(r#""flag-{i}":{{"key":"on","value":"on","metadata":{{"a":{i}}}}}"#);
    let bodies = [
        ("138 000 variants", entries(&variant, 138_000)),
        ("500 000 variants of one flag", entries(&|_| r#""f":{"key":"on"}"#.into(), 500_000)),
        ("a million entries that are none", entries(&|_| r#""f":[]"#.into(), 1_000_000)),
        ("one text of escapes", filled(r#"{"f":{"key":""#, r"\u00e9", r#""}}"#, LARGE)),
        ("one text of short escapes", filled(r#"{"f":{"key":""#, r"\n", r#""}}"#, LARGE)),
        ("one text", filled(r#"{"f":{"value":""#, "x", r#""}}"#, LARGE)),
        ("one text beyond ASCII", filled(r#"{"f":{"value":""#, "日", r#""}}"#, LARGE)),
        ("one name", filled(r#"{""#, "x", r#"":{"key":"on"}}"#, LARGE)),
        ("one name of escapes", filled(r#"{""#, r"\u00e9", r#"":{"key":"on"}}"#, LARGE)),
        ("one name of a field", filled(r#"{"f":{""#, "x", r#"":1}}"#, LARGE)),
        ("one number", filled(r#"{"f":{"payload":1"#, "0", "}}", LARGE)),
        ("one payload of lists", filled(r#"{"f":{"payload":[[]"#, ",[]", "]}}", LARGE)),
        ("one payload of space", filled(r#"{"f":{"payload":[1"#, " ", "]}}", LARGE)),
        ("one value that is no text", filled(r#"{"f":{"value":[1"#, ",1", "]}}", LARGE)),
        ("metadata of many names", filled(r#"{"f":{"metadata":{"a":1"#, r#","b":1"#, "}}}", LARGE)),
        ("fields that nobody knows", filled(r#"{"f":{"a":1"#, r#","b":[1]"#, "}}", LARGE)),
        ("an entry that is a long list", filled(r#"{"f":[1"#, ",1", "]}", LARGE)),
        ("space before the object", filled("", " ", r#"{"f":{"key":"on"}}"#, LARGE)),
        ("space behind the object", filled(r#"{"f":{"key":"on"}}"#, " ", "", LARGE)),
        ("lists in lists", {
            let (open, close) = ("[".repeat(LARGE / 2), "]".repeat(LARGE / 2));
            format!(r#"{{"f":{{"payload":{open}{close}}}}}"#).into_bytes()
        }),
        ("objects in objects", filled(r#"{"f":{"payload":"#, r#"{"a":"#, "", LARGE)),
        ("brackets that nobody closes", filled(r#"{"f":{"payload":"#, "[", "", LARGE)),
        ("a text that nobody closes", filled(r#"{"f":{"payload":""#, "x", "", LARGE)),
        ("no UTF-8 at the end", [&filled(r#"{"f":""#, "x", "", LARGE)[..], b"\xff\"}"].concat()),
        (
            "just below what is read in pieces",
            filled(r#"{"f":{"key":""#, r"\u00e9", r#""}}"#, 262_000),
        ),
    ];
    for (name, body) in bodies {
        tests.body(name, "", &body);
        if body.len() <= LARGE + 100 {
            tests.body(&format!("{name}, in gzip"), "Content-Encoding: gzip\r\n", &gzip(&body));
        }
    }
    let bomb = gzip(&vec![b' '; 64 << 20]);
    tests.body("a bomb of gzip", "Content-Encoding: gzip\r\n", &bomb);
    // What is known to take longer, and not bounded yet.
    if std::env::var_os("GAPS_BEYOND").is_some() {
        beyond(tests);
    }
}

/// What only a host lets in that raises `max_response_bytes` far above its default of 8 MiB. The buffer
/// of such a body is moved, and freed, in one go: that is not bounded yet.
fn beyond(tests: &mut Tests) {
    tests.max_response_bytes = 1 << 30;
    let escapes = format!(r#"{{"f":{{"key":"{}"}}}}"#, r"\u00e9".repeat(20 << 20));
    tests.body("escapes of 120 MiB", "", escapes.as_bytes());
    let bomb = gzip(&vec![b' '; 128 << 20]);
    tests.body("a bomb of gzip, unpacked", "Content-Encoding: gzip\r\n", &bomb);
    let length = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1 << 30);
    let spaces = Step::repeat(vec![b' '; 1 << 20], 1 << 10);
    tests.steps("1 GiB, announced", [Step::send(length), spaces.clone()]);
    tests.steps("1 GiB, not announced", [Step::send("HTTP/1.1 200 OK\r\n\r\n"), spaces]);
    tests.max_response_bytes = ALLOWED;
}

fn endless(tests: &mut Tests) {
    for stall in stall::all() {
        let service = MockService::start(stall.script);
        let user = large_user(stall.user_bytes);
        tests.fetch(stall.name, &bounded(&service.url(), BOUND), &[user]);
    }
    let many = |bytes: &str| Step::repeat(bytes.repeat((64 << 10) / bytes.len()), EVER);
    for status in [200, 503] {
        let head = CHUNKED.replace("200", &status.to_string());
        for (name, before, unit) in [
            ("trailers", "0\r\n", "a: b\r\n"),
            ("one trailer", "0\r\na: ", "b"),
            ("chunks of one byte", "", "1\r\n \r\n"),
            ("chunks with extensions", "", "1;a=b;c=\"d\"\r\n \r\n"),
            ("the extension of a chunk", "1;", "a"),
            ("zeroes of a size", "", "0"),
        ] {
            let name = format!("{status}: {name} without end");
            tests.steps(&name, [Step::send(head.clone() + before), many(unit)]);
        }
    }
    for (name, before, unit) in [
        ("100 without end", "", "HTTP/1.1 100 Continue\r\n\r\n"),
        ("103 with fields without end", "", "HTTP/1.1 103 Early Hints\r\na: b\r\nc: d\r\n\r\n"),
        ("a status line without end", "HTTP/1.1 200 ", "x"),
        ("empty lines without end", "", "\r\n"),
        (
            "stored gzip of nothing",
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\
            \x1f\u{8b}",
            "x",
        ),
    ] {
        tests.steps(name, [Step::send(before), many(unit)]);
    }
    // Nothing comes out of it, block by block.
    let mut stored = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n".to_vec();
    stored.extend(b"\x1f\x8b\x08\0\0\0\0\0\0\x03");
    let blocks = Step::repeat(b"\0\0\0\xff\xff".repeat(10_000), EVER);
    tests.steps("gzip of empty blocks without end", [Step::send(stored), blocks]);
    let mut named = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n".to_vec();
    named.extend(b"\x1f\x8b\x08\x08\0\0\0\0\0\x03");
    tests.steps("a name in gzip without end", [Step::send(named), many("x")]);
    let lines = "a: b\r\n".repeat(2700);
    let head = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 2\r\n\r\n{{}}");
    tests.steps("2 700 fields", [Step::send(head.clone())]);
    let pieces = head.as_bytes().chunks(8).map(Step::send);
    tests.steps("2 700 fields in small pieces", pieces);
}

fn users(tests: &mut Tests) {
    let service = MockService::start(Script::service());
    for bytes in [100, 100 << 10, 4 << 20, 8_000_000] {
        let name = format!("a user of {bytes} bytes");
        tests.fetch(&name, &config(&service.url()), &[large_user(bytes)]);
    }
    let filled = |unit: &str| unit.repeat(8_000_000 / unit.len());
    for (name, properties) in [
        ("properties of lists", format!(r#"{{"a":[[]{}]}}"#, filled(",[]"))),
        ("properties of escapes", format!(r#"{{"a":"{}"}}"#, filled(r"\u00e9"))),
        ("properties of numbers", format!(r#"{{"a":[1{}]}}"#, filled(",1.0"))),
        ("500 000 properties", {
            let one = |i| format!(r#""p{i}":{i}"#);
            format!("{{{}}}", (0..500_000).map(one).collect::<Vec<_>>().join(","))
        }),
    ] {
        let mut user = User::new();
        user.set_json("user_properties", &properties).expect(name);
        tests.fetch(&format!("a user of 8 MB, {name}"), &config(&service.url()), &[user]);
    }
    let refused = Answer::reply(413, &[], "too large").after_head();
    let service = MockService::start(Script::answers([refused]));
    let users = [large_user(4 << 20), large_user(4 << 20)];
    tests.fetch("413 before all was sent", &config(&service.url()), &users);
    let service = MockService::start(Script::service());
    let mut options = FetchOptions::default();
    for i in 0..600 {
        options.flag_keys.add(&format!("flag-{i}")).unwrap();
    }
    tests.run("as many flags asked for as can be", || {
        let _ = support::client(&config(&service.url())).fetch(&user().0, &options);
    });
}

/// What comes over a connection that is kept, and is found when it is used again.
fn kept(tests: &mut Tests) {
    let flood = [Step::WaitMillis(20), Step::repeat(vec![b'x'; 64 << 10], EVER)];
    for (name, then) in [("a flood", flood.to_vec()), ("an end", vec![Step::Close])] {
        let steps = [vec![Step::Service], then].concat();
        let service = MockService::start(Script::answers([Answer::steps(steps)]));
        let client = support::client(&bounded(&service.url(), BOUND));
        tests.run(&format!("{name} over a kept connection"), || {
            for _ in 0..3 {
                let _ = support::fetch(&client);
                thread::sleep(Duration::from_millis(60));
            }
        });
    }
    for (name, head) in [
        ("a body without end", "HTTP/1.1 503 X\r\n\r\n"),
        ("a body of 8 MiB", "HTTP/1.1 503 X\r\nContent-Length: 8388608\r\n\r\n"),
        ("gzip without end", "HTTP/1.1 503 X\r\nContent-Encoding: gzip\r\n\r\n"),
    ] {
        let rest = Step::repeat(gzip(b"").repeat(1000), EVER);
        tests.steps(&format!("503: {name}, to be read off"), [Step::send(head), rest]);
    }
}

/// The close of a client, and the end of what is under way in it.
fn closes(tests: &mut Tests) {
    const CONNECTIONS: usize = 64;
    let slow = MockService::start(Script::answers([Answer::service().delayed(50)]));
    let flood = [Step::send("HTTP/1.1 200 OK\r\n\r\n"), Step::repeat(vec![b' '; 16 << 10], EVER)];
    let flood = MockService::start(Script::answers([Answer::steps(flood)]));
    for (name, service, waits) in [
        ("a close of kept connections", &slow, 2000),
        ("a close of fetches in the middle", &slow, 10),
        ("a close that cuts floods", &flood, 0),
    ] {
        let mut config = config(&service.url());
        config.set_connection_pool_max_size(CONNECTIONS as u32).unwrap();
        tests.run(name, || {
            let client = support::client(&config);
            let fetch = || drop(client.fetch(&User::new(), &FetchOptions::default()));
            thread::scope(|scope| {
                let fetches: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(fetch)).collect();
                thread::sleep(Duration::from_millis(20));
                if waits > 1000 {
                    fetches.into_iter().for_each(|fetch| fetch.join().unwrap());
                }
                let _ = client.close(Limit::After(Duration::from_millis(waits)));
            });
        });
    }
}

fn encrypted(tests: &mut Tests) {
    let authority = Authority::new();
    for (version, versions) in [("TLS 1.2", &TLS12), ("TLS 1.3", &TLS13)] {
        let server = |identity: &Identity| TlsServer::start(identity.server_config(&[versions]));
        let good = server(&authority.certify(&NAMES));
        tests.tls(&format!("{version}: a handshake"), &authority, &good, &[user().0]);
        let users = [large_user(4 << 20), large_user(4 << 20)];
        tests.tls(&format!("{version}: large users"), &authority, &good, &users);
        for count in [2, 16, 80] {
            let name = format!("{version}: {count} certificates of one name");
            let others = server(&with_others_of_one_name(&authority, count));
            tests.tls(&format!("{name}, of no use"), &authority, &others, &[user().0]);
            tests.tls(&name, &authority, &server(&of_one_name(count)), &[user().0]);
        }
    }
    let body = " ".repeat(1 << 16);
    let flood = authority.certify(&NAMES).server_config(&[&TLS13]);
    let flood = TlsServer::start_with(flood, move |_, mut stream| {
        let head = "HTTP/1.1 200 OK\r\n\r\n";
        let _ = read_request(&mut stream).map(|_| stream.write_all(head.as_bytes()));
        while stream.write_all(body.as_bytes()).is_ok() {}
    });
    tests.tls("a body without end, encrypted", &authority, &flood, &[user().0]);
    // Each ticket takes a copy of all certificates with it.
    for (others, across) in [(0, false), (80, false), (0, true)] {
        let identity = with_others_of_one_name(&authority, others);
        let across_records = if across { " across records" } else { "" };
        let name = format!("tickets without end{across_records}, beside {others} certificates");
        let new = flooding_with_tickets(&identity, across, |_| true);
        tests.tls(&format!("{name}, on a new connection"), &authority, &new, &[user().0]);
        let kept = flooding_with_tickets(&identity, across, |stream| {
            let answered = read_request(stream).map(|body| support::tls::answer(&body));
            answered.is_some_and(|answer| stream.write_all(answer.as_bytes()).is_ok())
        });
        let users = [user().0, user().0];
        tests.tls(&format!("{name}, on a kept one"), &authority, &kept, &users);
    }
}
