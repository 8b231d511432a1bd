//! The rules on the numbers of real profiles.

use super::*;
use crate::advice::entry::Entry;
use crate::advice::evidence::Unended;
use crate::advice::finding::SpanEvidence;

fn entry() -> Entry {
    Entry {
        key: "symbol".into(),
        name: "queue_lock".into(),
        object: None,
        build_id: None,
        kind: "mutex".into(),
    }
}

/// A lock that threads wait for, served by libc on two processors.
fn lock(span: SpanEvidence, holds: [u64; 2]) -> LockEvidence {
    LockEvidence {
        name: "queue_lock".into(),
        kind: "mutex",
        locks: 1,
        entries: vec![entry()],
        places: vec!["add_job (queue.c:33)".into()],
        are_holders: true,
        waits: 100_000,
        waited_seconds: span.waiting * span.seconds,
        share: 1.0,
        hold_p50_ns: Some(holds[0]),
        hold_p99_ns: Some(holds[1]),
        span: Some(span),
        ..LockEvidence::default()
    }
}

fn of(threads: f64, locks: Vec<LockEvidence>) -> Evidence {
    Evidence {
        seconds: locks.iter().filter_map(|lock| lock.span).map(|span| span.seconds).sum(),
        is_libcs: true,
        processors: 2.0,
        threads,
        all_waits: locks.iter().map(|lock| lock.waits).sum(),
        locks,
        ..Evidence::default()
    }
}

fn problems(evidence: &Evidence) -> Vec<Problem> {
    advise(evidence).iter().map(|advice| advice.problem).collect()
}

/// `counter --threads 2`: short sections, no other work.
const SATURATED: SpanEvidence = SpanEvidence {
    seconds: 2.0,
    running: 1.9,
    idle: 0.1,
    delayed: 0.1,
    system: 0.4,
    held: Some(0.7),
    waiting: 1.2,
};

#[test]
fn busy_short_sections_are_saturated_and_gain_by_a_faster_lock() {
    let evidence = of(2.0, vec![lock(SATURATED, [120, 900])]);
    let all = advise(&evidence);
    assert_eq!(all[0].problem, Problem::SaturatedShortSections);
    assert_eq!((all[0].strategy.len(), all[0].strategy[0].lock), (1, "default"));
    let gain = all[0].gain.expect("observed");
    assert!(1.0 <= gain.low && gain.low <= gain.expected && gain.expected <= gain.high);
    assert!(gain.expected >= MARGIN, "{gain:?}");
    assert_eq!(all[1].problem, Problem::MoreRecordsNeeded);
}

#[test]
fn lock_whose_waiters_have_no_names_may_be_none() {
    let unknown = LockEvidence { is_unknown: true, ..lock(SATURATED, [120, 900]) };
    let all = advise(&of(2.0, vec![unknown]));
    assert_eq!(all[0].problem, Problem::Unknown);
    assert!(all[0].gain.is_none() && all[0].strategy.is_empty(), "{all:?}");
}

/// As in Java, whose library has names, but no lock of libc's.
#[test]
fn futex_with_named_waiters_needs_no_symbols() {
    let of_place = |place: &str| {
        let places = vec![place.to_string()];
        let unknown = LockEvidence { is_unknown: true, places, ..lock(SATURATED, [120, 900]) };
        advise(&of(2.0, vec![unknown])).swap_remove(0)
    };
    let named = of_place("LinuxWaitBarrier::wait in libjvm.so");
    assert_eq!((named.problem, &*named.source), (Problem::Unknown, ""));
    assert!(named.sentence.contains("queue_lock may be a lock"), "{named:?}");
    for place in ["libjvm.so+0x12f0", "unknown", "generated code"] {
        let unnamed = of_place(place);
        assert!(unnamed.source.contains("symbols"), "{unnamed:?}");
    }
}

/// A lock of a hung program, as `profile --pid` records it: no hold was measured.
fn stuck(waits: u64, unended: Unended) -> LockEvidence {
    let span = SpanEvidence { held: None, waiting: 1.0, ..SATURATED };
    LockEvidence {
        waits,
        unended: Some(unended),
        wait_p50_ns: Some(2_000_000_000),
        hold_p50_ns: None,
        hold_p99_ns: None,
        ..lock(span, [0, 0])
    }
}

