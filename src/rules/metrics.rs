//! What one client has done so far, in numbers that never go back, and how it stands now.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::rules::error::Status;
use crate::rules::timings::Phase;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one; returns how many it makes.
    pub fn increment(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Unused for longer than the idle timeout.
    Idle,
    /// In use for longer than its lifetime.
    Lifetime,
    /// A timeout, a cancel or a failure in the middle of an exchange.
    Failed,
    /// The answer does not prove that nothing more will come.
    Unclean,
    /// The service ended it, or announced to.
    Peer,
    /// Unused since before another connection gave no byte of an answer in time.
    Suspect,
    /// The client was closed.
    Shutdown,
}

impl CloseReason {
    const COUNT: usize = 7;

    pub const ALL: [CloseReason; CloseReason::COUNT] = [
        CloseReason::Idle,
        CloseReason::Lifetime,
        CloseReason::Failed,
        CloseReason::Unclean,
        CloseReason::Peer,
        CloseReason::Suspect,
        CloseReason::Shutdown,
    ];

    fn name(self) -> &'static str {
        match self {
            CloseReason::Idle => "idle",
            CloseReason::Lifetime => "lifetime",
            CloseReason::Failed => "failed",
            CloseReason::Unclean => "unclean",
            CloseReason::Peer => "peer",
            CloseReason::Suspect => "suspect",
            CloseReason::Shutdown => "shutdown",
        }
    }
}

/// Counters of one kind, told apart by a label.
struct Family {
    name: &'static str,
    label: &'static str,
    help: &'static str,
    values: Vec<(&'static str, u64)>,
}

/// How the pool stands at the moment of asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    pub leased: usize,
    pub idle: usize,
    pub waiting: usize,
    /// Asynchronous fetches submitted and not delivered.
    pub pending: usize,
}

impl Gauges {
    fn named(self) -> [(&'static str, &'static str, usize); 4] {
        [
            ("connections_leased", "Connections in use.", self.leased),
            ("connections_idle", "Connections open and unused.", self.idle),
            ("fetches_waiting", "Fetches waiting for a connection.", self.waiting),
            ("fetches_pending", "Asynchronous fetches that are not delivered yet.", self.pending),
        ]
    }
}

/// The counters of one client.
#[derive(Debug, Default)]
pub struct Metrics {
    pub fetches: Counter,
    pub fetches_ok: Counter,
    failures: [Counter; Status::ALL.len()],
    refused: [Counter; Status::ALL.len()],
    pub attempts: Counter,
    pub retries: Counter,
    pub retries_suppressed: Counter,
    pub stale_repeats: Counter,
    timeouts: [Counter; Phase::COUNT],
    pub connections_opened: Counter,
    pub connections_reused: Counter,
    connections_closed: [Counter; CloseReason::COUNT],
    pub lookups: Counter,
    pub lookups_abandoned: Counter,
    pub entries_skipped: Counter,
    latency: Histogram,
}

impl Metrics {
    /// A fetch came back with `status` (`None`: with its variants) after `elapsed`.
    pub fn fetch_ended(&self, status: Option<Status>, elapsed: Duration) {
        match status {
            None => &self.fetches_ok,
            Some(status) => &self.failures[status as usize],
        }
        .increment();
        self.latency.observe(elapsed);
    }

    /// An asynchronous fetch was not started; returns how many with that status were not.
    pub fn fetch_refused(&self, status: Status) -> u64 {
        self.refused[status as usize].increment()
    }

    pub fn refused(&self, status: Status) -> u64 {
        self.refused[status as usize].value()
    }

    /// An attempt ran into its bound in `phase`.
    pub fn timed_out(&self, phase: Phase) {
        self.timeouts[phase as usize].increment();
    }

    pub fn closed(&self, reason: CloseReason) {
        self.connections_closed[reason as usize].increment();
    }

    pub fn failures(&self, status: Status) -> u64 {
        self.failures[status as usize].value()
    }

    pub fn timeouts(&self, phase: Phase) -> u64 {
        self.timeouts[phase as usize].value()
    }

    pub fn connections_closed(&self, reason: CloseReason) -> u64 {
        self.connections_closed[reason as usize].value()
    }

