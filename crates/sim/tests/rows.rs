//! Row locks of simulated databases.

use unconvoy_sim::machine;
use unconvoy_sim::outcome::{self, Point, Stop};
use unconvoy_sim::presets;
use unconvoy_sim::simulation::Simulation;
use unconvoy_sim::workload;

/// A waiter may fall asleep after one that arrived later.
#[test]
fn released_row_wakes_its_new_holder() {
    for lock in ["default", "tpmcs+none", "futex+none"] {
        for (threads, seed) in [(64, 1), (64, 2), (128, 1), (128, 2), (128, 3)] {
            let point = Point {
                workload: workload::named("tpcc").expect("a workload"),
                machine: presets::named("server").expect("a preset"),
                lock: lock.to_string(),
                threads,
                seconds: 2.0,
                warm_up: None,
                seed,
                interval_ns: None,
            };
            let outcome = outcome::simulate(&point, &Stop::new(false));
            assert!(
                outcome.is_ok(),
                "{lock}, {threads} threads, seed {seed}: {:#?}",
                outcome.err()
            );
        }
    }
}

#[test]
fn hang_of_many_threads_lists_eight() {
    let parameters = presets::named("server").expect("a preset");
    let mut simulation = Simulation::new(&parameters, 1).expect("memory");
    let process = simulation.process();
    for number in 0..10 {
        let word = simulation.word();
        simulation.spawn(process, format!("stuck {number}"), move || {
            machine::wait_for_word(&word, || true);
        });
    }
    let hang = simulation.run(u64::MAX - 1).expect_err("no thread wakes another").to_string();
    let lines: Vec<&str> = hang.lines().collect();
    assert_eq!(lines.len(), 1 + 8 + 1, "{hang}");
    assert!(lines[8].starts_with("  stuck 7: "), "{hang}");
    assert_eq!(lines[9], "  and 2 more");
}
