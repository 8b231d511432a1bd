//! The processors that threads may use. The kernel fails a call with room for fewer processors than
//! the machine may ever have, and `cpu_set_t` has room for only 1024.

use syscalls::{Sysno, syscall};

const WORDS: usize = 256;

/// A set of up to 16,384 processors.
pub struct Processors([u64; WORDS]);

impl Processors {
    /// No processor.
    pub fn none() -> Self {
        Processors([0; WORDS])
    }

    /// Those of a thread, or of the calling thread for 0; `None` if they cannot be read.
    pub fn of(thread: u32) -> Option<Self> {
        let mut mask = [0_u64; WORDS];
        // SAFETY: writes at most the mask.
        let written = unsafe {
            syscall!(Sysno::sched_getaffinity, thread, size_of_val(&mask), mask.as_mut_ptr())
        };
        written.is_ok().then_some(Processors(mask))
    }

    /// Adds those of another set.
    pub fn add(&mut self, other: &Processors) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }

    /// Their number.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
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
        let mut both = Processors::none();
        both.add(&own);
        both.add(&own);
        assert_eq!(both.count(), own.count());
        assert!(Processors::of(u32::MAX >> 1).is_none(), "no such thread");
    }
}
