//! Time-slice extension by restartable sequences, the Linux counterpart of Solaris `schedctl`. A
//! thread announces a critical section in memory that it shares with the kernel. A kernel about to
//! preempt the thread lets it run on for some microseconds instead, and records the grant. The
//! thread yields the processor at the end of the section.
//!
//! Linux 7.0, `Documentation/userspace-api/rseq.rst`, `include/uapi/linux/rseq.h`. The memory is
//! the area that glibc registers for each thread. Each thread must enable the extension; its first
//! acquisition does so.
//!
//! | `request` | `granted` | meaning |
//! | --- | --- | --- |
//! | 0 | 0 | no request; or a grant that has ended |
//! | 1 | 0 | requested |
//! | 0 | 1 | granted and in effect: written by the kernel |
//!
//! **Invariant 1.** `request` is set only while both are 0. The kernel treats both set as an error.
//!
//! **Memory orderings.** Compiler fences only: the two sides are a thread and the kernel that
//! interrupts it.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicIsize, AtomicU8, AtomicU32, compiler_fence};

use syscalls::{Sysno, syscall};

use super::messages;
use super::symbol::look_up;

/// `PR_RSEQ_SLICE_EXTENSION`.
const SLICE_EXTENSION: usize = 79;
/// `PR_RSEQ_SLICE_EXTENSION_SET`.
const ENABLE: usize = 2;
/// `PR_RSEQ_SLICE_EXT_ENABLE`.
const YES: usize = 1;

/// `rseq_slice_yield`; the same number on every architecture but alpha.
const SLICE_YIELD: usize = 471;

/// `PR_RSEQ_SLICE_EXTENSION_GET`.
const IS_ENABLED: usize = 1;

/// `RSEQ_CS_FLAG_SLICE_EXT_AVAILABLE`.
const AVAILABLE: u32 = 1 << 4;
/// `RSEQ_CS_FLAG_SLICE_EXT_ENABLED`.
const ENABLED: u32 = 1 << 5;

/// `struct rseq`, as far as it is used here.
#[repr(C, align(32))]
struct Area {
    _cpu_id_start: u32,
    /// Negative until the area is registered.
    cpu_id: AtomicI32,
    _rseq_cs: u64,
    flags: AtomicU32,
    _node_id: u32,
    _mm_cid: u32,
    slice: Slice,
}

/// `struct rseq_slice_ctrl`.
#[repr(C, align(4))]
struct Slice {
    request: AtomicU8,
    granted: AtomicU8,
    _reserved: u16,
}

const _: () = assert!(core::mem::offset_of!(Area, slice) == 28 && size_of::<Area>() == 32);

/// The size that glibc before 2.41 reports for the 32 bytes that it registers: the size used by the
/// first kernels. `flags` says whether the rest is in use.
const FIRST_SIZE: u32 = 20;

/// Offset of the area from the thread pointer.
static OFFSET: AtomicIsize = AtomicIsize::new(0);

/// Queries the C library for [`OFFSET`].
///
/// Through `dlsym`: a direct reference would keep this object from loading under a C library that
/// predates the symbols.
fn find() -> Result<(), Support> {
    let [offset, size] =
        [c"__rseq_offset", c"__rseq_size"].map(|name| look_up(libc::RTLD_DEFAULT, name));
    if !cfg!(target_arch = "x86_64") || offset.is_null() || size.is_null() {
        return Err(Support::NoArea);
    }
    // SAFETY: constants of the C library, of these types (`sys/rseq.h`).
    let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<u32>()) };
    OFFSET.store(offset, Relaxed);
    if size < FIRST_SIZE { Err(Support::NotRegistered) } else { Ok(()) }
}

/// The calling thread's area, if [`find`] succeeded.
#[cfg(target_arch = "x86_64")]
#[inline]
fn own_area<'a>() -> &'a Area {
    let thread: *const u8;
    // SAFETY: loads the thread pointer from the word it points to. The C library guarantees the
    // area for the life of the thread.
    unsafe {
        core::arch::asm!(
            "mov {0}, qword ptr fs:[0]",
            out(reg) thread,
            options(nostack, readonly, pure, preserves_flags),
        );
        &*thread.offset(OFFSET.load(Relaxed)).cast()
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn own_area<'a>() -> &'a Area {
    unreachable!("`find` fails on this architecture")
}

/// Whether this process can have its time slices extended.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Support {
    Unknown,
    Available,
    NoArea,
    NotRegistered,
    NotInKernel,
    NotOffered,
    Confined,
}

impl Support {
    const ALL: [Support; 7] = [
        Support::Unknown,
        Support::Available,
        Support::NoArea,
        Support::NotRegistered,
        Support::NotInKernel,
        Support::NotOffered,
        Support::Confined,
    ];

    fn reason(self) -> Option<&'static str> {
        match self {
            Support::Unknown | Support::Available => None,
            Support::NoArea => Some(messages::NO_RSEQ_AREA),
            Support::NotRegistered => Some(messages::RSEQ_NOT_REGISTERED),
            Support::NotInKernel => Some(messages::NO_EXTENSION_IN_KERNEL),
            Support::NotOffered => Some(messages::EXTENSION_NOT_OFFERED),
            Support::Confined => Some(messages::SYSTEM_CALLS_FILTERED),
        }
    }
}

