//! A window: sections of one lock that might have run at once (section 4.2 of the paper, Figure 3), and one section per thread drawn from it.
//!
//! The paper fills a buffer and then draws. Here each thread of a window has one section, and its k-th section takes the place with probability
//! 1/k: every section of a thread is equally likely in the end, as if it were drawn from the full buffer, but a window holds
//! at most one section per thread and draw instead of 512, and most sections need not be kept at all.

use crate::set::AddressSet;
use fastrand::Rng;
use std::sync::Arc;

/// A window for one number of processors.
#[derive(Debug)]
pub(crate) struct Window {
    /// Threads seen, in the order in which they came.
    threads: Vec<u32>,
    /// Sections seen of each.
    seen: Vec<u32>,
    /// The sections drawn: of each draw, one per thread.
    drawn: Vec<Vec<Arc<AddressSet>>>,
    /// Sections seen.
    sections: u32,
}

impl Window {
    /// An empty window from which `draws` samples are drawn.
    pub fn new(draws: u32) -> Self {
        Window { threads: Vec::new(), seen: Vec::new(), drawn: vec![Vec::new(); draws as usize], sections: 0 }
    }

    /// Adds a section; `set` makes its address set, and is called only if it was drawn for now.
    pub fn add(&mut self, thread: u32, rng: &mut Rng, mut set: impl FnMut() -> Arc<AddressSet>) {
        self.sections += 1;
        match self.threads.iter().position(|known| *known == thread) {
            None => {
                self.threads.push(thread);
                self.seen.push(1);
                self.drawn.iter_mut().for_each(|sample| sample.push(set()));
            }
            Some(index) => {
                self.seen[index] += 1;
                for sample in &mut self.drawn {
                    if rng.u32(..self.seen[index]) == 0 {
                        sample[index] = set();
                    }
                }
            }
        }
    }

    /// Threads seen.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Sections seen.
    pub fn sections(&self) -> u32 {
        self.sections
    }

    /// The samples drawn.
    pub fn samples(&self) -> impl Iterator<Item = &[Arc<AddressSet>]> {
        self.drawn.iter().map(Vec::as_slice)
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.threads.clear();
        self.seen.clear();
        self.drawn.iter_mut().for_each(Vec::clear);
        self.sections = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::tests::byte;

    /// Each of a thread's sections is drawn equally often.
    #[test]
    fn draws_uniformly() {
        const SECTIONS: u64 = 8;
        const ROUNDS: u32 = 16_000;
        let mut rng = Rng::with_seed(1);
        let mut drawn = [0u32; SECTIONS as usize];
        let mut window = Window::new(2);
        for _ in 0..ROUNDS {
            for section in 0..SECTIONS {
                window.add(7, &mut rng, || Arc::new(AddressSet::new([byte(section * 8, false)])));
                window.add(8, &mut rng, || Arc::new(AddressSet::default()));
            }
            assert_eq!((window.threads(), window.sections()), (2, 2 * SECTIONS as u32));
            for sample in window.samples() {
                assert_eq!(sample.len(), 2);
                drawn[(sample[0].accesses()[0].address / 8) as usize] += 1;
            }
            window.clear();
        }
        // A binomial with mean 4000 and standard deviation 59.
        assert!(drawn.iter().all(|count| (3700..4300).contains(count)), "{drawn:?}");
    }
}
