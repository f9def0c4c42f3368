//! The programs that fetch: one for each way, told what to do by lines of JSON. See README.md.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::native::{Native, ROOT, run};

/// A language, and in C a way of fetching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    C,
    CAsync,
    Python,
    Go,
    Ruby,
}

impl Way {
    pub const ALL: [Way; 5] = [Way::C, Way::CAsync, Way::Python, Way::Go, Way::Ruby];

    pub fn name(self) -> &'static str {
        match self {
            Way::C => "C",
            Way::CAsync => "C async",
            Way::Python => "Python",
            Way::Go => "Go",
            Way::Ruby => "Ruby",
        }
    }

    /// All, or those of `FAULTS_WAYS`, names with commas between.
    pub fn wanted() -> Vec<Way> {
        let wanted = std::env::var("FAULTS_WAYS").unwrap_or_default();
        let is_wanted =
            |way: &Way| wanted.is_empty() || wanted.split(',').any(|it| it == way.name());
        let ways: Vec<_> = Way::ALL.into_iter().filter(is_wanted).collect();
        assert!(!ways.is_empty(), "FAULTS_WAYS names none of them: {wanted}");
        ways
    }
}

#[cfg(feature = "count-gaps")]
impl Way {
    /// Where victims of this way say what they have counted.
    fn counts(self) -> PathBuf {
        let name = format!("exp-faults-gaps-{}-{}", std::process::id(), self as usize);
        std::env::temp_dir().join(name)
    }

    /// What was counted since this was asked last.
    pub fn counted(self) -> Vec<String> {
        let lines = std::fs::read_to_string(self.counts()).unwrap_or_default();
        let _ = std::fs::remove_file(self.counts());
        lines.lines().map(str::to_owned).collect()
    }
}

/// The victims, built.
pub struct Programs {
    native: Native,
    build: PathBuf,
}

impl Programs {
    /// Against the library in `EXPERIMENT_BUILD`, or that of `make build`.
    pub fn build(ways: &[Way]) -> Programs {
        let build = std::env::var_os("EXPERIMENT_BUILD").map(PathBuf::from);
        let build = build.unwrap_or_else(|| Path::new(ROOT).join("build"));
        assert!(build.join("libexperiment.so").exists(), "nothing is built yet: run `make build`");
        let programs = Programs { native: Native::new("faults"), build };
        if ways.iter().any(|way| matches!(way, Way::C | Way::CAsync)) {
            programs.build_c();
        }
        if ways.contains(&Way::Go) {
            programs.build_go();
        }
        programs.build_shim();
        programs
    }

    fn build_shim(&self) {
        let mut compiler = self.native.compiler("gcc");
        compiler.args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
        run(compiler
            .arg(self.native.path("no_threads.so"))
            .arg(source("no_threads.c"))
            .arg("-ldl"));
    }

    /// What a name in braces stands for in the environment of a victim.
    fn filled(&self, way: Way, value: &str) -> OsString {
        match value {
            "{no_threads}" => self.native.path("no_threads.so").into(),
            "{faketime}" => faketime().into(),
            _ => match value.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
                Some(name) => crate::catalogue::file(name, way).into(),
                None => value.into(),
            },
        }
    }

    fn build_c(&self) {
        let flags = run(Command::new("pkg-config").args(["--cflags", "--libs", "libcjson"]));
        let mut compiler = self.native.compiler("gcc");
        compiler.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]);
        compiler.args(["-Wno-unused-function", "-o"]); // calls.h has more than it needs
        compiler.arg(self.native.path("victim-c")).arg(source("victim.c"));
        compiler.arg("-L").arg(&self.build).arg("-lexperiment").args(flags.split_whitespace());
        run(&mut compiler);
    }

    fn build_go(&self) {
        let mut go = Command::new("go");
        go.current_dir(source("go")).args(["build", "-o"]).arg(self.native.path("victim-go"));
        go.env("GOFLAGS", "-mod=readonly").env("PKG_CONFIG_PATH", &self.build);
        run(&mut go);
    }

    fn command(&self, way: Way) -> Command {
        let interpreted = |interpreter: &str, file: &str| {
            let mut command = Command::new(interpreter);
            command.arg(source(file));
            command
        };
        let mut command = match way {
            Way::C | Way::CAsync => {
                let mut command = Command::new(self.native.path("victim-c"));
                command.arg(if way == Way::C { "blocking" } else { "callback" });
                command
            }
            Way::Go => Command::new(self.native.path("victim-go")),
            Way::Python => interpreted("python3", "victim.py"),
            Way::Ruby => interpreted("ruby", "victim.rb"),
        };
        let bindings = Path::new(ROOT).join("bindings");
        command.env("LD_LIBRARY_PATH", &self.build);
        command.env("EXPERIMENT_LIBRARY", self.build.join("libexperiment.so"));
        command.env("PYTHONPATH", bindings.join("python/src"));
        command.env("RUBYLIB", bindings.join("ruby/lib"));
        command
    }
}

