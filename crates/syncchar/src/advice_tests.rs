//! One synthetic lock per advice.

use super::*;
use crate::{Access, Analysis, Options, Section};
use fastrand::Rng;
use unconvoy_trace_stream::flag;

/// A lock of 8 threads in turn; `section` makes the accesses of each.
fn lock(mut section: impl FnMut(u32, &mut Rng) -> Vec<Access>) -> LockAnalysis {
    let mut rng = Rng::with_seed(1);
    let mut analysis = Analysis::new(Options { processors: vec![2, 8], ..Options::default() }).unwrap();
    for index in 0..4000 {
        let accesses = section(index % 8, &mut rng);
        analysis.section(Section { lock: 0, thread: index % 8, ..Section::default() }, accesses);
    }
    analysis.finish().remove(0)
}

fn advice(section: impl FnMut(u32, &mut Rng) -> Vec<Access>) -> Vec<Advice> {
    advise(&lock(section), |_| false)
}

const HEAD: u64 = 0x1000;

/// Reads at place 1.
fn read(address: u64) -> Access {
    Access { address, read: 0xff, read_place: 1, ..Access::default() }
}

/// Writes at place 2.
fn store(address: u64) -> Access {
    Access { address, written: 0xff, written_place: 2, ..Access::default() }
}

/// Reads at place 1, then writes at place 2.
fn update(address: u64) -> Access {
    Access { written: 0xff, written_place: 2, ..read(address) }
}

/// Increments at place 3.
fn increment(address: u64) -> Access {
    Access { address, read: 0xff, written: 0xff, read_place: 3, written_place: 3 }
}

/// Data of one thread, so many words on lines that no other thread has.
fn private(thread: u32, words: u64) -> impl Iterator<Item = Access> {
    (0..words).map(move |word| update(0x10_0000 * (1 + u64::from(thread)) + word * 8))
}

#[test]
fn too_few() {
    let mut analysis = Analysis::new(Options::default()).unwrap();
    analysis.section(Section::default(), [store(HEAD)]);
    assert_eq!(advise(&analysis.finish()[0], |_| false), [Advice::TooFew { pairs: 0 }]);
}

#[test]
fn keep_for_io() {
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
    assert!(matches!(advise(&analysis.finish()[0], |_| false)[..], [Advice::KeepForIo { share }] if share == 0.75));
}

#[test]
fn transactions() {
    let advice = advice(|thread, _| private(thread, 4).collect());
    assert_eq!(advice, [Advice::Transactions { speed_up: 8.0, processors: 8 }]);
}

/// RW (section 5).
#[test]
fn sequence_lock() {
    let advice = advice(|thread, _| match thread {
        0 => vec![store(HEAD), store(HEAD + 8)],
        _ => vec![read(HEAD), read(HEAD + 8)],
    });
    assert!(matches!(advice[..], [Advice::SequenceLock { share }] if (share - 0.875).abs() < 0.01), "{advice:?}");
}

#[test]
fn pad() {
    // Each thread its word, all words in one line.
    let advice = advice(|thread, _| vec![update(HEAD + u64::from(thread) * 8)]);
    assert_eq!(
        advice,
        [Advice::Transactions { speed_up: 8.0, processors: 8 }, Advice::Pad { word: HEAD, by_line: 1.0, by_byte: 8.0 }]
    );
}

/// Figure 2: read, compared, and always written back.
#[test]
fn conditional_store() {
    let lock = lock(|thread, _| private(thread, 4).chain([update(HEAD)]).collect());
    let advice = advise(&lock, |place| place == 2);
    assert_eq!(advice, [Advice::ConditionalStore { address: HEAD, place: 2, share: 1.0 }]);
}

/// A counter that is all the section does, and one that is looked at now and then.
#[test]
fn per_thread_counter() {
    let expected = [Advice::PerThreadCounter { address: HEAD, share: 1.0, alone: 1.0 }];
    assert_eq!(advice(|_, _| vec![increment(HEAD)]), expected);
    let sometimes_read = advice(|thread, rng| {
        private(thread, 4).chain([if rng.u32(..10) == 0 { read(HEAD) } else { increment(HEAD) }]).collect()
    });
    assert_eq!(sometimes_read, expected);
}

/// "It can be pointless": read more than it is written (section 3.1).
#[test]
fn a_counter_that_is_often_read_stays() {
    let advice = advice(|_, rng| vec![if rng.u32(..3) == 0 { increment(HEAD) } else { read(HEAD) }]);
    assert!(!advice.iter().any(|advice| matches!(advice, Advice::PerThreadCounter { .. })), "{advice:?}");
}

/// Sections on private data that all count in the end (section 2), or note who was last.
#[test]
fn move_statistic() {
    for statistic in [increment(HEAD), store(HEAD)] {
        let advice = advice(|thread, _| private(thread, 4).chain([statistic]).collect());
        assert_eq!(advice, [Advice::MoveStatistic { address: HEAD, share: 1.0, alone: 1.0 }]);
    }
}

/// A push to a list: the head is read and replaced, a node of the thread's own is filled.
#[test]
fn entry_points_of_a_stack() {
    let advice = advice(|thread, _| private(thread, 4).chain([update(HEAD)]).collect());
    assert_eq!(advice, [Advice::EntryPoints { address: HEAD, share: 1.0 }]);
}

/// A list walked up to some node, which is changed: "any pointer update will conflict with all other critical regions that have walked further
/// down the list" (section 3.1). No single node is in most of the conflicts.
#[test]
fn entry_points_of_a_list() {
    let advice = advice(|_, rng| {
        let node = rng.u64(..40);
        (0..node).map(|word| read(HEAD + word * 64)).chain([update(HEAD + node * 64)]).collect()
    });
    assert!(matches!(advice[..], [.., Advice::EntryPoints { .. }]), "{advice:?}");
}

/// Figure 7: many items put in one section, each somewhere else.
#[test]
fn split_section() {
    let advice = advice(|_, rng| (0..100).map(|_| update(HEAD + rng.u64(..2000) * 64)).collect());
    assert!(matches!(advice[..], [Advice::SplitSection { words }] if words == 100.0), "{advice:?}");
}

/// A few words that all sections change: there is nothing else to the section (section 6.2, zone.lock).
#[test]
fn keep_lock() {
    let advice = advice(|_, _| (0..4).map(|word| update(HEAD + word * 8)).collect());
    assert_eq!(advice, [Advice::KeepLock { density: 8.0, threads: 8.0 }]);
}

/// Prob (section 5): half of the sections write one variable.
#[test]
fn a_hot_variable_is_named_beside_the_gain() {
    let advice = advice(|thread, rng| match rng.bool() {
        true => vec![store(HEAD)],
        false => private(thread, 1).collect(),
    });
    assert!(advice.contains(&Advice::MoveStatistic { address: HEAD, share: 1.0, alone: 1.0 }), "{advice:?}");
}

#[test]
fn sentences_name_the_word() {
    let advice = Advice::PerThreadCounter { address: HEAD, share: 0.9, alone: 0.5 };
    let expected = "Make the counter hits per-thread, and add up where it is read: it is in 90 % of the conflicts, and the only one of 50 %.";
    assert_eq!(advice.sentence(|_| Some("hits".into())), expected);
    assert!(advice.sentence(|_| None).contains("0x1000"));
}
