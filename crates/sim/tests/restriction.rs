//! Concurrency restriction with more waiters than any table has room for.
//!
//! Threads take locks at random, so they gather at the lock whose waits are the slowest. The work
//! that one of its waiters causes must not grow with their number.

use unconvoy_sim::outcome::{self, Point, Stop};
use unconvoy_sim::presets;
use unconvoy_sim::workload::{Step, Workload};

/// Sections per second of eight threads per context on 256 contexts, with a lock per 16 contexts.
fn throughput(lock: &str) -> f64 {
    let section = Step::Section { group: 0, ns: 500, lines: 1 };
    let point = Point {
        machine: presets::named("server-256").expect("a preset"),
        workload: Workload {
            name: "buckets".to_string(),
            locks: vec![16],
            steps: vec![section, Step::Varying { ns: 20_000 }],
            others: Vec::new(),
            in_kernel: false,
            checkpoints: false,
        },
        lock: lock.to_string(),
        threads: 2048,
        seconds: 0.02,
        warm_up: Some(0.02),
        seed: 1,
        interval_ns: None,
    };
    outcome::simulate(&point, &Stop::new(false)).expect("it runs").per_s
}

/// A passive set of 500 threads used to be walked through under its latch, and in a process with
/// more than 1024 passive threads the others contended without limit.
#[test]
fn restricted_lock_with_2000_waiters_keeps_most_of_the_throughput_of_parking() {
    let parking = throughput("tpmcs+park");
    for lock in ["tpmcs+gcr", "tpmcs+malthus"] {
        let restricted = throughput(lock);
        assert!(restricted > 0.7 * parking, "{lock}: {restricted} of {parking} a second");
    }
}