#[test]
fn lock_that_is_never_released_is_held_for_long() {
    let unended = Unended { waits: 1, longest_ns: 2_000_000_000 };
    let all = advise(&of(2.0, vec![stuck(1, unended)]));
    assert_eq!((all[0].problem, all[0].strategy.len()), (Problem::LongSections, 0));
    assert!(all[0].sentence.contains("held for 2.00 s or longer"), "{all:?}");
    assert!(all[0].source.contains("unconvoy inspect PID"), "{all:?}");
    // A hundred threads wait, on processors that other threads use.
    let span = SpanEvidence { held: None, waiting: 100.0, delayed: 3.0, ..SATURATED };
    let many = Unended { waits: 100, ..unended };
    let all = advise(&of(102.0, vec![LockEvidence { span: Some(span), ..stuck(100, many) }]));
    assert!(all[0].sentence.contains("held for 2.00 s or longer"), "{all:?}");
    // A busy lock also has waiters at the end of the recording.
    let short = Unended { waits: 1, longest_ns: 300_000 };
    let busy = LockEvidence { unended: Some(short), ..lock(SATURATED, [120, 900]) };
    assert_eq!(problems(&of(2.0, vec![busy]))[0], Problem::SaturatedShortSections);
}

/// Redis's `io_threads_mutex`: two waits in 5.45 s.
#[test]
fn few_long_waits_without_a_measured_hold_are_for_long_sections() {
    let few = LockEvidence { unended: None, ..stuck(2, Unended { waits: 0, longest_ns: 0 }) };
    let all = advise(&of(2.0, vec![few]));
    assert_eq!(all[0].problem, Problem::LongSections);
    assert!(all[0].sentence.contains("held for 1.00 s or longer"), "{all:?}");
    // Waits of 0.2 ms, of which most may be the waking.
    let span = SpanEvidence { held: None, waiting: 0.02, ..SATURATED };
    let seldom = LockEvidence {
        wait_p50_ns: Some(200_000),
        hold_p50_ns: None,
        hold_p99_ns: None,
        ..lock(span, [0, 0])
    };
    assert_eq!(problems(&of(2.0, vec![seldom]))[0], Problem::NothingToMend);
}

/// The process was observed for longer than it was recorded.
#[test]
fn lock_with_a_waiting_thread_limits_the_program() {
    let span = SpanEvidence { held: None, waiting: 0.25, seconds: 8.0, ..SATURATED };
    let evidence = Evidence { seconds: 2.0, ..of(2.0, vec![lock(span, [120, 900])]) };
    assert_eq!(problems(&evidence)[0], Problem::SaturatedShortSections);
}

#[test]
fn gain_is_bounded_by_the_share_of_time_held() {
    let span = SpanEvidence { held: Some(0.99), ..SATURATED };
    let all = advise(&of(2.0, vec![lock(span, [9_000, 12_000])]));
    assert!(all[0].strategy.is_empty() && all[0].gain.unwrap().high < 1.03, "{all:?}");
}

#[test]
fn waiting_threads_and_busy_processors_are_an_overload_convoy() {
    let span = SpanEvidence { delayed: 3.0, waiting: 4.0, ..SATURATED };
    let evidence = of(8.0, vec![lock(span, [120, 900])]);
    assert_eq!(problems(&evidence)[0], Problem::OverloadConvoy);
    // The same with holders that lose their processor.
    let evidence = of(8.0, vec![lock(span, [120, 4_000_000])]);
    assert_eq!(problems(&evidence)[0], Problem::PreemptedHolder);
    // Holders that sleep are not preempted.
    let asleep = LockEvidence { runnable: Some(0.1), ..lock(span, [120, 4_000_000]) };
    assert_eq!(problems(&of(8.0, vec![asleep]))[0], Problem::OverloadConvoy);
    // A long hold alone is no sign of a preemption while processors are free.
    let span = SpanEvidence { delayed: 0.1, ..span };
    let evidence = of(8.0, vec![lock(span, [120, 4_000_000])]);
    assert_eq!(problems(&evidence)[0], Problem::SaturatedShortSections);
}

/// `profile --pid` measures no holds of reader-writer locks.
#[test]
fn lock_without_measured_holds_has_no_time_of_holds() {
    let unmeasured = LockEvidence {
        kind: "rwlock",
        hold_p50_ns: None,
        hold_p99_ns: None,
        ..lock(SATURATED, [120, 900])
    };
    let all = advise(&of(2.0, vec![unmeasured]));
    assert_eq!(all[0].problem, Problem::SaturatedShortSections);
    assert!(!all[0].sentence.contains("holds take"), "{all:?}");
}

#[test]
fn long_waits_behind_few_waiters_are_for_readers_with_long_sections() {
    let behind = |waits: u64, span| LockEvidence {
        kind: "rwlock",
        hold_p50_ns: None,
        hold_p99_ns: None,
        behind_readers_ns: Some(waits),
        ..lock(span, [0, 0])
    };
    let all = advise(&of(2.0, vec![behind(20_000_000, SATURATED)]));
    assert_eq!(all[0].problem, Problem::LongSections);
    assert!(all[0].sentence.contains("readers hold it for 9.09 ms or longer"), "{all:?}");
    // Thirty writers that wait for each other also wait for long.
    let many = SpanEvidence { waiting: 30.0, ..SATURATED };
    let all = advise(&of(32.0, vec![behind(300_000, many)]));
    assert_eq!(all[0].problem, Problem::SaturatedShortSections);
}

