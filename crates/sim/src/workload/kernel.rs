//! The TACO 2013 paper's benchmarks as mixes of the kernel locks in its Table I, one task per core.
//!
//! The paper names the hot locks and the functions that take them, and describes what each program does (section 4.2). It
//! publishes the waiting shares of one of them (section 2: 3.81 %, 21.77 %, 92.24 % for postmark with 500 files), where
//! two collapse (postmark beyond 16 cores, find beyond 10: sections 2 and 4.6), and for the others that they do, or (for
//! kernbench) do not. Its plots have axes: highest throughputs are somewhat below their ends.
//!
//! Each mix has as many sections per transaction as the functions take the lock for what the program does; where
//! throughput falls, and how far, comes of the lock and the caches. What is chosen is how long a section and the rest of a
//! transaction take; each function says what by.

use super::step::{Step, Workload, sections};

/// The workload of this name, if it is one of these.
pub(super) fn named(name: &str) -> Option<Workload> {
    let (locks, steps) = match name {
        "mmapbench" => mmapbench(),
        "sockbench" => sockbench(),
        "postmark" => postmark(POSTMARK_500_NS),
        "postmark-10000" => postmark(POSTMARK_10000_NS),
        "find" => find(),
        "grep" => grep(),
        "kernbench" => kernbench(),
        _ => return None,
    };
    Some(Workload { name: name.to_string(), locks, steps, in_kernel: true })
}

/// A mapping and its end: `vma_link` and `unlink_file_vma` take one lock, the file's. Fitted to the axis of Figure 3(b),
/// somewhat less than 500,000 operations per second at the best; the paper does not say on how many cores that is (here
/// on 8).
fn mmapbench() -> (Vec<u32>, Vec<Step>) {
    (vec![1], sections(0, 250, 7_000, 2).collect())
}

/// A socket and its end: `d_alloc`, `d_instantiate`, `d_rehash` and the end of the entry take `dcache_lock`, `new_inode` and
/// `mark_inode_dirty` take `inode_lock`. Fitted to nothing but that it collapses: with four sections under one lock the
/// machine does not come near the 450,000 operations per second of Figure 3(c)'s axis.
fn sockbench() -> (Vec<u32>, Vec<Step>) {
    let dcache = sections(0, 60, 3_000, 4);
    let inode = sections(1, 60, 3_000, 2);
    (vec![1, 1], dcache.chain(inode).collect())
}

/// What a tenth of a transaction takes beside its section. With 500 files per thread: fitted to a waiting share of 21.77 % on
/// 16 cores (section 2); what is there on other numbers of cores is not fitted. With 10,000: longer by as much as the axis
/// of Figure 3(e) is shorter than that of Figure 1, 140,000 against 160,000 transactions per second.
const POSTMARK_500_NS: u64 = 10_500;
const POSTMARK_10000_NS: u64 = 12_000;

/// A transaction is two operations on files (creating or deleting, reading or appending: section 4.2), each of which opens
/// a file and closes it: three times the lock of the process's descriptor table (`get_unused_fd_flags`, `fd_install`,
/// `sys_close`), twice `files_lock` (`file_move`, `file_kill`). How long a section is hardly matters: taking the lock's line
/// and the data's from another chip takes longer.
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

/// A process opens and reads directories, looks at their entries, and ends: `files_lock` for each directory, `dcache_lock`
/// for each entry. Fitted to the best number of cores, 10 (section 4.6). On the paper's machine a process
/// lives for some 100 ms (Figure 3(g): less than 80 per second on 10 cores), four of the kernel's time slices; here for
/// four of the shorter slices that this machine has.
fn find() -> (Vec<u32>, Vec<Step>) {
    let mut steps: Vec<Step> = sections(0, 100, 7_000, 1).collect();
    steps.extend(sections(1, 200, 7_000, 3));
    steps.push(Step::Renew { one_in: 500, ns: 500_000 });
    (vec![1, 1], steps)
}

/// A file is opened, read and closed, at a depth of six directories that all share: `files_lock` twice, the `d_lock` of the
/// common directory in `d_lookup`, `dput` and the two notifications. Fitted to nothing but that it collapses; it
/// is at its best on 12 cores.
fn grep() -> (Vec<u32>, Vec<Step>) {
    let mut steps = Vec::new();
    steps.extend(sections(0, 100, 10_000, 2));
    steps.extend(sections(1, 150, 7_000, 4));
    (vec![1, 1], steps)
}

/// A compiler computes, and opens a file now and then. Fitted to that hardly a task is lock-intensive on any number of cores
/// (section 4.6).
fn kernbench() -> (Vec<u32>, Vec<Step>) {
    let mut steps = vec![Step::Varying { ns: 400_000 }];
    steps.extend(sections(0, 100, 20_000, 2));
    steps.extend(sections(1, 200, 20_000, 4));
    (vec![1, 1], steps)
}
