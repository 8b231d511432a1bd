//! Bounds and defaults of the settings.

use core::ops::RangeInclusive;

/// Default interval of the controller: 7 ms, the best of the ASPLOS paper's section 5.3, and in
/// phase with no common tick.
pub const INTERVAL_NS: u64 = 7_000_000;
/// Default longest sleep: 100 ms (ASPLOS 2010, section 3.1.2).
pub const SLEEP_NS: u64 = 100_000_000;
/// Default mean sleep of [load-triggered backoff](super::backoff): the best of the DaMoN paper's
/// (section 3.4).
pub const BACKOFF_NS: u64 = 100_000_000;

/// Milliseconds that the interval may have: beyond what the ASPLOS paper's Figure 10 sweeps.
pub const INTERVAL_MS: RangeInclusive<f64> = 0.5..=1000.0;
/// Milliseconds that the longest sleep may have.
pub const SLEEP_MS: RangeInclusive<f64> = 1.0..=10_000.0;
