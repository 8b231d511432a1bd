//! What `compare` is going to run: configurations, thread counts, rounds and their order.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::Serialize;
use unconvoy::catalogue::{Availability, CONTENTION, Entry, LOAD, availability};

use crate::cli::CompareArgs;
use crate::refusal::Refusal;

/// What stands for the thread count in the program's arguments.
pub const PLACEHOLDER: &str = "{threads}";
/// Without `--threads`, thread counts go up to this many times the processors: enough for
/// overload to show.
const OVERLOAD: u32 = 4;

/// One way to run the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// As the user wrote it.
    pub name: String,
    /// The lock, or libc's own.
    pub lock: Option<(&'static str, &'static str)>,
    /// Whether threads that wait too much run on a special set of cores.
    pub has_special_set: bool,
}

/// What asks for a special set of cores, after a lock.
const SPECIAL_SET: &str = "+ssc";

impl Configuration {
    /// Reads `libc`, `default`, `LOCK` or `LOCK+LOAD`, each but the first with `+ssc` behind it or without.
    ///
    /// # Errors
    ///
    /// An unknown name, with the list of what there is; a lock that cannot run here.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (named_lock, has_special_set) = match text.strip_suffix(SPECIAL_SET) {
            Some("libc") => return Err("a special set of cores is unconvoy's, and libc is without it".to_string()),
            Some(before) => (before, true),
            None => (text, false),
        };
        let lock = match named_lock {
            "libc" => None,
            "default" => Some((CONTENTION[0].name, LOAD[0].name)),
            _ => {
                let (lock, load) = named_lock.split_once('+').unwrap_or((named_lock, LOAD[0].name));
                let Some(lock) = named(CONTENTION, lock) else {
                    return Err(format!("unknown lock '{lock}'\n{}", what_there_is()));
                };
                let Some(load) = named(LOAD, load) else {
                    return Err(format!("unknown load manager '{load}'\n{}", what_there_is()));
                };
                // The interposer would run the default instead, and it would be measured under this name.
                if let Availability::Refused(reason) = availability(lock) {
                    return Err(format!("'{lock}' is not available here: {reason}"));
                }
                Some((lock, load))
            }
        };
        Ok(Self { name: text.to_string(), lock, has_special_set })
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn named(entries: &'static [Entry], name: &str) -> Option<&'static str> {
    entries.iter().map(|entry| entry.name).find(|known| *known == name)
}

fn what_there_is() -> String {
    let names = |entries: &[Entry]| entries.iter().map(|e| e.name).collect::<Vec<_>>().join(", ");
    format!(
        "  configurations: libc, default, LOCK, LOCK+LOAD; all but libc with +ssc for a special set of cores\n  locks: {}\n  load managers: {}",
        names(CONTENTION),
        names(LOAD)
    )
}

/// One configuration at one thread count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Index into [`Plan::configurations`].
    pub configuration: usize,
    /// The thread count, if the program takes one.
    pub threads: Option<u32>,
}

/// Everything that will run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The first is the one to compare against.
    pub configurations: Vec<Configuration>,
    /// One row each; a single `None` when the program takes no thread count.
    pub threads: Vec<Option<u32>>,
    /// Measured rounds.
    pub runs: u32,
    /// Rounds before them that are not recorded.
    pub warmup: u32,
    /// Determines the order within every round.
    pub seed: u64,
    /// The program and its arguments, with placeholders.
    pub program: Vec<OsString>,
}

/// The part of a plan that goes into the record.
#[derive(Debug, Clone, Serialize)]
pub struct PlanRecord {
    /// Names, the first being the one to compare against.
    pub configurations: Vec<String>,
    /// Thread counts, `null` when the program takes none.
    pub threads: Vec<Option<u32>>,
    /// Measured rounds.
    pub runs: u32,
    /// Rounds before them that were not recorded.
    pub warmup: u32,
    /// Seed of the order within every round.
    pub seed: u64,
    /// The program and its arguments, with placeholders.
    pub program: Vec<String>,
}

