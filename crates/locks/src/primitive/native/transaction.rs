//! Hardware transactions: Intel's restricted transactional memory (RTM; Intel SDM, volume 1, chapter
//! 16).
//!
//! A transaction that aborts has never been: the processor takes back every write to memory and
//! every register, and goes on behind [`begin`] once more, with the reason. So a caller may begin one
//! and return, even to code that knows nothing of it.
//!
//! A processor that says it has them may still commit none: microcode and hypervisors switch them off
//! against speculation attacks. So a few are tried before the first is begun in earnest.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use crate::primitive::{Abort, Begun};

/// What a trial found.
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
    const ALL: [Support; 5] =
        [Support::Unknown, Support::Commits, Support::Missing, Support::SwitchedOff, Support::NeverCommits];

    fn reason(self) -> Option<&'static str> {
        match self {
            Support::Unknown | Support::Commits => None,
            Support::Missing => Some(
                "this processor, or its hypervisor, has no hardware transactions (use one with Intel RTM, or another lock)",
            ),
            Support::SwitchedOff => Some(
                "hardware transactions are off (boot the kernel with tsx=on if your microcode lets you, or use another lock)",
            ),
            Support::NeverCommits => Some("no hardware transaction commits on this processor (use another lock)"),
        }
    }
}

static SUPPORT: AtomicU8 = AtomicU8::new(Support::Unknown as u8);

#[inline]
fn commit() -> bool {
    let support = match Support::ALL[usize::from(SUPPORT.load(Relaxed))] {
        Support::Unknown => probe(),
        known => known,
    };
    support == Support::Commits
}

/// Transactions that are tried: one may meet an interrupt or a page fault, not all of them.
const TRIALS: u32 = 300;

#[cold]
fn probe() -> Support {
    let found = match instructions::offered() {
        Err(reason) => reason,
        Ok(()) if (0..TRIALS).any(|_| instructions::commits_one()) => Support::Commits,
        Ok(()) => Support::NeverCommits,
    };
    SUPPORT.store(found as u8, Relaxed);
    found
}

/// Whether transactions commit here, or cause and remedy.
///
/// # Errors
///
/// The reason why not.
pub fn available() -> Result<(), &'static str> {
    commit();
    Support::ALL[usize::from(SUPPORT.load(Relaxed))].reason().map_or(Ok(()), Err)
}

#[inline]
pub(super) fn begin() -> Begun {
    if !commit() {
        return Begun::Unavailable;
    }
    match instructions::begin() {
        instructions::STARTED => Begun::Started,
        status => Begun::Aborted(decoded(status)),
    }
}

/// `EAX` after an abort: bit 1 says that a retry may succeed, as after a conflict.
fn decoded(status: u32) -> Abort {
    Abort { may_succeed_on_retry: status & 1 << 1 != 0 }
}

#[inline]
pub(super) fn is_inside() -> bool {
    commit() && instructions::is_inside()
}

/// The caller is inside one.
#[inline]
pub(super) fn end() {
    instructions::end();
}

/// Does not return if the caller is inside one.
#[inline]
pub(super) fn abort() {
    if commit() {
        instructions::abort();
    }
}

#[cfg(target_arch = "x86_64")]
mod instructions {
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid, __cpuid_count};

    use super::Support;

    /// What `EAX` holds if there was no abort: no status has all bits.
    pub(super) const STARTED: u32 = u32::MAX;

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

    /// A transaction of nothing.
    pub(super) fn commits_one() -> bool {
        let committed;
        // SAFETY: `offered`. No memory is accessed inside.
        unsafe {
            asm!("xbegin 2f", "xend", "2:", inout("eax") STARTED => committed, options(nostack));
        }
        let status: u32 = committed;
        status == STARTED
    }

    #[inline]
    pub(super) fn begin() -> u32 {
        let status;
        // SAFETY: transactions commit here. After an abort all but EAX is as it was; as memory may be
        // accessed by the block, nothing is kept across it that an abort would undo.
        unsafe {
            asm!("xbegin 2f", "2:", inout("eax") STARTED => status, options(nostack));
        }
        status
    }

    #[inline]
    pub(super) fn is_inside() -> bool {
        let inside: u8;
        // SAFETY: transactions commit here, so that the instruction exists.
        unsafe {
            asm!("xtest", "setnz {}", out(reg_byte) inside, options(nostack));
        }
        inside != 0
    }

    #[inline]
    pub(super) fn end() {
        // SAFETY: the caller is inside a transaction. Accesses stay on their side of it.
        unsafe {
            asm!("xend", options(nostack));
        }
    }

    #[inline]
    pub(super) fn abort() {
        // SAFETY: transactions commit here, so that the instruction exists; outside of one it does nothing.
        unsafe {
            asm!("xabort 255", options(nostack));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod instructions {
    use super::Support;

    pub(super) const STARTED: u32 = u32::MAX;

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

    pub(super) fn end() {}

    pub(super) fn abort() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_by_conflict_may_be_retried_and_others_may_not() {
        // Bits 0 explicit, 1 retry, 2 conflict, 3 capacity; 24 to 31 the code of an explicit one.
        assert!(decoded(0b110).may_succeed_on_retry);
        assert!(!decoded(0b1000).may_succeed_on_retry);
        assert!(!decoded(0xFF00_0001).may_succeed_on_retry);
        assert!(!decoded(0).may_succeed_on_retry, "an interrupt, a system call");
    }

    #[test]
    fn transactions_commit_or_there_is_a_reason() {
        let Ok(()) = available() else {
            println!("skipped: {}", available().unwrap_err());
            assert!(matches!(begin(), Begun::Unavailable));
            assert!(!is_inside());
            abort(); // nothing to abort
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
        abort(); // outside, nothing
    }
}
