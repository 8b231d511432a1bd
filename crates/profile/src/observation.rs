//! What the command saw of the process from outside, as plain values; see
//! [`Observed`](crate::layout::Observed).

use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::layout::{HELD, Header, Observed, Profile, SPANS, Spent};
use crate::read::zeroed;

/// What the command saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// Samples of threads in futex waits: at recorded locks and condition variables, and elsewhere.
    pub futex_samples: [u64; 2],
    /// Number of processors that the process may use; 0 if nothing was sampled.
    pub processors: u64,
    /// Greatest number of threads at once.
    pub threads: u64,
    /// From the first to the last sample.
    pub whole: Usage,
    /// While threads waited for a lock; the locks with most such samples first.
    pub locks: Vec<LockSpan>,
    /// What holders of mutexes did, the most frequent first.
    pub holders: Vec<HolderSamples>,
}

/// What a process used in some time, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Length of the time.
    pub wall_ns: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// The part of it in the kernel.
    pub system_ns: u64,
    /// Time that threads waited for a processor.
    pub delay_ns: u64,
    /// Time that the machine's processors were idle, summed.
    pub idle_ns: u64,
}

/// The time from the first to the last sample in which a thread waited for a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockSpan {
    /// Address of the lock.
    pub address: u64,
    /// Number of samples of waiting threads.
    pub waiting: u64,
    /// Number of samples in this time.
    pub looks: u64,
    /// Mutexes that libc serves: number of `looks` in which a thread held the mutex.
    pub held: u64,
    /// What the process used in this time.
    pub usage: Usage,
}

/// What the holder of a mutex did while other threads waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HolderSamples {
    /// Address of the mutex.
    pub address: u64,
    /// Number of the system call, or [`RUNNABLE`](crate::layout::RUNNABLE).
    pub call: u32,
    /// Number of samples.
    pub samples: u32,
}

impl Observation {
    pub(crate) fn of(observed: &Observed) -> Self {
        let span = |span: &crate::layout::Span| LockSpan {
            address: span.address.load(Relaxed),
            waiting: span.waiting.load(Relaxed),
            looks: span.looks.load(Relaxed),
            held: span.held.load(Relaxed),
            usage: Usage::of(&span.spent),
        };
        let holder = |held: &crate::layout::Held| HolderSamples {
            address: held.address.load(Relaxed),
            call: held.call.load(Relaxed),
            samples: held.samples.load(Relaxed),
        };
        Observation {
            futex_samples: [0, 1].map(|which| observed.futex_samples[which].load(Relaxed)),
            processors: observed.processors.load(Relaxed),
            threads: observed.threads.load(Relaxed),
            whole: Usage::of(&observed.whole),
            locks: observed.locks.iter().map(span).filter(|span| span.address != 0).collect(),
            holders: observed.holders.iter().map(holder).filter(|it| it.address != 0).collect(),
        }
    }

    /// Writes this into a profile; what exceeds the tables is left out.
    pub fn store(&self, observed: &Observed) {
        for (to, from) in observed.futex_samples.iter().zip(self.futex_samples) {
            to.store(from, Relaxed);
        }
        observed.processors.store(self.processors, Relaxed);
        observed.threads.store(self.threads, Relaxed);
        self.whole.store(&observed.whole);
        for (to, from) in observed.locks.iter().zip(self.locks.iter().take(SPANS)) {
            to.address.store(from.address, Relaxed);
            to.waiting.store(from.waiting, Relaxed);
            to.looks.store(from.looks, Relaxed);
            to.held.store(from.held, Relaxed);
            from.usage.store(&to.spent);
        }
        for (to, from) in observed.holders.iter().zip(self.holders.iter().take(HELD)) {
            to.address.store(from.address, Relaxed);
            to.call.store(from.call, Relaxed);
            to.samples.store(from.samples, Relaxed);
        }
    }

    /// Writes this into the file of a profile.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn keep(&self, file: &Path) -> io::Result<()> {
        let profile = zeroed();
        self.store(&profile.header.observed);
        let at = offset_of!(Profile, header) + offset_of!(Header, observed);
        let bytes = &profile.to_bytes()[at..at + size_of::<Observed>()];
        OpenOptions::new().write(true).open(file)?.write_all_at(bytes, at as u64)
    }
}

impl Usage {
    fn of(spent: &Spent) -> Self {
        Usage {
            wall_ns: spent.wall_ns.load(Relaxed),
            cpu_ns: spent.cpu_ns.load(Relaxed),
            system_ns: spent.system_ns.load(Relaxed),
            delay_ns: spent.delay_ns.load(Relaxed),
            idle_ns: spent.idle_ns.load(Relaxed),
        }
    }

    fn store(&self, spent: &Spent) {
        spent.wall_ns.store(self.wall_ns, Relaxed);
        spent.cpu_ns.store(self.cpu_ns, Relaxed);
        spent.system_ns.store(self.system_ns, Relaxed);
        spent.delay_ns.store(self.delay_ns, Relaxed);
        spent.idle_ns.store(self.idle_ns, Relaxed);
    }

    /// What was used after `earlier`, an earlier reading of the same counters.
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            wall_ns: self.wall_ns.saturating_sub(earlier.wall_ns),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            delay_ns: self.delay_ns.saturating_sub(earlier.delay_ns),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observation_survives_the_file() {
        let usage = Usage { wall_ns: 4, cpu_ns: 3, system_ns: 2, delay_ns: 1, idle_ns: 5 };
        let observation = Observation {
            futex_samples: [5, 6],
            processors: 2,
            threads: 9,
            whole: usage,
            locks: vec![LockSpan { address: 0x1000, waiting: 7, looks: 6, held: 5, usage }],
            holders: vec![HolderSamples { address: 0x1000, call: 74, samples: 3 }],
        };
        let profile = zeroed();
        observation.store(&profile.header.observed);
        assert_eq!(Observation::of(&profile.header.observed), observation);
    }
}
