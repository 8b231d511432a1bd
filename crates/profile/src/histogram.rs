//! Histograms of times, with buckets whose width grows with the time.

/// Number of buckets.
pub const BUCKETS: usize = 256;

/// Binary logarithm of the number of buckets between a time and its double.
const FINENESS: u32 = 3;

/// Binary logarithm of the upper bound of the first bucket in nanoseconds. Two clock reads take
/// longer than that.
const SHORTEST: u32 = 6;

/// Greatest relative error of a bucket's [`middle`]: half a bucket's width.
pub const ERROR: f64 = 1.0 / (1 << (FINENESS + 1)) as f64;

/// The bucket of a time in nanoseconds. The last bucket counts all times from 258 seconds on.
pub fn bucket(ns: u64) -> usize {
    if ns < 1 << SHORTEST {
        return 0;
    }
    let octave = ns.ilog2();
    let part = (ns >> (octave - FINENESS)) & ((1 << FINENESS) - 1);
    (((octave - SHORTEST) << FINENESS) as usize + part as usize).min(BUCKETS - 1)
}

/// The lower bound of a bucket in nanoseconds.
pub fn lower(bucket: usize) -> u64 {
    let (octave, part) = (bucket >> FINENESS, bucket & ((1 << FINENESS) - 1));
    ((1 << FINENESS) + part as u64) << (octave as u32 + SHORTEST - FINENESS)
}

/// The middle of a bucket in nanoseconds.
pub fn middle(bucket: usize) -> u64 {
    lower(bucket).midpoint(lower(bucket + 1))
}

/// The quantile of the counted times in nanoseconds, of which `longest` is the longest, to within
/// [`ERROR`] but for times in the last bucket: a `share` of the times does not exceed it. `None` if
/// nothing was counted.
pub fn quantile(counts: &[u64], longest: u64, share: f64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    let rank = (share * total as f64).ceil().max(1.0) as u64;
    let mut below = 0;
    counts.iter().enumerate().find_map(|(bucket, &count)| {
        below += count;
        let least = longest.max(lower(bucket)); // if the longest was not recorded
        let time = if bucket == BUCKETS - 1 { least } else { middle(bucket).min(least) };
        (below >= rank && count > 0).then_some(time)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_contains_its_bounds() {
        for index in 1..BUCKETS - 1 {
            assert_eq!(bucket(lower(index)), index);
            assert_eq!(bucket(lower(index + 1) - 1), index);
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }

    #[test]
    fn middle_is_within_error() {
        for ns in (64..1_000_000_000).step_by(9_999) {
            let error = (middle(bucket(ns)) as f64 - ns as f64).abs() / ns as f64;
            assert!(error <= ERROR, "{ns}: {error}");
        }
    }

    #[test]
    fn quantile_of_known_times() {
        let mut counts = [0; BUCKETS];
        assert_eq!(quantile(&counts, 0, 0.5), None);
        (1..=100).for_each(|ms| counts[bucket(ms * 1_000_000)] += 1);
        for (share, ms) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let found = quantile(&counts, 100_000_000, share).unwrap() as f64 / 1e6;
            assert!((found - ms).abs() / ms <= 2.0 * ERROR, "{share}: {found}");
        }
        let mut one = [0; BUCKETS];
        one[bucket(1_050_000)] = 1;
        assert_eq!(quantile(&one, 1_050_000, 0.5), Some(1_050_000), "not above the longest");
        counts[bucket(1_800_000_000_000)] = 1000;
        assert_eq!(quantile(&counts, 1_800_000_000_000, 0.5), Some(1_800_000_000_000));
    }
}
