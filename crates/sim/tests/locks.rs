//! Every pair of managers on the simulated machine.

use std::cell::Cell;
use std::rc::Rc;

use unconvoy_sim::machine::{self, Activity};
use unconvoy_sim::pair::{self, Pair};
use unconvoy_sim::parameters::Parameters;
use unconvoy_sim::simulation::Simulation;
use unconvoy_sim::{presets, workload};

/// Sections, simulated time of the end, switches and accesses of a run.
type Outcome = (u64, u64, u64, u64);

/// Runs `threads` threads of `sections` sections each. Every thread must end.
fn contend(
    parameters: &Parameters,
    pair: &'static Pair,
    threads: u32,
    sections: u32,
    seed: u64,
) -> Outcome {
    let mut simulation = Simulation::new(parameters, seed).expect("memory");
    let process = simulation.process();
    let lock = simulation.lock(process, pair);
    let inside = Rc::new(Cell::new(false));
    let done = Rc::new(Cell::new(0_u64));
    let end = Rc::new(Cell::new(0_u64));
    for thread in 0..threads {
        let (inside, done, end) = (inside.clone(), done.clone(), end.clone());
        simulation.spawn(process, format!("thread {thread}"), move || {
            machine::set_activity(Activity::Work);
            for _ in 0..sections {
                lock.lock();
                assert!(!inside.replace(true), "two threads in one critical section");
                machine::work(200);
                machine::now(); // A point of preemption.
                inside.set(false);
                lock.unlock();
                machine::work(300);
                done.set(done.get() + 1);
            }
            end.set(machine::now());
        });
    }
    if let Err(hang) = simulation.run(200_000_000_000) {
        panic!("{}: {hang}", pair.name());
    }
    assert_eq!(
        done.get(),
        u64::from(threads * sections),
        "{} is not finished:\n{}",
        pair.name(),
        simulation.threads()
    );
    let counts = simulation.counts();
    (done.get(), end.get(), counts.switches, counts.accesses)
}

fn small() -> Parameters {
    let mut parameters = presets::named("host").expect("a preset");
    parameters.topology.cores_per_cache = unconvoy_sim::parameters::Count::new(4);
    parameters
}

#[test]
fn every_pair_excludes_and_terminates() {
    let others = ["solaris", "pipelined", "libc"].map(|name| pair::named(name).expect("a lock"));
    for pair in pair::all().chain(others) {
        let begin = std::time::Instant::now();
        let (sections, end, switches, accesses) = contend(&small(), pair, 16, 100, 1);
        println!(
            "{:24} {sections} sections, {:9.3} ms, {switches:6} switches, {accesses:9} accesses, \
             {:?}",
            pair.name(),
            end as f64 / 1e6,
            begin.elapsed()
        );
    }
}

/// On a machine where accesses to a line queue up, a waiter that sets the parked bit gets between
/// any two accesses of the holder.
#[test]
fn release_among_parking_waiters_makes_progress() {
    let opteron = presets::named("opteron-32").expect("a preset");
    let sockbench = workload::named("sockbench").expect("a workload");
    for name in ["ttas+adaptive", "tas+adaptive", "ttas+park", "tas+park"] {
        let mut simulation = Simulation::new(&opteron, 1).expect("memory");
        let process = simulation.process();
        let running = workload::start(
            &mut simulation,
            process,
            &sockbench,
            pair::named(name).expect("a pair"),
            8,
        );
        simulation.run(20_000_000).unwrap_or_else(|hang| panic!("{name}: {hang}"));
        // A section takes 4 us.
        let done: u64 = running.finished().iter().sum();
        assert!(done > 1_000, "{name}: {done} in 20 ms");
    }
}
