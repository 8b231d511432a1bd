//! Hardware transactions: Intel's restricted transactional memory (RTM; Intel SDM, volume 1,
//! chapter 16).
//!
//! An aborted transaction leaves no trace: the processor rolls back every write to memory and every
//! register, and resumes behind `begin` with the reason. So a caller may begin a transaction and
//! return, even into code that is unaware of it.
//!
//! A processor that advertises RTM may still commit nothing, because microcode and hypervisors
//! disable it against speculation attacks. So a few trial transactions run before the first real
//! one.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use super::messages;
use crate::primitive::{Abort, Begun};

/// Result of the trial.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Support {
    Unknown,
    Commits,
    Missing,
    SwitchedOff,
    NeverCommits,
}

impl Support {
    const ALL: [Support; 5] = [
        Support::Unknown,
        Support::Commits,
        Support::Missing,
        Support::SwitchedOff,
        Support::NeverCommits,
    ];

    fn reason(self) -> Option<&'static str> {
        match self {
            Support::Unknown | Support::Commits => None,
            Support::Missing => Some(messages::NO_TRANSACTIONS),
            Support::SwitchedOff => Some(messages::TRANSACTIONS_DISABLED),
            Support::NeverCommits => Some(messages::TRANSACTIONS_NEVER_COMMIT),
        }
    }
}

static SUPPORT: AtomicU8 = AtomicU8::new(Support::Unknown as u8);

/// Whether transactions are known to commit here. False until the first call of [`available`], so
/// no transaction begins before that call.
#[inline]
fn is_supported() -> bool {
    SUPPORT.load(Relaxed) == Support::Commits as u8
}

/// Number of trial transactions: an interrupt or a page fault may abort one, but not all of them.
const TRIALS: u32 = 300;

#[cold]
fn probe() -> Support {
    let known = Support::ALL[usize::from(SUPPORT.load(Relaxed))];
    if known != Support::Unknown {
        return known;
    }
    let found = match instructions::offered() {
        Err(reason) => reason,
        Ok(()) if (0..TRIALS).any(|_| instructions::commits_one()) => Support::Commits,
        Ok(()) => Support::NeverCommits,
    };
    SUPPORT.store(found as u8, Relaxed);
    found
}

/// Whether transactions commit on this machine.
///
/// # Errors
///
/// The cause and a remedy.
pub fn available() -> Result<(), &'static str> {
    probe().reason().map_or(Ok(()), Err)
}

#[inline]
pub(super) fn begin() -> Begun {
    if !is_supported() {
        return Begun::Unavailable;
    }
    match instructions::begin() {
        instructions::STARTED => Begun::Started,
        status => Begun::Aborted(decoded(status)),
    }
}

/// Decodes `EAX` after an abort. Bit 0: the program aborted the transaction, with a code in bits 24
/// to 31. Bit 1: a retry may succeed, as after a conflict.
fn decoded(status: u32) -> Abort {
    const EXPLICIT: u32 = 1 << 0;
    const RETRY: u32 = 1 << 1;
    if status & EXPLICIT != 0 && status >> 24 == instructions::HELD {
        Abort::Held
    } else if status & RETRY != 0 {
        Abort::Conflict
    } else {
        Abort::Hopeless
    }
}

#[inline]
pub(super) fn is_inside() -> bool {
    is_supported() && instructions::is_inside()
}

/// The caller must be inside a transaction.
#[inline]
pub(super) fn end() {
    instructions::end();
}

/// Does not return inside a transaction.
#[inline]
pub(super) fn abort(because: Abort) {
    if is_supported() {
        match because {
            Abort::Held => instructions::abort::<{ instructions::HELD }>(),
            Abort::Conflict | Abort::Hopeless => instructions::abort::<{ instructions::REFUSED }>(),
        }
    }
}

/// The calling thread's record of an elided lock. Transactions alone write it, so an abort restores
/// the 0 of the time before.
#[inline]
pub(super) fn elided_lock() -> usize {
    instructions::elided_lock()
}

/// The caller must be inside a transaction.
#[inline]
pub(super) fn set_elided_lock(address: usize) {
    instructions::set_elided_lock(address);
}

/// Counts the calling thread's sections, modulo 2^32.
#[inline]
pub(super) fn count_section() -> u32 {
    instructions::count_section()
}

#[cfg(target_arch = "x86_64")]
mod instructions {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    use core::arch::{asm, global_asm};

    use super::super::versioned::versioned;
    use super::Support;

    // A thread's elided lock and its count, laid out with the program's own variables
    // (initial-exec): a thread unknown to the C library has no table for `__tls_get_addr` to read.
    global_asm!(
        ".pushsection .tbss.unconvoy_sections,\"awT\",@nobits",
        versioned!(".hidden ", "unconvoy_elided_lock", ""),
        versioned!(".globl ", "unconvoy_elided_lock", ""),
        versioned!(".type ", "unconvoy_elided_lock", ",@object"),
        versioned!(".size ", "unconvoy_elided_lock", ",8"),
        ".p2align 3",
        versioned!("", "unconvoy_elided_lock", ":"),
        ".zero 8",
        versioned!(".hidden ", "unconvoy_sections", ""),
        versioned!(".globl ", "unconvoy_sections", ""),
        versioned!(".type ", "unconvoy_sections", ",@object"),
        versioned!(".size ", "unconvoy_sections", ",4"),
        ".p2align 2",
        versioned!("", "unconvoy_sections", ":"),
        ".zero 4",
        ".popsection",
    );