    fn plain(&self) -> [(&'static str, &'static str, &Counter); 11] {
        [
            ("fetches", "Fetches started.", &self.fetches),
            ("fetches_ok", "Fetches that returned variants.", &self.fetches_ok),
            ("attempts", "Attempts made, retries included.", &self.attempts),
            ("retries", "Attempts after the first.", &self.retries),
            (
                "retries_suppressed",
                "Retries not made because the retry budget was empty.",
                &self.retries_suppressed,
            ),
            (
                "stale_repeats",
                "Requests repeated because a kept-alive connection had been closed.",
                &self.stale_repeats,
            ),
            ("connections_opened", "Connections opened.", &self.connections_opened),
            (
                "connections_reused",
                "Requests over a kept-alive connection.",
                &self.connections_reused,
            ),
            ("lookups", "Host name lookups started.", &self.lookups),
            (
                "lookups_abandoned",
                "Host name lookups left behind because nobody could wait longer.",
                &self.lookups_abandoned,
            ),
            (
                "entries_skipped",
                "Entries of responses that were not variants and were skipped.",
                &self.entries_skipped,
            ),
        ]
    }

    fn families(&self) -> [Family; 4] {
        let refused = Status::ALL.map(|status| (status.name(), self.refused(status)));
        let failures = Status::ALL.map(|status| (status.name(), self.failures(status)));
        let timeouts = Phase::ALL.map(|phase| (phase.name(), self.timeouts(phase)));
        let closed =
            CloseReason::ALL.map(|reason| (reason.name(), self.connections_closed(reason)));
        [
            Family {
                name: "failures",
                label: "status",
                help: "Fetches that failed, by status.",
                values: failures.to_vec(),
            },
            Family {
                name: "fetches_refused",
                label: "status",
                help: "Asynchronous fetches that were not started, by status.",
                values: refused.to_vec(),
            },
            Family {
                name: "timeouts",
                label: "phase",
                help: "Attempts that timed out, by phase.",
                values: timeouts.to_vec(),
            },
            Family {
                name: "connections_closed",
                label: "reason",
                help: "Connections closed, by reason.",
                values: closed.to_vec(),
            },
        ]
    }

    /// Everything as one JSON object; times in seconds. (The names need no escapes.)
    pub fn to_json(&self, gauges: Gauges) -> String {
        let plain = self.plain().map(|(name, _, counter)| (name, counter.value().to_string()));
        let families = self.families().map(|family| {
            let values = family.values.into_iter();
            (family.name, json_object(values.map(|(label, value)| (label, value.to_string()))))
        });
        let gauges = gauges.named().map(|(name, _, value)| (name, value.to_string()));
        let latency = [("fetch_seconds", self.latency.to_json())];
        json_object(plain.into_iter().chain(families).chain(gauges).chain(latency))
    }

    /// Everything in the OpenMetrics text format, version 1.0.0.
    pub fn to_openmetrics(&self, gauges: Gauges) -> String {
        let mut out = String::with_capacity(8 << 10);
        for (name, help, counter) in self.plain() {
            header(&mut out, name, "counter", help);
            line(&mut out, format_args!("experiment_{name}_total {}", counter.value()));
        }
        for Family { name, label, help, values } in self.families() {
            header(&mut out, name, "counter", help);
            for (which, value) in values {
                let which = format_args!("{{{label}=\"{which}\"}}").to_string();
                line(&mut out, format_args!("experiment_{name}_total{which} {value}"));
            }
        }
        for (name, help, value) in gauges.named() {
            header(&mut out, name, "gauge", help);
            line(&mut out, format_args!("experiment_{name} {value}"));
        }
        header(&mut out, "fetch_seconds", "histogram", "Time from a fetch's call to its return.");
        self.latency.write_openmetrics(&mut out, "experiment_fetch_seconds");
        out.push_str("# EOF\n");
        out
    }
}

