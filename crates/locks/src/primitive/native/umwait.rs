//! A short wait for a word to change that saves power: by `umonitor` and `umwait` where the processor
//! has them (Intel, `WAITPKG`: Tremont, Alder Lake, Sapphire Rapids and later), else by pauses.
//!
//! Intel SDM, volume 2B, `UMONITOR` and `UMWAIT`: the processor watches the line that the address is
//! in, and leaves the state when it is written to, when the time-stamp counter reaches the deadline,
//! on an interrupt, or for no reason. The kernel bounds the time further
//! (`/sys/devices/system/cpu/umwait_control/max_time`).

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Longest wait, in cycles of the time-stamp counter: 3 to 5 us. A waiter has a load manager to ask,
/// and must see in time that it has become the first.
#[cfg(target_arch = "x86_64")]
const CYCLES: u64 = 10_000;

/// Pauses that stand in for it, of 40 to 140 cycles each.
const PAUSES: u32 = 100;

/// Pauses between two looks at the word, whose line the holder needs.
const PAUSES_PER_LOOK: u32 = 20;

/// Returns when `word` holds something else than `seen`, after some microseconds, or earlier.
pub(super) fn wait(word: &AtomicU64, seen: u64) {
    #[cfg(target_arch = "x86_64")]
    if waitpkg::is_there() {
        waitpkg::wait(word, seen, CYCLES);
        return;
    }
    pauses(word, seen);
}

fn pauses(word: &AtomicU64, seen: u64) {
    for pause in 0..PAUSES {
        core::hint::spin_loop();
        if pause % PAUSES_PER_LOOK == 0 && word.load(Relaxed) != seen {
            return;
        }
    }
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

    /// The lighter of the two states: it is left in less than a microsecond.
    const C0_1: u32 = 1;

    #[inline]
    pub(super) fn is_there() -> bool {
        static THERE: AtomicU8 = AtomicU8::new(UNKNOWN);
        match THERE.load(Relaxed) {
            UNKNOWN => {
                let there = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & WAITPKG != 0;
                THERE.store(if there { YES } else { NO }, Relaxed);
                there
            }
            known => known == YES,
        }
    }

    pub(super) fn wait(word: &AtomicU64, seen: u64, cycles: u64) {
        // SAFETY: reads a counter.
        let end = unsafe { _rdtsc() } + cycles;
        // SAFETY: `is_there`. Watches memory, and writes none.
        unsafe {
            core::arch::asm!("umonitor {}", in(reg) word, options(nostack, preserves_flags));
        }
        // Between the two, so that a change before the watch began is not waited for.
        if word.load(Acquire) != seen {
            return;
        }
        // SAFETY: as above; the carry flag says whether time was up.
        unsafe {
            core::arch::asm!("umwait {:e}", in(reg) C0_1, in("eax") end as u32, in("edx") (end >> 32) as u32, options(nostack));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways, where there are two.
    const WAYS: [fn(&AtomicU64, u64); 2] = [wait, pauses];

    /// Nanoseconds of processor time that the calling thread has had: a neighbour does not lengthen them.
    fn processor_time() -> i64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes `time`.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    #[test]
    fn a_wait_ends_by_itself() {
        #[cfg(target_arch = "x86_64")]
        if !waitpkg::is_there() {
            println!("skipped: umwait: this processor has no WAITPKG");
        }
        let word = AtomicU64::new(7);
        for wait in WAYS {
            let begin = processor_time();
            (0..100).for_each(|_| wait(&word, 7));
            let ns = processor_time() - begin;
            assert!(ns < 1_000_000_000, "100 waits took {ns} ns of processor time");
        }
    }

    #[test]
    fn a_word_that_has_changed_is_not_waited_for() {
        let word = AtomicU64::new(7);
        for wait in WAYS {
            let of_changed = |seen: u64| {
                let begin = processor_time();
                (0..1000).for_each(|_| wait(&word, seen));
                processor_time() - begin
            };
            let (waited, returned) = (of_changed(7), of_changed(8));
            assert!(returned < waited, "{returned} is no less than {waited} ns");
        }
    }
}
