use super::*;
use crate::set::Granularity;
use crate::set::tests::{byte, table_1};
use proptest::collection::vec;
use proptest::prelude::*;
use unconvoy_trace_stream::WORD;

#[test]
fn table_1_sample_is_a_star() {
    let (bytes, lines) = compare(&table_1());
    // Section 3 conflicts with both others: all three are in C_n, a star.
    assert_eq!(bytes, Outcome { threads: 3, conflicting: 3, pairs: 2 });
    assert_eq!(bytes.density(), 2.0);
    assert_eq!(lines, Outcome { threads: 3, conflicting: 3, pairs: 3 });
    let [first, second, _] = table_1();
    assert_eq!(compare(&[first, second]).0, Outcome { threads: 2, conflicting: 0, pairs: 0 });
}

/// The conflicting word in Table 1 is the left pointer of the root.
#[test]
fn table_1_hot_spot_is_the_left_pointer() {
    let mut conflicts = Conflicts::default();
    let sets = table_1();
    Comparison::default().compare(&[&sets[0], &sets[1], &sets[2]], &mut conflicts);
    let [hot] = &conflicts.hot_spots(10)[..] else { panic!("one word") };
    assert_eq!((hot.address, hot.pairs, hot.share, hot.alone), (0x1030, 2, 1.0, 1.0));
    assert_eq!((hot.uses.read, hot.uses.stored), (2, 1));
    assert_eq!((conflicts.compared, conflicts.on_bytes, conflicts.on_lines_only), (3, 2, 1));
    assert_eq!(conflicts.patterns[usize::from(pattern::READ)], 2);
    // Sections 1 and 2 share two lines falsely: 0x3000 and 0x3032 are in one line, 0x2000 and
    // 0x2032 in another. 0x1000 and 0x1032 also share a line.
    let lines: Vec<_> =
        conflicts.false_sharing(10).iter().map(|line| (line.address, line.pairs)).collect();
    assert_eq!(lines, [(0x2000, 1), (0x3000, 1)]);
}

fn sample() -> impl Strategy<Value = Vec<AddressSet>> {
    // Few words, so that sections overlap in bytes and in lines.
    let access = (0..24u64, any::<u8>(), any::<u8>(), 0..8u8, 0..3u32, 0..3u32).prop_map(
        |(word, read, written, kind, r, w)| {
            let (read, written) = if kind < 5 { (read | 1, 0) } else { (read, written | 1) };
            Access { address: word * WORD, read, written, read_place: r, written_place: w }
        },
    );
    let set = (vec(access, 0..8), prop::bool::weighted(0.05))
        .prop_map(|(accesses, io)| AddressSet::new(accesses).with_io(io));
    vec(set, 1..68)
}

/// The outcome by definition: all pairs intersected.
fn defined(sample: &[AddressSet], granularity: Granularity) -> Outcome {
    let meets = |a: usize, b: usize| a != b && sample[a].conflicts(&sample[b], granularity);
    let degrees: Vec<u32> = (0..sample.len())
        .map(|a| (0..sample.len()).filter(|b| meets(a, *b)).count() as u32)
        .collect();
    Outcome {
        threads: sample.len() as u32,
        conflicting: degrees.iter().filter(|degree| **degree > 0).count() as u32,
        pairs: degrees.iter().sum::<u32>() / 2,
    }
}

proptest! {
    #[test]
    fn outcome_equals_definition(sample in sample()) {
        let (bytes, lines) = compare(&sample);
        prop_assert_eq!(bytes, defined(&sample, Granularity::Byte));
        prop_assert_eq!(lines, defined(&sample, Granularity::Line));
    }

    #[test]
    fn outcome_is_within_bounds(sample in sample()) {
        let n = sample.len() as u32;
        for outcome in [compare(&sample).0, compare(&sample).1] {
            prop_assert!((1..=n).contains(&outcome.independence()));
            let (conflicting, density) = (f64::from(outcome.conflicting), outcome.density());
            prop_assert!(density <= conflicting + 1e-9);
            let speed_up = f64::from(outcome.independence()) + (conflicting - density);
            prop_assert!((1.0 - 1e-9..=f64::from(n) + 1e-9).contains(&speed_up), "{speed_up}");
        }
    }

    /// Neither the order of sections nor that of accesses matters.
    #[test]
    fn permuted_sample_has_same_outcome(sample in sample(), seed in any::<u64>()) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut shuffled: Vec<AddressSet> = sample
            .iter()
            .map(|set| {
                let mut accesses = set.accesses().to_vec();
                rng.shuffle(&mut accesses);
                AddressSet::new(accesses).with_io(set.io())
            })
            .collect();
        rng.shuffle(&mut shuffled);
        prop_assert_eq!(compare(&sample), compare(&shuffled));
    }

    /// One more access, or a coarser unit, never reduces conflicts.
    #[test]
    fn more_accesses_never_reduce_conflicts(
        sample in sample(),
        which in any::<prop::sample::Index>(),
        address in 0..24 * WORD,
        written: bool,
    ) {
        let (bytes, lines) = compare(&sample);
        prop_assert!(lines.independence() <= bytes.independence() && lines.pairs >= bytes.pairs);
        let mut more = sample.clone();
        let which = which.index(more.len());
        let extended = more[which].accesses().iter().copied().chain([byte(address, written)]);
        more[which] = AddressSet::new(extended).with_io(more[which].io());
        let (more_bytes, more_lines) = compare(&more);
        for (before, after) in [(bytes, more_bytes), (lines, more_lines)] {
            prop_assert!(after.independence() <= before.independence());
            prop_assert!(after.pairs >= before.pairs);
        }
    }

    /// All sections write one byte: nothing is gained.
    #[test]
    fn common_write_makes_all_conflict(sample in sample()) {
        prop_assume!(sample.len() > 1);
        let all: Vec<AddressSet> = sample
            .iter()
            .map(|set| AddressSet::new(set.accesses().iter().copied().chain([byte(0x1000, true)])))
            .collect();
        let (bytes, _) = compare(&all);
        prop_assert_eq!(bytes.independence(), 1);
        prop_assert_eq!(bytes.density(), f64::from(bytes.threads));
    }

    /// Shares are at most 1, and `alone` is at most `share`.
    #[test]
    fn hot_spot_shares_are_consistent(sample in sample()) {
        let mut conflicts = Conflicts::default();
        let sets: Vec<&AddressSet> = sample.iter().collect();
        Comparison::default().compare(&sets, &mut conflicts);
        let spots = conflicts.hot_spots(usize::MAX);
        for spot in &spots {
            prop_assert!(spot.share <= 1.0 && spot.alone <= spot.share);
        }
        prop_assert!(spots.iter().map(|spot| spot.alone).sum::<f64>() <= 1.0 + 1e-9);
        prop_assert!(spots.iter().map(|spot| spot.pairs).sum::<u64>() >= conflicts.on_bytes);
        prop_assert_eq!(spots.len() as u64, conflicts.histogram().words.iter().sum::<u64>());
    }
}
