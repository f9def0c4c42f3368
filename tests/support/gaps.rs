//! How long a fetch may go on without a look at its bounds, and whether it did.
#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::BTreeMap;
use std::fmt;

/// 5 ms of the processor: what is promised. The machine's own account of it is not exact, above all
/// where others work beside us, so that what takes longer is looked at again.
const MICROS: u64 = 5000;

/// How often, and the shortest counts. What really takes longer always does; what another process has
/// put out of the caches, or a host takes from its guest, it does not take each time.
const TRIES: usize = 5;

/// What 5 ms are in bytes: of ten million instructions, two in a nanosecond, which even a slow machine
/// makes. The same on every machine, however busy, and so looked at once. The instructions of a byte are
/// callgrind's: `GAPS_TOTALS=1 GAPS_ONLY=NAME valgrind --tool=callgrind --toggle-collect=FUNCTION` with
/// this program gives both.
const BYTES: [(&str, u64); 8] = [
    // The kernel's copies and its own work for each packet, which only the time tells.
    ("received", 512 << 10),
    ("sent", 512 << 10),
    // Not counted, but allowed 40: what ciphers take where the processor has none.
    ("decrypted", 256 << 10),
    ("encrypted", 256 << 10),
    // Trailers of six bytes, in `Framing::skip`: 50.
    ("framed", 128 << 10),
    // Not counted, but allowed 20: copied, or unpacked from gzip.
    ("body", 512 << 10),
    // One text of escapes, in `Session::decode`: 39; lists in a payload: 42.
    ("decoded", 224 << 10),
    // Copied from the user's own text, in `Session::encode`: 0.2. A user has at most 8 MiB.
    ("encoded", (8 << 20) + 1000),
];

/// The most of one count between two looks, as the library tells it in a line.
#[derive(Clone)]
pub struct Gap {
    what: String,
    amount: u64,
    between: String,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} between {}", self.amount, self.what, self.between)
    }
}

impl Gap {
    fn read(line: &str) -> Gap {
        let [what, amount, from, to] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("no line of the library's: {line}")
        };
        let amount = amount.parse().expect("an amount");
        Gap { what: what.to_owned(), amount, between: format!("{from} and {to}") }
    }

    fn is_time(&self) -> bool {
        self.what == "micros"
    }

    fn is_too_long(&self) -> bool {
        let limit = BYTES.iter().find(|(what, _)| *what == self.what);
        self.amount > limit.map_or(MICROS, |(_, bytes)| *bytes)
    }
}

/// All that was counted.
#[derive(Default)]
pub struct Gaps {
    worst: BTreeMap<String, (Gap, String)>,
    counted: usize,
    longer: usize,
}

impl Gaps {
    /// Runs something, several times if it takes too long between two looks, and says what always did.
    /// `counted` gives the lines of what was counted since it was asked last.
    pub fn of(
        &mut self,
        name: &str,
        mut run: impl FnMut(),
        mut counted: impl FnMut() -> Vec<String>,
    ) -> Vec<Gap> {
        counted();
        let mut shortest: BTreeMap<String, Gap> = BTreeMap::new();
        for _ in 0..TRIES {
            run();
            for gap in most(&counted()) {
                let kept = shortest.entry(gap.what.clone()).or_insert_with(|| gap.clone());
                if gap.amount < kept.amount {
                    *kept = gap;
                }
            }
            let again = |gap: &Gap| gap.is_time() && gap.amount > MICROS / 2;
            if !shortest.values().any(again) {
                break;
            }
        }
        let gaps: Vec<_> = shortest.into_values().collect();
        self.counted += 1;
        self.longer += usize::from(gaps.iter().any(Gap::is_too_long));
        for gap in &gaps {
            let is_worse = |(worst, _): &(Gap, _)| worst.amount < gap.amount;
            if self.worst.get(&gap.what).is_none_or(is_worse) {
                self.worst.insert(gap.what.clone(), (gap.clone(), name.to_owned()));
            }
        }
        gaps.into_iter().filter(Gap::is_too_long).collect()
    }
}

/// How many were counted, and the longest of each, one a line: what `packaging/test-gaps` reads.
impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} counted, {} longer than 5 ms", self.counted, self.longer)?;
        let mut worst = self.worst.values();
        worst.try_for_each(|(gap, name)| writeln!(f, "at most {gap} ({name})"))
    }
}

/// Of each count the most.
fn most(lines: &[String]) -> Vec<Gap> {
    let mut most: BTreeMap<String, Gap> = BTreeMap::new();
    for gap in lines.iter().map(|line| Gap::read(line)) {
        let kept = most.entry(gap.what.clone()).or_insert_with(|| gap.clone());
        if gap.amount > kept.amount {
            *kept = gap;
        }
    }
    most.into_values().collect()
}

/// What was counted in this process since this was asked last.
#[cfg(feature = "count-gaps")]
pub fn counted_here() -> Vec<String> {
    experiment::machine::gaps::worst().iter().map(ToString::to_string).collect()
}
