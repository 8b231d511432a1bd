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

const OPERATIONS: Metric = Metric { name: "ops_per_sec", heading: "operations/s", lower_is_better: false };
const TRANSACTIONS: Metric = Metric { name: "ops_per_sec", heading: "transactions/s", lower_is_better: false };
const SECONDS: Metric = Metric { name: "seconds", heading: "seconds", lower_is_better: true };

/// What `nested` prints of those who wait for an outer lock, nanoseconds.
pub const OUTER_WAIT: &str = "outer_wait_p99_ns";

/// What most rows of the table have in common.
const PLAIN: Workload = Workload {
    name: "",
    program: "",
    options: &[],
    metric: OPERATIONS,
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
/// Very small transactions.
pub const TATP: Workload = Workload {
    name: "tatp",
    program: "tatp",
    metric: TRANSACTIONS,
    packages: &["librocksdb-dev"],
    what: "TATP (TM-1): seven very small transactions of a telephone company, on RocksDB's TransactionDB",
    ..PLAIN
};
/// Large transactions.
pub const TPCC: Workload = Workload {
    name: "tpcc",
    program: "tpcc",
    metric: TRANSACTIONS,
    packages: &["librocksdb-dev"],
    what: "TPC-C: orders, payments and deliveries of a wholesale company, on RocksDB's TransactionDB",
    ..PLAIN
};
/// A ray tracer as packaged.
pub const RAYTRACE: Workload = Workload {
    name: "raytrace",
    program: "tachyon",
    metric: SECONDS,
    packages: &["tachyon-bin-nox", "libtachyon-mt-0"],
    needs_file: Some("/usr/bin/tachyon"),
    is_timed: false,
    what: "the ray tracer tachyon traces a fixed scene",
    ..PLAIN
};
/// A ray tracer with a contended lock.
pub const SPLASH: Workload = Workload {
    name: "splash",
    program: "raytrace",
    metric: SECONDS,
    is_timed: false,
    what: "a ray tracer in the manner of SPLASH-2's, whose threads take their work from queues under locks",
    ..PLAIN
};

/// Loads on the kernel's own locks, all of one program; see [`crate::tasks`].
const TASKS: Workload = Workload { program: "tasks", ..PLAIN };
/// Mappings of a file.
pub const MMAPBENCH: Workload = Workload {
    name: "mmapbench",
    metric: Metric { name: "ops_per_sec", heading: "mappings/s", lower_is_better: false },
    what: "processes map one file, read the first byte of each page and unmap it",
    ..TASKS
};
/// Sockets.
pub const SOCKBENCH: Workload = Workload {
    name: "sockbench",
    metric: Metric { name: "ops_per_sec", heading: "sockets/s", lower_is_better: false },
    what: "processes make a socket and close it",
    ..TASKS
};
/// Small files.
pub const POSTMARK: Workload = Workload {
    name: "postmark",
    metric: TRANSACTIONS,
    what: "threads work on small files of their own: create or delete one, then read or append to one",
    ..TASKS
};
/// Directories.
pub const FIND: Workload = Workload {
    name: "find",
    metric: Metric { name: "ops_per_sec", heading: "searches/s", lower_is_better: false },
    what: "processes run find, each in a tree of its own, for a name that is not there",
    ..TASKS
};
/// Files of all.
pub const GREP: Workload = Workload {
    name: "grep",
    metric: Metric { name: "ops_per_sec", heading: "searches/s", lower_is_better: false },
    what: "processes run grep on files that they share, for a text that is not there",
    ..TASKS
};
/// A compiler.
pub const COMPILE: Workload = Workload {
    name: "compile",
    metric: Metric { name: "ops_per_sec", heading: "sources/s", lower_is_better: false },
    what: "processes compile sources, as make -j N does; in the place of kernbench",
    ..TASKS
};

/// All of them.
pub const WORKLOADS: [Workload; 14] = [
    COUNTER, HASHTABLE, NESTED, LEVELDB, TATP, TPCC, RAYTRACE, SPLASH, MMAPBENCH, SOCKBENCH, POSTMARK, FIND, GREP,
    COMPILE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_described() {
        for workload in WORKLOADS {
            assert!(!workload.name.is_empty() && !workload.program.is_empty() && !workload.what.is_empty());
            assert!(!workload.what.ends_with('.') && workload.metric.lower_is_better != workload.is_timed);
        }
    }
}