    #[inline]
    pub(super) fn count_section() -> u32 {
        let count: u32;
        // SAFETY: the variable is the calling thread's, at its offset from the thread pointer.
        unsafe {
            asm!(
                versioned!("mov {offset}, qword ptr [rip + ", "unconvoy_sections", "@GOTTPOFF]"),
                "mov {count:e}, dword ptr fs:[{offset}]",
                "inc {count:e}",
                "mov dword ptr fs:[{offset}], {count:e}",
                offset = out(reg) _,
                count = out(reg) count,
                options(nostack)
            );
        }
        count
    }

    #[inline]
    pub(super) fn elided_lock() -> usize {
        let address: usize;
        // SAFETY: reads the calling thread's variable, at its offset from the thread pointer.
        unsafe {
            asm!(
                versioned!("mov {address}, qword ptr [rip+", "unconvoy_elided_lock", "@GOTTPOFF]"),
                "mov {address}, qword ptr fs:[{address}]",
                address = out(reg) address,
                options(nostack, readonly, preserves_flags)
            );
        }
        address
    }

    #[inline]
    pub(super) fn set_elided_lock(address: usize) {
        // SAFETY: writes the calling thread's variable, at its offset from the thread pointer.
        unsafe {
            asm!(
                versioned!("mov {offset}, qword ptr [rip + ", "unconvoy_elided_lock", "@GOTTPOFF]"),
                "mov qword ptr fs:[{offset}], {address}",
                offset = out(reg) _,
                address = in(reg) address,
                options(nostack, preserves_flags)
            );
        }
    }

    /// The value of `EAX` if there was no abort; no abort status has all bits set.
    pub(super) const STARTED: u32 = u32::MAX;

    /// The abort code that glibc's elision uses for a held lock.
    pub(super) const HELD: u32 = 0xFF;
    pub(super) const REFUSED: u32 = 0xFE;

    /// Leaf 7, `EBX`.
    const RTM: u32 = 1 << 11;
    /// Leaf 7, `EDX`.
    const RTM_ALWAYS_ABORT: u32 = 1 << 11;

    pub(super) fn offered() -> Result<(), Support> {
        if __cpuid(0).eax < 7 {
            return Err(Support::Missing);
        }
        let leaf = __cpuid_count(7, 0);
        match (leaf.ebx & RTM != 0, leaf.edx & RTM_ALWAYS_ABORT != 0) {
            (_, true) => Err(Support::SwitchedOff),
            (false, false) => Err(Support::Missing),
            (true, false) => Ok(()),
        }
    }

    /// Runs an empty transaction.
    pub(super) fn commits_one() -> bool {
        let committed;
        // SAFETY: `offered` has found RTM. The transaction accesses no memory.
        unsafe {
            asm!("xbegin 2f", "xend", "2:", inout("eax") STARTED => committed, options(nostack));
        }
        let status: u32 = committed;
        status == STARTED
    }

    #[inline]
    pub(super) fn begin() -> u32 {
        let status;
        // SAFETY: transactions commit here. An abort restores all registers but EAX. The block may
        // access memory, so the compiler keeps no memory value across it that an abort would roll
        // back.
        unsafe {
            asm!("xbegin 2f", "2:", inout("eax") STARTED => status, options(nostack));
        }
        status
    }

    #[inline]
    pub(super) fn is_inside() -> bool {
        let inside: u8;
        // SAFETY: transactions commit here, so the instruction exists.
        unsafe {
            asm!("xtest", "setnz {}", out(reg_byte) inside, options(nostack));
        }
        inside != 0
    }

    #[inline]
    pub(super) fn end() {
        // SAFETY: the caller is inside a transaction. The compiler moves no access across the
        // block.
        unsafe {
            asm!("xend", options(nostack));
        }
    }

    #[inline]
    pub(super) fn abort<const CODE: u32>() {
        // SAFETY: transactions commit here, so the instruction exists; outside a transaction it
        // does nothing.
        unsafe {
            asm!("xabort {}", const CODE, options(nostack));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod instructions {
    use super::Support;

    pub(super) const STARTED: u32 = u32::MAX;
    pub(super) const HELD: u32 = 0xFF;
    pub(super) const REFUSED: u32 = 0xFE;

    pub(super) fn offered() -> Result<(), Support> {
        Err(Support::Missing)
    }

    pub(super) fn commits_one() -> bool {
        false
    }

    pub(super) fn begin() -> u32 {
        0
    }

    pub(super) fn is_inside() -> bool {
        false
    }

    pub(super) fn elided_lock() -> usize {
        0
    }

    pub(super) fn set_elided_lock(_: usize) {}

    pub(super) fn count_section() -> u32 {
        0
    }

    pub(super) fn end() {}

    pub(super) fn abort<const CODE: u32>() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abort_status_names_its_cause() {
        // Bits 0 explicit, 1 retry, 2 conflict, 3 capacity; 24 to 31 the code of an explicit one.
        assert_eq!(decoded(0b110), Abort::Conflict);
        assert_eq!(decoded(0b1000), Abort::Hopeless, "capacity");
        assert_eq!(decoded(0xFF00_0001), Abort::Held);
        assert_eq!(decoded(0xFE00_0001), Abort::Hopeless, "a nested lock that is not elided");
        assert_eq!(decoded(0), Abort::Hopeless, "an interrupt, a system call");
    }

    #[test]
    fn transactions_commit_or_report_a_reason() {
        let Ok(()) = available() else {
            println!("skipped: {}", available().unwrap_err());
            assert!(matches!(begin(), Begun::Unavailable));
            assert!(!is_inside());
            abort(Abort::Held); // nothing to abort
            return;
        };
        let mut committed = false;
        for _ in 0..TRIALS {
            let mut inside = false;
            if let Begun::Started = begin() {
                inside = is_inside();
                end();
            }
            committed |= inside;
        }
        assert!(committed);
        assert!(!is_inside());
        abort(Abort::Held); // no effect outside a transaction
    }
}
