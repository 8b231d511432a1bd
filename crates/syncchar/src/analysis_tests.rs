use super::*;
use crate::set::tests::byte;
use fastrand::Rng;
use proptest::collection::vec;
use proptest::prelude::*;
use unconvoy_trace_stream::flag;

/// A section: lock, thread, the words it reads and those it writes.
type Told = (u32, u32, Vec<u64>, Vec<u64>);

fn analyse(options: Options, sections: &[Told]) -> Vec<LockAnalysis> {
    let mut analysis = Analysis::new(options).unwrap();
    for (lock, thread, read, written) in sections {
        let read = read.iter().map(|address| byte(*address, false));
        let accesses: Vec<Access> = read.chain(written.iter().map(|address| byte(*address, true))).collect();
        analysis.section(Section { lock: *lock, thread: *thread, ..Section::default() }, accesses);
    }
    analysis.finish()
}

fn for_processors(processors: &[u32]) -> Options {
    Options { processors: processors.to_vec(), ..Options::default() }
}

#[test]
fn a_window_closes_when_all_threads_were_seen() {
    // Threads 0 0 0 1 | 0 0 0 1 | ...
    let sections: Vec<Told> = (0..400).map(|index| (0, u32::from(index % 4 == 3), vec![0], vec![])).collect();
    let lock = &analyse(for_processors(&[2]), &sections)[0];
    assert_eq!((lock.estimates[0].windows, lock.estimates[0].partial), (100, false));
    assert_eq!((lock.sections, lock.threads, lock.words), (400, 2, 1.0));
}

#[test]
fn a_window_closes_at_512_sections() {
    let sections: Vec<Told> = (0..1100).map(|index| (0, index % 3, vec![0], vec![])).collect();
    let lock = &analyse(for_processors(&[8]), &sections)[0];
    assert_eq!((lock.estimates[0].windows, lock.estimates[0].byte.threads), (2, 3.0));
    // Three threads and no conflict: three times as fast, and not more on eight processors (section 4.3).
    assert_eq!((lock.estimates[0].byte.speed_up(), lock.estimates[0].byte.conflict_probability()), (3.0, 0.0));
}

#[test]
fn an_open_window_counts_if_it_is_the_only_one() {
    let sections: Vec<Told> = (0..10).map(|index| (0, index % 3, vec![], vec![0])).collect();
    let lock = &analyse(for_processors(&[2, 8]), &sections)[0];
    assert_eq!((lock.estimates[0].partial, lock.estimates[0].windows), (false, 5));
    assert_eq!((lock.estimates[1].partial, lock.estimates[1].windows), (true, 1));
    assert_eq!(lock.estimates[1].byte.speed_up(), 1.0);
}

/// "Syncchar only compares critical regions protected by the same lock, across different threads" (section 4.1).
#[test]
fn only_the_same_lock_and_different_threads() {
    let locks: Vec<Told> = (0..1000).map(|index| (index % 2, index % 2, vec![], vec![0])).collect();
    for lock in analyse(for_processors(&[2]), &locks) {
        assert_eq!((lock.pairs.compared, lock.estimates[0].byte.speed_up()), (0, 1.0));
    }
}

