//! Every pair of managers on the simulated machine.

use std::cell::Cell;
use std::rc::Rc;

use unconvoy_sim::machine::{self, Activity};
use unconvoy_sim::pair::{self, Pair};
use unconvoy_sim::parameters::Parameters;
use unconvoy_sim::presets;
use unconvoy_sim::simulation::Simulation;

/// What a run came to: sections, simulated time of its end, switches, accesses.
type Outcome = (u64, u64, u64, u64);

/// Four times as many threads as contexts, each with so many sections; every thread must end.
fn contend(parameters: &Parameters, pair: &'static Pair, threads: u32, sections: u32, seed: u64) -> Outcome {
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
                machine::now(); // a place to be preempted at
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
    assert_eq!(done.get(), u64::from(threads * sections), "{} is not done:\n{}", pair.name(), simulation.threads());
    let counts = simulation.counts();
    (done.get(), end.get(), counts.switches, counts.accesses)
}

fn small() -> Parameters {
    let mut parameters = presets::named("host").expect("a preset");
    parameters.topology.cores_per_cache = unconvoy_sim::parameters::Count::new(4);
    parameters
}

#[test]
fn every_pair_excludes_and_ends() {
    for pair in pair::all() {
        let begin = std::time::Instant::now();
        let (sections, end, switches, accesses) = contend(&small(), pair, 16, 100, 1);
        println!(
            "{:24} {sections} sections, {:9.3} ms, {switches:6} switches, {accesses:9} accesses, {:?}",
            pair.name(),
            end as f64 / 1e6,
            begin.elapsed()
        );
    }
}
