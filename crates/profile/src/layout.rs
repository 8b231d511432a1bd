//! The layout of the file, which is mapped as a [`Profile`].
//!
//! A change of the layout changes [`VERSION`]. A file of zeroes is an empty profile. All numbers
//! are in the machine's byte order, and all times in nanoseconds.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

use crate::histogram::BUCKETS;

/// The first eight bytes of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"unconvoy");

/// Version of the layout.
pub const VERSION: u32 = 4;

/// Capacity of the table of locks.
pub const LOCKS: usize = 1 << 14;
/// Capacity of the table of histograms. The locks that are waited for first get an entry each.
pub const HISTOGRAMS: usize = 1 << 11;
/// Capacity of the table of call stacks.
pub const STACKS: usize = 1 << 14;
/// Capacity for the frames of all stacks together.
pub const FRAMES: usize = 1 << 18;
/// Capacity of the table of samples.
pub const SAMPLES: usize = 1 << 15;
/// Capacity of the table of locks' initialisations and first acquisitions.
pub const ORIGINS: usize = 1 << 14;
/// Number of longest waits that are kept.
pub const LONGEST: usize = 64;
/// Bytes for the list of mapped files.
pub const MODULES: usize = 1 << 18;

/// Capacity of the table of [`Span`].
pub const SPANS: usize = 16;
/// Capacity of the table of [`Held`].
pub const HELD: usize = 40;

/// Value of [`Header::ended`]: the process ended by a signal or by `_exit`.
pub const KILLED: u32 = 2;

/// A thread that runs, or waits for a processor, in the place of a system call.
pub const RUNNABLE: u32 = u32::MAX;

/// Greatest number of frames of a stack.
pub const DEPTH: usize = 64;

/// Some words have a number below this bit, and a time from it on: [`Header::modules_used`] when
/// the entry was made.
pub const TIME_SHIFT: u32 = 8;

const _: () = assert!(DEPTH < 1 << TIME_SHIFT && MODULES < 1 << (32 - TIME_SHIFT));

/// Units of [`Sample::count`] in one wait: a sample may stand for a fraction of a wait.
pub const COUNT_UNIT: u64 = 1024;

/// What threads wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Kind {
    /// `pthread_mutex_t`.
    Mutex = 1,
    /// `pthread_rwlock_t`.
    RwLock = 2,
    /// `pthread_spinlock_t`.
    Spin = 3,
    /// `pthread_cond_t`: waits for a signal.
    Cond = 4,
    /// A futex that is no pthread object, and may be a lock.
    Futex = 5,
    /// A futex at which threads wait for an event, such as a semaphore or the end of a thread.
    Event = 6,
    /// The kernel's `rw_semaphore`. The kernel's other locks are `Mutex`, `RwLock` and `Spin`.
    RwSem = 7,
    /// The kernel's `percpu_rw_semaphore`.
    PercpuRwSem = 8,
    /// The kernel's `rt_mutex`.
    RtMutex = 9,
}

impl Kind {
    /// The kind with this number.
    pub fn of(number: u32) -> Option<Self> {
        const ALL: [Kind; 9] = [
            Kind::Mutex,
            Kind::RwLock,
            Kind::Spin,
            Kind::Cond,
            Kind::Futex,
            Kind::Event,
            Kind::RwSem,
            Kind::PercpuRwSem,
            Kind::RtMutex,
        ];
        ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::RwLock => "rwlock",
            Kind::Spin => "spin",
            Kind::Cond => "cond",
            Kind::Futex => "futex",
            Kind::Event => "event",
            Kind::RwSem => "rwsem",
            Kind::PercpuRwSem => "percpu-rwsem",
            Kind::RtMutex => "rt-mutex",
        }
    }

    /// Whether a wait is contention: a thread that waits for a signal or an event needs no lock.
    pub fn is_lock(self) -> bool {
        !matches!(self, Kind::Cond | Kind::Event)
    }
}

/// Who recorded a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Source {
    /// The interposer, inside the process: waits for pthread objects.
    Interposer = 0,
    /// The command, from outside: waits that reach the kernel.
    Outside = 1,
    /// The command: waits for the kernel's own locks. Stacks and locks have names instead of the
    /// kernel's addresses: each name has a line in the list of mapped files.
    Kernel = 2,
}

/// The whole file.
#[repr(C)]
pub struct Profile {
    /// Facts about the process, and counters.
    pub header: Header,
    /// Lines of `/proc/self/maps` for the mappings that contain code or the start of a file. A
    /// later line replaces earlier ones for the same addresses. A line without a path says that the
    /// mapping of these addresses is gone.
    pub modules: [AtomicU8; MODULES],
    /// Hash table by address, kind and initialisation.
    pub locks: [Lock; LOCKS],
    /// Filled from index 0.
    pub histograms: [Histograms; HISTOGRAMS],
    /// Hash table by [`Sample::key`].
    pub samples: [Sample; SAMPLES],
    /// The longest waits, in no order.
    pub longest: [LongWait; LONGEST],
    /// Hash table by address.
    pub origins: [Origin; ORIGINS],
    /// Hash table by the hash of the frames.
    pub stacks: [Stack; STACKS],
    /// Return addresses of the stacks, innermost first; filled from index 0.
    pub frames: [AtomicU64; FRAMES],
}

