use super::*;
use crate::set::tests::byte;
use fastrand::Rng;
use proptest::collection::vec;
use proptest::prelude::*;
use unconvoy_trace_stream::flag;

/// A section: lock, thread, words read, words written.
type Sampled = (u32, u32, Vec<u64>, Vec<u64>);

fn analyse(options: Options, sections: &[Sampled]) -> Vec<LockAnalysis> {
    let mut analysis = Analysis::new(options).unwrap();
    for (lock, thread, read, written) in sections {
        let read = read.iter().map(|address| byte(*address, false));
        let accesses: Vec<Access> =
            read.chain(written.iter().map(|address| byte(*address, true))).collect();
        analysis.section(Section { lock: *lock, thread: *thread, ..Section::default() }, accesses);
    }
    analysis.finish()
}

fn for_processors(processors: &[u32]) -> Options {
    Options { processors: processors.to_vec(), ..Options::default() }
}

#[test]
fn window_closes_at_n_threads() {
    // Threads 0 0 0 1 | 0 0 0 1 | ...
    let sections: Vec<Sampled> =
        (0..400).map(|index| (0, u32::from(index % 4 == 3), vec![0], vec![])).collect();
    let lock = &analyse(for_processors(&[2]), &sections)[0];
    assert_eq!((lock.estimates[0].windows, lock.estimates[0].partial), (100, false));
    assert_eq!((lock.sections, lock.threads, lock.words), (400, 2, 1.0));
}

#[test]
fn window_closes_at_512_sections() {
    let sections: Vec<Sampled> = (0..1100).map(|index| (0, index % 3, vec![0], vec![])).collect();
    let lock = &analyse(for_processors(&[8]), &sections)[0];
    assert_eq!((lock.estimates[0].windows, lock.estimates[0].byte.threads), (2, 3.0));
    // Three threads without conflict run three times as fast, and no faster on eight processors
    // (section 4.3).
    assert_eq!(
        (lock.estimates[0].byte.speed_up(), lock.estimates[0].byte.conflict_probability()),
        (3.0, 0.0)
    );
}

#[test]
fn open_window_counts_if_none_closed() {
    let sections: Vec<Sampled> = (0..10).map(|index| (0, index % 3, vec![], vec![0])).collect();
    let lock = &analyse(for_processors(&[2, 8]), &sections)[0];
    assert_eq!((lock.estimates[0].partial, lock.estimates[0].windows), (false, 5));
    assert_eq!((lock.estimates[1].partial, lock.estimates[1].windows), (true, 1));
    assert_eq!(lock.estimates[1].byte.speed_up(), 1.0);
}

/// One thread fills the first window alone, and no wider window has closed.
#[test]
fn width_without_closed_window_is_not_chosen() {
    let sections: Vec<Sampled> = (0..1200).map(|index| (0, index / 600, vec![], vec![0])).collect();
    let lock = &analyse(for_processors(&[8]), &sections)[0];
    let [estimates] = lock.estimates[..] else { panic!("one number") };
    assert_eq!((estimates.windows, estimates.sections), (2, 512));
    assert!(estimates.is_measured() && estimates.byte.density > 0.0, "{estimates:?}");
}

/// "Syncchar only compares critical regions protected by the same lock, across different threads"
/// (section 4.1).
#[test]
fn pairs_have_same_lock_and_different_threads() {
    let locks: Vec<Sampled> =
        (0..1000).map(|index| (index % 2, index % 2, vec![], vec![0])).collect();
    for lock in analyse(for_processors(&[2]), &locks) {
        assert_eq!((lock.pairs.compared, lock.estimates[0].byte.speed_up()), (0, 1.0));
    }
}

