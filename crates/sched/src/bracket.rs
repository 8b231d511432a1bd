//! The second half of the refined [`search`](crate::search): an interval of bounds that contains
//! the best one, and the measurements at its ends.

use crate::parameters::WORTH;

/// A measurement at a bound.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Record {
    /// Cores of the set that had a task.
    pub(crate) cores: u32,
    /// T, the throughput.
    pub(crate) throughput: f64,
}

impl Record {
    /// Whether the throughput gained over `smaller` [justifies](WORTH) the extra cores.
    fn is_worth_more_than(self, smaller: Record) -> bool {
        let more =
            f64::from(self.cores.saturating_sub(smaller.cores)) / f64::from(smaller.cores.max(1));
        self.throughput > smaller.throughput * (1.0 + WORTH * more)
    }

    /// Whether this bound is better than `other`.
    pub(crate) fn beats(self, other: Record) -> bool {
        if self.cores > other.cores {
            self.is_worth_more_than(other)
        } else {
            !other.is_worth_more_than(self)
        }
    }
}

/// The bound with the largest T so far, `best`, and the nearest worse bound on either side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bracket {
    pub(crate) low: Record,
    pub(crate) best: Record,
    pub(crate) high: Record,
    /// Values measured so far at the present bound.
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

/// Values averaged per bound while the bracket narrows, and in the final comparison of neighbours.
pub(crate) const VALUES: u32 = 2;
pub(crate) const FINAL_VALUES: u32 = 4;

/// Neighbours are compared again if their T differs by less than this fraction. At the onset of the
/// collapse, the waiting share p fluctuates over many slices: in a simulation of postmark with
/// 10,000 files, two consecutive values of T on 17 cores were 4 % too large.
const CLOSE: f64 = 0.06;

impl Bracket {
    /// Builds the bracket around `best`. A `low` or `high` that has no measurement, or lies on the
    /// wrong side of `best`, becomes the bound next to `best`, with throughput 0. The wrong side is
    /// possible if tasks have ended since the measurement.
    pub(crate) fn about(
        best: Record,
        mut low: Record,
        mut high: Record,
        tasks: Option<u32>,
    ) -> Self {
        if low.cores >= best.cores {
            low = Record { cores: best.cores.saturating_sub(1), throughput: 0.0 };
        }
        if high.cores <= best.cores {
            high = Record { cores: best.cores + 1, throughput: 0.0 };
        }
        Bracket { low, best, high, values: Mean::default(), tasks }
    }

    /// The next bound to measure, at the golden section of the wider half. `None` if no bound is
    /// left.
    pub(crate) fn next(&self) -> Option<u32> {
        const SECTION: f64 = 0.381_966;
        let (below, above) = (self.best.cores - self.low.cores, self.high.cores - self.best.cores);
        let section =
            |width: u32| ((f64::from(width) * SECTION).round() as u32).clamp(1, width - 1);
        match (below, above) {
            (..=1, ..=1) => None,
            (below, above) if above >= below => Some(self.best.cores + section(above)),
            (below, _) => Some(self.best.cores - section(below)),
        }
    }

    /// Adds the measurement of a bound. Of two equally good bounds, the smaller becomes `best`.
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

    /// The better neighbour of `best`, if its throughput is so close that both must be measured
    /// again.
    pub(crate) fn rival(&self) -> Option<Record> {
        let rival = if self.high.throughput > self.low.throughput { self.high } else { self.low };
        (rival.throughput > (1.0 - CLOSE) * self.best.throughput).then_some(rival)
    }
}
