//! Decides which sections of a lock are sampled.
//!
//! The paper draws each section on its own, with a probability of 10 % (section 4.2). The sections
//! of such a sample are ten times as far apart as the program's. A window of them therefore spans
//! ten times as many changes of the lock's data, and the 16-processor data independence of a
//! red-black tree comes out 4.5 % too low. In a burst all sections of a lock are sampled, so a
//! window within it spans as much time as a window of all sections.
//!
//! # Bursts
//!
//! Each lock's sections are numbered in the order in which threads request the lock. A period of
//! sections has `rate` slots of equal length. One slot, drawn at random, is the period's burst. So
//! each section is sampled with a probability of 1 in `rate`, and bursts cannot alias with a
//! program's own rhythm.
//!
//! ```text
//! rate 4    .#..|..##....|........####....|        (# sampled)
//! period     0      1            2
//! ```
//!
//! A lock with few sections needs samples too. The slots of the first period have one section
//! each, those of the next period two, and so on up to [`LONGEST`].

/// The most sections of a burst: a power of two.
///
/// Windows that span two bursts bring back part of the error. On the red-black tree with 16
/// processors, a window takes 54 sections. One window in 19 then spans two bursts, and the error is
/// 0.2 % instead of 4.5 %. With longer, and so fewer, bursts a change of the program's behaviour
/// would by chance weigh too much or too little.
pub const LONGEST: u32 = 1024;

/// How sections are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// Runs of consecutive sections of a lock.
    #[default]
    Bursts,
    /// Each section on its own, as in the paper (section 4.2).
    Independent,
}

impl Sampling {
    /// All ways of sampling, the default first.
    pub const ALL: [Sampling; 2] = [Sampling::Bursts, Sampling::Independent];

    /// The name in options and in the [context](crate::Context).
    pub const fn name(self) -> &'static str {
        match self {
            Sampling::Bursts => "bursts",
            Sampling::Independent => "independent",
        }
    }

    /// The way of sampling with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sampling| sampling.name() == name)
    }
}

/// The draws of one lock's sections.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    sampling: Sampling,
    rate: u64,
    seed: u64,
}

impl Draws {
    /// The draws of 1 in `rate` sections of the lock with this number.
    ///
    /// # Panics
    ///
    /// `rate` is 0.
    #[inline]
    pub const fn new(sampling: Sampling, rate: u32, seed: u64, lock: u32) -> Self {
        assert!(rate > 0);
        Draws { sampling, rate: rate as u64, seed: mix(seed ^ ((lock as u64) << 32)) }
    }

    /// Whether the section with this index, from 0, is sampled.
    #[inline]
    pub const fn is_sampled(&self, index: u64) -> bool {
        if self.rate == 1 {
            return true;
        }
        match self.sampling {
            Sampling::Independent => self.below_rate(index) == 0,
            Sampling::Bursts => {
                let (period, slot) = self.place(index);
                slot == self.below_rate(period)
            }
        }
    }

    /// The section's period, and its slot within the period.
    #[inline]
    const fn place(&self, index: u64) -> (u64, u64) {
        const LAST: u32 = LONGEST.ilog2();
        let doublings = (index / self.rate + 1).ilog2();
        let doublings = if doublings < LAST { doublings } else { LAST };
        // The periods with shorter slots have 1 + 2 + 4 + ... sections in each slot.
        let slot = (index - self.rate * ((1 << doublings) - 1)) >> doublings;
        if doublings < LAST {
            return (doublings as u64, slot);
        }
        (LAST as u64 + slot / self.rate, slot % self.rate)
    }

    /// A pseudo-random number below `rate`, a function of the seed and `of`.
    #[inline]
    const fn below_rate(&self, of: u64) -> u64 {
        let random = mix(self.seed.wrapping_add(of.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        ((random as u128 * self.rate as u128) >> 64) as u64
    }
}

/// The output function of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
#[inline]
const fn mix(mut value: u64) -> u64 {
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of the runs of sampled sections.
    fn runs(draws: Draws, sections: u64) -> Vec<u64> {
        let mut runs = Vec::new();
        let mut before = false;
        for index in 0..sections {
            let now = draws.is_sampled(index);
            match runs.last_mut() {
                Some(run) if now && before => *run += 1,
                _ if now => runs.push(1),
                _ => {}
            }
            before = now;
        }
        runs
    }

    #[test]
    fn each_period_has_one_burst() {
        for lock in 0..100 {
            let draws = Draws::new(Sampling::Bursts, 10, 1, lock);
            let longest = u64::from(LONGEST);
            let mut start = 0;
            for period in 0..20 {
                let slot = longest.min(1 << period);
                let end = start + 10 * slot;
                let sampled: Vec<u64> = (start..end).filter(|at| draws.is_sampled(*at)).collect();
                assert_eq!(sampled.len() as u64, slot, "period {period}");
                assert_eq!((sampled[0] - start) % slot, 0);
                assert_eq!(sampled.last().unwrap() - sampled[0] + 1, slot, "consecutive");
                start = end;
            }
        }
    }

    /// Each section is sampled with the same probability, over all locks or seeds.
    #[test]
    fn every_section_is_sampled_equally_often() {
        for sampling in Sampling::ALL {
            for by_seed in [false, true] {
                for index in [0, 5, 9, 10, 11, 30, 1000, 10_229, 10_230, 123_456] {
                    let sampled = (0..20_000)
                        .filter(|number| {
                            let (seed, lock) = if by_seed { (*number, 3) } else { (3, *number) };
                            Draws::new(sampling, 10, seed.into(), lock).is_sampled(index)
                        })
                        .count();
                    // A binomial with mean 2000 and standard deviation 42.
                    assert!((1800..2200).contains(&sampled), "{sampling:?}, {index}: {sampled}");
                }
            }
        }
    }

    #[test]
    fn independent_sections_are_rarely_neighbours() {
        let runs = runs(Draws::new(Sampling::Independent, 10, 1, 0), 100_000);
        assert!(runs.len() > 8000 && runs.iter().all(|run| *run < 10));
    }

    #[test]
    fn rate_one_samples_all() {
        for sampling in Sampling::ALL {
            assert_eq!(runs(Draws::new(sampling, 1, 1, 0), 100_000), [100_000]);
        }
    }

    #[test]
    fn largest_rate_and_index_do_not_overflow() {
        for sampling in Sampling::ALL {
            Draws::new(sampling, u32::MAX, u64::MAX, u32::MAX).is_sampled(u64::MAX);
        }
    }

    #[test]
    fn names_are_found() {
        for sampling in Sampling::ALL {
            assert_eq!(Sampling::named(sampling.name()), Some(sampling));
        }
        assert_eq!(Sampling::named("all"), None);
    }
}
