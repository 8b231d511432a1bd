//! Descriptions of the workloads: one table for subcommands, headings and messages.

/// The compared value.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Name in the program's output.
    pub name: &'static str,
    /// Heading, with the unit.
    pub heading: &'static str,
    /// Whether the value is a time, not a throughput.
    pub lower_is_better: bool,
}

impl Metric {
    /// Creates a throughput in operations per second, with the workload's own heading.
    pub const fn throughput(heading: &'static str) -> Self {
        Self { name: "ops_per_sec", heading, lower_is_better: false }
    }
}

/// A program that prints lines `name value`.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// Name of the subcommand.
    pub name: &'static str,
    /// File name of the program.
    pub program: &'static str,
    /// Options of every run.
    pub options: &'static [&'static str],
    /// The compared value.
    pub metric: Metric,
    /// Debian packages needed to build or run it.
    pub packages: &'static [&'static str],
    /// A file of those packages that the program needs to run.
    pub needs_file: Option<&'static str>,
    /// Whether it accepts `--kind adaptive`, and so has a row of libc's adaptive mutex.
    pub has_kind: bool,
    /// Whether it runs for `--seconds`, instead of a fixed amount of work.
    pub is_timed: bool,
    /// Further values with a table each.
    pub details: &'static [Detail],
    /// One sentence about it, without a full stop.
    pub what: &'static str,
}

impl Workload {
    /// Returns whether names and sentence are present and the metric fits the kind of work.
    pub fn is_described(&self) -> bool {
        let is_named = !self.name.is_empty() && !self.program.is_empty() && !self.what.is_empty();
        is_named && !self.what.ends_with('.') && self.metric.lower_is_better != self.is_timed
    }
}

/// A value besides the compared one.
#[derive(Debug, Clone, Copy)]
pub struct Detail {
    /// Name in the program's output.
    pub name: &'static str,
    /// Heading, with the unit.
    pub heading: &'static str,
    /// Divisor from the program's unit to the heading's.
    pub divisor: f64,
}

/// Value that `nested` prints: wait for the outer lock, nanoseconds.
pub const OUTER_WAIT: &str = "outer_wait_p99_ns";
/// Value that `nested` prints: time inside the outer lock, nanoseconds.
pub const OUTER_HOLD: &str = "outer_hold_p99_ns";

/// Common values of most workloads.
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

/// One lock. It has a benchmark of its own, and is also a grid.
pub const COUNTER: Workload = Workload {
    name: "counter",
    program: "counter",
    has_kind: true,
    what: "threads take one lock in a loop",
    ..PLAIN
};
/// One lock per bucket.
pub const HASHTABLE: Workload = Workload {
    name: "hashtable",
    program: "hashtable",
    what: "threads use a table of 100 buckets with a lock each; keys are drawn from a Zipf \
           distribution whose hot set moves",
    ..PLAIN
};
/// Nested locks.
pub const NESTED: Workload = Workload {
    name: "nested",
    program: "nested",
    details: &[
        Detail {
            name: OUTER_WAIT,
            heading: "99th percentile of the wait for the outer lock, ms",
            divisor: 1e6,
        },
        Detail {
            name: OUTER_HOLD,
            heading: "99th percentile of the time inside the outer lock, ms",
            divisor: 1e6,
        },
    ],
    what: "threads take a contended lock, one of them inside another lock that a further thread \
           waits for",
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
/// The workloads of this crate. The papers' are in `papers`.
pub const WORKLOADS: &[Workload] = &[COUNTER, HASHTABLE, NESTED, LEVELDB];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_described() {
        assert!(WORKLOADS.iter().all(Workload::is_described));
    }
}
