//! Programs by name, with the published measurements that their times are fitted to.
//!
//! The papers publish how the throughput of their programs behaves, but not the critical sections.
//! Each mix here has the fewest steps that reproduce this behaviour. The mixes are models of the
//! programs, not recordings.

use super::bench::{bench_counter, hashtable, rwlock};
use super::kernel;
use super::step::{Step, Workload, sections};
use super::validation::Program;
use crate::messages;
use crate::parameters::Parameters;

/// Names and descriptions of the workloads.
pub const WORKLOADS: &[(&str, &str)] = &[
    ("counter", "one lock, held for 60 ns, with 1 us between requests"),
    ("bench-counter", "`unconvoy bench counter`: one lock, held for 100 ns"),
    ("hashtable", "`unconvoy bench hashtable`: 100 buckets, a moving hot set"),
    ("rwlock", "`unconvoy bench rwlock`: lookups under one reader-writer lock"),
    ("rwlock-10000", "rwlock with 10,000 changes per million operations"),
    ("tm1", "very small transactions, like TM-1 on Shore-MT"),
    ("tpcc", "row locks and 6 ms disk waits, like TPC-C on Shore-MT"),
    ("raytrace", "frequent short sections, like SPLASH-2's Raytrace"),
    ("single-counter", "a counter under one lock, in a tight loop"),
    ("mmapbench", "mapping and unmapping files: the kernel's i_mmap_lock"),
    ("sockbench", "opening and closing sockets: dcache_lock, inode_lock"),
    ("postmark", "a file server, 500 files: descriptor table lock, files_lock"),
    ("postmark-10000", "postmark with 10,000 files"),
    ("find", "short-lived file searches: files_lock, dcache_lock"),
    ("grep", "text search in files: files_lock, one directory's d_lock"),
    ("kernbench", "compiling a kernel: files_lock and dcache_lock, rarely"),
    ("prob", "Syncchar: half of the sections write one variable"),
    ("rw", "Syncchar: one thread writes what all others read"),
    ("rb-tree", "Syncchar: updates of a red-black tree with keys to 200"),
];

/// Looks up a workload, with its costs on `machine`.
///
/// # Errors
///
/// The name is unknown.
pub fn on(machine: &Parameters, name: &str) -> Result<Workload, String> {
    match name {
        "bench-counter" => Ok(bench_counter(machine, 100, 0)),
        "hashtable" => Ok(hashtable(machine)),
        _ => named(name),
    }
}

/// Looks up a workload whose costs do not depend on the machine.
///
/// # Errors
///
/// The name is unknown.
pub fn named(name: &str) -> Result<Workload, String> {
    match name {
        // ASPLOS 2010, section 4: one lock around a call of gethrtime, 40 to 80 ns. The think time
        // is the variable of Figure 9.
        "counter" => Ok(counter(60, 1_000, 0)),
        "rwlock" => Ok(rwlock(name, 0)),
        "rwlock-10000" => Ok(rwlock(name, 10_000)),
        "tm1" => Ok(tm1()),
        "tpcc" => Ok(tpcc()),
        "raytrace" => Ok(raytrace()),
        "prob" => Ok(validation(name, Program::Prob)),
        "rw" => Ok(validation(name, Program::Rw)),
        "rb-tree" => Ok(validation(name, Program::RbTree)),
        _ => kernel::named(name).ok_or_else(|| {
            let names: Vec<&str> = WORKLOADS.iter().map(|(name, _)| *name).collect();
            messages::unknown_workload(name, &names)
        }),
    }
}

fn validation(name: &str, program: Program) -> Workload {
    Workload {
        name: name.to_string(),
        locks: vec![1],
        steps: vec![Step::Validation { program }],
        others: Vec::new(),
        in_kernel: false,
        checkpoints: false,
    }
}

/// The counter micro-benchmark: one lock, with a fixed time between requests.
pub fn counter(section_ns: u64, think_ns: u64, lines: u32) -> Workload {
    let section = Step::Section { group: 0, ns: section_ns, lines };
    Workload {
        name: "counter".to_string(),
        locks: vec![1],
        steps: vec![section, Step::Work { ns: think_ns }],
        others: Vec::new(),
        in_kernel: false,
        checkpoints: false,
    }
}

/// Fitted to: linear scaling to 64 contexts with spin locks, with less than 10 % of processor time
/// spent spinning at the peak (ASPLOS 2010, Figures 1 and 3); one context switch per transaction,
/// for the log, while locks are uncontended (Figure 4); Solaris' mutex, which peaks at 37 to 39
/// threads and has 30 % more context switches at 39 than at 37 (DaMoN 2009, section 3.3). The last
/// fact determines the length of the hot lock's sections; the others determine their number.
fn tm1() -> Workload {
    let mut steps = Vec::new();
    for _ in 0..2 {
        steps.extend(sections(0, 4_000, 23_000, 1)); // log buffer
        steps.extend(sections(1, 400, 23_000, 12)); // lock table, buffer pool, transaction list
    }
    steps.push(Step::Away { ns: 20_000 }); // write of the log, in tmpfs
    Workload {
        name: "tm1".to_string(),
        locks: vec![1, 8],
        steps,
        others: Vec::new(),
        in_kernel: false,
        checkpoints: false,
    }
}

/// Fitted to: 6 ms per disk request (ASPLOS 2010, section 4); 16 of 32 threads active on average
/// (Figure 6); threads that wait more for rows than for mutexes, and a machine of 64 contexts that
/// is overloaded beyond 96 threads (section 5.4).
fn tpcc() -> Workload {
    let mut steps = Vec::new();
    for _ in 0..6 {
        steps.push(Step::Hold { rows: 3_000 });
        steps.extend(sections(0, 900, 210_000, 2));
        steps.extend(sections(1, 400, 105_000, 6));
    }
    steps.push(Step::Away { ns: 6_000_000 });
    Workload {
        name: "tpcc".to_string(),
        locks: vec![1, 8],
        steps,
        others: Vec::new(),
        in_kernel: false,
        checkpoints: false,
    }
}

/// Fitted to: more than 99 % parallel at 64 threads; single-thread times in which the cost of an
/// expensive lock shows; no nested sections (ASPLOS 2010, sections 4, 5.4 and 6.1.2).
fn raytrace() -> Workload {
    let mut steps = Vec::new();
    steps.extend(sections(1, 150, 4_000, 4)); // memory and ray counts
    steps.extend(sections(0, 150, 8_000, 1)); // work queue
    Workload {
        name: "raytrace".to_string(),
        locks: vec![1, 4],
        steps,
        others: Vec::new(),
        in_kernel: false,
        checkpoints: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    #[test]
    fn workload_with_kernel_locks_has_a_user_part() {
        let machine = presets::named("opteron-32").expect("a preset");
        for (name, _) in WORKLOADS {
            let in_kernel = on(&machine, name).expect("a workload").in_kernel;
            let part = kernel::user_part(name);
            assert_eq!(part.is_some(), in_kernel, "{name}");
            assert!(part.is_none_or(|part| (0.0..=1.0).contains(&part)), "{name}: {part:?}");
        }
    }
}
