//! The loop of every measurement: each cell once per round, in an order that is shuffled anew each
//! round.
//!
//! A machine drifts: its clock rate, its neighbours, its caches. Run one after the other, two cells
//! would be compared across that drift; round by round they share it.

use std::collections::HashSet;
use std::ops::Range;

use crate::progress::Progress;

/// What the order of a round depends on, beside the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Its number only, so that a continued measurement has the order that it would have had.
    ByNumber,
    /// The order of the round before.
    Onward,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A cell, by its index, is measured in a round.
    Measure(Turn),
    /// A round has ended: what there is should be kept.
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

/// The steps of a measurement, with its progress.
pub struct Rounds {
    steps: Box<dyn Iterator<Item = Step>>,
    progress: Progress,
    is_measuring: bool,
    done: u64,
}

impl Rounds {
    /// Over so many cells in rounds of these numbers, without what is `measured` already.
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
            let left: Vec<Step> = turns.filter(|turn| !measured.contains(turn)).map(Step::Measure).collect();
            left.into_iter().chain([Step::Keep])
        });
        Self { steps: Box::new(steps), progress: Progress::new(total, quiet), is_measuring: false, done: 0 }
    }

    /// Says what is being measured.
    pub fn begin(&self, name: &str) {
        self.progress.begin(name);
    }

    /// A line that stays.
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

/// The cells of each round, in order.
fn orders(cells: usize, numbers: Range<u32>, seed: u64, order: Order) -> impl Iterator<Item = (u32, Vec<usize>)> {
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
    fn every_round_has_every_cell_once_in_an_order_of_its_own() {
        for order in [Order::ByNumber, Order::Onward] {
            let of = |numbers| orders(9, numbers, 7, order).collect::<Vec<_>>();
            let all = of(0..6);
            assert!(all.iter().all(|(_, cells)| cells.iter().collect::<HashSet<_>>().len() == 9));
            assert!(all.iter().map(|(_, cells)| cells).collect::<HashSet<_>>().len() > 1);
            assert_eq!(all, of(0..6), "the seed alone determines it");
            assert_eq!(all[3..] == of(3..6)[..], order == Order::ByNumber);
        }
    }

    #[test]
    fn what_is_measured_is_passed_over_and_the_rest_is_in_the_same_order() {
        let all = turns(rounds(0..6, HashSet::new()));
        let before: HashSet<Turn> = all[..10].iter().copied().collect();
        assert_eq!(turns(rounds(0..6, before)), all[10..]);
    }

    #[test]
    fn each_round_is_kept() {
        let steps: Vec<Step> = rounds(1..3, HashSet::new()).collect();
        let kept: Vec<usize> = (0..steps.len()).filter(|&place| steps[place] == Step::Keep).collect();
        assert_eq!((steps.len(), kept), (10, vec![4, 9]));
    }
}
