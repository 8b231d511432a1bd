//! Programs by name, with the papers' measurements that their times are fitted to.
//!
//! The papers do not publish their programs' critical sections. What they do publish is how throughput behaves, and the
//! mixes here have the fewest steps that behave so: they are models of the programs, not recordings.

use super::bench::{bench_counter, hashtable};
use super::kernel;
use super::step::{Step, Workload, sections};
use super::validation::Program;
use crate::parameters::Parameters;

/// The names, and a sentence about each.
pub const WORKLOADS: &[(&str, &str)] = &[
    ("counter", "one lock, 60 ns in it, 1 us between two requests"),
    ("bench-counter", "the program of `unconvoy bench counter`: 100 ns under one lock, and what its loop takes"),
    ("hashtable", "the program of `unconvoy bench hashtable`: 100 buckets, a hot set that moves"),
    ("tm1", "very small transactions on a storage manager, as TM-1 on Shore-MT"),
    ("tpcc", "transactions that lock rows and wait 6 ms for disks, as TPC-C on Shore-MT"),
    ("raytrace", "frequent short sections of few locks, as SPLASH-2's Raytrace"),
    ("mmapbench", "files mapped and unmapped: the kernel's i_mmap_lock"),
    ("sockbench", "sockets opened and closed: dcache_lock and inode_lock"),
    ("postmark", "a file server's transactions, 500 files: the file descriptor table's lock and files_lock"),
    ("postmark-10000", "the same with 10,000 files"),
    ("find", "short-lived processes that search file names: files_lock and dcache_lock"),
    ("grep", "files searched for a text: files_lock and one directory's d_lock"),
    ("kernbench", "a kernel is compiled: files_lock and dcache_lock, rarely"),
    ("prob", "sections of 1 us; half of them write one variable (Syncchar's validation)"),
    ("rw", "sections of 1 us; one thread writes what all others read (the same)"),
    ("rb-tree", "insertions and removals in a red-black tree of keys to 200 (the same)"),
];

/// The workload of this name, with what it takes on this machine.
///
/// # Errors
///
/// There is none.
pub fn on(machine: &Parameters, name: &str) -> Result<Workload, String> {
    match name {
        "bench-counter" => Ok(bench_counter(machine, 100, 0)),
        "hashtable" => Ok(hashtable(machine)),
        _ => named(name),
    }
}

/// The workload of this name that is the same on every machine.
///
/// # Errors
///
/// There is none.
pub fn named(name: &str) -> Result<Workload, String> {
    match name {
        // ASPLOS 2010, section 4: a call to gethrtime, 40 to 80 ns, under one lock. The delay is Figure 9's variable.
        "counter" => Ok(counter(60, 1_000, 0)),
        "tm1" => Ok(tm1()),
        "tpcc" => Ok(tpcc()),
        "raytrace" => Ok(raytrace()),
        "prob" => Ok(validation(name, Program::Prob)),
        "rw" => Ok(validation(name, Program::Rw)),
        "rb-tree" => Ok(validation(name, Program::RbTree)),
        _ => kernel::named(name).ok_or_else(|| {
            let names: Vec<&str> = WORKLOADS.iter().map(|(name, _)| *name).collect();
            format!("there is no workload {name}; there are {}", names.join(", "))
        }),
    }
}

fn validation(name: &str, program: Program) -> Workload {
    Workload { name: name.to_string(), locks: vec![1], steps: vec![Step::Validation { program }], in_kernel: false }
}

/// The counter micro-benchmark: one lock, and a fixed time between two requests.
pub fn counter(section_ns: u64, think_ns: u64, lines: u32) -> Workload {
    let section = Step::Section { group: 0, ns: section_ns, lines };
    Workload {
        name: "counter".to_string(),
        locks: vec![1],
        steps: vec![section, Step::Work { ns: think_ns }],
        in_kernel: false,
    }
}

/// Fitted to: linear scaling to 64 contexts with spin locks, less than 10 % of processor time spent spinning at the peak
/// (ASPLOS 2010, Figures 1 and 3); one context switch per transaction, for the log, while locks are not contended (the
/// same, Figure 4); Solaris' mutex, which peaks at 37 to 39 threads and has 30 % more context switches at the second than
/// at the first (DaMoN 2009, section 3.3). The last decides how long the sections of the one hot lock are, the others
/// how many there are.
fn tm1() -> Workload {
    let mut steps = Vec::new();
    for _ in 0..2 {
        steps.extend(sections(0, 4_000, 23_000, 1)); // the buffer of the log
        steps.extend(sections(1, 400, 23_000, 12)); // lock table, buffer pool, transaction list
    }
    steps.push(Step::Away { ns: 20_000 }); // the log, in tmpfs
    Workload { name: "tm1".to_string(), locks: vec![1, 8], steps, in_kernel: false }
}

/// Fitted to: 6 ms for each request to the disks (ASPLOS 2010, section 4); 16 of 32 threads active on average
/// (Figure 6); rows that are fought for so much that mutexes are not (section 5.4).
fn tpcc() -> Workload {
    let mut steps = Vec::new();
    for _ in 0..6 {
        steps.push(Step::Hold { rows: 100 }); // warehouses
        steps.extend(sections(0, 900, 120_000, 2));
        steps.extend(sections(1, 400, 60_000, 6));
    }
    steps.push(Step::Away { ns: 6_000_000 });
    Workload { name: "tpcc".to_string(), locks: vec![1, 8], steps, in_kernel: false }
}

/// Fitted to: more than 99 % parallel at 64 threads; a lock that costs a visible part of single-thread time when it is
/// an expensive one; no nested sections (ASPLOS 2010, sections 4, 5.4 and 6.1.2).
fn raytrace() -> Workload {
    let mut steps = Vec::new();
    steps.extend(sections(1, 150, 4_000, 4)); // memory and ray counts
    steps.extend(sections(0, 150, 8_000, 1)); // the queue of work
    Workload { name: "raytrace".to_string(), locks: vec![1, 4], steps, in_kernel: false }
}
