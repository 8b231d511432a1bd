//! How the time is divided. Pure.

use std::time::Duration;

use unconvoy_measure::chart::quantity::seconds;
use unconvoy_measure::sequential::Interval;

use super::candidates::Stage;
use super::race::WORTH;
use super::record::{Record, Run};
use crate::messages::search as messages;

/// Part of the time after the profile for the confirmation.
const CONFIRMATION: f64 = 0.35;
/// Part of the time for trials that configurations of the whole process may take if single locks
/// are tried, too.
const PROCESS: f64 = 0.6;
/// A trial of fewer rounds shows little.
const ROUNDS: f64 = 4.0;
/// Rounds of the confirmation, if time permits: a few trials may agree by chance, and a program
/// that needs more varies too much for any comparison.
const FRESH: [usize; 2] = [12, 1000];
/// The confirmation measures a large difference only to this part of the difference.
const PRECISION: f64 = 0.1;
/// Fewest fresh rounds: two have an interval, but hardly ever a narrow one.
const FEWEST: f64 = 3.0;
/// libc, the default and the best.
const CONFIRMED: f64 = 3.0;

/// The time after the first run and the profile, in seconds since the start.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    from_s: f64,
    until_s: f64,
    /// One run at each thread count under libc.
    run_s: f64,
    /// Number of thread counts.
    counts: usize,
    /// Part of the time for trials that configurations of the whole process may take.
    process: f64,
}

impl Budget {
    /// The time that is left. `overhead_s` is that of a run; `tries_locks`: single locks are tried,
    /// too.
    pub fn new(record: &Record, elapsed_s: f64, overhead_s: f64, tries_locks: bool) -> Self {
        let first = record.round(Stage::First, 1);
        let run_s = first.map(|run| run.wall_s + overhead_s).sum();
        let process = if tries_locks { PROCESS } else { 1.0 };
        let counts = record.plan.threads.len();
        Budget { from_s: elapsed_s, until_s: record.plan.budget_s, run_s, counts, process }
    }

    fn trials(&self) -> f64 {
        (self.until_s - self.from_s) * (1.0 - CONFIRMATION)
    }

    /// Whether the confirmation ends before this round, which takes `round_s`.
    pub fn ends_before(&self, round: usize, elapsed_s: f64, round_s: f64) -> bool {
        round as f64 > FEWEST && elapsed_s + round_s > self.until_s
    }

    /// The end of the budget.
    pub fn until(&self) -> f64 {
        self.until_s
    }

    /// When the trials of configurations of the whole process end.
    pub fn process_until(&self) -> f64 {
        self.capped(self.from_s + self.process * self.trials())
    }

    /// When the trials of entries for single locks end.
    pub fn locks_until(&self) -> f64 {
        self.capped(self.from_s + self.trials())
    }

    /// When the trials of two locks' entries together end.
    pub fn combination_until(&self) -> f64 {
        self.capped(self.from_s + 1.1 * self.trials())
    }

    /// Leaves time for the fewest rounds of the confirmation.
    fn capped(&self, until_s: f64) -> f64 {
        until_s.min(self.until_s - self.confirmation())
    }

    /// The least time for a confirmation.
    fn confirmation(&self) -> f64 {
        FEWEST * CONFIRMED * self.run_s
    }

    /// The number of configurations besides libc and the default for which the time suffices.
    pub fn configurations(&self) -> usize {
        let fit = self.process * self.trials() / (ROUNDS * self.run_s);
        ((fit - 2.0).max(1.0)) as usize
    }

    /// The number of candidates with entries, likewise.
    pub fn entries(&self) -> usize {
        let fit = (1.0 - self.process) * self.trials() / (ROUNDS * self.run_s);
        ((fit - 1.0).max(0.0)) as usize
    }

    /// Checks that a confirmation fits.
    ///
    /// # Errors
    ///
    /// What to say to the user.
    pub fn check(&self) -> Result<(), String> {
        let least = self.confirmation();
        let enough = self.from_s + least / CONFIRMATION + ROUNDS * CONFIRMED * self.run_s;
        if self.until_s - self.from_s < least {
            let minutes = (enough / 60.0).ceil();
            let run = seconds(self.run_s / self.counts as f64);
            return Err(messages::budget_too_small(&run, minutes as u64));
        }
        Ok(())
    }
}

/// Overhead of a run before one was measured, in seconds.
pub const ASSUMED_OVERHEAD: f64 = 0.02;

/// Time of runs besides the program's own: the start, the measurement of the machine, and the
/// writing of the record.
#[derive(Debug, Clone, Copy, Default)]
pub struct Overhead {
    seconds: f64,
    runs: usize,
}

impl Overhead {
    /// Adds `runs`, which took `elapsed_s` together.
    pub fn add(&mut self, elapsed_s: f64, runs: &[Run]) {
        let walls: f64 = runs.iter().map(|run| run.wall_s).sum();
        self.seconds += (elapsed_s - walls).max(0.0);
        self.runs += runs.len();
    }

    /// The mean overhead of a run, in seconds.
    pub fn of_run(&self) -> f64 {
        if self.runs == 0 { ASSUMED_OVERHEAD } else { self.seconds / self.runs as f64 }
    }
}

