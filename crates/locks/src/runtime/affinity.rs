//! The processors that threads may use. The kernel fails a call with room for fewer processors than
//! the machine may ever have, and `cpu_set_t` has room for only 1024.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use syscalls::{Sysno, syscall};

const WORDS: usize = 256;

/// Words of a mask for most machines.
const USUAL_WORDS: usize = 16;

/// The number of processors that the calling thread may use; `None` if they cannot be read. Needs
/// little stack on most machines.
pub fn count() -> Option<u32> {
    let mut mask = [0_u64; USUAL_WORDS];
    read(0, &mut mask).map(|()| ones(&mask)).or_else(count_many)
}

/// Number of processors that the process may use. Counted at the process's first operation, before
/// threads are pinned and before a filter may forbid it. A process that is confined to one
/// processor later keeps its locks' biases, which then gain nothing.
pub fn processors() -> usize {
    const UNKNOWN: usize = 0;
    static PROCESSORS: AtomicUsize = AtomicUsize::new(UNKNOWN);
    let mut known = PROCESSORS.load(Relaxed);
    if known == UNKNOWN {
        known = count().map_or(1, |count| count as usize);
        PROCESSORS.store(known, Relaxed);
    }
    known
}

#[cold]
#[inline(never)]
fn count_many() -> Option<u32> {
    let mut mask = [0_u64; WORDS];
    read(0, &mut mask).map(|()| ones(&mask))
}

fn read(thread: u32, mask: &mut [u64]) -> Option<()> {
    // SAFETY: writes at most the mask.
    let written =
        unsafe { syscall!(Sysno::sched_getaffinity, thread, size_of_val(mask), mask.as_mut_ptr()) };
    written.ok().map(drop)
}

fn ones(mask: &[u64]) -> u32 {
    mask.iter().map(|word| word.count_ones()).sum()
}

/// A set of up to 16,384 processors.
pub struct Processors([u64; WORDS]);

impl Processors {
    /// No processor.
    pub fn none() -> Self {
        Processors([0; WORDS])
    }

    /// Those of a thread, or of the calling thread for 0; `None` if they cannot be read.
    pub fn of(thread: u32) -> Option<Self> {
        let mut mask = Processors::none();
        read(thread, &mut mask.0).map(|()| mask)
    }

    /// Adds those of another set.
    pub fn add(&mut self, other: &Processors) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }

    /// Their number.
    pub fn count(&self) -> u32 {
        ones(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_of_this_thread_is_the_kernels() {
        let own = Processors::of(0).expect("a mask");
        let known = rustix::thread::sched_getaffinity(None).expect("a mask");
        assert_eq!(own.count(), known.count());
        assert_eq!((count(), count_many()), (Some(own.count()), Some(own.count())));
        let mut both = Processors::none();
        both.add(&own);
        both.add(&own);
        assert_eq!(both.count(), own.count());
        assert!(Processors::of(u32::MAX >> 1).is_none(), "no such thread");
    }
}
