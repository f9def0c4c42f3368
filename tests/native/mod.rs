//! Compilers of C, and the library as they see it.
#![allow(dead_code, reason = "no test uses all of it")]

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A directory to compile in.
pub struct Native(PathBuf);

impl Native {
    pub fn new(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&directory).expect("the target directory can be written to");
        Native(directory)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("the target directory can be written to");
        path
    }

    pub fn compiler(&self, tool: &str) -> Command {
        let mut command = command(tool);
        command.arg("-I").arg(Path::new(ROOT).join("include"));
        command
    }
}

pub fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).expect(path)
}

/// The functions of `packaging/symbols.txt`.
pub fn symbols() -> Vec<String> {
    read("packaging/symbols.txt").lines().map(ToOwned::to_owned).collect()
}

/// A command of the system that EXPERIMENT_ROOT is the root of, where this repository is seen too, or
/// of this one.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let Some(root) = env::var_os("EXPERIMENT_ROOT") else { return Command::new(program) };
    let mut command = Command::new("chroot");
    command.arg(root).arg(program);
    command
}

/// Runs a command that must succeed, and returns what it prints.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out
}

/// The library as a host gets it, of one crate type, built as `make build` does but without
/// optimisation.
pub fn library(crate_type: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target directory");
    let mut cargo = Command::new(env!("CARGO"));
    // What tells a test of its package would tell the build scripts of others to start anew.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"];
        if prefixes.iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    cargo.current_dir(ROOT).args(["rustc", "--quiet", "--lib", "--crate-type", crate_type]);
    run(cargo.arg("--target-dir").arg(target));
    let file = if crate_type == "cdylib" { "libexperiment.so" } else { "libexperiment.a" };
    target.join("debug").join(file)
}