/// The longest time for the profile.
pub fn profile(record: &Record, elapsed_s: f64) -> Duration {
    let longest = record.runs.iter().map(|run| run.wall_s).fold(0.0, f64::max);
    let tenth = (record.plan.budget_s - elapsed_s) / 10.0;
    Duration::from_secs_f64((longest * 1.5 + 1.0).min(tenth).max(1.0))
}

/// How long one round of a candidate probably takes: its mean time, or else libc's. `overhead_s` is
/// that of a run.
pub fn round_seconds(record: &Record, candidate: usize, overhead_s: f64) -> f64 {
    let of = |wanted: usize| {
        let walls: Vec<f64> = record
            .runs
            .iter()
            .filter(|run| run.candidate == wanted)
            .map(|run| run.wall_s + overhead_s)
            .collect();
        (!walls.is_empty()).then(|| walls.iter().sum::<f64>() / walls.len() as f64)
    };
    let run = of(candidate).or_else(|| of(0)).unwrap_or_default();
    run * record.plan.threads.len() as f64
}

/// The number of fresh rounds, at most `left`. They suffice to know each of these differences to
/// 1 %, or a large one to a tenth of it, if the noise is that of the trials. `None` is a difference
/// that the trials did not show, and that may be small.
pub fn confirmation_rounds(trials: &[Option<Interval>], left: f64) -> usize {
    let precision = if trials.contains(&None) { 0.0 } else { PRECISION };
    let rounds = |it: &Interval| it.count_for((precision * it.centre.abs()).max(WORTH / 2.0));
    let wanted = trials.iter().flatten().map(rounds).max().unwrap_or(FRESH[0]);
    wanted.clamp(FRESH[0], FRESH[1]).min(left.max(FEWEST) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(run_s: f64) -> Budget {
        Budget { from_s: 10.0, until_s: 300.0, run_s, counts: 2, process: PROCESS }
    }

    #[test]
    fn long_runs_leave_few_configurations() {
        assert!(budget(0.5).configurations() >= 13);
        assert!((1..=4).contains(&budget(5.0).configurations()));
        assert_eq!((budget(30.0).configurations(), budget(30.0).entries()), (1, 0));
        assert!(budget(30.0).check().is_ok());
        let why = budget(60.0).check().unwrap_err();
        assert!(why.contains("30.0 s") && why.contains("--budget 38m"), "{why}");
    }

    #[test]
    fn parts_are_in_order_and_leave_a_confirmation() {
        let budget = budget(1.0);
        assert!(budget.process_until() < budget.locks_until());
        assert!(budget.until() - budget.locks_until() > 90.0);
    }

    /// The search took up to twice its budget.
    #[test]
    fn long_runs_leave_time_for_a_confirmation() {
        let budget = budget(20.0);
        for until in [budget.process_until(), budget.locks_until(), budget.combination_until()] {
            assert!(until <= budget.until() - 9.0 * 20.0, "{until}");
        }
    }

    /// Short runs took up to three times the budget.
    #[test]
    fn overhead_is_that_of_the_runs_so_far() {
        let mut overhead = Overhead::default();
        assert_eq!(overhead.of_run(), ASSUMED_OVERHEAD);
        let run = |wall_s| Run {
            stage: Stage::Process,
            round: 1,
            candidate: 0,
            threads: None,
            metric: 1.0,
            wall_s,
            transfer_ns: None,
        };
        overhead.add(2.0, &[run(0.5), run(0.5)]);
        overhead.add(0.5, &[run(0.5), run(0.5)]);
        assert_eq!(overhead.of_run(), 0.25);
    }

    #[test]
    fn confirmation_ends_with_the_budget_after_its_fewest_rounds() {
        let budget = budget(1.0);
        assert!(budget.ends_before(4, 299.0, 2.0) && !budget.ends_before(4, 299.0, 0.5));
        assert!(!budget.ends_before(3, 400.0, 2.0));
    }

    #[test]
    fn without_locks_to_try_more_configurations_are() {
        let [with, without] = [PROCESS, 1.0].map(|process| Budget { process, ..budget(3.0) });
        assert!(without.configurations() > with.configurations());
        assert_eq!((without.entries(), without.process_until()), (0, without.locks_until()));
    }

    fn difference(centre: f64, margin: f64) -> Option<Interval> {
        Some(Interval { count: 8, centre, low: centre - margin, high: centre + margin })
    }

    #[test]
    fn confirmation_has_more_rounds_with_more_noise() {
        let rounds = |margin, left| confirmation_rounds(&[difference(0.0, margin)], left);
        assert_eq!(confirmation_rounds(&[], 100.0), FRESH[0]);
        assert_eq!(rounds(0.001, 100.0), FRESH[0]);
        assert!((10..=30).contains(&rounds(0.015, 100.0)));
        assert_eq!((rounds(0.2, 100.0), rounds(0.2, 5000.0)), (100, FRESH[1]));
        assert_eq!(rounds(0.2, 7.9), 7);
        assert_eq!(rounds(0.2, -3.0), 3);
    }

    #[test]
    fn clear_difference_is_confirmed_in_few_rounds() {
        let (clear, open) = (difference(0.5, 0.03), difference(0.01, 0.03));
        assert_eq!(confirmation_rounds(&[clear], 100.0), FRESH[0]);
        assert!((60..=100).contains(&confirmation_rounds(&[clear, open], 100.0)));
        assert!((60..=100).contains(&confirmation_rounds(&[clear, None], 100.0)));
    }
}
