//! One synthetic lock for each kind of advice.

use super::*;
use crate::{Access, Analysis, Options, Section};
use fastrand::Rng;
use unconvoy_trace_stream::flag;

/// A lock taken by 8 threads in turn. `section` makes the accesses of each section.
fn lock(mut section: impl FnMut(u32, &mut Rng) -> Vec<Access>) -> LockAnalysis {
    let mut rng = Rng::with_seed(1);
    let mut analysis =
        Analysis::new(Options { processors: vec![2, 8], ..Options::default() }).unwrap();
    for index in 0..4000 {
        let accesses = section(index % 8, &mut rng);
        analysis.section(Section { lock: 0, thread: index % 8, ..Section::default() }, accesses);
    }
    analysis.finish().remove(0)
}

fn advice(section: impl FnMut(u32, &mut Rng) -> Vec<Access>) -> Vec<Advice> {
    advise(&lock(section), |_| false, false)
}

const HEAD: u64 = 0x1000;

/// Read at place 1.
fn read(address: u64) -> Access {
    Access { address, read: 0xff, read_place: 1, ..Access::default() }
}

/// Write at place 2.
fn store(address: u64) -> Access {
    Access { address, written: 0xff, written_place: 2, ..Access::default() }
}

/// Read at place 1, then write at place 2.
fn update(address: u64) -> Access {
    Access { written: 0xff, written_place: 2, ..read(address) }
}

/// Increment at place 3.
fn increment(address: u64) -> Access {
    Access { address, read: 0xff, written: 0xff, read_place: 3, written_place: 3 }
}

/// A thread's private data: `words` words on lines of its own.
fn private(thread: u32, words: u64) -> impl Iterator<Item = Access> {
    (0..words).map(move |word| update(0x10_0000 * (1 + u64::from(thread)) + word * 8))
}

#[test]
fn few_pairs_give_no_advice() {
    let mut analysis = Analysis::new(Options::default()).unwrap();
    analysis.section(Section::default(), [store(HEAD)]);
    assert_eq!(advise(&analysis.finish()[0], |_| false, false), [Advice::TooFew { pairs: 0 }]);
}

#[test]
fn mostly_io_keeps_lock() {
    let mut analysis = Analysis::new(Options::default()).unwrap();
    for index in 0..4000 {
        let section = Section {
            lock: 0,
            thread: index % 8,
            flags: if index % 4 != 0 { flag::IO } else { 0 },
            ..Section::default()
        };
        analysis.section(section, private(index % 8, 3).collect::<Vec<_>>());
    }
    let advice = advise(&analysis.finish()[0], |_| false, false);
    assert_eq!(advice, [Advice::KeepForIo { share: 0.75 }]);
}

#[test]
fn independent_sections_suggest_transactions() {
    let advice = advice(|thread, _| private(thread, 4).collect());
    assert_eq!(advice, [Advice::Transactions { speed_up: 8.0, processors: 8 }]);
}

/// RW (section 5).
#[test]
fn mostly_readers_suggest_sequence_lock() {
    let advice = advice(|thread, _| match thread {
        0 => vec![store(HEAD), store(HEAD + 8)],
        _ => vec![read(HEAD), read(HEAD + 8)],
    });
    assert!(
        matches!(advice[..], [Advice::SequenceLock { share, .. }] if (share - 0.875).abs() < 0.01),
        "{advice:?}"
    );
}

#[test]
fn false_sharing_suggests_padding() {
    // Each thread has its own word; all words share a line.
    let advice = advice(|thread, _| vec![update(HEAD + u64::from(thread) * 8)]);
    assert_eq!(
        advice,
        [
            Advice::Transactions { speed_up: 8.0, processors: 8 },
            Advice::Pad { word: HEAD, by_line: 1.0, by_byte: 8.0 }
        ]
    );
}

/// Figure 2: read, compared, and always written back.
#[test]
fn unconditional_store_suggests_branch() {
    let lock = lock(|thread, _| private(thread, 4).chain([update(HEAD)]).collect());
    let advice = advise(&lock, |place| place == 2, false);
    assert_eq!(advice, [Advice::ConditionalStore { address: HEAD, place: 2, share: 1.0 }]);
}

/// A counter that is all of the section, and one that is read occasionally.
#[test]
fn mostly_written_counter_suggests_per_thread() {
    let expected = [Advice::PerThreadCounter { address: HEAD, share: 1.0, alone: 1.0 }];
    assert_eq!(advice(|_, _| vec![increment(HEAD)]), expected);
    let sometimes_read = advice(|thread, rng| {
        private(thread, 4)
            .chain([if rng.u32(..10) == 0 { read(HEAD) } else { increment(HEAD) }])
            .collect()
    });
    assert_eq!(sometimes_read, expected);
}

