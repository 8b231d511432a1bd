//! System calls of x86-64 Linux, by what they mean to a section.

/// Numbers that the plug-in acts on.
pub mod number {
    pub const MMAP: i64 = 9;
    pub const CLONE: i64 = 56;
    pub const FORK: i64 = 57;
    pub const VFORK: i64 = 58;
    pub const EXECVE: i64 = 59;
    pub const KILL: i64 = 62;
    pub const TKILL: i64 = 200;
    pub const EXIT_GROUP: i64 = 231;
    pub const TGKILL: i64 = 234;
    pub const EXECVEAT: i64 = 322;
    pub const CLONE3: i64 = 435;
}

/// Calls that optimistic concurrency need not undo, so that a section which makes them may still be independent: they ask the kernel for something
/// that does not change, for memory that nobody else has (an abort would keep it), or they are a part of synchronisation itself.
const HARMLESS: &[i64] = &[
    9,   // mmap
    10,  // mprotect
    11,  // munmap
    12,  // brk
    14,  // rt_sigprocmask
    24,  // sched_yield
    25,  // mremap
    28,  // madvise
    39,  // getpid
    96,  // gettimeofday
    186, // gettid
    201, // time
    202, // futex
    204, // sched_getaffinity
    228, // clock_gettime
    273, // set_robust_list
    309, // getcpu
    324, // membarrier
    334, // rseq
];

/// Whether a section that makes the call does I/O (section 4.1 of the paper: it is never reported as independent). mmap does, of a file.
pub fn is_io(number: i64, arguments: [u64; 4]) -> bool {
    let maps_file = number == number::MMAP && arguments[3] & libc::MAP_ANONYMOUS as u64 == 0;
    maps_file || !HARMLESS.contains(&number)
}
