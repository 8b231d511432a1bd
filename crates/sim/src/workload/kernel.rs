//! The benchmarks of the TACO 2013 paper as mixes of the kernel locks in its Table I, one task per
//! core.
//!
//! The paper names the hot locks and the functions that take them, and describes the programs
//! (section 4.2). It publishes the waiting shares of one of them (section 2: 3.81 %, 21.77 % and
//! 92.24 % for postmark with 500 files), and where two of them collapse (postmark beyond 16 cores,
//! find beyond 10: sections 2 and 4.6). For the others it says only that they collapse, or (for
//! kernbench) do not. The axes of its plots give a last hint: the highest throughputs are somewhat
//! below the ends of the axes.
//!
//! A transaction of a mix has one section for each time the program's functions take the lock.
//! Where throughput falls, and how far, results from the lock and the caches. The free parameters
//! are the lengths of a section and of the rest of a transaction. Each function states how they are
//! chosen.

use super::step::{Step, Workload, sections};

/// Looks up one of the kernel workloads.
pub(super) fn named(name: &str) -> Option<Workload> {
    let (locks, steps) = match name {
        "single-counter" => single_counter(),
        "mmapbench" => mmapbench(),
        "sockbench" => sockbench(),
        "postmark" => postmark(POSTMARK_500_NS),
        "postmark-10000" => postmark(POSTMARK_10000_NS),
        "find" => find(),
        "grep" => grep(),
        "kernbench" => kernbench(),
        _ => return None,
    };
    Some(Workload {
        name: name.to_string(),
        locks,
        steps,
        others: Vec::new(),
        in_kernel: true,
        checkpoints: false,
    })
}

/// The part of a workload's work outside critical sections that is user mode; `None` for a workload
/// without kernel locks. The paper does not publish it, so it is an input: measured with one task
/// of the program's load (`tasks LOAD --tasks 1 --seconds 3`, docs/reference/kernel-workloads.md)
/// on Linux 6.18, 2026-11-29, in a virtual machine on an AMD EPYC, as user time over processor
/// time. The loop of the single counter is in the kernel. Since Linux 3.15 one page fault maps
/// several pages, so the part of mmapbench was smaller on the paper's kernel.
pub fn user_part(name: &str) -> Option<f64> {
    Some(match name {
        "single-counter" => 0.0,
        "mmapbench" => 0.32, // 64 MB
        "sockbench" => 0.03,
        "postmark" => 0.05,
        "postmark-10000" => 0.06,
        "find" => 0.28,
        "grep" => 0.26,      // 64 MB
        "kernbench" => 0.94, // compile
        _ => return None,
    })
}

/// Increments a counter under the only lock, in a tight loop. Nothing is fitted.
fn single_counter() -> (Vec<u32>, Vec<Step>) {
    (vec![1], vec![Step::Section { group: 0, ns: 2, lines: 1 }])
}

/// Maps and unmaps a file: `vma_link` and `unlink_file_vma` take one lock, the file's. Fitted to
/// the axis of Figure 3(b): somewhat less than 500,000 operations per second at the peak. The paper
/// does not say at how many cores the peak is (here: at 8).
fn mmapbench() -> (Vec<u32>, Vec<Step>) {
    (vec![1], sections(0, 250, 7_000, 2).collect())
}

/// Opens and closes a socket: `d_alloc`, `d_instantiate`, `d_rehash` and the release of the entry
/// take `dcache_lock`; `new_inode` and `mark_inode_dirty` take `inode_lock`. Fitted only to its
/// collapse: with four sections under one lock, the machine does not come near the 450,000
/// operations per second of Figure 3(c)'s axis.
fn sockbench() -> (Vec<u32>, Vec<Step>) {
    let dcache = sections(0, 60, 3_000, 4);
    let inode = sections(1, 60, 3_000, 2);
    (vec![1, 1], dcache.chain(inode).collect())
}

/// Work per section of a transaction. For 500 files per thread, it is fitted to a waiting share of
/// 21.77 % on 16 cores (section 2); the shares on other numbers of cores are not fitted. For 10,000
/// files, it is longer by the ratio of the axes of Figures 1 and 3(e), 160,000 to 140,000
/// transactions per second.
const POSTMARK_500_NS: u64 = 10_500;
const POSTMARK_10000_NS: u64 = 12_000;

/// A transaction is two operations on files (creation or deletion, reading or appending: section
/// 4.2). Each operation opens and closes a file. It takes the lock of the process's descriptor
/// table three times (`get_unused_fd_flags`, `fd_install`, `sys_close`) and `files_lock` twice
/// (`file_move`, `file_kill`). The length of a section hardly matters: fetching the lines of the
/// lock and the data from another chip takes longer.
fn postmark(work_ns: u64) -> (Vec<u32>, Vec<Step>) {
    let mut steps = Vec::new();
    for _ in 0..2 {
        steps.extend(sections(0, 150, work_ns, 2)); // get_unused_fd_flags, fd_install
        steps.extend(sections(1, 100, work_ns, 1)); // file_move
        steps.extend(sections(0, 150, work_ns, 1)); // sys_close
        steps.extend(sections(1, 100, work_ns, 1)); // file_kill
    }
    (vec![1, 1], steps)
}

/// A process opens and reads directories, checks their entries, and ends. It takes `files_lock` for
/// each directory and `dcache_lock` for each entry. Fitted to the best number of cores, 10 (section
/// 4.6). On the paper's machine a process lives for about 100 ms, or four of the kernel's time
/// slices (Figure 3(g): fewer than 80 processes per second on 10 cores). Here it lives for four
/// slices, too, but the simulated machine's slices are shorter.
fn find() -> (Vec<u32>, Vec<Step>) {
    let mut steps: Vec<Step> = sections(0, 100, 7_000, 1).collect();
    steps.extend(sections(1, 200, 7_000, 3));
    steps.push(Step::Renew { one_in: 500, ns: 500_000 });
    (vec![1, 1], steps)
}

/// Opens, reads and closes a file six directories deep; all files share these directories. Takes
/// `files_lock` twice, and the `d_lock` of the common directory in `d_lookup`, `dput` and the two
/// notifications. Fitted only to its collapse; the peak is at 12 cores.
fn grep() -> (Vec<u32>, Vec<Step>) {
    let mut steps = Vec::new();
    steps.extend(sections(0, 100, 10_000, 2));
    steps.extend(sections(1, 150, 7_000, 4));
    (vec![1, 1], steps)
}

/// A compiler computes and opens a file now and then. Fitted so that hardly any task is
/// lock-intensive on any number of cores (section 4.6).
fn kernbench() -> (Vec<u32>, Vec<Step>) {
    let mut steps = vec![Step::Varying { ns: 400_000 }];
    steps.extend(sections(0, 100, 20_000, 2));
    steps.extend(sections(1, 200, 20_000, 4));
    (vec![1, 1], steps)
}
