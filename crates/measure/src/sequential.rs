//! Student's t-test and interval for a mean, and a schedule on which the test may be repeated while
//! values still arrive. Pure.
//!
//! A test that is repeated after each value errs more often than once (Armitage, McPherson and Rowe
//! 1969). A group-sequential design therefore tests only at fixed numbers of values, and spends the
//! error rate on these looks (Lan and DeMets, Biometrika 70, 1983). The looks here share it equally,
//! so that by Bonferroni's inequality the whole rate holds for dependent looks and at any stop. The
//! numbers of values grow by about a third, which halves the cost of the correction against one
//! look per value.

/// Numbers of values at which [`Sample::tail_below`] may be compared with a level.
pub const LOOKS: [usize; 10] = [3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Smallest standard deviation that is believed: programs with a coarse clock repeat themselves.
const LEAST_DEVIATION: f64 = 1e-4;

/// Mean and standard deviation of at least two values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Number of values.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
}

impl Sample {
    /// The sample of some values; `None` with fewer than two.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count < 2 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (count - 1) as f64).sqrt().max(LEAST_DEVIATION);
        Some(Self { count, mean, deviation })
    }

    /// The probability of a mean as low as this if the true mean were `bound` or more.
    pub fn tail_below(&self, bound: f64) -> f64 {
        let error = self.deviation / (self.count as f64).sqrt();
        tail((bound - self.mean) / error, self.count - 1)
    }

    /// Half the width of the interval that misses the true mean with probability `error`.
    pub fn margin(&self, error: f64) -> f64 {
        quantile(error / 2.0, self.count - 1) * self.deviation / (self.count as f64).sqrt()
    }

    /// The number of values for which [`Self::margin`] would be `margin`.
    pub fn count_for(&self, margin: f64, error: f64) -> usize {
        let enough = |count: &usize| {
            Self { count: *count, ..*self }.margin(error) <= margin || *count >= MOST_COUNTED
        };
        std::iter::successors(Some(2), |count| Some(count + 1 + count / 20))
            .find(enough)
            .unwrap_or(MOST_COUNTED)
    }
}

/// Limit of [`Sample::count_for`].
const MOST_COUNTED: usize = 1_000_000;

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
    fn sample_needs_two_values() {
        assert_eq!(Sample::of(&[1.0]), None);
        let sample = Sample::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((sample.count, sample.mean, sample.deviation), (3, 2.0, 1.0));
        assert!((sample.margin(0.05) - 4.303 / 3f64.sqrt()).abs() < 0.01);
        assert!(sample.tail_below(10.0) < 0.01 && sample.tail_below(-10.0) > 0.99);
    }

    #[test]
    fn count_for_halves_margin_with_four_times_the_values() {
        let sample = Sample { count: 5, mean: 0.0, deviation: 0.1 };
        let [wide, narrow] = [0.02, 0.01].map(|margin| sample.count_for(margin, 0.05) as f64);
        assert!((95.0..=110.0).contains(&wide), "{wide}");
        assert!((3.7..=4.3).contains(&(narrow / wide)), "{wide} {narrow}");
    }
}
