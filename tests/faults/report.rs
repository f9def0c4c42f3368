//! The matrix as a table: on the terminal, and as the page docs/faults.md.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use crate::fault::{Fault, Gets};
use crate::lane::Outcome;
use crate::victim::Way;

pub struct Report<'a> {
    pub seed: u64,
    pub ways: Vec<Way>,
    pub faults: &'a [Fault],
    /// Of each way, in the order of the faults.
    pub columns: Vec<Vec<Outcome>>,
}

impl Report<'_> {
    /// Whether everything has passed, and something has.
    pub fn is_good(&self) -> bool {
        self.count(Outcome::has_failed) == 0 && self.count(Outcome::has_passed) > 0
    }

    fn count(&self, wanted: fn(&Outcome) -> bool) -> usize {
        self.columns.iter().flatten().filter(|outcome| wanted(outcome)).count()
    }

    pub fn print(&self, took: Duration) {
        for (index, fault) in self.faults.iter().enumerate() {
            println!("{}", self.row(index, fault));
            if self.faults.len() < 20 {
                self.print_messages(index);
            }
        }
        let (passed, failed) = (self.count(Outcome::has_passed), self.count(Outcome::has_failed));
        println!(
            "faults: {} faults in {} ways: {passed} passed, {failed} failed, {} excepted; {:.1} s",
            self.faults.len(),
            self.ways.len(),
            self.columns.iter().flatten().count() - passed - failed,
            took.as_secs_f64(),
        );
    }

    /// For whoever looks at a few.
    fn print_messages(&self, index: usize) {
        for (way, column) in self.ways.iter().zip(&self.columns) {
            if let Outcome::Passed { came, .. } = &column[index] {
                println!("    {}: {} {}", way.name(), came.status, came.message);
            }
        }
    }

    fn row(&self, index: usize, fault: &Fault) -> String {
        let mut row =
            format!("| {} | {} | {} |", fault.name, fault.bound.as_millis(), came_to(fault));
        for column in &self.columns {
            let cell = match &column[index] {
                Outcome::Passed { came, .. } => format!("{:.0}", came.millis),
                Outcome::Failed(_) => "**failed**".to_owned(),
                Outcome::Excepted => "–".to_owned(),
            };
            write!(row, " {cell} |").unwrap();
        }
        let seed = if fault.is_drawn { fault.seed(self.seed).to_string() } else { String::new() };
        write!(row, " {} | {seed} |", self.next(index)).unwrap();
        row
    }

    /// What the next fetch came to: in all ways the same, where none failed.
    fn next(&self, index: usize) -> String {
        let next = self.columns.iter().filter_map(|column| match &column[index] {
            Outcome::Passed { next, .. } => Some(short(&next.status)),
            _ => None,
        });
        next.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
    }

    pub fn page(&self) -> String {
        let mut page = format!(
            "# The fault matrix\n\n\
             Written by `make faults`, with the seed {}; [how](../tests/faults/README.md). {} faults, each in every way\n\
             of fetching. Numbers are the milliseconds after which the fetch was back: at most 20 after its bound, or the\n\
             run fails. So it does unless the fetch comes to what is said here, the next one of the same client to its own\n\
             answer, and neither a descriptor nor a thread is left after the close.\n",
            self.seed,
            self.faults.len()
        );
        let mut kind = "";
        for (index, fault) in self.faults.iter().enumerate() {
            if fault.kind != kind {
                kind = fault.kind;
                let names: Vec<_> = self.ways.iter().map(|way| way.name()).collect();
                let ways = names.join(" | ");
                let rules = "--:|".repeat(self.ways.len());
                let heads = format!("| fault | bound | comes to | {ways} | next | seed |");
                let rules = format!("|---|--:|---|{rules}---|--:|");
                writeln!(page, "\n## {kind}\n\n{heads}\n{rules}").unwrap();
            }
            writeln!(page, "{}", self.row(index, fault)).unwrap();
        }
        self.exceptions(&mut page);
        page
    }

    fn exceptions(&self, page: &mut String) {
        page.push_str("\n## Not in some languages, and why\n\n");
        for fault in self.faults {
            let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
            for (way, reason) in &fault.except {
                match reasons.iter_mut().find(|(known, _)| known == reason) {
                    Some((_, ways)) => ways.push(way.name()),
                    None => reasons.push((reason, vec![way.name()])),
                }
            }
            for (reason, ways) in reasons {
                writeln!(page, "- {}: {}: {reason}", fault.name, ways.join(", ")).unwrap();
            }
        }
    }
}

/// A status of the header without what is the same in all.
fn short(status: &str) -> &str {
    status.trim_start_matches("EXP_").trim_start_matches("ERR_")
}

fn came_to(fault: &Fault) -> String {
    match fault.gets {
        Gets::Variants | Gets::Own => "OK".to_owned(),
        Gets::Fails(status, 0) => short(status).to_owned(),
        Gets::Fails(status, http_status) => format!("{} {http_status}", short(status)),
        Gets::TimesOut(phase) => format!("TIMEOUT {phase}"),
        Gets::Either(statuses) => {
            statuses.iter().map(|it| short(it)).collect::<Vec<_>>().join(" or ")
        }
    }
}
