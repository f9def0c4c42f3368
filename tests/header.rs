//! The header: every C and C++ it promises to compile as, and nothing in it that the library does
//! not say too.

mod native;

use native::{Native, read, run, symbols};

const C: [&str; 3] = ["c99", "c11", "c17"];
const CXX: [&str; 3] = ["c++11", "c++17", "c++20"];
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Every constant, twice the header, and macros where the preprocessor needs them.
const UNIT: &str = r#"
#include "experiment.h"
#include "experiment.h"
#if !EXP_VERSION_AT_LEAST(0, 0, 0) || EXP_VERSION_AT_LEAST(255, 255, 255)
#error "EXP_VERSION_AT_LEAST"
#endif
#if EXP_NO_LIMIT != UINT64_MAX
#error "EXP_NO_LIMIT"
#endif
extern const int NAME[];
const int NAME[] = {
    EXP_OK, EXP_ERR_INVALID_ARGUMENT, EXP_ERR_TIMEOUT, EXP_ERR_NETWORK, EXP_ERR_TLS,
    EXP_ERR_HTTP_STATUS, EXP_ERR_INVALID_RESPONSE, EXP_ERR_CANCELED, EXP_ERR_CLOSED,
    EXP_ERR_QUEUE_FULL, EXP_ERR_INTERNAL, EXP_ZONE_US, EXP_ZONE_EU, EXP_LOG_ERROR, EXP_LOG_WARN,
    EXP_LOG_INFO, EXP_LOG_DEBUG, EXP_METRICS_JSON, EXP_METRICS_OPENMETRICS, EXP_UNSET, EXP_FALSE,
    EXP_TRUE, EXP_PHASE_NONE, EXP_PHASE_POOL, EXP_PHASE_RESOLVE, EXP_PHASE_CONNECT, EXP_PHASE_TLS,
    EXP_PHASE_SEND, EXP_PHASE_FIRST_BYTE, EXP_PHASE_BODY, EXP_PHASE_BACKOFF,
    sizeof(EXP_VERSION_STRING) == sizeof("0.0.0") || EXP_VERSION_NUMBER > 0,
};
"#;

fn compilers() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let c = ["gcc", "clang"].into_iter().flat_map(|tool| C.map(|std| (tool, "c", std)));
    let cxx = ["g++", "clang++"].into_iter().flat_map(|tool| CXX.map(|std| (tool, "c++", std)));
    c.chain(cxx)
}

#[test]
fn the_header_compiles_alone_twice_and_in_two_units() {
    let native = Native::new("header");
    let units = ["one", "two"].map(|name| native.file(name, &UNIT.replace("NAME", name)));
    let alone = native.file("alone", "#include \"experiment.h\"\n");
    for (tool, language, std) in compilers() {
        let object = native.path("both.o");
        let mut command = native.compiler(tool);
        command.args(["-x", language, &format!("-std={std}"), "-r", "-nostdlib", "-o"]);
        run(command.arg(object).args(WARNINGS).args(&units).arg(&alone));
    }
}

#[test]
fn the_committed_header_and_symbols_are_those_that_the_build_makes() {
    let made = include_str!(concat!(env!("OUT_DIR"), "/experiment.h"));
    assert!(read("include/experiment.h") == made, "run `cargo build` and commit the header");
    let made = include_str!(concat!(env!("OUT_DIR"), "/symbols.txt"));
    assert!(read("packaging/symbols.txt") == made, "run `cargo build` and commit the symbols");
}

#[test]
fn the_symbols_are_the_functions_that_a_compiler_sees_in_the_header() {
    let native = Native::new("declared");
    let unit = native.file("unit", "#include \"experiment.h\"\n");
    let text = run(native.compiler("gcc").args(["-E", "-P", "-x", "c"]).arg(unit));
    let functions = text.split(';').filter(|item| item.contains("visibility"));
    let mut names: Vec<&str> = functions
        .map(|function| function.rsplit(")))").next().expect("what follows the attribute"))
        .map(|function| function.split('(').next().expect("what precedes the parameters"))
        .map(|result_and_name| result_and_name.rsplit([' ', '*']).next().expect("a name"))
        .collect();
    names.sort();
    assert_eq!(names, symbols());
}

#[test]
fn the_contract_opens_the_header_in_at_most_sixty_lines() {
    let header = read("include/experiment.h");
    let end = header.lines().position(|line| line == " */").expect("a comment");
    assert!(header.starts_with("/*\n * libexperiment") && end < 60, "{end} lines");
    for word in ["OWNERSHIP", "THREADS", "ERRORS", "CALLBACKS", "FORK", "UNLOADING"] {
        assert!(header.lines().take(end).any(|line| line.contains(word)), "{word}");
    }
}

#[test]
fn the_version_is_that_of_cargo_toml() {
    let manifest = read("Cargo.toml");
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
        .expect("a version");
    let header = read("include/experiment.h");
    assert!(header.contains(&format!("#define EXP_VERSION_STRING \"{version}\"\n")));
    let parts: Vec<u32> = version.split('.').map(|part| part.parse().expect("a number")).collect();
    for (name, part) in ["MAJOR", "MINOR", "PATCH"].into_iter().zip(&parts) {
        assert!(header.contains(&format!("#define EXP_VERSION_{name} {part}\n")), "{name}");
    }
    let number = parts[0] << 16 | parts[1] << 8 | parts[2];
    assert!(header.contains(&format!("#define EXP_VERSION_NUMBER {number:#08x}\n")));
    assert_eq!(experiment::ffi::exp_version_number(), number);
}
