//! The papers' workloads. Subcommands, headings and messages come from this table.

use unconvoy_bench::grid::workload::{Metric, PLAIN, Workload};

const SECONDS: Metric = Metric { name: "seconds", heading: "seconds", lower_is_better: true };

/// TATP.
pub const TATP: Workload = Workload {
    name: "tatp",
    program: "tatp",
    metric: Metric::throughput("transactions/s"),
    packages: &["librocksdb-dev"],
    what: "TATP (TM-1): seven very small transactions of a phone company, on RocksDB's \
        TransactionDB",
    ..PLAIN
};
/// TPC-C.
pub const TPCC: Workload = Workload {
    name: "tpcc",
    program: "tpcc",
    metric: Metric::throughput("transactions/s"),
    packages: &["librocksdb-dev"],
    what: "TPC-C: orders, payments and deliveries of a wholesale company, on RocksDB's \
        TransactionDB",
    ..PLAIN
};
/// The packaged ray tracer, which hardly locks.
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
    what: "a ray tracer modelled on SPLASH-2's; threads take work from locked queues",
    ..PLAIN
};

/// The loads on the kernel's own locks, which share one program; see [`crate::taco::loads`].
const TASKS: Workload = Workload { program: "tasks", ..PLAIN };
/// Maps a file.
pub const MMAPBENCH: Workload = Workload {
    name: "mmapbench",
    metric: Metric::throughput("mappings/s"),
    what: "processes map one file, read the first byte of each page and unmap it",
    ..TASKS
};
/// Opens sockets.
pub const SOCKBENCH: Workload = Workload {
    name: "sockbench",
    metric: Metric::throughput("sockets/s"),
    what: "processes open a socket and close it",
    ..TASKS
};
/// Works on small files.
pub const POSTMARK: Workload = Workload {
    name: "postmark",
    metric: Metric::throughput("transactions/s"),
    what: "threads create or delete a small file of their own, then read or append to one",
    ..TASKS
};
/// Searches directories.
pub const FIND: Workload = Workload {
    name: "find",
    metric: Metric::throughput("searches/s"),
    what: "processes run find for a missing name, each in its own tree",
    ..TASKS
};
/// Searches shared files.
pub const GREP: Workload = Workload {
    name: "grep",
    metric: Metric::throughput("searches/s"),
    what: "processes run grep for a missing text in shared files",
    ..TASKS
};
/// Compiles.
pub const COMPILE: Workload = Workload {
    name: "compile",
    metric: Metric::throughput("sources/s"),
    what: "processes compile sources, as make -j N does; stands in for kernbench",
    ..TASKS
};

/// Every workload.
pub const WORKLOADS: &[Workload] =
    &[TATP, TPCC, RAYTRACE, SPLASH, MMAPBENCH, SOCKBENCH, POSTMARK, FIND, GREP, COMPILE];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_has_a_description() {
        assert!(WORKLOADS.iter().all(Workload::is_described));
    }
}
