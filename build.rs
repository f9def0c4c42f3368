//! Makes the C header and the list of exported functions from `src/ffi`.
//!
//! Both are written to OUT_DIR. In a checkout, the committed copies (`include/experiment.h`,
//! `packaging/symbols.txt`) follow; where the environment variable EXPERIMENT_HEADER_FROZEN is 1,
//! as in CI, one that would have to change fails the build instead.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

const FROZEN: &str = "EXPERIMENT_HEADER_FROZEN";
const INPUTS: [&str; 4] = ["src/ffi", "cbindgen.toml", "build.rs", "Cargo.toml"];
const HEADER: &str = "include/experiment.h";
const SYMBOLS: &str = "packaging/symbols.txt";

fn main() {
    for path in INPUTS.iter().chain(&[HEADER, SYMBOLS]) {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-env-changed={FROZEN}");
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let header = match header(&root) {
        Ok(header) => header,
        Err(cbindgen::Error::ParseSyntaxError { .. }) => {
            return; // the compiler says it better
        }
        Err(error) => panic!("the header cannot be made: {error}"),
    };
    publish(&root, HEADER, &header);
    publish(&root, SYMBOLS, &symbols(&header));
}

fn header(root: &Path) -> Result<String, cbindgen::Error> {
    let mut config = cbindgen::Config::from_root_or_default(root);
    config.header = Some(opening(root));
    config.after_includes = Some(macros());
    let bindings =
        cbindgen::Builder::new().with_config(config).with_src(root.join("src/ffi/mod.rs"));
    let mut header = Vec::new();
    bindings.generate()?.write(&mut header);
    let header = String::from_utf8(header).expect("the header is made from UTF-8");
    Ok(polished(&header))
}

/// What cbindgen has no settings for: the calling convention of callbacks, which moves the
/// parameters under it, and comments of one line on one line.
fn polished(header: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut in_callback = false;
    for line in header.lines() {
        if in_callback {
            out.push(format!("{:9}{line}", ""));
            in_callback = !line.ends_with(';');
        } else if line.starts_with("typedef") && line.contains("(*exp_") {
            out.push(line.replace("(*exp_", "(EXP_CALL *exp_"));
            in_callback = !line.ends_with(';');
        } else if let ("*/", [.., open, text]) = (line.trim(), &out[..])
            && open.trim() == "/**"
        {
            let text = text.trim_start().trim_start_matches("* ");
            let line = format!("{open} {text} */");
            out.truncate(out.len() - 2);
            out.push(line);
        } else {
            out.push(line.to_owned());
        }
    }
    out.join("\n") + "\n"
}

fn opening(root: &Path) -> String {
    let contract = fs::read_to_string(root.join("src/ffi/contract.txt")).expect("the contract");
    let lines = contract.lines().map(|line| format!(" * {line}").trim_end().to_owned() + "\n");
    format!("/*\n{} */", lines.collect::<String>())
}

fn macros() -> String {
    let [major, minor, patch] =
        ["MAJOR", "MINOR", "PATCH"].map(|part| variable(&format!("CARGO_PKG_VERSION_{part}")));
    let version = variable("CARGO_PKG_VERSION");
    let byte = |part: &str| part.parse::<u8>().expect("each part of the version has one byte");
    let number = format!("0x{:02x}{:02x}{:02x}", byte(&major), byte(&minor), byte(&patch));
    format!(
        r#"
/* The version of this header; exp_version() and exp_version_number() return the library's. */
#define EXP_VERSION_MAJOR {major}
#define EXP_VERSION_MINOR {minor}
#define EXP_VERSION_PATCH {patch}
#define EXP_VERSION_NUMBER {number}
#define EXP_VERSION_STRING "{version}"
/* For #if: nonzero if this header has that version or a later one. */
#define EXP_VERSION_AT_LEAST(major, minor, patch) \
    (EXP_VERSION_NUMBER >= (((major) << 16) | ((minor) << 8) | (patch)))

/* No limit, for times in milliseconds that accept it. */
#define EXP_NO_LIMIT UINT64_MAX

/* Exports or imports each function. */
#ifndef EXP_API
#if defined(_WIN32) && !defined(EXP_STATIC)
#define EXP_API __declspec(dllimport)
#elif defined(__GNUC__) && !defined(_WIN32)
#define EXP_API __attribute__((visibility("default")))
#else
#define EXP_API
#endif
#endif

/* The calling convention of callbacks. */
#if defined(_WIN32)
#define EXP_CALL __cdecl
#else
#define EXP_CALL
#endif
"#
    )
}

/// The functions that the header declares, sorted, one a line.
fn symbols(header: &str) -> String {
    let mut names: Vec<&str> = header
        .split("\nEXP_API")
        .skip(1)
        .filter_map(|function| function.split_once('(')?.0.rsplit([' ', '*']).next())
        .collect();
    names.sort_unstable();
    names.iter().map(|name| format!("{name}\n")).collect()
}

/// Writes a file to OUT_DIR, and its committed copy if that differs.
fn publish(root: &Path, path: &str, text: &str) {
    let file_name = Path::new(path).file_name().expect("a file");
    let made = PathBuf::from(variable("OUT_DIR")).join(file_name);
    fs::write(&made, text).expect("OUT_DIR can be written to");
    let committed = root.join(path);
    // A package is not a checkout, and nothing may be written there.
    if root.join("Cargo.toml.orig").exists()
        || fs::read_to_string(&committed).is_ok_and(|old| old == text)
    {
        return;
    }
    assert!(
        env::var_os(FROZEN).is_none_or(|frozen| frozen != "1"),
        "{path} is not what src/ffi makes ({}): run `cargo build` without {FROZEN} and commit it",
        made.display()
    );
    fs::create_dir_all(committed.parent().expect("a directory")).expect("the checkout is ours");
    fs::write(&committed, text).expect("the checkout can be written to");
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
