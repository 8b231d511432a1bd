//! Programs that run.

use std::cell::Cell;
use std::rc::Rc;

use super::guarded::Guarded;
use super::program::Databases;
use super::step::{Step, Workload};
use super::validation::{Shared, Worker};
use crate::machine::{self, Activity};
use crate::pair::Pair;
use crate::simulation::Simulation;

/// A program that runs: its threads, and how often each has come to the end.
pub struct Running {
    /// Numbers of its threads.
    pub threads: Vec<u32>,
    finished: Vec<Rc<Cell<u64>>>,
}

impl Running {
    /// Transactions of each thread so far.
    pub fn finished(&self) -> Vec<u64> {
        self.finished.iter().map(|count| count.get()).collect()
    }
}

/// Starts `threads` threads of `workload` in a process, with locks of the pair `pair`. They run for as long as the
/// machine does.
pub fn start(simulation: &mut Simulation, process: usize, workload: &Workload, pair: &Pair, threads: u32) -> Running {
    start_apart(simulation, process, workload, pair, threads, 0)
}

/// As [`start`], but each thread begins `apart_ns` after the one before.
pub fn start_apart(
    simulation: &mut Simulation,
    process: usize,
    workload: &Workload,
    pair: &Pair,
    threads: u32,
    apart_ns: u64,
) -> Running {
    let locks: Rc<Vec<Vec<Guarded>>> = Rc::new(
        workload
            .locks
            .iter()
            .map(|&count| (0..count).map(|_| Guarded::new(simulation, process, workload, pair)).collect())
            .collect(),
    );
    let databases = Rc::new(Databases::new(simulation, &workload.steps));
    let steps: Rc<[Step]> = workload.steps.clone().into();
    let program =
        steps.iter().find_map(|step| if let Step::Validation { program } = step { Some(*program) } else { None });
    let shared = program.map(|program| Shared::new(simulation, program, threads));
    let mut running = Running { threads: Vec::new(), finished: Vec::new() };
    for number in 0..threads {
        let finished = Rc::new(Cell::new(0));
        running.finished.push(finished.clone());
        let (locks, databases, steps) = (locks.clone(), databases.clone(), steps.clone());
        let mut worker = shared.as_ref().map(|shared| Worker::new(simulation, shared));
        let body = move || {
            let mut random = fastrand::Rng::with_seed(machine::random(u64::MAX));
            machine::set_activity(Activity::Work);
            if apart_ns != 0 {
                machine::set_activity(Activity::Away);
                machine::away(u64::from(number) * apart_ns);
                machine::set_activity(Activity::Work);
            }
            // Not all at once.
            machine::work(machine::random(1000));
            loop {
                databases.transaction(&steps, &locks, &mut random, worker.as_mut());
                finished.set(finished.get() + 1);
            }
        };
        running.threads.push(simulation.spawn(process, format!("{} {number}", workload.name), body));
    }
    running
}
