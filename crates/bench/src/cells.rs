//! Interleaved repeats: every cell of a table once per round, in an order that is shuffled anew each round.
//!
//! A machine drifts: its clock rate, its neighbours, its caches. Run one after the other, two cells would be compared across that drift; round by round they share it, and
//! a ratio is taken within a round.

use std::collections::BTreeMap;

use crate::interrupt::Interrupts;
use crate::progress::Progress;
use crate::statistics::Spread;

/// One measurement.
#[derive(Debug, Clone)]
pub struct Sample<S> {
    /// Index of the cell.
    pub cell: usize,
    /// Round, from 1.
    pub round: u32,
    /// What was measured.
    pub value: S,
}

/// All that was measured, complete or not.
#[derive(Debug)]
pub struct Samples<S> {
    /// In the order of measuring.
    pub all: Vec<Sample<S>>,
    /// Why it ended before the last round.
    pub ended_by: Option<anyhow::Error>,
}

/// Measures every cell once per round. A failure or a signal ends it and keeps what there is.
pub fn interleave<C, S>(
    cells: &[C],
    rounds: u32,
    seed: u64,
    name: impl Fn(&C) -> String,
    mut measure: impl FnMut(&C) -> anyhow::Result<S>,
) -> anyhow::Result<Samples<S>> {
    let interrupts = Interrupts::of_process()?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut order: Vec<usize> = (0..cells.len()).collect();
    let mut progress = Progress::new(u64::from(rounds) * cells.len() as u64, false);
    let mut done = 0;
    let mut samples = Samples { all: Vec::new(), ended_by: None };
    for round in 1..=rounds {
        random.shuffle(&mut order);
        for &cell in &order {
            progress.begin(&format!("round {round} of {rounds}: {}", name(&cells[cell])));
            let value = interrupts.check().map_err(Into::into).and_then(|()| measure(&cells[cell]));
            match value {
                Ok(value) => samples.all.push(Sample { cell, round, value }),
                Err(error) => {
                    progress.finish();
                    samples.ended_by = Some(interrupts.check().err().map_or(error, Into::into));
                    return Ok(samples);
                }
            }
            done += 1;
            progress.end();
        }
        progress.round(done);
    }
    progress.finish();
    Ok(samples)
}

impl<S> Samples<S> {
    /// What `metric` was in each round.
    pub fn by_round(&self, cell: usize, metric: impl Fn(&S) -> Option<f64>) -> BTreeMap<u32, f64> {
        let of_cell = self.all.iter().filter(|sample| sample.cell == cell);
        of_cell.filter_map(|sample| Some((sample.round, metric(&sample.value)?))).collect()
    }

    /// `metric` over all rounds.
    pub fn spread(&self, cell: usize, metric: impl Fn(&S) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.by_round(cell, metric).into_values())
    }

    /// `metric` of one cell divided by that of another, round by round.
    pub fn ratio(&self, cell: usize, to: usize, metric: impl Fn(&S) -> Option<f64>) -> Option<Spread> {
        let base = self.by_round(to, &metric);
        let rounds = self.by_round(cell, metric).into_iter();
        Spread::of(rounds.filter_map(|(round, value)| Some(value / base.get(&round).filter(|&&base| base > 0.0)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_once_per_round() {
        let cells = [10.0, 20.0, 30.0];
        let samples = interleave(&cells, 4, 1, f64::to_string, |&cell| Ok(cell)).expect("nothing fails");
        assert_eq!(samples.all.len(), 12);
        for round in 1..=4 {
            let mut seen: Vec<usize> =
                samples.all.iter().filter(|sample| sample.round == round).map(|sample| sample.cell).collect();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2]);
        }
        assert_eq!(samples.ratio(2, 0, |&value| Some(value)).map(|spread| spread.median), Some(3.0));
    }

    #[test]
    fn the_same_seed_gives_the_same_order() {
        let order = |seed| {
            let samples = interleave(&[0, 1, 2, 3, 4, 5], 3, seed, i32::to_string, |_| Ok(())).expect("nothing fails");
            samples.all.iter().map(|sample| sample.cell).collect::<Vec<_>>()
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
    }

    #[test]
    fn a_failure_keeps_what_was_measured() {
        let mut left = 2;
        let samples = interleave(
            &[(); 3],
            5,
            1,
            |()| String::new(),
            |()| {
                left -= 1;
                anyhow::ensure!(left >= 0, "broken");
                Ok(1.0)
            },
        );
        let samples = samples.expect("the failure is part of the result");
        assert_eq!(samples.all.len(), 2);
        assert_eq!(samples.ended_by.map(|error| error.to_string()).as_deref(), Some("broken"));
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let sample = |cell, round, value| Sample { cell, round, value };
        let samples = Samples {
            all: vec![sample(0, 1, 1.0), sample(1, 1, 2.0), sample(0, 2, 10.0), sample(1, 2, 30.0), sample(0, 3, 5.0)],
            ended_by: None,
        };
        let ratio = samples.ratio(1, 0, |&value| Some(value)).expect("two rounds have both");
        assert_eq!((ratio.count, ratio.min, ratio.max), (2, 2.0, 3.0));
    }
}