#[test]
fn a_retired_lock_keeps_what_was_found() {
    let mut analysis = Analysis::new(for_processors(&[2])).unwrap();
    let section = |thread| Section { lock: 3, thread, ..Section::default() };
    analysis.section(section(0), [byte(0, true)]);
    analysis.section(section(1), [byte(0, true)]);
    analysis.section(section(0), [byte(0, true)]);
    analysis.retire(3);
    // The third section is gone; this one starts a window.
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

/// Prob (section 5): a shared variable is written with probability one half, else private data is.
#[test]
fn prob() {
    let mut rng = Rng::with_seed(5);
    let sections: Vec<Told> = (0..320_000)
        .map(|index| (0, index % 32, vec![], vec![if rng.bool() { 0 } else { 64 + u64::from(index % 32) * 64 }]))
        .collect();
    let lock = &analyse(for_processors(&[8, 16, 32]), &sections)[0];
    for (estimates, n) in lock.estimates.iter().zip([8.0, 16.0, 32.0]) {
        // All dense: nothing but independence gains (Figure 6).
        assert_eq!(estimates.byte.density, estimates.byte.conflicting);
        assert!((estimates.byte.speed_up() / (n / 2.0) - 1.0).abs() < 0.03, "{estimates:?}");
    }
    assert_eq!((lock.hot_spots.len(), lock.hot_spots[0].share), (1, 1.0));
}

/// RW (section 5): one thread writes what all others read; independence is 1, and the gain is all in the density (Figure 6).
#[test]
fn rw() {
    let sections: Vec<Told> = (0..32_000u32)
        .map(|index| (0, index % 32, vec![0; usize::from(index % 32 != 0)], vec![0; usize::from(index % 32 == 0)]))
        .collect();
    let estimate = analyse(for_processors(&[32]), &sections)[0].estimates[0].byte;
    assert_eq!((estimate.independence, estimate.density, estimate.speed_up()), (1.0, 2.0, 31.0));
}

/// Section 4.2: at 10 % the results varied by less than 1 %.
#[test]
fn one_in_ten_is_enough() {
    let mut rng = Rng::with_seed(6);
    let sections: Vec<Told> = (0..1_000_000).map(|_| (0, rng.u32(..8), vec![], vec![64 * rng.u64(..32)])).collect();
    let all = analyse(for_processors(&[2, 8]), &sections).remove(0);
    let sampled = analyse(Options { one_in: 10, ..for_processors(&[2, 8]) }, &sections).remove(0);
    assert!((90_000..110_000).contains(&sampled.sections));
    for (all, sampled) in all.estimates.iter().zip(&sampled.estimates) {
        assert!((sampled.byte.speed_up() / all.byte.speed_up() - 1.0).abs() < 0.01, "{all:?} {sampled:?}");
    }
}

#[test]
fn senseless_options_are_refused() {
    for processors in [vec![], vec![0], vec![2, MOST_PROCESSORS + 1]] {
        assert_eq!(Analysis::new(for_processors(&processors)).unwrap_err(), OptionsError::Processors);
    }
    for options in [
        Options { window: 0, ..Options::default() },
        Options { draws: 0, ..Options::default() },
        Options { one_in: 0, ..Options::default() },
    ] {
        assert_eq!(Analysis::new(options).unwrap_err(), OptionsError::Zero);
    }
}

fn told() -> impl Strategy<Value = Vec<Told>> {
    let words = || vec((0..40u64).prop_map(|word| word * 8), 0..4);
    vec((0..3u32, 0..12u32, words(), words()), 0..300)
}

proptest! {
    #[test]
    fn within_bounds(sections in told(), draws in 1..4u32, window in 1..40u32) {
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

    /// Other names for the threads, or other locks' sections in between, change nothing.
    #[test]
    fn names_and_interleaving_do_not_matter(sections in told(), turn in 0..12u32) {
        let options = for_processors(&[2, 8]);
        let expected = analyse(options.clone(), &sections);
        let mut other = sections.clone();
        other.iter_mut().for_each(|section| section.1 = (section.1 + turn) % 12);
        // Stable: each lock's own order stays.
        other.sort_by_key(|section| section.0);
        prop_assert_eq!(analyse(options, &other), expected);
    }

    /// All write one byte: every estimate is 1, whatever the draws.
    #[test]
    fn all_conflict(mut sections in told(), seed: u64) {
        sections.iter_mut().for_each(|section| section.3.push(0));
        for lock in analyse(Options { seed, ..for_processors(&[2, 8]) }, &sections) {
            for estimates in &lock.estimates {
                prop_assert_eq!(estimates.byte.independence, 1.0);
                prop_assert_eq!(estimates.byte.speed_up(), 1.0);
            }
        }
    }
}