/// Facts about the process, and counters; one page of memory.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`], written last: the header is then complete.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Process id.
    pub pid: AtomicU32,
    /// Size of the file in bytes.
    pub size: AtomicU64,
    /// A wait of at least this length is sampled with certainty, and a shorter one with
    /// proportionally smaller probability.
    pub period_ns: AtomicU64,
    /// Start of the recording, on the monotonic clock.
    pub begin_ns: AtomicU64,
    /// Time of the last record, or of the process's exit, on the same clock.
    pub last_ns: AtomicU64,
    /// Start of the recording, since 1970.
    pub begin_unix_ns: AtomicU64,
    /// 1 once the process has exited; [`KILLED`] if the command saw another end; else 0: the
    /// process still runs, or nobody saw its end.
    pub ended: AtomicU32,
    /// 1 if call stacks are recorded.
    pub unwinds: AtomicU32,
    /// Number of locks that asked for histograms; may exceed the table's capacity.
    pub histograms_used: AtomicU32,
    /// Number of used frames.
    pub frames_used: AtomicU32,
    /// Number of used bytes of the list of mapped files.
    pub modules_used: AtomicU32,
    /// Number of waits for locks that did not fit in the table of locks.
    pub lost_waits: AtomicU32,
    /// Number of stacks that did not fit.
    pub lost_stacks: AtomicU32,
    /// Number of samples that did not fit.
    pub lost_samples: AtomicU32,
    /// Name of the contention manager, padded with zeroes; `libc` if libc serves the locks.
    pub lock: [AtomicU8; 32],
    /// Name of the load manager, padded with zeroes.
    pub load: [AtomicU8; 32],
    /// Path of the program, padded with zeroes.
    pub program: [AtomicU8; 2048],
    /// 1 once the program has registered unwind information of generated code. From then on no call
    /// stacks are recorded.
    pub registered: AtomicU64,
    /// [`Source`].
    pub source: AtomicU64,
    /// What the command saw from outside.
    pub observed: Observed,
    rest: [u64; 2],
}

const _: () = assert!(size_of::<Header>() == 4096);

/// What the command saw while it sampled the process, every 20 ms or more. The command writes it
/// when the process has ended. All zeroes: nothing was sampled.
#[derive(Debug)]
#[repr(C)]
pub struct Observed {
    /// Number of samples of threads that waited in a futex: at recorded locks and condition
    /// variables, and elsewhere.
    pub futex_samples: [AtomicU64; 2],
    /// Number of processors that the process may use.
    pub processors: AtomicU64,
    /// Greatest number of threads at once.
    pub threads: AtomicU64,
    /// From the first to the last sample.
    pub whole: Spent,
    /// The locks with the most waiting, in no order.
    pub locks: [Span; SPANS],
    /// What the holders of these locks did.
    pub holders: [Held; HELD],
}

/// What a process used between two samples, in nanoseconds.
#[derive(Debug)]
#[repr(C)]
pub struct Spent {
    /// Time between the samples.
    pub wall_ns: AtomicU64,
    /// Processor time.
    pub cpu_ns: AtomicU64,
    /// The part of it in the kernel.
    pub system_ns: AtomicU64,
    /// Time that threads waited for a processor.
    pub delay_ns: AtomicU64,
    /// Time that the machine's processors were idle, summed.
    pub idle_ns: AtomicU64,
}

/// The time from the first to the last sample in which a thread waited for a lock.
#[derive(Debug)]
#[repr(C)]
pub struct Span {
    /// Address of the lock; 0 if the entry is unused.
    pub address: AtomicU64,
    /// Number of samples of waiting threads.
    pub waiting: AtomicU64,
    /// Number of samples in this time.
    pub looks: AtomicU64,
    /// Mutexes that libc serves: number of `looks` in which a thread held the mutex.
    pub held: AtomicU64,
    /// What the process used in this time.
    pub spent: Spent,
}

/// What the holder of a mutex did in samples in which other threads waited for the mutex.
#[derive(Debug)]
#[repr(C)]
pub struct Held {
    /// Address of the mutex; 0 if the entry is unused.
    pub address: AtomicU64,
    /// Number of the system call, or [`RUNNABLE`].
    pub call: AtomicU32,
    /// Number of samples.
    pub samples: AtomicU32,
}

