//! Time-slice extension by restartable sequences, what Linux has of Solaris' `schedctl`: a thread
//! says in memory that it shares with the kernel that it is in a critical section; the kernel, about
//! to preempt it, lets it run on for some microseconds, and says so; it gives the processor up when
//! it is done.
//!
//! Linux 7.0, `Documentation/userspace-api/rseq.rst`, `include/uapi/linux/rseq.h`. The memory is the
//! area that glibc registers for each thread. Each thread has to be enabled, which
//! its first acquisition does.
//!
//! | `request` | `granted` | meaning |
//! | --- | --- | --- |
//! | 0 | 0 | nothing is asked for; or it was granted, and has ended |
//! | 1 | 0 | asked for |
//! | 0 | 1 | granted, and running: written by the kernel |
//!
//! **Invariant 1.** `request` is set only where both are 0, so that the kernel, which checks it,
//! never sees both set.
//!
//! **Memory orderings.** None but the compiler's: a thread and the kernel that interrupts it.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicIsize, AtomicU8, AtomicU32, compiler_fence};

use syscalls::{Sysno, syscall};

/// `PR_RSEQ_SLICE_EXTENSION`.
const SLICE_EXTENSION: usize = 79;
/// `PR_RSEQ_SLICE_EXTENSION_SET`.
const ENABLE: usize = 2;
/// `PR_RSEQ_SLICE_EXT_ENABLE`.
const YES: usize = 1;

/// `rseq_slice_yield`, the same number on every architecture but alpha.
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
    /// Negative while the kernel does not know the area.
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

/// What glibc before 2.41 says of the 32 bytes that it registers: those that the first kernels used.
/// Whether the rest is in use is for `flags` to say.
const FIRST_SIZE: u32 = 20;

/// Where the area is, from the thread pointer.
static OFFSET: AtomicIsize = AtomicIsize::new(0);

/// Asks the C library for [`OFFSET`].
///
/// By `dlsym`, since a reference to symbols of a later version than the C library has would keep the
/// object that contains this from being loaded.
fn find() -> Result<(), Support> {
    // SAFETY: the names end in a zero.
    let [offset, size] =
        unsafe { [c"__rseq_offset", c"__rseq_size"].map(|name| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr())) };
    if !cfg!(target_arch = "x86_64") || offset.is_null() || size.is_null() {
        return Err(Support::NoArea);
    }
    // SAFETY: the C library's constants, of these types (`sys/rseq.h`).
    let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<u32>()) };
    OFFSET.store(offset, Relaxed);
    if size < FIRST_SIZE { Err(Support::NotRegistered) } else { Ok(()) }
}