/// "It can be pointless": read more often than written (section 3.1).
#[test]
fn often_read_counter_stays_shared() {
    let advice =
        advice(|_, rng| vec![if rng.u32(..3) == 0 { increment(HEAD) } else { read(HEAD) }]);
    assert!(
        !advice.iter().any(|advice| matches!(advice, Advice::PerThreadCounter { .. })),
        "{advice:?}"
    );
}

/// Sections on private data that all increment a counter at the end (section 2), or record the last
/// visitor.
#[test]
fn unread_word_suggests_moving_it() {
    for statistic in [increment(HEAD), store(HEAD)] {
        let advice = advice(|thread, _| private(thread, 4).chain([statistic]).collect());
        assert_eq!(advice, [Advice::MoveStatistic { address: HEAD, share: 1.0, alone: 1.0 }]);
    }
}

/// A push onto a list: the head is read and replaced, the thread's own node is filled.
#[test]
fn hot_list_head_suggests_entry_points() {
    let advice = advice(|thread, _| private(thread, 4).chain([update(HEAD)]).collect());
    assert_eq!(advice, [Advice::EntryPoints { address: HEAD, share: 1.0 }]);
}

/// A list traversed to some node, which is changed: "any pointer update will conflict with all
/// other critical regions that have walked further down the list" (section 3.1). No single node is
/// in most conflicts.
#[test]
fn list_traversal_suggests_entry_points() {
    let advice = advice(|_, rng| {
        let node = rng.u64(..40);
        (0..node).map(|word| read(HEAD + word * 64)).chain([update(HEAD + node * 64)]).collect()
    });
    assert!(matches!(advice[..], [.., Advice::EntryPoints { .. }]), "{advice:?}");
}

/// Figure 7: one section inserts many items at scattered addresses.
#[test]
fn bulk_section_suggests_splitting() {
    let advice = advice(|_, rng| (0..100).map(|_| update(HEAD + rng.u64(..2000) * 64)).collect());
    assert!(matches!(advice[..], [Advice::SplitSection { words }] if words == 100.0), "{advice:?}");
}

/// All sections change a few words and nothing else (section 6.2, zone.lock).
#[test]
fn dense_conflicts_keep_lock() {
    let advice = advice(|_, _| (0..4).map(|word| update(HEAD + word * 8)).collect());
    let [Advice::KeepLock { density: 8.0, threads: 8.0, hot: Some(hot) }] = advice[..] else {
        panic!("{advice:?}")
    };
    assert_eq!((hot.share, hot.alone), (1.0, 0.0));
}

/// A total that sections read, compute with and write.
#[test]
fn kept_lock_names_its_hot_word() {
    let [advice] = advice(|_, _| vec![update(HEAD)])[..] else { panic!("one entry") };
    assert_eq!(
        advice.sentence(|_| Some("total".into())),
        "Keep the lock: conflicts are dense (8.0 of 8.0 threads would take turns): sections work \
         on the same data, first on total, which is in 100 % of the conflicts, in 100 % alone."
    );
    // Records from before the hot word.
    let old = r#"{"kind":"keep-lock","density":8.0,"threads":8.0}"#;
    let old: Advice = serde_json::from_str(old).unwrap();
    assert_eq!(old, Advice::KeepLock { density: 8.0, threads: 8.0, hot: None });
    assert!(old.sentence(|_| None).ends_with("turns), and no single address causes them."));
}

/// Prob (section 5): half of the sections write one variable.
#[test]
fn hot_variable_is_advised_beside_gain() {
    let advice = advice(|thread, rng| match rng.bool() {
        true => vec![store(HEAD)],
        false => private(thread, 1).collect(),
    });
    assert!(
        advice.contains(&Advice::MoveStatistic { address: HEAD, share: 1.0, alone: 1.0 }),
        "{advice:?}"
    );
}

#[test]
fn sentence_names_the_word() {
    let advice = Advice::PerThreadCounter { address: HEAD, share: 0.9, alone: 0.5 };
    let expected = "Make the counter hits per-thread and sum it on reads: \
                    it is in 90 % of the conflicts, in 50 % alone.";
    assert_eq!(advice.sentence(|_| Some("hits".into())), expected);
    assert!(advice.sentence(|_| None).contains("0x1000"));
}