#[test]
fn place_of_waiters_does_not_hold_the_lock() {
    let head = |are_holders| {
        let lock = LockEvidence { are_holders, ..lock(SATURATED, [120, 900]) };
        crate::advice::text::problem(&advise(&of(2.0, vec![lock]))[0])
    };
    let starts = [(true, "queue_lock (held by add_job"), (false, "queue_lock (waits in add_job")];
    for (are_holders, start) in starts {
        assert!(head(are_holders).starts_with(start), "{}", head(are_holders));
    }
}

#[test]
fn long_holds_are_to_be_shortened_and_gain_no_other_lock() {
    let all = advise(&of(2.0, vec![lock(SATURATED, [200_000, 900_000])]));
    assert_eq!((all[0].problem, all[0].strategy.len()), (Problem::LongSections, 0));
    assert!(all[0].source.contains("add_job"), "{all:?}");
}

#[test]
fn holder_in_a_system_call_is_io_under_the_lock() {
    let io = LockEvidence { call: Some(("fsync", 0.8)), ..lock(SATURATED, [200_000, 900_000]) };
    let all = advise(&of(2.0, vec![io.clone()]));
    assert_eq!((all[0].problem, all[0].strategy.len()), (Problem::IoUnderLock, 0));
    assert!(all[0].sentence.contains("80 %") && all[0].source.starts_with("Move fsync"), "{all:?}");
    let rare = LockEvidence { call: Some(("fsync", 0.1)), ..io };
    assert_eq!(problems(&of(2.0, vec![rare]))[0], Problem::LongSections);
}

#[test]
fn gain_without_a_system_call_is_no_faster_locks() {
    let io = LockEvidence { call: Some(("fsync", 0.8)), ..lock(SATURATED, [200_000, 900_000]) };
    let all = advise(&of(2.0, vec![io]));
    let text = crate::advice::text::gain(&all[0]).expect("observed");
    assert!(text.starts_with("With this change: "), "{text}");
}

/// A server that waited at its start, and one whose locks are mostly free.
#[test]
fn moved_system_call_gains_no_more_than_the_waiting() {
    let gain = |seconds, span| {
        let io = LockEvidence { call: Some(("fsync", 0.9)), ..lock(span, [200_000, 900_000]) };
        advise(&Evidence { seconds, ..of(2.0, vec![io]) })[0].gain.expect("observed")
    };
    let part = gain(20.0, SATURATED).part;
    assert!((part - 0.1).abs() < 1e-9, "{part}");
    let free = gain(2.0, SpanEvidence { held: None, waiting: 0.1, ..SATURATED });
    assert!(free.high < 1.1, "{free:?}");
}

#[test]
fn little_waiting_is_nothing_to_mend() {
    let span = SpanEvidence { waiting: 0.004, ..SATURATED };
    let evidence = of(2.0, vec![lock(span, [120, 900])]);
    assert_eq!(problems(&evidence), [Problem::NothingToMend]);
    assert_eq!(problems(&Evidence::default()), []);
    let kernels = Evidence { is_kernels: true, ..of(2.0, vec![lock(SATURATED, [120, 900])]) };
    assert_eq!(problems(&kernels), []);
}

#[test]
fn advice_is_in_order_of_worth_and_leaves_out_small_locks() {
    let part = |share: f64, held: f64| LockEvidence {
        share,
        ..lock(SpanEvidence { held: Some(held), ..SATURATED }, [9_000, 12_000])
    };
    let evidence = of(2.0, vec![part(0.5, 0.95), part(0.45, 0.6), part(0.05, 0.1)]);
    let gains: Vec<f64> =
        advise(&evidence).iter().filter_map(|advice| Some(advice.gain?.expected)).collect();
    assert!(gains.len() == 2 && gains[0] > gains[1], "{gains:?}");
}

#[test]
fn unobserved_process_gets_no_gain_and_no_strategy() {
    let unobserved =
        LockEvidence { span: None, waited_seconds: 2.4, ..lock(SATURATED, [120, 900]) };
    let evidence = Evidence { seconds: 2.0, ..of(2.0, vec![unobserved]) };
    let all = advise(&evidence);
    assert_eq!((all[0].problem, all[0].gain), (Problem::SaturatedShortSections, None));
    assert!(all[0].strategy.is_empty());
}

