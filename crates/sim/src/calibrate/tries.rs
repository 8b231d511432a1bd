//! Repeated measurements of a quantity.

use std::time::Instant;

use unconvoy_measure::statistics::Spread;

/// A measured value in nanoseconds, or the reason why there is none.
pub(super) type Outcome = Result<f64, &'static str>;

pub(super) const TRIES: usize = 15;

/// The median of [`TRIES`] measurements.
pub(super) fn median(measure: impl FnMut() -> f64) -> f64 {
    middle(std::iter::repeat_with(measure).take(TRIES))
}

pub(super) fn middle(values: impl Iterator<Item = f64>) -> f64 {
    Spread::of(values).map_or(f64::NAN, |spread| spread.median)
}

/// Time of one call of `call`, in nanoseconds.
pub(super) fn per_call(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 5_000;
    median(|| {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
    })
}
