//! The workloads that a grid is made of: one table, from which the subcommands, the headings and the messages come.

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Name in the program's output.
    pub name: &'static str,
    /// Heading, with the unit.
    pub heading: &'static str,
    /// A time, not a throughput.
    pub lower_is_better: bool,
}

impl Metric {
    /// Operations per second, in the words of the workload.
    pub const fn throughput(heading: &'static str) -> Self {
        Self { name: "ops_per_sec", heading, lower_is_better: false }
    }
}

/// A program that prints `name value` lines.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// Of the subcommand.
    pub name: &'static str,
    /// File name of the program.
    pub program: &'static str,
    /// Options that every run has.
    pub options: &'static [&'static str],
    /// What is compared.
    pub metric: Metric,
    /// Debian packages that building or running it takes.
    pub packages: &'static [&'static str],
    /// A file of those packages without which it does not run.
    pub needs_file: Option<&'static str>,
    /// Whether it takes `--kind adaptive`, which makes libc's adaptive mutex a row.
    pub has_kind: bool,
    /// Whether it measures for `--seconds`; else it has a fixed amount of work.
    pub is_timed: bool,
    /// Further numbers that get a table each.
    pub details: &'static [Detail],
    /// One sentence, for the heading.
    pub what: &'static str,
}

impl Workload {
    /// Whether it has all that headings and messages are made of, and counts what suits its length.
    pub fn is_described(&self) -> bool {
        let is_named = !self.name.is_empty() && !self.program.is_empty() && !self.what.is_empty();
        is_named && !self.what.ends_with('.') && self.metric.lower_is_better != self.is_timed
    }
}

/// A number beside the one that is compared.
#[derive(Debug, Clone, Copy)]
pub struct Detail {
    /// Name in the program's output.
    pub name: &'static str,
    /// Heading, with the unit.
    pub heading: &'static str,
    /// What a printed number is divided by for that unit.
    pub divisor: f64,
}

/// What `nested` prints of those who wait for an outer lock, nanoseconds.
pub const OUTER_WAIT: &str = "outer_wait_p99_ns";

/// What most rows of the table have in common.
pub const PLAIN: Workload = Workload {
    name: "",
    program: "",
    options: &[],
    metric: Metric::throughput("operations/s"),
    packages: &[],
    needs_file: None,
    has_kind: false,
    is_timed: true,
    details: &[],
    what: "",
};

/// One lock; has benchmark code of its own, and is a grid too.
pub const COUNTER: Workload =
    Workload { name: "counter", program: "counter", has_kind: true, what: "threads take one lock in a loop", ..PLAIN };
/// A lock per bucket.
pub const HASHTABLE: Workload = Workload {
    name: "hashtable",
    program: "hashtable",
    what: "threads use a table of 100 buckets with a lock each; keys are drawn from a Zipf distribution whose hot set moves",
    ..PLAIN
};
/// Locks inside locks.
pub const NESTED: Workload = Workload {
    name: "nested",
    program: "nested",
    details: &[
        Detail { name: OUTER_WAIT, heading: "99th percentile of the wait for the outer lock, ms", divisor: 1e6 },
        Detail {
            name: "outer_hold_p99_ns",
            heading: "99th percentile of the time inside the outer lock, ms",
            divisor: 1e6,
        },
    ],
    what: "threads take a contended lock, one of them inside another lock that a further thread waits for",
    ..PLAIN
};
/// A key-value store.
pub const LEVELDB: Workload = Workload {
    name: "leveldb",
    program: "leveldb_bench",
    packages: &["libleveldb-dev"],
    what: "threads read or write random keys of a LevelDB database",
    ..PLAIN
};
/// All that are here; those of the papers are theirs.
pub const WORKLOADS: [Workload; 4] = [COUNTER, HASHTABLE, NESTED, LEVELDB];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_described() {
        assert!(WORKLOADS.iter().all(Workload::is_described));
    }
}