#[test]
fn retired_lock_keeps_results() {
    let mut analysis = Analysis::new(for_processors(&[2])).unwrap();
    let section = |thread| Section { lock: 3, thread, ..Section::default() };
    analysis.section(section(0), [byte(0, true)]);
    analysis.section(section(1), [byte(0, true)]);
    analysis.section(section(0), [byte(0, true)]);
    analysis.retire(3);
    // The third section was dropped; this one starts a window.
    analysis.section(section(1), [byte(0, true)]);
    let lock = &analysis.finish()[0];
    assert_eq!((lock.estimates[0].windows, lock.sections), (1, 4));
}

#[test]
fn io_is_never_independent() {
    let mut analysis = Analysis::new(for_processors(&[4])).unwrap();
    for index in 0..400u32 {
        let section = Section {
            lock: 0,
            thread: index % 4,
            flags: if index % 4 == 0 { flag::IO } else { 0 },
            ..Section::default()
        };
        analysis.section(section, [byte(u64::from(index % 4) * 64, true)]);
    }
    let lock = &analysis.finish()[0];
    // Thread 0 conflicts with the three others: a star.
    let estimate = lock.estimates[0].byte;
    assert_eq!((estimate.independence, estimate.conflicting, estimate.density), (1.0, 4.0, 2.0));
    assert_eq!((lock.io, lock.hot_spots.len(), lock.pairs.conflicting), (0.25, 0, 300));
}

/// Prob (section 5): writes a shared variable with probability one half, otherwise private data.
#[test]
fn prob_gains_by_independence() {
    let mut rng = Rng::with_seed(5);
    let sections: Vec<Sampled> = (0..320_000)
        .map(|index| {
            (
                0,
                index % 32,
                vec![],
                vec![if rng.bool() { 0 } else { 64 + u64::from(index % 32) * 64 }],
            )
        })
        .collect();
    let lock = &analyse(for_processors(&[8, 16, 32]), &sections)[0];
    for (estimates, n) in lock.estimates.iter().zip([8.0, 16.0, 32.0]) {
        // All conflicts are dense: only independence gains (Figure 6).
        assert_eq!(estimates.byte.density, estimates.byte.conflicting);
        assert!((estimates.byte.speed_up() / (n / 2.0) - 1.0).abs() < 0.03, "{estimates:?}");
    }
    assert_eq!((lock.hot_spots.len(), lock.hot_spots[0].share), (1, 1.0));
}

/// RW (section 5): one thread writes what all others read. Independence is 1, and all gain is in
/// the density (Figure 6).
#[test]
fn rw_gains_by_density() {
    let sections: Vec<Sampled> = (0..32_000u32)
        .map(|index| {
            (
                0,
                index % 32,
                vec![0; usize::from(index % 32 != 0)],
                vec![0; usize::from(index % 32 == 0)],
            )
        })
        .collect();
    let estimate = analyse(for_processors(&[32]), &sections)[0].estimates[0].byte;
    assert_eq!((estimate.independence, estimate.density, estimate.speed_up()), (1.0, 2.0, 31.0));
}

/// Section 4.2: at 10 % the results varied by less than 1 %.
#[test]
fn ten_percent_sample_is_within_one_percent() {
    let mut rng = Rng::with_seed(6);
    let sections: Vec<Sampled> =
        (0..1_000_000).map(|_| (0, rng.u32(..8), vec![], vec![64 * rng.u64(..32)])).collect();
    let all = analyse(for_processors(&[2, 8]), &sections).remove(0);
    let sampled = analyse(Options { one_in: 10, ..for_processors(&[2, 8]) }, &sections).remove(0);
    assert!((90_000..110_000).contains(&sampled.sections));
    for (all, sampled) in all.estimates.iter().zip(&sampled.estimates) {
        assert!(
            (sampled.byte.speed_up() / all.byte.speed_up() - 1.0).abs() < 0.01,
            "{all:?} {sampled:?}"
        );
    }
}

