//! The bound on the longest wait of the default lock (docs/explanation/correctness.md), with
//! threads that other work interrupts at random instructions.
//!
//! The long form, on 256 contexts, is for `make soak`. `UNCONVOY_SOAK_SECONDS` limits its time on
//! the host (default: 20), and `UNCONVOY_SUITE_SEED` sets its seed (default: random).

use std::time::{Duration, Instant};

use unconvoy_sim::experiment::{WaitCheck, WaitReport, bound_ns};
use unconvoy_sim::machine::Interruptions;
use unconvoy_sim::outcome::{Point, Stop};
use unconvoy_sim::parameters::{Count, Parameters};
use unconvoy_sim::presets;
use unconvoy_sim::workload::bench_counter;

/// Interrupts each context about ninety times a second, for 1 ms on average.
const INTERRUPTIONS: Interruptions = Interruptions { every_ns: 10_000_000, length_ns: 1_000_000 };

/// Two sockets of `cores` cores of two contexts each.
fn server(cores: u32) -> Parameters {
    let mut machine = presets::named("server").expect("a preset");
    machine.topology.cores_per_cache = Count::new(cores);
    machine
}

/// A check of the default lock under `threads` threads with sections of `section` ns and think
/// times of `think` ns.
fn check(machine: Parameters, threads: u32, (section, think): (u64, u64), seed: u64) -> WaitCheck {
    let point = Point {
        workload: bench_counter(&machine, section, think),
        machine,
        lock: "default".to_string(),
        threads,
        seconds: 0.3,
        warm_up: None,
        seed,
        interval_ns: None,
    };
    WaitCheck { point, interruptions: INTERRUPTIONS, bound_ns: bound_ns(threads, section) }
}

fn run(check: &WaitCheck) -> WaitReport {
    let report = check.run(&Stop::new(false), |_| true).unwrap_or_else(|why| panic!("{why}"));
    println!("{} threads, {report}", check.point.threads);
    report
}

#[test]
fn wait_among_random_preemptions_stays_within_bound() {
    // Longer sections than in the long form, which cost less to simulate.
    for (threads, times, seed) in
        [(16, (2_000, 0), 1), (32, (2_000, 0), 2), (32, (2_000, 20_000), 3)]
    {
        let report = run(&check(server(4), threads, times, seed));
        assert_eq!(report.violations, [], "{report}");
        assert!(report.longest.len() == threads as usize, "every thread has waited");
        assert!(report.stalled != 0, "interruptions never met a holder of the lock");
    }
}

#[test]
fn wait_beyond_bound_is_reported_with_seed_holder_and_next_thread() {
    let mut check = check(server(4), 32, (2_000, 0), 7);
    (check.point.seconds, check.bound_ns) = (0.02, 1_000_000);
    let report = run(&check);
    let violation = report.violations.iter().find(|violation| violation.holder.is_some());
    let violation = violation.expect("a wait of 1 ms, found while a thread held the lock");
    assert!(violation.wait.counted > check.bound_ns && violation.next.is_some(), "{violation:?}");
    let text = report.to_string();
    assert!(text.contains("seed 7") && text.contains("acquired it next"), "{text}");
}

#[test]
fn interruptions_depend_on_seed_and_come_as_often_as_set() {
    let run_with = |seed| {
        let mut check = check(server(4), 16, (2_000, 0), seed);
        check.point.seconds = 0.05;
        run(&check)
    };
    let first = run_with(1);
    assert_eq!(run_with(1), first);
    assert_ne!(run_with(2).longest, first.longest);
    // 16 contexts, each after 11 ms on average.
    assert!((50..=100).contains(&first.interruptions), "{}", first.interruptions);
}

/// The number in an environment variable.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect(name))
}

/// Runs `check` for at most `limit`, and prints its progress and its report.
fn run_for(check: &WaitCheck, name: &str, limit: Duration) -> WaitReport {
    let (begin, mut shown) = (Instant::now(), Duration::ZERO);
    let report = check.run(&Stop::new(false), |time| {
        let spent = begin.elapsed();
        if spent > shown + Duration::from_secs(30) {
            shown = spent;
            println!("{name}: {} ms after {} s", time / 1_000_000, spent.as_secs());
        }
        spent < limit
    });
    let report = report.unwrap_or_else(|why| panic!("{name}: {why}"));
    println!("{name}, {report}");
    report
}

/// Up to ten simulated seconds on 256 contexts.
fn soak(threads: u32, think: u64) {
    let limit = Duration::from_secs(number("UNCONVOY_SOAK_SECONDS").unwrap_or(20));
    let seed = number("UNCONVOY_SUITE_SEED").unwrap_or_else(|| fastrand::u64(..));
    let mut check = check(server(64), threads, (100, think), seed);
    check.point.seconds = 10.0;
    let name = format!("{threads} threads, think time {think} ns");
    let report = run_for(&check, &name, limit);
    assert!(report.violations.is_empty(), "{report}");
}

#[test]
#[ignore = "make soak: takes an hour"]
fn wait_of_256_threads_on_256_contexts() {
    soak(256, 0);
}

#[test]
#[ignore = "make soak: takes an hour"]
fn wait_of_512_threads_on_256_contexts() {
    soak(512, 0);
}

#[test]
#[ignore = "make soak: takes an hour"]
fn wait_of_256_threads_with_think_time() {
    soak(256, 10_000);
}

#[test]
#[ignore = "make soak: takes an hour"]
fn wait_of_512_threads_with_think_time() {
    soak(512, 10_000);
}
