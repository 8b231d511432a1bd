//! What the locks of a program cost, from its profile under libc's locks.

use serde::{Deserialize, Serialize};
use unconvoy_measure::chart::quantity;

use crate::advice::entry::Entry;
use crate::advice::finding::Advice;
use crate::advice::text;
use crate::profile::report::Report;
use crate::profile::rows::{Pair, Place, Row};

/// Number of locks that are kept.
const KEPT: usize = 20;
/// Number of places and pairs of places that are kept for each.
const PLACES: usize = 8;

/// If all threads together waited for a smaller part of the time, few candidates are tried.
const LITTLE: f64 = 0.01;

/// The locks of a program, those with the most waiting first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Costs {
    /// Whether the program recorded a profile.
    pub is_known: bool,
    /// From the start to the last wait.
    pub seconds: f64,
    /// Time that all threads together waited for locks.
    pub waited_ns: u64,
    /// Share of the threads' time that they waited for locks.
    pub share: f64,
    /// Time that all threads together waited on condition variables. A thread there may have
    /// nothing to do, so this is no cost.
    #[serde(default)]
    pub cond_waited_ns: u64,
    /// Share of the threads' time that they waited on condition variables.
    #[serde(default)]
    pub cond_share: f64,
    pub locks: Vec<LockCost>,
    /// The condition variables.
    #[serde(default)]
    pub conds: Vec<LockCost>,
    /// What the profile does not cover.
    pub remarks: Vec<String>,
    /// What the profile suggests, in order of worth.
    pub advice: Vec<Advised>,
}

/// An advice on some locks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Advised {
    /// The locks' name.
    pub lock: String,
    /// What is wrong.
    pub problem: String,
    /// The same with the lock and the place, and what to change in the source.
    pub paragraphs: Vec<String>,
    /// Entries of a strategy, `None` for the whole process, and the lock that should serve them.
    pub choices: Vec<(Option<Entry>, String)>,
}

/// One lock, or the locks of one name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LockCost {
    pub name: String,
    pub kind: String,
    pub locks: usize,
    pub waited_ns: u64,
    /// Share of the time waited for all locks.
    pub share: f64,
    pub waits: u64,
    pub wait_p50_ns: Option<u64>,
    pub wait_p99_ns: Option<u64>,
    pub hold_p50_ns: Option<u64>,
    pub hold_p99_ns: Option<u64>,
    pub waiters: Vec<Place>,
    pub holders: Vec<Place>,
    pub pairs: Vec<Pair>,
    /// What a strategy file calls the locks; empty if a strategy cannot name them.
    pub names: Vec<Entry>,
}

impl Costs {
    /// The costs in a report, for a program with `threads` threads.
    pub fn of(report: &Report, threads: u64) -> Self {
        let (conds, rows): (Vec<&Row>, Vec<&Row>) =
            report.classes.iter().partition(|row| row.is_cond());
        let sum = |rows: &[&Row]| rows.iter().map(|row| row.waited_ns).sum();
        let waited_ns: u64 = sum(&rows);
        let time = report.seconds * threads as f64;
        let share = |ns: u64| if time > 0.0 { (ns as f64 * 1e-9 / time).min(1.0) } else { 0.0 };
        Costs {
            is_known: true,
            seconds: report.seconds,
            waited_ns,
            share: share(waited_ns),
            cond_waited_ns: sum(&conds),
            cond_share: share(sum(&conds)),
            locks: rows.into_iter().take(KEPT).map(LockCost::of).collect(),
            conds: conds.into_iter().take(KEPT).map(LockCost::of).collect(),
            remarks: report.remarks.clone(),
            advice: report
                .advice
                .iter()
                .filter(|it| !it.lock.is_empty())
                .map(Advised::of)
                .collect(),
        }
    }

    /// Whether other locks can gain nearly nothing.
    pub fn is_little(&self) -> bool {
        // Idle threads would hide what the others lose, so the time of one thread counts.
        self.is_known && (self.waited_ns as f64) <= LITTLE * 1e9 * self.seconds
    }

    /// "the locks cost 0.4 % of the time", and how long threads waited on condition variables
    /// unless that is little.
    pub fn sentence(&self) -> String {
        if !self.is_known {
            return "what the locks cost is unknown".to_string();
        }
        let percent = 100.0 * self.share;
        let shown = match percent {
            p if p < 0.05 => "nearly nothing".to_string(),
            p if p < 10.0 => format!("{p:.1} % of the time"),
            p => format!("{p:.0} % of the time"),
        };
        let locks = format!("the locks cost {shown}");
        if self.cond_share < LITTLE {
            return locks;
        }
        let percent = 100.0 * self.cond_share;
        format!("{locks}; waits on condition variables, perhaps for work, took {percent:.0} %")
    }
}

impl Advised {
    fn of(advice: &Advice) -> Self {
        let choices = advice.strategy.iter();
        Advised {
            lock: advice.lock.clone(),
            problem: format!("{}: {}", advice.problem.name(), advice.sentence),
            paragraphs: vec![text::problem(advice), advice.source.clone()],
            choices: choices.map(|it| (it.entry.clone(), it.lock.to_string())).collect(),
        }
    }
}

impl LockCost {
    fn of(row: &Row) -> Self {
        let first = |places: &[Place]| places.iter().take(PLACES).cloned().collect();
        LockCost {
            name: row.name.clone(),
            kind: row.kind.to_string(),
            locks: row.locks,
            waited_ns: row.waited_ns,
            share: row.share,
            waits: row.waits,
            wait_p50_ns: row.wait.p50_ns,
            wait_p99_ns: row.wait.p99_ns,
            hold_p50_ns: row.hold.p50_ns,
            hold_p99_ns: row.hold.p99_ns,
            waiters: first(&row.waiters),
            holders: first(&row.holders),
            pairs: row.pairs.iter().take(PLACES * PLACES).cloned().collect(),
            names: row.entries.clone(),
        }
    }

    /// Whether a strategy file can name the locks.
    pub fn has_entries(&self) -> bool {
        !self.names.is_empty()
    }

    /// The entries of a strategy file that give the locks an algorithm; the first has the comment.
    pub fn entries(&self, why: &str, keys: &[(&str, &str)]) -> Vec<String> {
        let comments = std::iter::once(why).chain(std::iter::repeat(""));
        self.names.iter().zip(comments).map(|(name, why)| name.toml(why, keys)).collect()
    }

    /// "cache_lock, 81 % of the waiting, held for 1.2 µs (median)".
    pub fn summary(&self) -> String {
        let held = self.hold_p50_ns.map_or_else(String::new, |ns| {
            format!(", held for {} (median)", quantity::seconds(ns as f64 * 1e-9))
        });
        format!("{}, {:.0} % of the waiting{held}", self.name, 100.0 * self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_has_the_waits_on_condition_variables_unless_they_are_short() {
        let costs =
            |share, cond_share| Costs { is_known: true, share, cond_share, ..Costs::default() };
        assert_eq!(costs(0.004, 0.009).sentence(), "the locks cost 0.4 % of the time");
        let conds = "waits on condition variables, perhaps for work, took";
        for (share, cond_share, expected) in [
            (0.004, 0.6, format!("the locks cost 0.4 % of the time; {conds} 60 %")),
            (0.25, 0.2, format!("the locks cost 25 % of the time; {conds} 20 %")),
        ] {
            assert_eq!(costs(share, cond_share).sentence(), expected);
        }
    }
}