/// A tenth of the sections of data that change: each section writes the next of 128 words. Sections
/// near each other never conflict, and those of an independent tenth often do.
#[test]
fn burst_sees_neighbours() {
    let mut rng = Rng::with_seed(7);
    let sections: Vec<Sampled> =
        (0..400_000u64).map(|index| (0, rng.u32(..8), vec![], vec![8 * (index % 128)])).collect();
    let speed_up = |options: Options| {
        analyse(Options { window: 64, ..options }, &sections)[0].estimates[0].byte.speed_up()
    };
    let sampled = |sampling| speed_up(Options { one_in: 10, sampling, ..for_processors(&[8]) });
    let all = speed_up(for_processors(&[8]));
    assert!(all > 7.99, "{all}");
    let [bursts, independent] = [Sampling::Bursts, Sampling::Independent].map(sampled);
    assert!(bursts > 0.99 * all && independent < 0.98 * all, "{bursts} {independent}");
}

/// Threads that each take the lock `turn` times before the next one does.
fn in_turns(threads: u32, turn: usize, sections: usize) -> Vec<Sampled> {
    let mut rng = Rng::with_seed(8);
    (0..sections)
        .map(|index| (0, (index / turn) as u32 % threads, vec![], vec![8 * rng.u64(..32)]))
        .collect()
}

/// With turns longer than a window, the published window has one thread, so everything seems to be
/// serial or nothing does.
#[test]
fn window_widens_while_threads_take_turns() {
    let mixed = analyse(for_processors(&[4, 8]), &in_turns(8, 1, 400_000)).remove(0);
    let turns = in_turns(8, 2000, 400_000);
    let published = Options { widest: 1, ..for_processors(&[4, 8]) };
    let published = analyse(published, &turns).remove(0);
    let widened = analyse(for_processors(&[4, 8]), &turns).remove(0);
    for (index, mixed) in mixed.estimates.iter().enumerate() {
        let (published, widened) = (published.estimates[index], widened.estimates[index]);
        assert_eq!((mixed.sections, published.sections), (512, 512));
        assert!(published.byte.speed_up() < 0.5 * mixed.byte.speed_up(), "{published:?}");
        assert!(widened.sections > 512 && !widened.partial, "{widened:?}");
        assert!((widened.byte.speed_up() / mixed.byte.speed_up() - 1.0).abs() < 0.05);
    }
}

#[test]
fn window_widens_up_to_the_bound() {
    let turns = in_turns(8, 2000, 100_000);
    for widest in [1, 2, 4, 16] {
        let options = Options { widest, ..for_processors(&[8]) };
        let sections = analyse(options, &turns)[0].estimates[0].sections;
        assert_eq!(sections, 512 * if widest < 4 { 1 } else { widest });
    }
}

/// Four threads run, and then four others.
#[test]
fn more_processors_than_threads_change_nothing() {
    let sections = in_turns(2, 2_000, 100_000);
    let lock = analyse(for_processors(&[2, 4, 8]), &sections).remove(0);
    let of = |index: usize| &lock.estimates[index];
    assert!(of(0).byte.threads > 1.9, "{:?}", of(0));
    for more in [1, 2] {
        assert_eq!((of(more).byte, of(more).windows), (of(0).byte, of(0).windows));
    }
}

#[test]
fn window_stays_narrow_if_threads_change_between_phases() {
    let mut rng = Rng::with_seed(9);
    let sections: Vec<Sampled> =
        (0..200_000).map(|at| (0, rng.u32(..4) + at / 100_000 * 4, vec![], vec![0])).collect();
    let estimates = analyse(for_processors(&[8]), &sections)[0].estimates[0];
    assert_eq!((estimates.sections, estimates.byte.threads.round()), (512, 4.0));
}

/// Four threads share the lock; a fifth takes it once in 20,000 sections.
#[test]
fn window_does_not_wait_for_a_rare_thread() {
    let mut rng = Rng::with_seed(10);
    let thread = |at: u32, of_four: u32| if at.is_multiple_of(20_000) { 4 } else { of_four };
    let sections: Vec<Sampled> =
        (0..200_000).map(|at| (0, thread(at, rng.u32(..4)), vec![], vec![0])).collect();
    assert_eq!(analyse(for_processors(&[8]), &sections)[0].estimates[0].sections, 512);
}

