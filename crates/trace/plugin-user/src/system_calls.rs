//! Classifies the system calls of x86-64 Linux by their effect on a section.

/// Calls that the plug-in handles.
pub mod number {
    pub const MMAP: i64 = 9;
    pub const RT_SIGACTION: i64 = 13;
    pub const CLONE: i64 = 56;
    pub const FORK: i64 = 57;
    pub const VFORK: i64 = 58;
    pub const EXECVE: i64 = 59;
    pub const KILL: i64 = 62;
    pub const RT_SIGQUEUEINFO: i64 = 129;
    pub const TKILL: i64 = 200;
    pub const EXIT_GROUP: i64 = 231;
    pub const TGKILL: i64 = 234;
    pub const RT_TGSIGQUEUEINFO: i64 = 297;
    pub const EXECVEAT: i64 = 322;
    pub const CLONE3: i64 = 435;
}

/// Calls that optimistic concurrency need not undo, so a section that makes them may still be
/// independent: they query something constant, obtain memory that no other thread has (an abort
/// would keep it), or are part of synchronization itself.
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

/// Whether a section that makes the call does I/O (section 4.1 of the paper: such sections are
/// never independent). Mapping a file is I/O.
pub fn is_io(number: i64, arguments: [u64; 4]) -> bool {
    let maps_file = number == number::MMAP && arguments[3] & libc::MAP_ANONYMOUS as u64 == 0;
    maps_file || !HARMLESS.contains(&number)
}

/// The signal that the call sends to this process or to the calling thread, if any.
pub fn signal_to_self(number: i64, [first, second, third, _]: [u64; 4]) -> Option<i32> {
    // SAFETY: no preconditions; QEMU's process and threads are the program's.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    let (to_self, signal) = match number {
        // 0 addresses the caller's process group, which includes the caller.
        number::KILL => (first as i32 == process || first as i32 == 0, second),
        number::RT_SIGQUEUEINFO => (first as i32 == process, second),
        number::TGKILL | number::RT_TGSIGQUEUEINFO => (first as i32 == process, third),
        number::TKILL => (first as i32 == thread, second),
        _ => return None,
    };
    to_self.then_some(signal as i32)
}
