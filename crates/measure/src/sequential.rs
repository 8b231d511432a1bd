//! Tests and intervals for the centre of paired differences, and a schedule on which a test may be
//! repeated while values still arrive. Pure.
//!
//! **Two tests.** Student's t is the sharper one with few values, and needs normally distributed
//! ones. Wilcoxon's signed ranks (Biometrics Bulletin 1, 1945) need only symmetry, which
//! differences between runs in random order have, and are far sharper where single runs are
//! disturbed: on a machine that is slow for seconds, for example. Their interval is that of Hodges
//! and Lehmann (Annals of Mathematical Statistics 34, 1963). With few values they cannot reach a
//! small level. [`tail_below`] therefore uses both, each at half the level; [`Interval`] uses the
//! ranks from [`MANY`] values on, where they can reach its level.
//!
//! **Looks.** A test that is repeated after each value errs more often than once (Armitage,
//! McPherson and Rowe 1969). A group-sequential design therefore tests only at fixed numbers of
//! values, and spends the error rate on these looks (Lan and DeMets, Biometrika 70, 1983). The
//! looks here share it equally, so that by Bonferroni's inequality the whole rate holds for
//! dependent looks and at any stop. The numbers of values grow by about a third, which costs less
//! than one look per value.

/// Numbers of values at which [`tail_below`] may be compared with a level.
pub const LOOKS: [usize; 10] = [3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// From this number of values on, an interval is from ranks.
const MANY: usize = 8;

/// Smallest standard deviation that is believed: programs with a coarse clock repeat themselves.
const LEAST_DEVIATION: f64 = 1e-4;

/// The centre of some values, and an interval for the true one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Number of values.
    pub count: usize,
    /// Their mean, or with many values the median of the means of all pairs.
    pub centre: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// The interval that misses the true centre with probability `error` at most; `None` with fewer
    /// than two values.
    pub fn of(values: &[f64], error: f64) -> Option<Self> {
        let count = values.len();
        let by_ranks = (count >= MANY).then(|| Self::of_ranks(values, error)).flatten();
        by_ranks.or_else(|| {
            let (mean, deviation) = moments(values)?;
            let margin = quantile(error / 2.0, count - 1) * deviation / (count as f64).sqrt();
            Some(Self { count, centre: mean, low: mean - margin, high: mean + margin })
        })
    }

    /// The interval of Hodges and Lehmann; `None` if so few values have no rank sum as unlikely as
    /// `error`.
    fn of_ranks(values: &[f64], error: f64) -> Option<Self> {
        let count = values.len();
        let means = means_of_pairs(values);
        // On each side, as many means lie outside as the greatest sum that is unlikely enough.
        let tails = rank_parts(means.len() / 2, count).into_iter().scan(0.0, |tail, part| {
            *tail += part;
            Some(*tail)
        });
        let outside = tails.take_while(|tail| *tail <= error / 2.0).count().checked_sub(1)?;
        let [low, high] = [means[outside], means[means.len() - 1 - outside]];
        Some(Self { count, centre: middle(&means), low, high })
    }

    /// Half the width.
    pub fn margin(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The number of values for which [`Self::margin`] would probably be `margin`.
    pub fn count_for(&self, margin: f64) -> usize {
        let times = (self.margin() / margin).powi(2);
        (self.count as f64 * times).ceil().clamp(2.0, 1e6) as usize
    }
}

/// The centre of some values as in [`Interval`]; 0 without any.
pub fn centre(values: &[f64]) -> f64 {
    match values.len() {
        0 => 0.0,
        count if count < MANY => values.iter().sum::<f64>() / count as f64,
        _ => middle(&means_of_pairs(values)),
    }
}

/// Bounds the probability of values as low as these if their true centre were `bound` or more. The
/// standard deviation of fewer than eight values counts as `least` if it is smaller: a few runs may
/// agree because all of them were disturbed.
pub fn tail_below(values: &[f64], bound: f64, least: f64) -> f64 {
    let Some((mean, own)) = moments(values) else { return 1.0 };
    let deviation = if values.len() < MANY { own.max(least) } else { own };
    let error = deviation / (values.len() as f64).sqrt();
    let by_mean = tail((bound - mean) / error, values.len() - 1);
    let mut distances: Vec<f64> = values.iter().map(|value| value - bound).collect();
    distances.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let ranked = (1..).zip(&distances);
    let above: usize = ranked.filter(|(_, distance)| **distance >= 0.0).map(|(rank, _)| rank).sum();
    let count = values.len() as f64;
    let deviations = (count * (count + 1.0) / 4.0 - above as f64)
        / (count * (count + 1.0) * (2.0 * count + 1.0) / 24.0).sqrt();
    // Do not compute a probability that is far from any level.
    let by_ranks = if deviations < 2.0 { 1.0 } else { rank_tail(above, values.len()) };
    (2.0 * by_mean.min(by_ranks)).min(1.0)
}

/// Bounds the probability of values as low as these if their true centre were `bound` or more and
/// their standard deviation were known to be about `spread`, by `freedom` degrees of freedom. The
/// values' own deviation counts if it is greater.
pub fn tail_below_given(values: &[f64], bound: f64, spread: f64, freedom: usize) -> f64 {
    let Some((mean, own)) = moments(values) else { return 1.0 };
    let error = own.max(spread) / (values.len() as f64).sqrt();
    tail((bound - mean) / error, freedom)
}

/// Mean and standard deviation; `None` with fewer than two values.
fn moments(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (mean, (squares / (count - 1.0)).sqrt().max(LEAST_DEVIATION)))
}

