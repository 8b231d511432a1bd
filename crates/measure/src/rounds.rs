//! The loop of every measurement: each round measures every cell once, in random order.
//!
//! A machine drifts: its clock rate, caches and other programs change. The cells of a round share
//! this drift. They would not if all runs of one cell preceded those of the next.

use std::collections::HashSet;
use std::ops::Range;

use crate::progress::Progress;

/// What determines a round's order, besides the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The round's number only, so that a resumed measurement keeps its order.
    ByNumber,
    /// The previous round's order.
    Onward,
}

/// A step of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Measure a cell in a round.
    Measure(Turn),
    /// Save the results: a round has ended.
    Keep,
}

/// One cell in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Turn {
    /// Index of the cell.
    pub cell: usize,
    /// Number of the round.
    pub round: u32,
}

/// Iterator over a measurement's steps, with progress.
pub struct Rounds {
    steps: Box<dyn Iterator<Item = Step>>,
    progress: Progress,
    is_measuring: bool,
    done: u64,
}

impl Rounds {
    /// Creates the steps for `cells` cells in the rounds `numbers`, except the turns in
    /// `measured`.
    pub fn new(
        cells: usize,
        numbers: Range<u32>,
        seed: u64,
        order: Order,
        measured: HashSet<Turn>,
        quiet: bool,
    ) -> Self {
        let total = numbers.len() as u64 * cells as u64 - measured.len() as u64;
        let steps = orders(cells, numbers, seed, order).flat_map(move |(round, order)| {
            let turns = order.into_iter().map(|cell| Turn { cell, round });
            let left: Vec<Step> =
                turns.filter(|turn| !measured.contains(turn)).map(Step::Measure).collect();
            left.into_iter().chain([Step::Keep])
        });
        Self {
            steps: Box::new(steps),
            progress: Progress::new(total, quiet),
            is_measuring: false,
            done: 0,
        }
    }

    /// Shows the cell being measured.
    pub fn begin(&self, name: &str) {
        self.progress.begin(name);
    }

    /// Prints a permanent line.
    pub fn note(&self, line: &str) {
        self.progress.note(line);
    }
}

impl Iterator for Rounds {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if std::mem::take(&mut self.is_measuring) {
            self.done += 1;
            self.progress.end();
        }
        let step = self.steps.next()?;
        match step {
            Step::Measure(_) => self.is_measuring = true,
            Step::Keep => self.progress.round(self.done),
        }
        Some(step)
    }
}

impl Drop for Rounds {
    fn drop(&mut self) {
        self.progress.finish();
    }
}

/// Returns the order of the cells in each round.
fn orders(
    cells: usize,
    numbers: Range<u32>,
    seed: u64,
    order: Order,
) -> impl Iterator<Item = (u32, Vec<usize>)> {
    let first: Vec<usize> = (0..cells).collect();
    let (mut cells, mut random) = (first.clone(), fastrand::Rng::with_seed(seed));
    numbers.map(move |number| {
        if order == Order::ByNumber {
            random = fastrand::Rng::with_seed(seed.wrapping_add(u64::from(number)));
            cells.clone_from(&first);
        }
        random.shuffle(&mut cells);
        (number, cells.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(numbers: Range<u32>, measured: HashSet<Turn>) -> Rounds {
        Rounds::new(4, numbers, 7, Order::ByNumber, measured, true)
    }

    fn turns(rounds: Rounds) -> Vec<Turn> {
        let turn = |step| if let Step::Measure(turn) = step { Some(turn) } else { None };
        rounds.filter_map(turn).collect()
    }

    #[test]
    fn round_has_every_cell_once_in_its_own_order() {
        for order in [Order::ByNumber, Order::Onward] {
            let of = |numbers| orders(9, numbers, 7, order).collect::<Vec<_>>();
            let all = of(0..6);
            assert!(all.iter().all(|(_, cells)| cells.iter().collect::<HashSet<_>>().len() == 9));
            assert!(all.iter().map(|(_, cells)| cells).collect::<HashSet<_>>().len() > 1);
            assert_eq!(all, of(0..6), "the order depends on the seed alone");
            assert_eq!(all[3..] == of(3..6)[..], order == Order::ByNumber);
        }
    }

    #[test]
    fn measured_turns_are_skipped_without_reordering() {
        let all = turns(rounds(0..6, HashSet::new()));
        let before: HashSet<Turn> = all[..10].iter().copied().collect();
        assert_eq!(turns(rounds(0..6, before)), all[10..]);
    }

    #[test]
    fn every_round_ends_with_keep() {
        let steps: Vec<Step> = rounds(1..3, HashSet::new()).collect();
        let kept: Vec<usize> =
            (0..steps.len()).filter(|&place| steps[place] == Step::Keep).collect();
        assert_eq!((steps.len(), kept), (10, vec![4, 9]));
    }
}