/// A lock or condition variable that a thread waited for. Successive locks at one address have an
/// entry each, if their kind or the stack of their initialisation differs.
#[repr(C)]
pub struct Lock {
    /// Address of the lock; 0 if the entry is unused.
    pub address: AtomicU64,
    /// [`Kind`], the time ([`TIME_SHIFT`]), and from bit 32 on the stack of the initialisation; 0
    /// as the stack if it is unknown.
    pub identity: AtomicU64,
    /// Index in the table of histograms plus one; 0 if the table was full.
    pub histogram: AtomicU32,
    /// Stack of the first acquisition; 0 if unknown.
    pub first_taken: AtomicU32,
    /// Number of waits, including those that timed out.
    pub waits: AtomicU64,
    /// Time waited.
    pub wait_ns: AtomicU64,
    /// Longest wait.
    pub longest_ns: AtomicU64,
    /// End of the longest wait, on the monotonic clock.
    pub longest_at: AtomicU64,
    /// Number of `waits` that were for reading.
    pub read_waits: AtomicU64,
    /// Time that these waits took.
    pub read_wait_ns: AtomicU64,
    /// Mutexes: number of acquisitions from the initialisation to the last wait, modulo 2^32.
    pub acquisitions: AtomicU64,
    /// Number of measured holds, which are some of those that followed a wait. Condition variables:
    /// number of waits that samples account for.
    pub holds: AtomicU64,
    /// Time of the measured holds. Condition variables: time waited that samples account for.
    pub hold_ns: AtomicU64,
    /// Longest measured hold.
    pub longest_hold_ns: AtomicU64,
    /// Start of the hold that is being measured, or 0.
    pub held_since: AtomicU64,
    /// Start of the last hold that was chosen to be measured. Condition variables: start of the
    /// last wait whose stack was recorded.
    pub chosen_at: AtomicU64,
    /// Number of the first of the waiters' requests for the holder's stack, or 0. The requests are
    /// in the process's memory.
    pub asking: AtomicU32,
    /// Number of times that waiters left the processor.
    pub slept: AtomicU32,
    /// Number of waits that timed out.
    pub timed_out: AtomicU32,
    /// Stack of the first sampled wait; 0 if unknown.
    pub first_stack: AtomicU32,
}

const _: () = assert!(size_of::<Lock>() == 136);

/// The histograms of one lock, by [`bucket`](crate::histogram::bucket).
#[repr(C)]
pub struct Histograms {
    /// Counts of waits.
    pub waits: [AtomicU32; BUCKETS],
    /// Counts of measured holds.
    pub holds: [AtomicU32; BUCKETS],
}

/// The samples of one lock that have the same waiter's stack and the same holder's stack.
#[repr(C)]
pub struct Sample {
    /// See [`Sample::key`]; 0 if the entry is unused.
    pub key: AtomicU64,
    /// Time waited that the samples stand for.
    pub ns: AtomicU64,
    /// Number of waits that the samples stand for, in units of 1 / [`COUNT_UNIT`].
    pub count: AtomicU64,
    /// Number of samples.
    pub samples: AtomicU64,
}

/// One of the longest waits.
#[repr(C)]
pub struct LongWait {
    /// Length of the wait; 0 if the entry is unused.
    pub ns: AtomicU64,
    /// End of the wait, on the monotonic clock.
    pub at: AtomicU64,
    /// Index of the lock.
    pub lock: AtomicU32,
    /// Stack of the waiter; 0 if unknown.
    pub stack: AtomicU32,
    /// Thread id of the waiter.
    pub thread: AtomicU32,
    /// Unused.
    pub rest: AtomicU32,
}

/// The initialisation and the first acquisition of the last lock at an address.
#[repr(C)]
pub struct Origin {
    /// Address of the lock; 0 if the entry is unused.
    pub address: AtomicU64,
    /// Stack of the last initialisation at this address; 0 if unknown.
    pub stack: AtomicU32,
    /// Stack of the first acquisition since; 0 if unknown.
    pub first_taken: AtomicU32,
}

/// A call stack. Other tables refer to it by its number, which is its index plus one; 0 is an
/// unknown stack.
#[repr(C)]
pub struct Stack {
    /// Hash of the frames; 0 if the entry is unused.
    pub hash: AtomicU64,
    /// Index of the first frame.
    pub first: AtomicU32,
    /// Number of frames, and the time ([`TIME_SHIFT`]); 0 until the frames are written.
    pub depth: AtomicU32,
}

/// An empty profile in memory.
pub fn zeroed() -> Box<Profile> {
    let layout = Layout::new::<Profile>();
    // SAFETY: the memory is the allocator's, of the profile's size and alignment. Zeroes are a
    // valid profile, which consists of atomics and numbers.
    unsafe {
        let memory = alloc_zeroed(layout).cast::<Profile>();
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        Box::from_raw(memory)
    }
}
