//! How a quantity is measured: often.

use std::time::Instant;

use unconvoy_measure::statistics::Spread;

/// What a quantity's measurement came to: nanoseconds, or why there are none.
pub(super) type Outcome = Result<f64, &'static str>;

/// Tries of which the median counts.
pub(super) const TRIES: usize = 15;

/// The median of some tries.
pub(super) fn median(measure: impl FnMut() -> f64) -> f64 {
    middle(std::iter::repeat_with(measure).take(TRIES))
}

/// The median of `values`.
pub(super) fn middle(values: impl Iterator<Item = f64>) -> f64 {
    Spread::of(values).map_or(f64::NAN, |spread| spread.median)
}

/// Nanoseconds that one call of `call` takes.
pub(super) fn per_call(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 5_000;
    median(|| {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
    })
}
