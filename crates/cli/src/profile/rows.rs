//! The rows of a report.

use serde::{Deserialize, Serialize};
use unconvoy_profile::{Kind, histogram};

use super::options::Sort;
use crate::advice::entry::Entry;

/// The waits for the locks of one name that have the same stack on one side.
#[derive(Debug, Clone)]
pub struct StackSum {
    /// Functions, outermost first.
    pub frames: Vec<String>,
    /// The locks' name.
    pub lock: String,
    pub ns: u64,
    /// Number of waits, estimated.
    pub waits: f64,
}

/// A lock, or the locks of one name.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub name: String,
    pub kind: &'static str,
    /// Whether nothing says what threads waited for: a lock, or anything else.
    #[serde(skip)]
    pub is_unknown: bool,
    /// Address in the recorded run; null if the row has several locks.
    pub address: Option<String>,
    pub locks: usize,
    pub waits: u64,
    pub timed_out: u64,
    /// Times that waiters left the processor; 0 with libc.
    pub slept: u64,
    pub waited_ns: u64,
    /// Share of the time waited for all locks.
    pub share: f64,
    pub longest_ns: u64,
    pub read_waits: u64,
    pub read_waited_ns: u64,
    /// Acquisitions up to the last wait; 0 if not counted.
    pub acquisitions: u64,
    /// Quantiles of the waits.
    pub wait: Quantiles,
    /// Quantiles of the measured holds.
    pub hold: Quantiles,
    /// Number of measured holds.
    pub holds: u64,
    pub waiters: Vec<Place>,
    /// Places that held the lock while others waited.
    pub holders: Vec<Place>,
    /// Share of the time waited for which the holder is known.
    pub holder_known: f64,
    /// Pairs of a waiting place and a holding place.
    pub pairs: Vec<Pair>,
    /// The entries of a strategy file that name the locks; empty if a strategy cannot name them.
    pub entries: Vec<Entry>,
    /// Indices of the locks in the profile.
    #[serde(skip)]
    pub indices: Vec<usize>,
    #[serde(skip)]
    pub wait_counts: Vec<u64>,
    #[serde(skip)]
    pub hold_counts: Vec<u64>,
    #[serde(skip)]
    pub longest_hold_ns: u64,
}

/// Median and 99th percentile; null if nothing was counted.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Quantiles {
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
}

/// A place in the program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Place {
    /// Function and line.
    pub place: String,
    /// Time waited at the place, or because of it.
    pub ns: u64,
    /// Share of the row's time waited, or of that of all locks.
    pub share: f64,
    /// Number of waits, estimated.
    pub waits: f64,
}

/// A waiting place and a holding place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pair {
    pub waiter: String,
    pub holder: String,
    pub ns: u64,
}

impl Row {
    /// Whether the row is of condition variables, or of other objects that are no locks.
    pub fn is_cond(&self) -> bool {
        self.kind == Kind::Cond.name() || self.kind == Kind::Event.name()
    }

    /// The quantity that `--sort` compares.
    pub fn order(&self, sort: Sort) -> u64 {
        match sort {
            Sort::Waited => self.waited_ns,
            Sort::Waits => self.waits,
            Sort::Longest => self.longest_ns,
            Sort::Held => self.hold.p50_ns.unwrap_or(0),
        }
    }
}

impl Row {
    /// Histogram of the waits without empty buckets: upper bounds in nanoseconds, and counts.
    pub fn wait_histogram(&self) -> Vec<(u64, u64)> {
        bounds(&self.wait_counts, self.longest_ns)
    }

    /// Histogram of the measured holds, likewise.
    pub fn hold_histogram(&self) -> Vec<(u64, u64)> {
        bounds(&self.hold_counts, self.longest_hold_ns)
    }
}

fn bounds(counts: &[u64], longest: u64) -> Vec<(u64, u64)> {
    let counts = counts.iter().enumerate().filter(|&(_, &count)| count > 0);
    let bound = |bucket: usize| match bucket + 1 {
        histogram::BUCKETS => longest,
        next => histogram::lower(next),
    };
    counts.map(|(bucket, &count)| (bound(bucket), count)).collect()
}

/// The quantiles of the counted times, of which `longest` is the longest.
pub fn quantiles(counts: &[u64], longest: u64) -> Quantiles {
    Quantiles {
        p50_ns: histogram::quantile(counts, longest, 0.5),
        p99_ns: histogram::quantile(counts, longest, 0.99),
    }
}
