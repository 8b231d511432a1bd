//! A window: sections of one lock that might have run concurrently (section 4.2 of the paper,
//! Figure 3), and samples drawn from it with one section per thread.
//!
//! The paper fills a buffer with 512 sections and then draws one section of each thread. Here a
//! window keeps only the drawn section of each thread, and the k-th section of the thread replaces
//! it with probability 1/k. In the end every section of a thread is equally likely to be the drawn
//! one, as if drawn from the full buffer. Most sections are never stored.
//!
//! Several samples are drawn from a long window, for two reasons. First, long windows are few:
//! eight threads with 10^5 sections, sampled at 10 %, fill 19 windows for 32 processors, and with
//! one draw from each the mean was 2 % off. Second, one draw uses little of a long window: sixteen
//! threads fill 190 windows of 54 sections for 16 processors, of which one draw uses 16. The
//! further samples start as copies of the first and diverge as their own sections are drawn. Each
//! is uniformly distributed, but they are not independent.

use crate::set::AddressSet;
use fastrand::Rng;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Window {
    /// Threads seen, in order of appearance.
    threads: Vec<u32>,
    /// Number of sections seen of each thread.
    seen: Vec<u32>,
    /// For each draw, the section drawn of each thread.
    drawn: Vec<Vec<Arc<AddressSet>>>,
    sections: u32,
    /// A window with more sections is long.
    long: u32,
    /// Number of samples drawn from a long window.
    draws: u32,
}

impl Window {
    /// An empty window. One sample is drawn from it, or `draws` once it has more than `long`
    /// sections.
    pub fn new(long: u32, draws: u32) -> Self {
        Window {
            threads: Vec::new(),
            seen: Vec::new(),
            drawn: vec![Vec::new()],
            sections: 0,
            long,
            draws,
        }
    }

    /// Adds a section. `set` makes its address set and is called only if a draw selects the
    /// section.
    pub fn add(&mut self, thread: u32, rng: &mut Rng, mut set: impl FnMut() -> Arc<AddressSet>) {
        if self.sections == self.long {
            let first = self.drawn[0].clone();
            self.drawn.resize(self.draws as usize, first);
        }
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

    /// Adds the sections of a closed long window, as if one by one.
    pub fn merge(&mut self, other: &Window, rng: &mut Rng) {
        let first = self.drawn[0].clone();
        self.drawn.resize(other.drawn.len().max(self.drawn.len()), first);
        self.sections += other.sections;
        for (from, (thread, seen)) in other.threads.iter().zip(&other.seen).enumerate() {
            let drawn = other.drawn.iter().cycle().map(|sample| &sample[from]);
            match self.threads.iter().position(|known| known == thread) {
                None => {
                    self.threads.push(*thread);
                    self.seen.push(*seen);
                    self.drawn.iter_mut().zip(drawn).for_each(|(to, set)| to.push(set.clone()));
                }
                Some(at) => {
                    self.seen[at] += seen;
                    for (to, set) in self.drawn.iter_mut().zip(drawn) {
                        if rng.u32(..self.seen[at]) < *seen {
                            to[at] = set.clone();
                        }
                    }
                }
            }
        }
    }

    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    pub fn sections(&self) -> u32 {
        self.sections
    }

    pub fn samples(&self) -> impl ExactSizeIterator<Item = &[Arc<AddressSet>]> {
        self.drawn.iter().map(Vec::as_slice)
    }

    /// The weight of each sample. All windows have the same total weight, however many samples they
    /// have.
    pub fn weight(&self) -> u32 {
        if self.drawn.len() == 1 { self.draws } else { 1 }
    }

    pub fn clear(&mut self) {
        self.threads.clear();
        self.seen.clear();
        self.drawn.truncate(1);
        self.drawn[0].clear();
        self.sections = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::tests::byte;

    #[test]
    fn short_window_has_one_draw() {
        let mut window = Window::new(6, 2);
        for _ in 0..2 {
            (0..6).for_each(|_| window.add(7, &mut Rng::with_seed(1), Arc::default));
            assert_eq!(window.samples().len(), 1);
            window.clear();
        }
    }

    /// Each section of a thread is drawn equally often from merged windows of unequal lengths.
    #[test]
    fn merged_window_draws_uniformly() {
        const ROUNDS: u32 = 32_000;
        let mut rng = Rng::with_seed(1);
        let mut drawn = [[0u32; 8]; 2];
        for _ in 0..ROUNDS {
            let mut merged = Window::new(0, 2);
            for sections in [0..2, 2..8u64] {
                let mut window = Window::new(0, 2);
                for section in sections {
                    let set = || Arc::new(AddressSet::new([byte(section * 8, false)]));
                    window.add(7, &mut rng, set);
                }
                merged.merge(&window, &mut rng);
            }
            assert_eq!((merged.threads(), merged.sections(), merged.samples().len()), (1, 8, 2));
            for (drawn, sample) in drawn.iter_mut().zip(merged.samples()) {
                drawn[(sample[0].accesses()[0].address / 8) as usize] += 1;
            }
        }
        // A binomial with mean 4000 and standard deviation 59.
        assert!(drawn.iter().flatten().all(|count| (3700..4300).contains(count)), "{drawn:?}");
    }

    /// Each section of a thread is drawn equally often, in the first draw and in copied ones.
    #[test]
    fn long_window_draws_uniformly() {
        const SECTIONS: u64 = 8;
        const ROUNDS: u32 = 32_000;
        let mut rng = Rng::with_seed(1);
        let mut drawn = [[0u32; SECTIONS as usize]; 2];
        let mut different = 0;
        let mut window = Window::new(6, 2);
        for _ in 0..ROUNDS {
            for section in 0..SECTIONS {
                window.add(7, &mut rng, || Arc::new(AddressSet::new([byte(section * 8, false)])));
                window.add(8, &mut rng, || Arc::new(AddressSet::default()));
            }
            assert_eq!((window.threads(), window.sections()), (2, 2 * SECTIONS as u32));
            assert_eq!(window.samples().len(), 2);
            let which = |sample: &[Arc<AddressSet>]| (sample[0].accesses()[0].address / 8) as usize;
            let samples: Vec<usize> = window.samples().map(which).collect();
            drawn.iter_mut().zip(&samples).for_each(|(drawn, section)| drawn[*section] += 1);
            different += u32::from(samples[0] != samples[1]);
            window.clear();
        }
        // A binomial with mean 4000 and standard deviation 59.
        assert!(drawn.iter().flatten().all(|count| (3700..4300).contains(count)), "{drawn:?}");
        assert!(different > ROUNDS / 2, "{different}");
    }
}