impl Plan {
    /// Checks what only several options together show.
    ///
    /// # Errors
    ///
    /// Wrong usage (status 2): a configuration or thread count twice, thread counts without a
    /// place for them.
    pub fn new(args: &CompareArgs, processors: u32) -> Result<Self, Refusal> {
        let mut seen = HashSet::new();
        if let Some(twice) = args.locks.iter().find(|c| !seen.insert(c.name.as_str())) {
            return Err(Refusal::usage(format!("--locks names {twice} twice")));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = args.threads.iter().find(|count| !seen.insert(**count)) {
            return Err(Refusal::usage(format!("--threads names {twice} twice")));
        }
        let takes_threads = args.program.iter().any(|word| has_placeholder(word));
        if !takes_threads && !args.threads.is_empty() {
            return Err(Refusal::usage(format!(
                "--threads needs a place for the count: write {PLACEHOLDER} where PROGRAM takes it"
            )));
        }
        let threads = match (takes_threads, args.threads.is_empty()) {
            (false, _) => vec![None],
            (true, false) => args.threads.iter().copied().map(Some).collect(),
            (true, true) => powers_of_two(OVERLOAD * processors).map(Some).collect(),
        };
        Ok(Self {
            configurations: args.locks.clone(),
            threads,
            runs: args.runs,
            warmup: args.warmup,
            seed: args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            program: args.program.clone(),
        })
    }

    /// The cells in the order of one round (warm-up rounds are counted first).
    pub fn order(&self, round: u32) -> Vec<Cell> {
        let mut cells: Vec<Cell> = self
            .threads
            .iter()
            .flat_map(|&threads| {
                (0..self.configurations.len()).map(move |configuration| Cell { configuration, threads })
            })
            .collect();
        fastrand::Rng::with_seed(self.seed.wrapping_add(u64::from(round))).shuffle(&mut cells);
        cells
    }

    /// Number of runs, those of the warm-up included.
    pub fn total(&self) -> u64 {
        let rounds = u64::from(self.runs) + u64::from(self.warmup);
        rounds * (self.threads.len() * self.configurations.len()) as u64
    }

    /// The command line of one cell.
    pub fn command(&self, cell: Cell) -> Vec<OsString> {
        let Some(threads) = cell.threads else {
            return self.program.clone();
        };
        let count = threads.to_string();
        self.program.iter().map(|word| replace(word, PLACEHOLDER.as_bytes(), count.as_bytes())).collect()
    }

    /// `default, 8 threads`, as messages name a cell.
    pub fn describe(&self, cell: Cell) -> String {
        let name = &self.configurations[cell.configuration];
        match cell.threads {
            Some(1) => format!("{name}, 1 thread"),
            Some(threads) => format!("{name}, {threads} threads"),
            None => name.to_string(),
        }
    }

    /// What the record says of this plan.
    pub fn record(&self) -> PlanRecord {
        PlanRecord {
            configurations: self.configurations.iter().map(|c| c.name.clone()).collect(),
            threads: self.threads.clone(),
            runs: self.runs,
            warmup: self.warmup,
            seed: self.seed,
            program: self.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        }
    }
}

fn powers_of_two(last: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1_u32), |count| count.checked_mul(2)).take_while(move |count| *count <= last)
}

fn has_placeholder(word: &OsStr) -> bool {
    word.as_bytes().windows(PLACEHOLDER.len()).any(|window| window == PLACEHOLDER.as_bytes())
}

/// Byte-wise, because arguments need not be UTF-8.
fn replace(word: &OsStr, from: &[u8], to: &[u8]) -> OsString {
    let mut rest = word.as_bytes();
    let mut result = Vec::new();
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(to);
        rest = &rest[at + from.len()..];
    }
    result.extend_from_slice(rest);
    OsString::from_vec(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(threads: &[u32], program: &[&str]) -> Plan {
        Plan {
            configurations: ["libc", "default", "mcs+none"].map(|name| Configuration::parse(name).unwrap()).to_vec(),
            threads: threads.iter().copied().map(Some).collect(),
            runs: 5,
            warmup: 1,
            seed: 7,
            program: program.iter().map(OsString::from).collect(),
        }
    }

    #[test]
    fn configurations() {
        let lock = |text| Configuration::parse(text).unwrap().lock;
        assert_eq!(lock("libc"), None);
        assert_eq!(lock("default"), Some((CONTENTION[0].name, LOAD[0].name)));
        assert_eq!(lock("mcs"), Some(("mcs", LOAD[0].name)));
        assert_eq!(lock("tpmcs+none"), Some(("tpmcs", "none")));
        assert_eq!(lock("mcs+ssc"), lock("mcs"));
        let has_special_set = |text| Configuration::parse(text).unwrap().has_special_set;
        assert!(has_special_set("default+ssc") && has_special_set("mcs+none+ssc") && !has_special_set("mcs+none"));
        assert!(Configuration::parse("libc+ssc").unwrap_err().contains("without it"));
        for wrong in ["", "mcs+", "+none", "+ssc", "nosuch", "mcs+nosuch", "libc+none"] {
            let error = Configuration::parse(wrong).unwrap_err();
            assert!(error.contains("tpmcs") && error.contains("yield"), "{wrong}: {error}");
        }
    }

    #[test]
    fn every_round_has_every_cell_once_in_an_order_of_its_own() {
        let plan = plan(&[1, 2, 4], &["p", "{threads}"]);
        let mut orders = HashSet::new();
        for round in 0..6 {
            let order = plan.order(round);
            assert_eq!(order.iter().collect::<HashSet<_>>().len(), 9);
            assert_eq!(order, plan.order(round), "the seed alone determines it");
            orders.insert(order);
        }
        assert!(orders.len() > 1);
        assert_eq!(plan.total(), 54);
    }

    #[test]
    fn the_placeholder_is_replaced_everywhere() {
        let plan = plan(&[8], &["p", "-t{threads}", "{threads}:{threads}", "{thread}"]);
        let command = plan.command(plan.order(0)[0]);
        assert_eq!(command, ["p", "-t8", "8:8", "{thread}"]);
    }

    #[test]
    fn thread_counts_by_themselves() {
        assert_eq!(powers_of_two(8).collect::<Vec<_>>(), [1, 2, 4, 8]);
        assert_eq!(powers_of_two(12).collect::<Vec<_>>(), [1, 2, 4, 8]);
    }
}