fn json_object(members: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let members = members.into_iter().map(|(name, value)| format!("\"{name}\":{value}"));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn header(out: &mut String, name: &str, kind: &str, help: &str) {
    line(out, format_args!("# TYPE experiment_{name} {kind}"));
    line(out, format_args!("# HELP experiment_{name} {help}"));
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a String takes whatever is written to it");
}

/// Upper bounds of the latency buckets, in microseconds; one more takes what lies above.
const BUCKETS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

#[derive(Debug, Default)]
struct Histogram {
    counts: [Counter; BUCKETS.len() + 1],
    sum_micros: AtomicU64,
}

impl Histogram {
    fn observe(&self, elapsed: Duration) {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.counts[BUCKETS.partition_point(|&bound| bound < micros)].increment();
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Upper bound in seconds and count of all observations up to it, the last without a bound.
    fn cumulated(&self) -> Vec<(Option<f64>, u64)> {
        let mut total = 0;
        let bounds = BUCKETS.iter().map(|&bound| Some(bound as f64 / 1e6)).chain([None]);
        let add = |(bound, counter): (Option<f64>, &Counter)| {
            total += counter.value();
            (bound, total)
        };
        bounds.zip(&self.counts).map(add).collect()
    }

    fn sum_seconds(&self) -> f64 {
        self.sum_micros.load(Ordering::Relaxed) as f64 / 1e6
    }

    fn to_json(&self) -> String {
        let cumulated = self.cumulated();
        let count = cumulated.last().map_or(0, |&(_, count)| count);
        let buckets: Vec<String> = cumulated
            .into_iter()
            .map(|(bound, count)| {
                let bound = bound.map_or_else(|| "null".to_owned(), |bound| format!("{bound:?}"));
                json_object([("le", bound), ("count", count.to_string())])
            })
            .collect();
        json_object([
            ("count", count.to_string()),
            ("sum", format!("{:?}", self.sum_seconds())),
            ("buckets", format!("[{}]", buckets.join(","))),
        ])
    }

    fn write_openmetrics(&self, out: &mut String, name: &str) {
        let mut count = 0;
        for (bound, cumulated) in self.cumulated() {
            count = cumulated;
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| format!("{bound:?}"));
            line(out, format_args!("{name}_bucket{{le=\"{bound}\"}} {cumulated}"));
        }
        line(out, format_args!("{name}_count {count}"));
        line(out, format_args!("{name}_sum {:?}", self.sum_seconds()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Metrics {
        let metrics = Metrics::default();
        metrics.fetches.increment();
        metrics.fetch_ended(Some(Status::Timeout), Duration::from_millis(3));
        metrics.fetch_refused(Status::QueueFull);
        metrics.timed_out(Phase::Pool);
        metrics.closed(CloseReason::Idle);
        metrics
    }

    #[test]
    fn json_holds_every_counter_and_gauge() {
        let text = sample().to_json(Gauges { leased: 1, idle: 2, waiting: 3, pending: 4 });
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["fetches"], 1);
        assert_eq!(json["failures"]["timeout"], 1);
        assert_eq!(json["failures"]["network"], 0);
        assert_eq!(json["fetches_refused"]["queue_full"], 1);
        assert_eq!(json["timeouts"]["pool"], 1);
        assert_eq!(json["connections_closed"]["idle"], 1);
        assert_eq!(json["connections_idle"], 2);
        assert_eq!(json["fetches_waiting"], 3);
        assert_eq!(json["fetches_pending"], 4);
        assert_eq!(json["fetch_seconds"]["count"], 1);
        assert_eq!(json["fetch_seconds"]["sum"], 0.003);
    }

    #[test]
    fn openmetrics_text_is_of_the_form_the_standard_asks_for() {
        let text = sample().to_openmetrics(Gauges::default());
        assert!(text.ends_with("# EOF\n"));
        for expected in [
            "# TYPE experiment_fetches counter\n",
            "experiment_fetches_total 1\n",
            "experiment_failures_total{status=\"timeout\"} 1\n",
            "experiment_timeouts_total{phase=\"pool\"} 1\n",
            "experiment_fetch_seconds_bucket{le=\"0.0025\"} 0\n",
            "experiment_fetch_seconds_bucket{le=\"0.005\"} 1\n",
            "experiment_fetch_seconds_bucket{le=\"+Inf\"} 1\n",
            "experiment_fetch_seconds_count 1\n",
        ] {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
    }

    #[test]
    fn buckets_hold_what_is_at_most_their_bound() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 10_000_000, 10_000_001, u64::MAX] {
            histogram.observe(Duration::from_micros(micros));
        }
        let counts: Vec<u64> = histogram.counts.iter().map(Counter::value).collect();
        assert_eq!((counts[0], counts[1], counts[15], counts[16]), (2, 1, 1, 2));
    }
}
