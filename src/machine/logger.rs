//! The host's log callback. Without one, nothing is written anywhere.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::machine::gaps;

/// How loud a message is; a logger passes those up to its own level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error = 1,
    Warn = 2,
    Info = 3,
    Debug = 4,
}

/// What takes the lines: called on any thread, with no lock held that another call waits for.
pub type Sink = dyn Fn(Level, &str) + Send + Sync;

/// Where a client's messages go. Nothing of a user is ever logged above `Debug`, no key at all.
#[derive(Default)]
pub struct Logger {
    sink: Option<(Level, std::sync::Arc<Sink>)>,
}

impl Logger {
    pub fn new(max_level: Level, sink: std::sync::Arc<Sink>) -> Self {
        Logger { sink: Some((max_level, sink)) }
    }

    /// Writes one line if anyone listens at this level; the text is only made if someone does.
    pub fn log(&self, level: Level, message: impl FnOnce() -> String) {
        let Some((max_level, sink)) = &self.sink else { return };
        if level <= *max_level {
            // A sink that panics must not change the outcome of a fetch.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let message = message();
                let _host = gaps::outside();
                sink(level, &message);
            }));
        }
    }
}

impl fmt::Debug for Logger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logger").field("max_level", &self.sink.as_ref().map(|s| s.0)).finish()
    }
}
