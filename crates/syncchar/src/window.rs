//! A window: sections of one lock that might have run at once (section 4.2 of the paper, Figure 3), and one section per thread drawn from it.
//!
//! The paper fills a buffer and then draws. Here each thread of a window has one section, and its k-th section takes the place with probability
//! 1/k: every section of a thread is equally likely in the end, as if it were drawn from the full buffer, but a window holds
//! at most one section per thread and draw instead of 512, and most sections need not be kept at all.
//!
//! A window that grows long is one of few, and has more to say than one draw of it: eight threads with 10^5 sections, sampled at 10 %, have 19 windows for 32 processors, whose
//! mean was 2 % off; sixteen threads have 190 windows of 54 sections for 16 processors, of which a draw takes 16. So such a window is
//! drawn from several times. The further draws begin as copies of the first, from which they part as their own sections are drawn: each is as likely as
//! any, only not independent.

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
    /// How many sections make it long.
    long: u32,
    /// How many samples are drawn of a long one.
    draws: u32,
}

impl Window {
    /// An empty window, of which one sample is drawn, or `draws` if it comes to have more than `long` sections.
    pub fn new(long: u32, draws: u32) -> Self {
        Window { threads: Vec::new(), seen: Vec::new(), drawn: vec![Vec::new()], sections: 0, long, draws }
    }

    /// Adds a section; `set` makes its address set, and is called only if it was drawn for now.
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

    /// Threads seen.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Sections seen.
    pub fn sections(&self) -> u32 {
        self.sections
    }

    /// The samples drawn.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = &[Arc<AddressSet>]> {
        self.drawn.iter().map(Vec::as_slice)
    }

    /// What each of the samples weighs, so that all together weigh the same whether there are one or many.
    pub fn weight(&self) -> u32 {
        if self.drawn.len() == 1 { self.draws } else { 1 }
    }

    /// Empties it.
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
    fn a_short_window_has_one_draw() {
        let mut window = Window::new(6, 2);
        for _ in 0..2 {
            (0..6).for_each(|_| window.add(7, &mut Rng::with_seed(1), Arc::default));
            assert_eq!(window.samples().len(), 1);
            window.clear();
        }
    }

    /// Each of a thread's sections is drawn equally often, also by the draws that began as copies.
    #[test]
    fn draws_uniformly() {
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
