//! The distribution of a measured time, from which the simulation draws.

use serde::{Deserialize, Serialize};

/// The parts of the measured times, in thousandths, that are at most as long as each quantile.
pub const LEVELS: [u32; 7] = [0, 250, 500, 750, 900, 990, 1000];

/// A time's quantiles at [`LEVELS`], in nanoseconds and ascending. Between two quantiles, all times
/// are equally frequent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "[u64; LEVELS.len()]")]
pub struct Quantiles([u64; LEVELS.len()]);

impl TryFrom<[u64; LEVELS.len()]> for Quantiles {
    type Error = &'static str;

    fn try_from(times: [u64; LEVELS.len()]) -> Result<Self, Self::Error> {
        if times.is_sorted() {
            Ok(Quantiles(times))
        } else {
            Err(crate::messages::unsorted_quantiles())
        }
    }
}

impl Quantiles {
    /// The quantiles of some times in nanoseconds, which need not be sorted; all 0 without times.
    pub fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        let quantile = |level: u32| times.get(last * level as usize / 1000).copied().unwrap_or(0);
        Quantiles(LEVELS.map(quantile))
    }

    /// A time that never varies.
    pub const fn always(ns: u64) -> Self {
        Quantiles([ns; LEVELS.len()])
    }

    /// Whether every time is 0.
    pub fn is_zero(&self) -> bool {
        self.0[LEVELS.len() - 1] == 0
    }

    /// Draws a time.
    pub(crate) fn draw(&self, random: &mut fastrand::Rng) -> u64 {
        if self.0[0] == self.0[LEVELS.len() - 1] {
            return self.0[0];
        }
        let level = random.u32(0..1000);
        let above = LEVELS.iter().position(|&other| other > level).expect("the last is 1000");
        let (from, to) = (self.0[above - 1], self.0[above]);
        from + random.u64(0..=to - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_times_have_the_quantiles() {
        let quantiles = Quantiles::of((0..=10_000).rev().collect());
        assert_eq!(quantiles, Quantiles([0, 2_500, 5_000, 7_500, 9_000, 9_900, 10_000]));
        let mut random = fastrand::Rng::with_seed(1);
        let mut drawn: Vec<u64> = (0..10_000).map(|_| quantiles.draw(&mut random)).collect();
        drawn.sort_unstable();
        for (place, limit) in [(2_500, 2_500), (5_000, 5_000), (9_000, 9_000), (9_900, 9_900)] {
            assert!(drawn[place].abs_diff(limit) < 200, "{place}: {}", drawn[place]);
        }
    }

    #[test]
    fn constant_time_draws_nothing() {
        let mut random = fastrand::Rng::with_seed(1);
        let next = random.clone().u64(..);
        assert_eq!(Quantiles::always(7).draw(&mut random), 7);
        assert_eq!(random.u64(..), next, "no random number was used");
        assert!(Quantiles::default().is_zero() && !Quantiles::always(7).is_zero());
        assert_eq!(Quantiles::of(Vec::new()), Quantiles::default());
    }

    #[test]
    fn unsorted_quantiles_are_rejected() {
        assert!(Quantiles::try_from([1, 2, 3, 4, 5, 6, 5]).is_err());
    }
}
