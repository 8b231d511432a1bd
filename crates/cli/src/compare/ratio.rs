//! The ratio of a configuration to the first one, with an interval. Pure.
//!
//! A ratio compares two runs of the same round, which share the machine's drift. Its interval is
//! therefore narrower than the spread of the runs suggests.

use std::collections::HashMap;

use serde::Serialize;
use unconvoy_measure::sequential::{Interval, centre};
use unconvoy_measure::statistics::FEWEST_RUNS;

use super::run::Run;

/// A mean that is farther from the centre deserves a warning.
const SKEW: f64 = 0.02;

/// Probability that an interval of the table misses the true ratio.
pub const ERROR_RATE: f64 = 0.05;

/// How many times as good one configuration is as the first. Above 1 is better, whichever way the
/// metric goes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The centre of the ratios within rounds.
    pub ratio: f64,
    /// Lower end of the 95 % interval; `None` with fewer than [`FEWEST_RUNS`] rounds.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The geometric mean, which single bad rounds move.
    #[serde(skip)]
    pub mean: f64,
    /// Whether there is an interval, and it excludes 1.
    pub differs: bool,
}

impl Ratio {
    /// Compares the runs of one thread count, with an interval that misses the true ratio with
    /// probability `error`. Leaves out rounds in which a metric is not positive; `None` if no round
    /// is left.
    pub fn of(these: &[&Run], first: &[&Run], lower_is_better: bool, error: f64) -> Option<Self> {
        let first: HashMap<u32, f64> = first.iter().map(|run| (run.round, run.metric)).collect();
        let logarithm = |run: &&Run| {
            let (this, first) = (run.metric, *first.get(&run.round)?);
            let ratio = if lower_is_better { first / this } else { this / first };
            (this > 0.0 && first > 0.0).then(|| ratio.ln()).filter(|it| it.is_finite())
        };
        let logarithms: Vec<f64> = these.iter().filter_map(logarithm).collect();
        let interval = Interval::of(&logarithms, error).filter(|it| it.count >= FEWEST_RUNS);
        let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
        (!logarithms.is_empty()).then(|| Self {
            ratio: centre(&logarithms).exp(),
            low: interval.map(|it| it.low.exp()),
            high: interval.map(|it| it.high.exp()),
            mean: mean.exp(),
            differs: interval.is_some_and(|it| it.low > 0.0 || it.high < 0.0),
        })
    }

    /// Whether the interval reaches at most the fraction `precision` to each side.
    pub fn is_within(&self, precision: f64) -> bool {
        self.half_width().is_some_and(|half| half <= precision)
    }

    /// Half the interval's width, as a fraction of the ratio.
    pub fn half_width(&self) -> Option<f64> {
        let (low, high) = self.low.zip(self.high)?;
        Some((high / low).sqrt() - 1.0)
    }

    /// The geometric mean, if it lies outside the interval and more than [`SKEW`] from the ratio.
    pub fn skewed_mean(&self) -> Option<f64> {
        let is_outside = |low, high| self.mean < low || self.mean > high;
        let is_skewed = self.low.zip(self.high).is_some_and(|(low, high)| is_outside(low, high));
        let distance = (self.mean / self.ratio).ln().abs();
        (is_skewed && distance > SKEW.ln_1p()).then_some(self.mean)
    }

    /// `1.42x (1.31 to 1.55)`.
    pub fn text(&self) -> String {
        // An interval that excludes 1 must not read as if it ended there.
        let ends_at_one = |end: Option<f64>| end.is_some_and(|end| digits(end) == "1.00");
        let is_fine = self.differs && (ends_at_one(self.low) || ends_at_one(self.high));
        let digits = |ratio: f64| if is_fine { format!("{ratio:.4}") } else { digits(ratio) };
        let ratio = digits(self.ratio);
        match (self.low, self.high) {
            (Some(low), Some(high)) => format!("{ratio}x ({} to {})", digits(low), digits(high)),
            _ => format!("{ratio}x"),
        }
    }
}