/// A prediction for two processors.
fn predicted() -> PredictedLock {
    PredictedLock {
        processors: 2,
        program: Some(1.6),
        sections: 1.9,
        read_only: 0.3,
        io: 0.0,
        shared_line: None,
    }
}

fn with_prediction(predicted: PredictedLock, may_elide: bool) -> Vec<Advice> {
    let predicted = Some(predicted);
    let lock = LockEvidence { predicted, ..lock(SATURATED, [120, 900]) };
    advise(&Evidence { may_elide, is_predicted: true, ..of(2.0, vec![lock]) })
}

fn of_problem(all: &[Advice], problem: Problem) -> &Advice {
    all.iter().find(|advice| advice.problem == problem).unwrap_or_else(|| panic!("{all:?}"))
}

#[test]
fn prediction_finds_independent_sections() {
    let all = with_prediction(predicted(), true);
    let advice = of_problem(&all, Problem::IndependentSections);
    assert_eq!((advice.strategy[0].lock, advice.based_on), ("elided", Basis::SyncCharModel));
    assert_eq!(advice.gain.unwrap().high, 1.6);
    assert!(!all.iter().any(|advice| advice.problem == Problem::MoreRecordsNeeded));
    // A processor without transactions.
    let all = with_prediction(predicted(), false);
    let advice = of_problem(&all, Problem::IndependentSections);
    assert!(advice.strategy.is_empty() && advice.source.starts_with("Split it"));
    // Conflicts, or I/O, which cannot be undone.
    for predicted in
        [PredictedLock { sections: 1.1, ..predicted() }, PredictedLock { io: 0.9, ..predicted() }]
    {
        let all = with_prediction(predicted, true);
        assert!(!all.iter().any(|advice| advice.problem == Problem::IndependentSections));
    }
}

#[test]
fn prediction_finds_read_mostly_sections_under_a_mutex() {
    let all = with_prediction(PredictedLock { read_only: 0.95, ..predicted() }, true);
    let advice = of_problem(&all, Problem::ReadMostly);
    assert!(advice.sentence.starts_with("95 %"), "{advice:?}");
}

#[test]
fn prediction_finds_a_shared_line() {
    let shared_line = Some("stats.hits".to_string());
    let all = with_prediction(PredictedLock { shared_line, ..predicted() }, true);
    let advice = of_problem(&all, Problem::SharedLine);
    assert!(advice.source.contains("stats.hits") && advice.strategy.is_empty(), "{advice:?}");
}

/// LevelDB's writers, which queue up for a signal.
#[test]
fn waits_for_signals_with_much_kernel_time_are_served_by_the_whole_process() {
    let span = SpanEvidence { system: 0.5, held: None, waiting: 3.0, ..SATURATED };
    let signals = LockEvidence {
        kind: "cond",
        waits: 300_000,
        waited_seconds: 6.0,
        span: Some(span),
        ..LockEvidence::default()
    };
    let few = LockEvidence { share: 0.05, ..lock(SATURATED, [120, 900]) };
    let evidence = Evidence { signals, all_waits: 400_000, ..of(2.0, vec![few]) };
    let all = advise(&evidence);
    assert_eq!(all[0].problem, Problem::SleepingAndWaking);
    assert!(all[0].strategy[0].entry.is_none() && all[0].gain.unwrap().expected > 1.3, "{all:?}");
    // No wait is for a lock.
    let alone = Evidence { all_waits: 300_000, locks: Vec::new(), ..evidence.clone() };
    assert_eq!(problems(&alone), [Problem::SleepingAndWaking]);
    // Most waits are for locks.
    let locks = Evidence { all_waits: 4_000_000, ..evidence };
    assert!(!problems(&locks).contains(&Problem::SleepingAndWaking));
}

#[test]
fn lock_whose_holder_was_not_sampled_is_bounded_by_its_queue() {
    // `nested`: all threads wait for one lock, which is held for a microsecond.
    let span = SpanEvidence { held: None, running: 1.5, idle: 0.5, waiting: 8.0, ..SATURATED };
    let of_lock = |locks| {
        let lock = LockEvidence { locks, ..lock(span, [1_000, 1_200]) };
        gain::of_faster_lock(&of(10.0, vec![lock.clone()]), &lock).unwrap().expected
    };
    assert!(of_lock(1) < 1.25 && of_lock(64) > 1.5, "{} {}", of_lock(1), of_lock(64));
}

#[test]
fn processors_that_the_process_may_not_use_are_no_gain() {
    let on = |idle| {
        let span = SpanEvidence { held: Some(0.3), idle, waiting: 6.0, ..SATURATED };
        let lock = lock(span, [400, 500]);
        gain::of_faster_lock(&of(8.0, vec![lock.clone()]), &lock).unwrap().expected
    };
    assert_eq!(on(62.0), on(0.1));
}