/// Debian's libfaketime, wherever this machine keeps its libraries.
fn faketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").expect("there is /usr/lib").flatten();
    let mut files = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    files.find(|file| file.exists()).expect("libfaketime is installed")
}

fn source(file: &str) -> PathBuf {
    Path::new(ROOT).join("tests/faults/victims").join(file)
}

/// What a fetch came to.
#[derive(Clone, Debug)]
pub struct Came {
    pub status: String,
    pub http_status: u64,
    pub phase: String,
    pub millis: f64,
    /// For whom the variants say they are.
    pub nonce: Option<String>,
    pub message: String,
}

impl Came {
    fn from(answer: &Value) -> Came {
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        let nonce = &answer["variants"]["demo-nonce"]["payload"];
        Came {
            status: answer["error"].as_str().unwrap_or("EXP_OK").to_owned(),
            http_status: answer["http_status"].as_u64().unwrap_or_default(),
            phase: text("phase"),
            millis: answer["millis"].as_f64().unwrap_or(f64::INFINITY),
            nonce: (!nonce.is_null())
                .then(|| nonce.as_str().map_or_else(|| nonce.to_string(), String::from)),
            message: text("message"),
        }
    }
}

/// What a process has open, by the system's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    pub descriptors: usize,
    pub threads: usize,
}

/// A process that fetches as it is told.
pub struct Victim {
    pub way: Way,
    process: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

/// What takes longer than this never ends.
const PATIENCE: Duration = Duration::from_secs(20);

impl Victim {
    pub fn start(way: Way, programs: &Programs, environment: &[(String, String)]) -> Victim {
        let mut command = programs.command(way);
        let filled = environment.iter().map(|(name, value)| (name, programs.filled(way, value)));
        command.envs(filled);
        #[cfg(feature = "count-gaps")]
        command.env("EXPERIMENT_GAPS", way.counts());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let orders = process.stdin.take().expect("it is piped");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let (sender, answers) = channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|it| sender.send(it))
        });
        Victim { way, process, orders, answers }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes no memory. The process is ours, and not yet waited for.
        unsafe { libc::kill(self.id() as libc::pid_t, signal) };
    }

    /// Gives an order, without waiting for what comes of it.
    pub fn send(&mut self, order: &Value) {
        // Who has died is found out when its answer is waited for.
        let _ = writeln!(self.orders, "{order}");
    }

    pub fn answer(&mut self) -> Result<Value, String> {
        let Ok(line) = self.answers.recv_timeout(PATIENCE) else {
            return Err(match self.process.try_wait() {
                Ok(Some(status)) => match status.signal() {
                    Some(signal) => format!("the process died of signal {signal}"),
                    None => format!("the process ended: {status}"),
                },
                _ => format!("nothing came back within {PATIENCE:?}"),
            });
        };
        serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))
    }

    pub fn obey(&mut self, order: &Value) -> Result<Value, String> {
        self.send(order);
        self.answer()
    }

    pub fn open(&mut self, settings: &Value) -> Result<(), String> {
        let came = self.obey(&json!({"client": settings}))?;
        if came["error"].is_null() { Ok(()) } else { Err(format!("no client: {came}")) }
    }

    /// Fetches for a user of this name, while something else is done.
    pub fn fetch(
        &mut self,
        name: &str,
        bytes: usize,
        meanwhile: impl FnOnce(&Victim),
    ) -> Result<Came, String> {
        let mut user = json!({"user_id": name});
        if bytes > 0 {
            user["user_properties"] = json!({"large": "x".repeat(bytes)});
        }
        self.send(&json!({"user": user}));
        meanwhile(self);
        Ok(Came::from(&self.answer()?))
    }

    pub fn close(&mut self) -> Result<(), String> {
        self.obey(&json!({"close": true})).map(drop)
    }

    /// What each of its descriptors is.
    pub fn open_descriptors(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.id()));
        let entries = entries.into_iter().flatten().flatten();
        entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
    }

    /// In Go and Ruby only the threads of the library count: their runtimes keep for a while, or for good,
    /// what they once began.
    pub fn holdings(&self) -> Holdings {
        let entries = |what: &str| {
            let entries = std::fs::read_dir(format!("/proc/{}/{what}", self.id()));
            entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let mut threads = entries("task");
        if matches!(self.way, Way::Go | Way::Ruby) {
            threads.retain(|task| {
                std::fs::read_to_string(task.join("comm"))
                    .is_ok_and(|name| name.starts_with("exp-"))
            });
        }
        Holdings { descriptors: self.open_descriptors().len(), threads: threads.len() }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
