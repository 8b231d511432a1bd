//! A short, power-saving wait for a word to change: `umonitor` and `umwait` where the processor has
//! them (Intel `WAITPKG`: Tremont, Alder Lake, Sapphire Rapids and later). Elsewhere
//! [`poll_for_change`](crate::primitive::poll_for_change) stands in.
//!
//! Intel SDM, volume 2B, `UMONITOR` and `UMWAIT`: the processor watches the cache line of the
//! address. It resumes on a write to the line, at a deadline of the time-stamp counter, on an
//! interrupt, or spuriously. The kernel bounds the wait further
//! (`/sys/devices/system/cpu/umwait_control/max_time`).

use core::sync::atomic::AtomicU64;

/// Longest wait in cycles of the time-stamp counter: 3 to 5 us. Between waits a waiter asks its
/// load manager and checks whether it has become the first.
#[cfg(target_arch = "x86_64")]
const CYCLES: u64 = 10_000;

/// Whether the processor has `umwait`. Without it a wait is a series of pauses.
pub fn is_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    return waitpkg::is_supported();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Waits until `word` no longer holds `seen`, for at most some microseconds. May return earlier.
/// Returns false, without a wait, if the processor has no `umwait`.
pub(super) fn wait(word: &AtomicU64, seen: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if waitpkg::is_supported() {
        waitpkg::wait(word, seen, CYCLES);
        return true;
    }
    let _ = (word, seen);
    false
}

#[cfg(target_arch = "x86_64")]
mod waitpkg {
    use core::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc};
    use core::sync::atomic::Ordering::{Acquire, Relaxed};
    use core::sync::atomic::{AtomicU8, AtomicU64};

    const UNKNOWN: u8 = 0;
    const YES: u8 = 1;
    const NO: u8 = 2;

    /// Leaf 7, `ECX`.
    const WAITPKG: u32 = 1 << 5;

    /// The lighter of the two states, with an exit latency below a microsecond.
    const C0_1: u32 = 1;

    #[inline]
    pub(super) fn is_supported() -> bool {
        static SUPPORTED: AtomicU8 = AtomicU8::new(UNKNOWN);
        match SUPPORTED.load(Relaxed) {
            UNKNOWN => {
                let supported = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & WAITPKG != 0;
                SUPPORTED.store(if supported { YES } else { NO }, Relaxed);
                supported
            }
            known => known == YES,
        }
    }

    pub(super) fn wait(word: &AtomicU64, seen: u64, cycles: u64) {
        // SAFETY: reads a counter.
        let end = unsafe { _rdtsc() } + cycles;
        // SAFETY: the caller has checked `is_supported`. Watches memory and writes none.
        unsafe {
            core::arch::asm!("umonitor {}", in(reg) word, options(nostack, preserves_flags));
        }
        // Checked after `umonitor`, so that an earlier change is not missed.
        if word.load(Acquire) != seen {
            return;
        }
        // SAFETY: as above. The carry flag, which reports a time-out, is ignored.
        unsafe {
            core::arch::asm!(
                "umwait {:e}",
                in(reg) C0_1,
                in("eax") end as u32,
                in("edx") (end >> 32) as u32,
                options(nostack),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::{Monitor, Native, poll_for_change};

    /// Both implementations; they coincide without `WAITPKG`.
    const IMPLEMENTATIONS: [fn(&AtomicU64, u64); 2] =
        [Native::wait_for_change, poll_for_change::<Native>];

    /// Nanoseconds of processor time of the calling thread; other threads on the machine do not
    /// affect it.
    fn processor_time() -> i64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes `time`.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    #[test]
    fn wait_for_unchanged_word_returns_within_bound() {
        if !is_supported() {
            println!("skipped: umwait: this processor has no WAITPKG");
        }
        let word = AtomicU64::new(7);
        for wait in IMPLEMENTATIONS {
            let begin = processor_time();
            (0..100).for_each(|_| wait(&word, 7));
            let ns = processor_time() - begin;
            assert!(ns < 1_000_000_000, "100 waits took {ns} ns of processor time");
        }
    }

    #[test]
    fn wait_for_changed_word_returns_early() {
        let word = AtomicU64::new(7);
        for wait in IMPLEMENTATIONS {
            let time_1000_waits = |seen: u64| {
                let begin = processor_time();
                (0..1000).for_each(|_| wait(&word, seen));
                processor_time() - begin
            };
            let (waited, returned) = (time_1000_waits(7), time_1000_waits(8));
            assert!(returned < waited, "changed word: {returned} ns, unchanged word: {waited} ns");
        }
    }
}
