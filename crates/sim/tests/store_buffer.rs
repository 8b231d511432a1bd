//! Effects of a store buffer: the cost of a store, and which thread gets a lock.

use unconvoy_sim::outcome::{Outcome, Point, Stop, simulate};
use unconvoy_sim::parameters::{Count, Parameters};
use unconvoy_sim::presets;
use unconvoy_sim::workload::{bench_counter, hashtable};

/// Two cores behind one cache.
fn two_cores(store_buffer: bool) -> Parameters {
    let mut machine = presets::named("server").expect("a preset");
    (machine.topology.sockets, machine.topology.cores_per_cache) = (Count::new(1), Count::new(2));
    machine.topology.contexts_per_core = Count::new(1);
    machine.memory.store_buffer = store_buffer;
    machine
}

fn run(machine: &Parameters, table: bool, lock: &str, threads: u32) -> Outcome {
    let workload = if table { hashtable(machine) } else { bench_counter(machine, 100, 0) };
    let point = Point {
        machine: machine.clone(),
        workload,
        lock: lock.to_string(),
        threads,
        seconds: 0.01,
        warm_up: None,
        seed: 1,
        interval_ns: None,
    };
    simulate(&point, &Stop::new(false)).expect("simulated")
}

/// A thread that releases a test-and-set lock and acquires it again succeeds, because it has the
/// line when its release takes effect. On real machines, therefore, throughput hardly falls from
/// one thread to two (`docs/records/grids/counter.json`: 8.7 M/s and 8.3 M/s).
#[test]
fn releaser_of_polled_lock_reacquires_it() {
    let of =
        |store_buffer, threads| run(&two_cores(store_buffer), false, "tas+none", threads).per_s;
    let (kept, lost) = (of(true, 2) / of(true, 1), of(false, 2) / of(false, 1));
    assert!(kept > 0.6 && kept > 1.2 * lost, "with a store buffer {kept:.2}, without {lost:.2}");
}

#[test]
fn queue_lock_with_store_buffer_hands_over() {
    let of = |store_buffer, threads| run(&two_cores(store_buffer), false, "mcs+none", threads);
    assert!(of(true, 2).per_s < 0.7 * of(true, 1).per_s && of(true, 2).fairness > 0.99);
}

/// A walk along the table's lists panics if two operations overlap, whatever serialises them.
#[test]
fn table_operations_exclude_each_other() {
    // The default and elided locks leave sections that are shorter than a line's transfer to one
    // thread.
    for (lock, least) in
        [("default", 0.95), ("tas+none", 1.02), ("mcs+none", 1.02), ("elided+none", 0.95)]
    {
        let (one, two) =
            (run(&two_cores(true), true, lock, 1), run(&two_cores(true), true, lock, 2));
        assert!(two.per_s > least * one.per_s, "{lock}: {} and {}", one.per_s, two.per_s);
    }
}
