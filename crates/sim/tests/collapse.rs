//! Queue locks on two processors with more threads than that: as fast, or as slow, as measured.
//!
//! Such locks stop whenever a hand-over reaches a thread that is not running. What a tick costs,
//! when the processors tick and how often they balance decide how many hand-overs follow one
//! another. Without these, the simulation was wrong by up to four orders of magnitude.

use unconvoy_sim::machine_file;
use unconvoy_sim::outcome::{self, Point, Stop};
use unconvoy_sim::parameters::Parameters;
use unconvoy_sim::workload::bench_counter;

/// The calibration of the machine that the numbers below were measured on.
fn machine() -> Parameters {
    machine_file::parse(include_str!("../../../docs/records/overload/machine.toml"))
        .expect("a machine file")
}

/// Medians of `docs/records/overload/counter.json`: lock, threads, operations per second.
const MEASURED: [(&str, u32, f64); 10] = [
    ("tpmcs+none", 1, 6.80e6),
    ("tpmcs+none", 3, 987_000.0),
    ("tpmcs+none", 8, 442_000.0),
    ("tpmcs+none", 32, 129_000.0),
    ("mcs+none", 3, 384.0),
    ("mcs+none", 8, 153.0),
    ("mcs+none", 32, 31.0),
    ("ticket+none", 8, 153.0),
    ("clh+none", 3, 384.0),
    ("clh+none", 32, 42.0),
];

fn throughput(machine: Parameters, lock: &str, threads: u32) -> f64 {
    let point = Point {
        workload: bench_counter(&machine, 100, 0),
        machine,
        lock: lock.to_string(),
        threads,
        // Long enough for ten acquisitions of the slowest lock.
        seconds: 0.4,
        warm_up: Some(0.05),
        seed: 1,
        interval_ns: None,
    };
    outcome::simulate(&point, &Stop::new(false)).expect("it runs").per_s
}

#[test]
fn queue_locks_under_overload_are_within_three_times_of_measurement() {
    for (lock, threads, measured) in MEASURED {
        let simulated = throughput(machine(), lock, threads);
        let factor = (simulated / measured).max(measured / simulated);
        assert!(
            factor <= 3.0,
            "{lock}, {threads} threads: {simulated} simulated, {measured} measured"
        );
    }
}

#[test]
fn time_published_queue_stands_still_if_switches_at_ticks_are_free() {
    // Why the time of a tick matters: a waiter that has just lost its processor looks alive.
    let mut free = machine();
    free.scheduler.tick_switch_ns = unconvoy_sim::quantiles::Quantiles::default();
    let [real, free] = [machine(), free].map(|machine| throughput(machine, "tpmcs+none", 8));
    assert!(real > 100.0 * free, "{real} and {free} a second");
}