static SUPPORT: AtomicU8 = AtomicU8::new(Support::Unknown as u8);

#[inline]
fn support() -> Support {
    match Support::ALL[usize::from(SUPPORT.load(Relaxed))] {
        Support::Unknown => probe(),
        known => known,
    }
}

#[cold]
fn probe() -> Support {
    // The extension counts as unsupported until the result is known: a failing `dlsym` allocates,
    // and the allocator may take locks.
    SUPPORT.store(Support::NoArea as u8, Relaxed);
    let found = find().map_or_else(|reason| reason, |()| enable(own_area()));
    SUPPORT.store(found as u8, Relaxed);
    found
}

/// Enables the extension for the calling thread, whose area is `area`.
#[cold]
fn enable(area: &Area) -> Support {
    if area.cpu_id.load(Relaxed) < 0 {
        return Support::NotRegistered;
    }
    if area.flags.load(Relaxed) & AVAILABLE == 0 {
        // SAFETY: queries, and writes nothing.
        let answer = unsafe { syscall!(Sysno::prctl, SLICE_EXTENSION, IS_ENABLED, 0, 0, 0) };
        return if answer.is_ok() { Support::NotOffered } else { Support::NotInKernel };
    }
    // Only after the check above: the kernel kills a caller that enables the extension while the
    // flag says unavailable. SAFETY: writes to this thread's area only.
    let answer = unsafe { syscall!(Sysno::prctl, SLICE_EXTENSION, ENABLE, YES, 0, 0) };
    let enabled = answer.is_ok() && area.flags.load(Relaxed) & ENABLED != 0;
    if enabled { Support::Available } else { Support::NotOffered }
}

/// Whether time slices can be extended on this machine.
///
/// # Errors
///
/// The cause and a remedy.
pub fn extension() -> Result<(), &'static str> {
    support().reason().map_or(Ok(()), Err)
}

/// Stops all system calls of this module: the process is about to restrict itself to a known set of
/// calls.
pub(crate) fn confine() {
    SUPPORT.store(Support::Confined as u8, Relaxed);
}

/// The calling thread's area, if the extension is supported.
#[inline]
fn area<'a>() -> Option<&'a Area> {
    (support() == Support::Available).then(own_area)
}

#[inline]
pub(super) fn begin() {
    let Some(area) = area() else { return };
    if area.flags.load(Relaxed) & ENABLED == 0 && enable(area) != Support::Available {
        return;
    }
    area.slice.request();
    compiler_fence(Acquire);
}

#[inline]
pub(super) fn end() {
    let Some(area) = area() else { return };
    compiler_fence(Release);
    if area.slice.withdraw() {
        yield_slice();
    }
}

impl Slice {
    #[inline]
    fn request(&self) {
        // Invariant 1: the kernel sets neither while both are 0.
        if self.request.load(Relaxed) == 0 && self.granted.load(Relaxed) == 0 {
            self.request.store(1, Relaxed);
        }
    }

    /// Withdraws the request. Returns whether the extension was granted and is in effect.
    #[inline]
    fn withdraw(&self) -> bool {
        self.request.store(0, Relaxed);
        self.granted.load(Relaxed) != 0
    }
}

#[cold]
fn yield_slice() {
    // SAFETY: yields the processor; no effect without a grant.
    unsafe { syscalls::raw::syscall0(SLICE_YIELD) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_without_grant_is_withdrawn() {
        let slice = Slice { request: AtomicU8::new(0), granted: AtomicU8::new(0), _reserved: 0 };
        slice.request();
        assert_eq!(slice.request.load(Relaxed), 1);
        assert!(!slice.withdraw(), "no grant");
        assert_eq!(slice.request.load(Relaxed), 0);
    }

    #[test]
    fn grant_in_effect_blocks_a_second_request_and_is_yielded() {
        let slice = Slice { request: AtomicU8::new(0), granted: AtomicU8::new(0), _reserved: 0 };
        slice.request();
        // What the kernel does on a grant.
        slice.request.store(0, Relaxed);
        slice.granted.store(1, Relaxed);
        slice.request(); // on acquiring a second lock
        assert_eq!(slice.request.load(Relaxed), 0, "the kernel rejects both set");
        assert!(slice.withdraw());
    }

    #[test]
    fn extension_works_or_reports_a_remedy() {
        match extension() {
            Ok(()) => {
                begin();
                assert_ne!(own_area().flags.load(Relaxed) & ENABLED, 0);
                end();
                assert_eq!(own_area().slice.request.load(Relaxed), 0);
            }
            Err(reason) => {
                println!("skipped: {reason}");
                assert!(reason.contains("(use ") || reason.contains("(remove "), "{reason}");
            }
        }
    }
}
