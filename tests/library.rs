//! The library as C sees it: what it exports, and the programs in `tests/c` linked against it.
//!
//! With EXPERIMENT_VALGRIND=1 in the environment the programs run under valgrind; with the folder of
//! a built library in EXPERIMENT_BUILD they are linked to that one, which is how `make test` looks at
//! what is shipped; with the root of another system in EXPERIMENT_ROOT they are compiled and run there.

mod native;
mod support;

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use mock_service::{Answer, Keep, MockService, Script, Step};
use native::{Native, ROOT, command, library, read, run, symbols};
use rustls::version::{TLS12, TLS13};
use support::tls::{Authority, NAMES, TlsServer, read_request};

#[test]
fn the_library_exports_its_functions_and_nothing_else() {
    let names = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library("cdylib")));
    assert_eq!(defined(&names, |_| true), symbols());
    let names = run(Command::new("nm").args(["-g", "--defined-only"]).arg(library("staticlib")));
    assert_eq!(defined(&names, |name| name.starts_with("exp_")), symbols());
}

fn defined(nm: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    // An address, a kind, a name; or the name of a file in an archive.
    let names = nm.lines().filter_map(|line| line.split_whitespace().nth(2));
    let names = names.filter(|name| wanted(name));
    let mut names: Vec<String> = names.map(ToOwned::to_owned).collect();
    names.sort();
    names
}

#[test]
fn every_function_is_called_by_a_test_in_c() {
    let tests = ["boundary.c", "lifecycle.c", "async.c", "completions.c"]
        .map(|file| read(&format!("tests/c/{file}")))
        .concat();
    let fields = read("tests/c/user_fields.h");
    for symbol in symbols() {
        // Some are called by a macro that is given a part of their names.
        let field = symbol.strip_prefix("exp_user_set_").map(|field| field.trim_end_matches("_n"));
        let by_field = field.is_some_and(|field| fields.contains(&format!("({field})")));
        let setting = symbol.strip_prefix("exp_config_set_");
        let by_range = setting.is_some_and(|name| tests.contains(&format!("RANGE({name},")));
        let twin =
            symbol.strip_suffix("_n").is_some_and(|name| tests.contains(&format!(", {name});")));
        let called = tests.contains(&format!("{symbol}("));
        assert!(called || by_field || by_range || twin, "{symbol}");
    }
}

#[test]
fn the_boundary_holds() {
    run_program("boundary", &[]);
}

#[test]
fn objects_live_as_long_as_they_should() {
    let hold = Answer::steps([Step::Hold]);
    let odd = r#"{"a\u0000b":{"key":"on","value":"c\u0000d"},"bare":{},
        "off":{"key":"off","metadata":{"default":true}}}"#;
    let services = [
        Script::service(),
        Script::answers([hold]),
        Script::answers([
            Answer::reply(429, &[("Retry-After", "7000")], ""),
            Answer::reply(503, &[], ""),
        ]),
        Script::answers([Answer::reply(404, &[], "")]),
        Script::answers([Answer::json(200, odd)]),
    ]
    .map(MockService::start);
    run_program("lifecycle", &services.each_ref().map(MockService::url));
}

#[test]
fn asynchronous_fetches_keep_their_contract() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
    let drip = Answer::steps([Step::send(head), Step::drip(" ".repeat(100_000), 5)]);
    let [service, silent, busy, slow, drip] = [
        Script::service(),
        silent(),
        Script::answers([Answer::reply(503, &[], "")]),
        Script::answers([Answer::service().delayed(200)]),
        Script::answers([drip]),
    ]
    .map(MockService::start);
    let hole = MockService::black_hole();
    let mute = silent_opening();
    run_program(
        "async",
        &[
            service.url(),
            silent.url(),
            busy.url(),
            slow.url(),
            hole.url(),
            mute.url().replace("http:", "https:"),
            drip.url(),
            MockService::refused_url(),
        ],
    );
}

#[test]
fn completions_keep_their_contract() {
    let services = [Script::service(), silent()].map(MockService::start);
    run_program("completions", &services.each_ref().map(MockService::url));
}

#[test]
fn a_switch_can_be_fired_in_a_signal_handler() {
    let services = [Script::service(), silent(), Script::answers([Answer::reply(503, &[], "")])];
    let urls = services.map(MockService::start);
    run_program("signals", &urls.each_ref().map(MockService::url));
}

#[test]
fn numbers_of_descriptors_that_are_the_hosts_are_left_alone() {
    let services = [Script::service(), silent()].map(MockService::start);
    run_program("numbers", &services.each_ref().map(MockService::url));
}

#[test]
fn a_child_is_told_from_its_parent_where_madvise_lies() {
    run_program("unwiped", &[MockService::start(Script::service()).url()]);
}

#[test]
fn a_thread_that_is_canceled_in_a_call_returns_from_it_first() {
    let services = [Script::service(), silent(), Script::answers([Answer::reply(503, &[], "")])];
    let urls = services.map(MockService::start);
    run_program("canceled", &urls.each_ref().map(MockService::url));
}

