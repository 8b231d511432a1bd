//! The page by which a running process shows its locks to `unconvoy top`.
//!
//! The page and the table behind it are System V shared memory that is marked for removal at once:
//! the kernel frees it with the last process that has it attached. The process needs no descriptor
//! and no file. A reader finds the segment in `/proc/PID/maps`, where the inode is the segment's
//! identifier, and asks the kernel which process created it.
//!
//! The process records waits only while a reader asks for them: a reader changes
//! [`Page::asked`] at least once in [`PATIENCE_NS`].

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The first eight bytes of the page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"unconvo\x1b");

/// Version of the page and of the table that it refers to.
pub const VERSION: u32 = 1 << 16 | crate::layout::VERSION;

/// Size of the page's segment in bytes.
pub const SIZE: usize = 4096;

/// The process stops recording after this time without a change of [`Page::asked`].
pub const PATIENCE_NS: u64 = 5_000_000_000;

/// The page. A page of zeroes is empty. All numbers are in the machine's byte order.
#[repr(C)]
pub struct Page {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// 0 if nobody looks. Readers change it and never set it to 0; the process sets it to 0.
    pub asked: AtomicU32,
    /// Whether the process may record call stacks. The reader determines it before it asks, which
    /// saves each process the search at its start: libgcc must refer to `_dl_find_object`.
    pub unwinds: AtomicU32,
    /// Unused.
    pub rest: AtomicU32,
    /// Address of the [`Profile`](crate::Profile) in the process, or 0. It is a shared segment, or
    /// a mapped file if the process records a profile.
    pub table: AtomicU64,
    /// The kernel's error number if the process could not create the table, else 0.
    pub error: AtomicU32,
    /// The kernel's id of the controller's thread; 0 while no controller runs.
    pub controller: AtomicU32,
    /// Time of the controller's last interval, on the monotonic clock.
    pub interval_at: AtomicU64,
    /// Intervals that controllers served.
    pub intervals: AtomicU64,
    /// Processor time of the controllers, nanoseconds.
    pub busy_ns: AtomicU64,
    /// Runnable threads of the last reading, in thousandths.
    pub runnable: AtomicU32,
    /// Processors of the last reading, in thousandths.
    pub capacity: AtomicU32,
    /// Number of threads that sleep for load.
    pub sleeping: AtomicU32,
    /// Number of threads that should sleep for load.
    pub target: AtomicU32,
    /// Number of confined threads.
    pub confined: AtomicU32,
    /// Number of cores of the special set; 0: no set.
    pub cores: AtomicU32,
    /// Name of the contention manager, padded with zeroes.
    pub lock: [AtomicU8; 32],
    /// Name of the load manager, padded with zeroes.
    pub load: [AtomicU8; 32],
    /// Name of the sensor, padded with zeroes.
    pub sensor: [AtomicU8; 32],
}

const _: () = assert!(size_of::<Page>() <= SIZE);