/// Formats with three significant digits or so.
fn digits(ratio: f64) -> String {
    match ratio {
        r if r >= 100.0 => format!("{r:.0}"),
        r if r >= 10.0 => format!("{r:.1}"),
        r if r < 0.1 => format!("{r:.3}"),
        r => format!("{r:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(values: &[f64]) -> Vec<Run> {
        let run = |(round, metric): (u32, f64)| Run {
            configuration: String::new(),
            threads: None,
            round,
            metric,
            operations: None,
            fairness: None,
            wall_s: 1.0,
            user_s: 0.0,
            system_s: 0.0,
            max_rss_kib: 0,
            voluntary_switches: 0,
            involuntary_switches: 0,
            exit_status: 0,
            load_average_before: None,
            transfer_ns: None,
        };
        (1..).zip(values.iter().copied()).map(run).collect()
    }

    fn ratio(these: &[f64], first: &[f64], lower_is_better: bool) -> Option<Ratio> {
        let (these, first) = (runs(these), runs(first));
        let [these, first] = [&these, &first].map(|runs| runs.iter().collect::<Vec<_>>());
        Ratio::of(&these, &first, lower_is_better, ERROR_RATE)
    }

    #[test]
    fn ratio_above_one_is_better_in_either_direction() {
        let [higher, lower] =
            [false, true].map(|lower| ratio(&[4.0, 4.1, 4.0], &[2.0; 3], lower).unwrap());
        assert!((higher.ratio * lower.ratio - 1.0).abs() < 1e-9 && higher.ratio > 2.0);
        assert!(higher.differs && higher.low.unwrap() > 1.9 && lower.high.unwrap() < 0.55);
    }

    #[test]
    fn drift_that_both_runs_of_a_round_share_does_not_widen_interval() {
        let first = [1.0, 2.0, 4.0, 3.0];
        let these = [1.1, 2.21, 4.39, 3.3];
        let ratio = ratio(&these, &first, false).unwrap();
        assert!(ratio.differs && ratio.is_within(0.01) && !ratio.is_within(0.001), "{ratio:?}");
        assert_eq!(ratio.text(), "1.10x (1.10 to 1.11)");
    }

    #[test]
    fn small_difference_does_not_read_as_none() {
        let loss = ratio(&[0.996, 0.9961, 0.9959, 0.996], &[1.0; 4], false).unwrap();
        assert_eq!((loss.differs, &*loss.text()), (true, "0.9960x (0.9958 to 0.9962)"));
    }

    #[test]
    fn rare_collapse_shows_in_the_mean() {
        let (mut these, first) = ([1.03; 20], [1.0; 20]);
        assert_eq!(ratio(&these, &first, false).unwrap().skewed_mean(), None);
        these[3] = 0.5;
        these[11] = 0.5;
        let ratio = ratio(&these, &first, false).unwrap();
        let mean = ratio.skewed_mean().expect("two runs at half speed");
        assert!(ratio.low.unwrap() > 1.02 && mean < 0.97, "{ratio:?}");
    }

    #[test]
    fn few_rounds_have_no_interval() {
        for values in [&[2.0][..], &[2.0, 2.0]] {
            let few = ratio(values, &[1.0, 1.0], false).unwrap();
            assert_eq!((few.low, few.differs, few.text()), (None, false, "2.00x".to_string()));
            assert!(!few.is_within(0.5));
        }
        let three = ratio(&[2.0, 2.1, 2.0], &[1.0; 3], false).unwrap();
        assert!(three.low.is_some() && three.differs);
    }

    #[test]
    fn rounds_without_positive_metric_do_not_count() {
        assert_eq!(ratio(&[1.0; 3], &[0.0; 3], false), None);
        assert_eq!(ratio(&[1.0, 0.0], &[1.0, 2.0], false), ratio(&[1.0], &[1.0], false));
    }
}