/// One thread reads in 19 of 20 sections; three others take turns to write.
#[test]
fn read_only_share_is_that_of_all_sections() {
    let sections: Vec<Sampled> = (0..40_000)
        .map(|at| match at % 20 {
            19 => (0, 1 + at / 20 % 3, vec![], vec![0]),
            _ => (0, 0, vec![0], vec![]),
        })
        .collect();
    assert_eq!(analyse(for_processors(&[8]), &sections)[0].read_only, 0.95);
}

#[test]
fn invalid_options_are_rejected() {
    for processors in [vec![], vec![0], vec![2, MOST_PROCESSORS + 1]] {
        assert_eq!(
            Analysis::new(for_processors(&processors)).unwrap_err(),
            OptionsError::Processors
        );
    }
    for options in [
        Options { window: 0, ..Options::default() },
        Options { widest: 0, ..Options::default() },
        Options { draws: 0, ..Options::default() },
        Options { one_in: 0, ..Options::default() },
    ] {
        assert_eq!(Analysis::new(options).unwrap_err(), OptionsError::Zero);
    }
}

fn sampled() -> impl Strategy<Value = Vec<Sampled>> {
    let words = || vec((0..40u64).prop_map(|word| word * 8), 0..4);
    vec((0..3u32, 0..12u32, words(), words()), 0..300)
}

proptest! {
    #[test]
    fn estimates_are_within_bounds(sections in sampled(), draws in 1..4u32, window in 1..40u32) {
        let options = Options { draws, window, ..for_processors(&[1, 2, 8, 100]) };
        for lock in analyse(options, &sections) {
            for estimates in &lock.estimates {
                let n = f64::from(estimates.processors);
                prop_assert!(estimates.line.independence <= estimates.byte.independence);
                for estimate in [estimates.byte, estimates.line] {
                    prop_assert!((1.0..=n).contains(&estimate.independence));
                    prop_assert!((1.0 - 1e-9..=n + 1e-9).contains(&estimate.speed_up()));
                    prop_assert!((0.0..1.0).contains(&estimate.conflict_probability()));
                    prop_assert!(estimate.threads <= n.min(lock.threads as f64));
                }
            }
            prop_assert_eq!(lock.estimates[0].byte.speed_up(), 1.0);
        }
    }

    /// Renumbered threads and interleaved sections of other locks change nothing.
    #[test]
    fn renumbered_threads_and_interleaving_change_nothing(sections in sampled(), turn in 0..12u32) {
        let options = for_processors(&[2, 8]);
        let expected = analyse(options.clone(), &sections);
        let mut other = sections.clone();
        other.iter_mut().for_each(|section| section.1 = (section.1 + turn) % 12);
        // Stable, so that each lock's own order stays.
        other.sort_by_key(|section| section.0);
        prop_assert_eq!(analyse(options, &other), expected);
    }

    /// All write one byte: every estimate is 1, for any seed.
    #[test]
    fn common_write_gains_nothing(mut sections in sampled(), seed: u64) {
        sections.iter_mut().for_each(|section| section.3.push(0));
        for lock in analyse(Options { seed, ..for_processors(&[2, 8]) }, &sections) {
            for estimates in &lock.estimates {
                prop_assert_eq!(estimates.byte.independence, 1.0);
                prop_assert_eq!(estimates.byte.speed_up(), 1.0);
            }
        }
    }
}

#[test]
fn transfers_are_those_of_the_threads_that_take_the_lock() {
    let mut analysis =
        Analysis::new(Options { processors: vec![2, 32], ..Options::default() }).unwrap();
    for index in 0..2000 {
        let word = Access { address: 0x1000, read: 1, written: 1, ..Access::default() };
        analysis.section(Section { thread: index % 2, ..Section::default() }, [word]);
    }
    let [two, many] = analysis.finish()[0].estimates[..] else { panic!("two numbers") };
    assert_eq!((two.transfers, many.transfers), (1.0, 1.0));
}