/// Not under valgrind, whose threads take more.
#[test]
fn a_fetch_gets_by_on_a_small_stack() {
    if valgrind() {
        return;
    }
    let packed = gzipped(r#"{"flag":{"key":"on","payload":{"a":[1,2]}}}"#);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        packed.len()
    );
    let answer = [head.as_bytes(), &packed].concat();
    let packed = Answer::reply(200, &[("Content-Encoding", "gzip")], packed);
    let [service, packed] = [Script::service(), Script::answers([packed])].map(MockService::start);
    let authority = Authority::new();
    let secure = TlsServer::start(authority.certify(&NAMES).server_config(&[&TLS12, &TLS13]));
    let tls = authority.certify(&NAMES).server_config(&[&TLS12, &TLS13]);
    let both = TlsServer::start_with(tls, move |_, mut stream| {
        while read_request(&mut stream).is_some() && stream.write_all(&answer).is_ok() {}
    });
    let file = authority.file().to_owned();
    let urls = [service.url(), packed.url(), secure.url(), both.url(), file];
    run_program("stacks", &urls);
}

/// Under valgrind a fork takes its time.
#[test]
fn a_fork_at_any_moment_hangs_nobody() {
    let service = MockService::start(Script { keep: Keep::Nothing, ..Script::service() });
    let silent = MockService::start(silent());
    let forks = if valgrind() { 5 } else { 5000 };
    run_program("forks", &[service.url(), silent.url(), forks.to_string()]);
}

/// Not under valgrind, which needs more than there is itself.
#[test]
fn without_memory_there_is_an_error_and_never_a_wrong_answer() {
    if valgrind() {
        return;
    }
    const LARGE: u64 = 900 << 20;
    const PART: usize = 1 << 20;
    let plain = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
    let plain = [Step::send(plain), Step::repeat(" ".repeat(PART), LARGE / PART as u64)];
    let (member, times) = (gzipped(&" ".repeat(PART)), LARGE / PART as u64);
    let length = member.len() as u64 * times;
    let bomb =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n");
    let bomb = [Step::send(bomb), Step::repeat(member, times)];
    let value = format!(r#"{{"flag":{{"value":"{}"}}}}"#, "x".repeat(100 * PART));
    let flags: Vec<_> =
        (0..40_000).map(|flag| format!(r#""flag-{flag}":{{"key":"on"}}"#)).collect();
    let services = [
        Script::service(),
        Script::answers([Answer::steps(plain)]),
        Script::answers([Answer::steps(bomb)]),
        Script::answers([Answer::json(200, value)]),
        Script::answers([Answer::json(200, format!("{{{}}}", flags.join(",")))]),
    ]
    .map(MockService::start);
    run_program("limits", &services.each_ref().map(MockService::url));
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes()).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

/// Opened with dlopen, beside another copy of itself.
#[test]
fn the_library_is_a_good_guest() {
    let opened = match env::var_os("EXPERIMENT_BUILD") {
        Some(folder) => Path::new(&folder).join("libexperiment.so"),
        None => library("cdylib"),
    };
    let native = Native::new("guest");
    let (program, copy) = (native.path("program"), native.path("another.so"));
    std::fs::copy(&opened, &copy).expect("the target directory can be written to");
    let source = Path::new(ROOT).join("tests/c/guest.c");
    let mut compiler = native.compiler("gcc");
    compiler.args(WARNINGS).arg("-o").arg(&program).arg(source).arg("-ldl");
    run(&mut compiler);
    let reset = Answer::steps([Step::Reset]);
    let services = [Script::service(), silent(), Script::answers([reset, Answer::service()])];
    let urls = services.map(MockService::start);
    let mut command = command(program);
    command.arg(opened).arg(copy).args(urls.each_ref().map(MockService::url));
    print!("{}", run(&mut command));
}

fn silent() -> Script {
    Script::answers([Answer::steps([Step::Hold])])
}

fn silent_opening() -> MockService {
    MockService::start(Script { connections: vec![vec![Step::Hold]], ..Script::service() })
}

fn valgrind() -> bool {
    env::var_os("EXPERIMENT_VALGRIND").is_some_and(|value| value == "1")
}

const WARNINGS: [&str; 7] =
    ["-std=c99", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"];

fn linking() -> Vec<OsString> {
    let Some(folder) = env::var_os("EXPERIMENT_BUILD") else {
        return vec![library("staticlib").into(), "-lm".into(), "-ldl".into()];
    };
    let mut search = OsString::from("-L");
    search.push(&folder);
    let mut at_run_time = OsString::from("-Wl,-rpath,");
    at_run_time.push(&folder);
    vec![search, "-lexperiment".into(), at_run_time]
}

fn run_program(name: &str, arguments: &[String]) {
    let native = Native::new(name);
    let program = native.path("program");
    let mut compiler = native.compiler("gcc");
    compiler.args(WARNINGS).arg("-o");
    compiler.arg(&program).arg(Path::new(ROOT).join(format!("tests/c/{name}.c")));
    run(compiler.args(linking()));
    let mut command = if valgrind() {
        let mut valgrind = command("valgrind");
        valgrind.args(["--error-exitcode=9", "--leak-check=full", "--child-silent-after-fork=yes"]);
        valgrind.args(["--show-leak-kinds=definite,possible", "--errors-for-leak-kinds=definite"]);
        valgrind.arg(program);
        valgrind
    } else {
        command(program)
    };
    print!("{}", run(command.args(arguments)));
}
