//! What the library keeps in memory for `unconvoy inspect`, which reads it from outside: in a
//! running process, or in a core dump.
//!
//! The library exports one [`Descriptor`] as `unconvoy_inspect`. The descriptor contains the
//! addresses of the tables. Nothing here is written on an uncontended path: a thread enters its
//! [`Wait`] when it begins to wait for a lock.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The first 16 bytes of a descriptor.
pub const MAGIC: [u64; 2] = [u64::from_le_bytes(*b"unconvoy"), u64::from_le_bytes(*b" inspect")];

/// Version of the layouts in this module and of the lock objects.
pub const VERSION: u32 = 1;

/// Capacity of the table of waits.
pub const WAITS: usize = 4096;

/// Capacity of the table of [`Held`].
pub const HOLDERS: usize = 4096;

/// Number of locks that are kept for one thread.
pub const HELD: usize = 20;

/// The bit of [`Wait::what`] and [`HeldLock::what`] for shared access. The other bits are the
/// number of the [`Kind`](crate::Kind).
pub const SHARED: u32 = 1 << 8;

/// Length of the names in the descriptor.
pub const NAME: usize = 24;

/// Where the tables are. Until the library's constructor has run, `address` is 0.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Descriptor {
    /// [`MAGIC`].
    pub magic: [u64; 2],
    /// [`VERSION`].
    pub version: u32,
    /// Size of the descriptor in bytes.
    pub size: u32,
    /// The descriptor's own address: a copy of a descriptor is none.
    pub address: AtomicU64,
    /// Address of the table of [`WAITS`] entries.
    pub waits: AtomicU64,
    /// Address of the table of [`HOLDERS`] entries; 0 unless held locks are recorded.
    pub held: AtomicU64,
    /// Address of the sleep slots' thread ids, 32 bits each.
    pub slots: AtomicU64,
    /// Address of the keys of the sleepers' locks, 32 bits each.
    pub keys: AtomicU64,
    /// Number of sleep slots.
    pub slot_count: AtomicU64,
    /// Address of the sleep target, 32 bits.
    pub target: AtomicU64,
    /// Address of the id of the controller's thread, 32 bits; the id is 0 if none runs.
    pub controller: AtomicU64,
    /// Address of the number of runnable threads in the last reading, in thousandths, 32 bits.
    pub runnable: AtomicU64,
    /// Address of the number of processors in the last reading, in thousandths, 32 bits.
    pub capacity: AtomicU64,
    /// Whether libc serves all locks.
    pub is_libcs: AtomicU32,
    /// Name of the contention manager, padded with zeroes.
    pub lock: [AtomicU8; NAME],
    /// Name of the load manager, padded with zeroes.
    pub load: [AtomicU8; NAME],
}

/// A thread that waits for a lock.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Wait {
    /// Kernel's id of the thread; 0: the entry is free.
    pub thread: AtomicU32,
    /// The kind of lock and [`SHARED`]; 0 while the entry is incomplete.
    pub what: AtomicU32,
    /// Address of the lock.
    pub lock: AtomicU64,
    /// When the wait began, on the monotonic clock.
    pub begin: AtomicU64,
    /// Registers of the thread when it began to wait, in a frame that lasts as long as the wait.
    pub ip: AtomicU64,
    /// Stack pointer.
    pub sp: AtomicU64,
    /// Frame pointer.
    pub bp: AtomicU64,
    /// Generation of the process: an entry of another generation is free.
    pub generation: AtomicU32,
    unused: AtomicU32,
}

impl Wait {
    /// A free entry.
    pub const fn free() -> Self {
        Wait {
            thread: AtomicU32::new(0),
            what: AtomicU32::new(0),
            lock: AtomicU64::new(0),
            begin: AtomicU64::new(0),
            ip: AtomicU64::new(0),
            sp: AtomicU64::new(0),
            bp: AtomicU64::new(0),
            generation: AtomicU32::new(0),
            unused: AtomicU32::new(0),
        }
    }
}

/// The locks that a thread holds.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Held {
    /// Kernel's id of the thread; 0: the entry is free.
    pub thread: AtomicU32,
    /// Generation of the process: an entry of another generation is free.
    pub generation: AtomicU32,
    /// Number of used entries in `locks`.
    pub used: AtomicU32,
    unused: [AtomicU32; 5],
    /// The locks in no order; an entry whose `what` is 0 is unused.
    pub locks: [HeldLock; HELD],
}

/// A lock that a thread holds.
#[derive(Debug)]
#[repr(C)]
pub struct HeldLock {
    /// Address of the lock.
    pub lock: AtomicU64,
    /// Return address of the call that acquired the lock; 0 if unknown.
    pub place: AtomicU64,
    /// The kind of lock and [`SHARED`].
    pub what: AtomicU32,
    /// Number of times that the thread holds the lock.
    pub count: AtomicU32,
}
