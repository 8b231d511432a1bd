//! Bounds and defaults of the settings.

use core::ops::RangeInclusive;

/// Default interval of the controller: 7 ms, the best in section 5.3 of the ASPLOS paper, and in
/// phase with no common timer tick.
pub const INTERVAL_NS: u64 = 7_000_000;
/// Default longest sleep: 100 ms (ASPLOS 2010, section 3.1.2).
pub const SLEEP_NS: u64 = 100_000_000;
/// Default mean sleep of [load-triggered backoff](super::backoff): the best in section 3.4 of the
/// DaMoN paper.
pub const BACKOFF_NS: u64 = 100_000_000;

/// Allowed intervals in milliseconds: wider than the sweep in Figure 10 of the ASPLOS paper.
pub const INTERVAL_MS: RangeInclusive<f64> = 0.5..=1000.0;
/// Allowed longest sleeps in milliseconds.
pub const SLEEP_MS: RangeInclusive<f64> = 1.0..=10_000.0;
/// Allowed periods of the profile's samples in milliseconds.
pub const PROFILE_PERIOD_MS: RangeInclusive<f64> = 0.001..=1000.0;
/// Allowed times between two writings of the metrics in milliseconds.
pub const METRICS_PERIOD_MS: RangeInclusive<f64> = 10.0..=3_600_000.0;