/// The calling thread's area, where [`find`] found one.
#[cfg(target_arch = "x86_64")]
#[inline]
fn own<'a>() -> &'a Area {
    let thread: *const u8;
    // SAFETY: reads the thread pointer, which the word that it points to names; the area is there, says
    // the C library, as long as the thread lives.
    unsafe {
        core::arch::asm!("mov {0}, qword ptr fs:[0]", out(reg) thread, options(nostack, readonly, pure, preserves_flags));
        &*thread.offset(OFFSET.load(Relaxed)).cast()
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn own<'a>() -> &'a Area {
    unreachable!("nothing was found")
}

/// Whether this process can have its time slices extended.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Support {
    Unknown,
    There,
    NoArea,
    NotRegistered,
    NotInKernel,
    NotOffered,
    Confined,
}

impl Support {
    const ALL: [Support; 7] = [
        Support::Unknown,
        Support::There,
        Support::NoArea,
        Support::NotRegistered,
        Support::NotInKernel,
        Support::NotOffered,
        Support::Confined,
    ];

    fn reason(self) -> Option<&'static str> {
        match self {
            Support::Unknown | Support::There => None,
            Support::NoArea => {
                Some("no time-slice extension: the C library keeps no area for it (use glibc 2.35 or later, on x86-64)")
            }
            Support::NotRegistered => Some(
                "no time-slice extension: restartable sequences are off (take glibc.pthread.rseq=0 out of GLIBC_TUNABLES)",
            ),
            Support::NotInKernel => {
                Some("no time-slice extension in this kernel (use Linux 7.0 or later with CONFIG_RSEQ_SLICE_EXTENSION)")
            }
            // From Linux 7.1 on, an area of the 32 bytes that glibc before 2.41 registers is served as before.
            Support::NotOffered => Some(
                "no time-slice extension: the kernel does not offer it to this C library (use glibc 2.41 or later; \
                 take rseq_slice_ext=off out of the kernel's command line)",
            ),
            Support::Confined => {
                Some("no time-slice extension under a filter of system calls (take another lock for this program)")
            }
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
    // Until it is known, no: a failing `dlsym` allocates, and a malloc may have locks.
    SUPPORT.store(Support::NoArea as u8, Relaxed);
    let found = find().map_or_else(|reason| reason, |()| enable(own()));
    SUPPORT.store(found as u8, Relaxed);
    found
}

/// Enables the calling thread, whose area is `area`.
#[cold]
fn enable(area: &Area) -> Support {
    if area.cpu_id.load(Relaxed) < 0 {
        return Support::NotRegistered;
    }
    if area.flags.load(Relaxed) & AVAILABLE == 0 {
        // SAFETY: asks, and writes nothing.
        let answer = unsafe { syscall!(Sysno::prctl, SLICE_EXTENSION, IS_ENABLED, 0, 0, 0) };
        return if answer.is_ok() { Support::NotOffered } else { Support::NotInKernel };
    }
    // Only now: the kernel kills who enables what its own flag says is not there.
    // SAFETY: writes to this thread's area only.
    let answer = unsafe { syscall!(Sysno::prctl, SLICE_EXTENSION, ENABLE, YES, 0, 0) };
    let enabled = answer.is_ok() && area.flags.load(Relaxed) & ENABLED != 0;
    if enabled { Support::There } else { Support::NotOffered }
}

/// Whether time slices can be extended here, or cause and remedy.
///
/// # Errors
///
/// The reason why not.
pub fn extension() -> Result<(), &'static str> {
    support().reason().map_or(Ok(()), Err)
}

/// Makes no system call from now on: the process is about to be confined to those that it knows it
/// needs.
pub(crate) fn confine() {
    SUPPORT.store(Support::Confined as u8, Relaxed);
}

/// The calling thread's area, where asking makes sense.
#[inline]
fn area<'a>() -> Option<&'a Area> {
    (support() == Support::There).then(own)
}

#[inline]
pub(super) fn begin() {
    let Some(area) = area() else { return };
    if area.flags.load(Relaxed) & ENABLED == 0 && enable(area) != Support::There {
        return;
    }
    area.slice.ask();
    compiler_fence(Acquire);
}

#[inline]
pub(super) fn end() {
    let Some(area) = area() else { return };
    compiler_fence(Release);
    if area.slice.take_back() {
        give_way();
    }
}

impl Slice {
    #[inline]
    fn ask(&self) {
        // Invariant 1: the kernel sets neither while both are 0.
        if self.request.load(Relaxed) == 0 && self.granted.load(Relaxed) == 0 {
            self.request.store(1, Relaxed);
        }
    }

    /// Whether it was granted, and lasts.
    #[inline]
    fn take_back(&self) -> bool {
        self.request.store(0, Relaxed);
        self.granted.load(Relaxed) != 0
    }
}

#[cold]
fn give_way() {
    // SAFETY: gives the processor up, and has no effect where nothing is granted any more.
    unsafe { syscalls::raw::syscall0(SLICE_YIELD) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_made_and_taken_back() {
        let slice = Slice { request: AtomicU8::new(0), granted: AtomicU8::new(0), _reserved: 0 };
        slice.ask();
        assert_eq!(slice.request.load(Relaxed), 1);
        assert!(!slice.take_back(), "nothing was granted");
        assert_eq!(slice.request.load(Relaxed), 0);
    }

    #[test]
    fn a_grant_is_given_back_and_not_asked_for_twice() {
        let slice = Slice { request: AtomicU8::new(0), granted: AtomicU8::new(0), _reserved: 0 };
        slice.ask();
        // The kernel.
        slice.request.store(0, Relaxed);
        slice.granted.store(1, Relaxed);
        slice.ask(); // for a second lock
        assert_eq!(slice.request.load(Relaxed), 0, "both set would be an error to the kernel");
        assert!(slice.take_back());
    }

    #[test]
    fn what_this_machine_lacks_has_a_remedy() {
        match extension() {
            Ok(()) => {
                begin();
                assert_ne!(own().flags.load(Relaxed) & ENABLED, 0);
                end();
                assert_eq!(own().slice.request.load(Relaxed), 0);
            }
            Err(reason) => {
                println!("skipped: {reason}");
                assert!(reason.contains("(use ") || reason.contains("(take "), "{reason}");
            }
        }
    }
}
