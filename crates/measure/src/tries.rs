//! Repeated measurements of a quantity of this machine.

use std::time::Instant;

use crate::statistics::Spread;

/// Number of measurements whose median counts.
pub const TRIES: usize = 15;

/// The median of [`TRIES`] measurements.
pub fn median(measure: impl FnMut() -> f64) -> f64 {
    middle(std::iter::repeat_with(measure).take(TRIES))
}

/// The median of some values; NaN without values.
pub fn middle(values: impl Iterator<Item = f64>) -> f64 {
    Spread::of(values).map_or(f64::NAN, |spread| spread.median)
}

/// Time of one call of `call`, in nanoseconds.
pub fn per_call(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 5_000;
    median(|| {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
    })
}
