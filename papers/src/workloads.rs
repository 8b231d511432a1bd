//! The papers' workloads: from this table come subcommands, headings and messages, as from that of
//! the benchmarks.

use unconvoy_bench::grid::workload::{Metric, PLAIN, Workload};

const SECONDS: Metric = Metric { name: "seconds", heading: "seconds", lower_is_better: true };

/// Very small transactions.
pub const TATP: Workload = Workload {
    name: "tatp",
    program: "tatp",
    metric: Metric::throughput("transactions/s"),
    packages: &["librocksdb-dev"],
    what: "TATP (TM-1): seven very small transactions of a telephone company, on RocksDB's TransactionDB",
    ..PLAIN
};
/// Large transactions.
pub const TPCC: Workload = Workload {
    name: "tpcc",
    program: "tpcc",
    metric: Metric::throughput("transactions/s"),
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

/// Loads on the kernel's own locks, all of one program; see [`crate::taco::loads`].
const TASKS: Workload = Workload { program: "tasks", ..PLAIN };
/// Mappings of a file.
pub const MMAPBENCH: Workload = Workload {
    name: "mmapbench",
    metric: Metric::throughput("mappings/s"),
    what: "processes map one file, read the first byte of each page and unmap it",
    ..TASKS
};
/// Sockets.
pub const SOCKBENCH: Workload = Workload {
    name: "sockbench",
    metric: Metric::throughput("sockets/s"),
    what: "processes make a socket and close it",
    ..TASKS
};
/// Small files.
pub const POSTMARK: Workload = Workload {
    name: "postmark",
    metric: Metric::throughput("transactions/s"),
    what: "threads work on small files of their own: create or delete one, then read or append to one",
    ..TASKS
};
/// Directories.
pub const FIND: Workload = Workload {
    name: "find",
    metric: Metric::throughput("searches/s"),
    what: "processes run find, each in a tree of its own, for a name that is not there",
    ..TASKS
};
/// Files of all.
pub const GREP: Workload = Workload {
    name: "grep",
    metric: Metric::throughput("searches/s"),
    what: "processes run grep on files that they share, for a text that is not there",
    ..TASKS
};
/// A compiler.
pub const COMPILE: Workload = Workload {
    name: "compile",
    metric: Metric::throughput("sources/s"),
    what: "processes compile sources, as make -j N does; in the place of kernbench",
    ..TASKS
};

/// All of them.
pub const WORKLOADS: [Workload; 10] =
    [TATP, TPCC, RAYTRACE, SPLASH, MMAPBENCH, SOCKBENCH, POSTMARK, FIND, GREP, COMPILE];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_described() {
        assert!(WORKLOADS.iter().all(Workload::is_described));
    }
}