/// The means of all pairs, those of a value with itself included, in order.
fn means_of_pairs(values: &[f64]) -> Vec<f64> {
    let pairs =
        (0..values.len()).flat_map(|first| (first..values.len()).map(move |it| (first, it)));
    let mut means: Vec<f64> =
        pairs.map(|(first, second)| f64::midpoint(values[first], values[second])).collect();
    means.sort_by(f64::total_cmp);
    means
}

fn middle(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// The probability that the ranks of the positive ones among `count` symmetric values sum up to at
/// most `sum`.
fn rank_tail(sum: usize, count: usize) -> f64 {
    rank_parts(sum, count).iter().sum()
}

/// The probability of each sum from 0 to `most`: the fraction of all sets of ranks that have it.
fn rank_parts(most: usize, count: usize) -> Vec<f64> {
    let mut parts = vec![0.0; most + 1];
    parts[0] = 1.0;
    for rank in 1..=count {
        for total in (0..=most).rev() {
            let with = if total >= rank { parts[total - rank] } else { 0.0 };
            parts[total] = (parts[total] + with) / 2.0;
        }
    }
    parts
}

/// The probability that Student's t exceeds `t`: the finite series for whole degrees of freedom
/// (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).
fn tail(t: f64, freedom: usize) -> f64 {
    // Beyond this many degrees of freedom, the normal distribution's tail is as good.
    let freedom = freedom.min(1000);
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let (mut term, mut sum) = if freedom % 2 == 1 { (cosine, 0.0) } else { (1.0, 0.0) };
    let first = 1 + freedom % 2;
    for index in (first..freedom).step_by(2) {
        sum += term;
        term *= cosine * cosine * index as f64 / (index + 1) as f64;
    }
    let within = match freedom {
        1 => angle * std::f64::consts::FRAC_2_PI,
        _ if freedom % 2 == 1 => (angle + sine * sum) * std::f64::consts::FRAC_2_PI,
        _ => sine * sum,
    };
    (1.0 - within) / 2.0
}

/// The value that Student's t exceeds with probability `level`, at most one half.
fn quantile(level: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if tail(middle, freedom) > level { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_agrees_with_printed_tables() {
        for (level, freedom, expected) in [
            (0.025, 1, 12.706),
            (0.025, 2, 4.303),
            (0.025, 3, 3.182),
            (0.025, 4, 2.776),
            (0.005, 7, 3.499),
            (0.0005, 2, 31.599),
            (0.0005, 5, 6.869),
            (0.0005, 30, 3.646),
            (0.025, 100_000, 1.960),
        ] {
            let found = quantile(level, freedom);
            assert!((found - expected).abs() < 0.003, "{level}, {freedom}: {found}");
        }
    }

    #[test]
    fn tail_is_symmetric() {
        for freedom in [1, 2, 5, 8] {
            assert!((tail(0.0, freedom) - 0.5).abs() < 1e-12);
            assert!((tail(1.3, freedom) + tail(-1.3, freedom) - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn interval_needs_two_values() {
        assert_eq!(Interval::of(&[1.0], 0.05), None);
        let few = Interval::of(&[1.0, 2.0, 3.0], 0.05).unwrap();
        assert!((few.centre - 2.0).abs() < 1e-12 && (few.margin() - 2.484).abs() < 0.01, "{few:?}");
        assert!(tail_below(&[1.0, 2.0, 3.0], 30.0, 0.0) < 0.01);
        assert!(tail_below(&[1.0, 2.0, 3.0], -10.0, 0.0) > 0.99);
    }

    #[test]
    fn few_agreeing_values_count_with_the_least_deviation() {
        let few = [-1.01, -1.0, -0.99];
        assert!(tail_below(&few, 0.0, 0.0) < 0.001 && tail_below(&few, 0.0, 0.5) > 0.05);
        let many = [-1.01, -1.0, -0.99, -1.02, -1.0, -0.98, -1.0, -1.01];
        assert_eq!(tail_below(&many, 0.0, 0.5), tail_below(&many, 0.0, 0.0));
    }

    #[test]
    fn ranks_agree_with_printed_tables() {
        // Critical values of the signed-rank test, two-sided 5 %.
        for (count, critical) in [(8, 3), (10, 8), (15, 25), (20, 52), (30, 137)] {
            assert!(rank_tail(critical, count) <= 0.025, "{count}");
            assert!(rank_tail(critical + 1, count) > 0.025, "{count}");
        }
    }

    #[test]
    fn interval_misses_centre_of_symmetric_values_at_most_as_often_as_stated() {
        for (count, error) in [(8, 0.05), (8, 0.01), (9, 0.05), (10, 0.05), (11, 0.02)] {
            // Each set of signs is as likely as any other.
            let misses = (0..1_u32 << count).filter(|signs| {
                let sign = |index: u32| if signs >> index & 1 == 0 { 1.0 } else { -1.0 };
                let value = |index: u32| sign(index) * f64::from(index + 1).powf(1.3);
                let it = Interval::of(&(0..count).map(value).collect::<Vec<_>>(), error).unwrap();
                it.low > 0.0 || it.high < 0.0
            });
            let rate = misses.count() as f64 / f64::from(1_u32 << count);
            assert!(rate <= error && rate > error / 2.0, "{count} values, {error}: {rate}");
        }
    }

    #[test]
    fn interval_of_an_error_too_small_for_ranks_is_students() {
        let values: Vec<f64> = (0..8).map(f64::from).collect();
        let [usual, sure] = [0.05, 0.0001].map(|error| Interval::of(&values, error).unwrap());
        assert!(sure.low < 0.0 && sure.high > 7.0 && usual.low >= 0.0, "{usual:?} {sure:?}");
    }

    #[test]
    fn disturbed_values_hardly_widen_an_interval_of_many() {
        let steady: Vec<f64> = (0..20).map(|index| f64::from(index * 7 % 20) * 0.002).collect();
        let mut disturbed = steady.clone();
        (disturbed[3], disturbed[11]) = (0.9, -0.8);
        let [steady, disturbed] = [steady, disturbed].map(|it| Interval::of(&it, 0.05).unwrap());
        assert!(disturbed.margin() < 1.6 * steady.margin(), "{steady:?} {disturbed:?}");
        assert!(disturbed.low < 0.02 && disturbed.high > 0.02);
        assert!((disturbed.centre - 0.02).abs() < 0.005, "{disturbed:?}");
    }

    #[test]
    fn count_for_half_the_margin_is_four_times_as_many() {
        let interval = Interval { count: 10, centre: 0.0, low: -0.04, high: 0.04 };
        assert_eq!((interval.count_for(0.04), interval.count_for(0.02)), (10, 40));
    }
}
