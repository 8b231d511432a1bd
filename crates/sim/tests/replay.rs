//! Replayed sections: what synthetic recordings gain from transactions, and what Syncchar predicts.

use std::sync::Arc;

use unconvoy_sim::experiment::{Measured, Replay, Replayed, Task, estimates, on_processors};
use unconvoy_sim::outcome::Stop;
use unconvoy_sim::presets;
use unconvoy_sim::workload::replay::{Change, Recording, Times};
use unconvoy_syncchar::{Access, Options, Section};

const PROCESSORS: u32 = 8;
const HOT: u64 = 0x10000;
/// A section's flag: it did I/O.
const IO: u32 = 1;

/// Sections of 16 threads in turn. Each reads and writes ten words of its thread, and the words
/// that `others` returns for the section's number.
fn recording(others: impl Fn(u64) -> Vec<Access>) -> Recording {
    let section = |order: u64| {
        let thread = order % 16;
        let own = (0..10).map(|line| 0x1_0000_0000 + 0x10000 * thread + 64 * line);
        let mut accesses: Vec<Access> = own.map(written).collect();
        accesses.splice(5..5, others(order));
        (Section { thread: thread as u32, order, ..Section::default() }, accesses)
    };
    Recording::new((0..4096).map(section).collect())
}

fn written(address: u64) -> Access {
    Access { address, read: 0xff, written: 0xff, ..Access::default() }
}

fn replayed(recording: &Recording, lock: &str, between_ns: f64, processors: u32) -> Replayed {
    let machine = presets::named("metatm-8").expect("a preset");
    let replay = Replay {
        machine: on_processors(&machine, processors),
        recording: Arc::new(recording.clone()),
        // Long sections, so that the lock's transfers matter little.
        times: Times { section_ns: 10_000.0, between_ns },
        lock: lock.to_string(),
        sections: 200,
        seed: 1,
    };
    let measured = Task::Replay(replay).run(&Stop::new(false)).expect("a simulation");
    let Measured::Replayed(replayed) = measured else { panic!("a replay") };
    replayed
}

/// The gain of transactions over the lock, and the predicted one.
fn gains(recording: &Recording) -> (f64, f64) {
    let per_s = |lock| replayed(recording, lock, 0.0, PROCESSORS).per_s;
    let options = Options { processors: vec![PROCESSORS], ..Options::default() };
    let predicted = estimates(recording, options).expect("an estimate").estimates[0].line;
    (per_s("transactions") / per_s("ttas+none"), predicted.speed_up())
}

#[test]
fn sections_without_conflict_gain_number_of_processors() {
    let (gain, predicted) = gains(&recording(|_| Vec::new()));
    assert!((7.5..8.5).contains(&gain), "{gain}");
    assert_eq!(predicted, 8.0);
}

#[test]
fn sections_with_hot_word_gain_only_without_it() {
    let hot = recording(|_| vec![written(HOT)]);
    let (gain, predicted) = gains(&hot);
    // The transactions overlap up to the word, in the middle of the section.
    assert!((0.8..2.1).contains(&gain), "{gain}");
    assert_eq!(predicted, 1.0);
    let (gain, predicted) = gains(&hot.changed(&[HOT + 4], Change::LeftOut));
    assert!((7.5..8.5).contains(&gain), "{gain}");
    assert_eq!(predicted, 8.0);
}

#[test]
fn moved_word_costs_its_transfers() {
    let hot = recording(|_| vec![written(HOT)]);
    let per_s = |recording: &Recording| replayed(recording, "transactions", 0.0, PROCESSORS).per_s;
    let moved = per_s(&hot.changed(&[HOT], Change::Moved));
    let left_out = per_s(&hot.changed(&[HOT], Change::LeftOut));
    // A transfer takes 200 ns, and the other time of the section 9,200 ns.
    assert!((0.9..1.1).contains(&(moved / left_out)), "{moved} {left_out}");
    assert!(moved > 4.0 * per_s(&hot), "{moved}");
}

#[test]
fn words_of_one_line_conflict() {
    let (gain, predicted) = gains(&recording(|order| vec![written(HOT + 8 * (order % 8))]));
    assert!((0.8..2.1).contains(&gain), "{gain}");
    assert!(predicted < 1.1, "{predicted}");
}

#[test]
fn section_with_system_call_excludes_others() {
    let without = recording(|_| Vec::new());
    let with_calls =
        without.sections().map(|(section, accesses)| (Section { flags: IO, ..section }, accesses));
    let (gain, predicted) = gains(&Recording::new(with_calls.collect()));
    assert!((0.8..1.1).contains(&gain), "{gain}");
    assert_eq!(predicted, 1.0);
}

#[test]
fn replay_takes_recorded_times() {
    let recording = recording(|_| Vec::new());
    let one = replayed(&recording, "ttas+none", 30_000.0, 1);
    // A section and the time before it take 40 us, a quarter of it in the section.
    assert!((0.95..1.05).contains(&(one.per_s / 25_000.0)), "{one:?}");
    assert!((0.24..0.26).contains(&one.within), "{one:?}");
    assert!((one.busy - one.within).abs() < 0.01, "{one:?}");
    // 64 processors play only the 16 recorded threads.
    let many = replayed(&recording, "transactions", 30_000.0, 64);
    assert_eq!(many.threads, 16);
    assert!((0.95..1.05).contains(&(many.per_s / 16.0 / 25_000.0)), "{many:?}");
}
