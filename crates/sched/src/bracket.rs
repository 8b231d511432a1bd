//! The bounds between which the best one is, and what was measured at them: the refined search's
//! ([`search`](crate::search)) second half.

use crate::parameters::WORTH;

/// What was measured at a bound.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Record {
    /// Cores of the set that had a task.
    pub(crate) cores: u32,
    /// T.
    pub(crate) throughput: f64,
}

impl Record {
    /// Whether the cores that it has more than `smaller` are [worth](WORTH) it.
    fn is_worth_more_than(self, smaller: Record) -> bool {
        let more = f64::from(self.cores.saturating_sub(smaller.cores)) / f64::from(smaller.cores.max(1));
        self.throughput > smaller.throughput * (1.0 + WORTH * more)
    }

    /// Whether it is the better one of two.
    pub(crate) fn beats(self, other: Record) -> bool {
        if self.cores > other.cores { self.is_worth_more_than(other) } else { !other.is_worth_more_than(self) }
    }
}

/// The largest T so far, at `best`, and the nearest bounds on both sides where it is less.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bracket {
    pub(crate) low: Record,
    pub(crate) best: Record,
    pub(crate) high: Record,
    /// The values so far at the present bound.
    pub(crate) values: Mean,
    pub(crate) tasks: Option<u32>,
}

/// The mean of several values of T.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Mean {
    sum: f64,
    pub(crate) count: u32,
}

impl Mean {
    pub(crate) fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    pub(crate) fn value(self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

/// Values of which a bound's T is the mean while the bracket is narrowed, and when two neighbours are compared in the end.
pub(crate) const VALUES: u32 = 2;
pub(crate) const FINAL_VALUES: u32 = 4;

/// Neighbours whose T differs by less than this part of it are compared again. Right at the collapse p swings in the course
/// of many slices: with postmark and 10,000 files (simulated) on 17 cores two values in a row were 4 % too large.
const CLOSE: f64 = 0.06;

impl Bracket {
    /// A side of which nothing is known has a bound next to the best, without throughput; so has one whose bound tasks that
    /// have ended in the meantime have left on the wrong side.
    pub(crate) fn about(best: Record, mut low: Record, mut high: Record, tasks: Option<u32>) -> Self {
        if low.cores >= best.cores {
            low = Record { cores: best.cores.saturating_sub(1), throughput: 0.0 };
        }
        if high.cores <= best.cores {
            high = Record { cores: best.cores + 1, throughput: 0.0 };
        }
        Bracket { low, best, high, values: Mean::default(), tasks }
    }

    /// The bound to look at next, if one is left: in the wider half, where the golden section of it is.
    pub(crate) fn next(&self) -> Option<u32> {
        const SECTION: f64 = 0.381_966;
        let (below, above) = (self.best.cores - self.low.cores, self.high.cores - self.best.cores);
        let section = |width: u32| ((f64::from(width) * SECTION).round() as u32).clamp(1, width - 1);
        match (below, above) {
            (..=1, ..=1) => None,
            (below, above) if above >= below => Some(self.best.cores + section(above)),
            (below, _) => Some(self.best.cores - section(below)),
        }
    }

    /// Takes in what a bound has; of equals the smaller one is the best.
    pub(crate) fn narrow(&mut self, bound: u32, throughput: f64) {
        let is_above = bound > self.best.cores;
        let here = Record { cores: bound, throughput };
        if here.beats(self.best) {
            *(if is_above { &mut self.low } else { &mut self.high }) = self.best;
            self.best = here;
        } else {
            *(if is_above { &mut self.high } else { &mut self.low }) = here;
        }
        self.values = Mean::default();
    }

    /// Which neighbour of the best is so close to it that they have to be compared again.
    pub(crate) fn rival(&self) -> Option<Record> {
        let rival = if self.high.throughput > self.low.throughput { self.high } else { self.low };
        (rival.throughput > (1.0 - CLOSE) * self.best.throughput).then_some(rival)
    }
}
