//! Running programs.

use std::cell::Cell;
use std::rc::Rc;

use super::guarded::Guarded;
use super::program::Databases;
use super::step::{Step, Workload};
use super::validation::{Shared, Worker};
use crate::machine::{self, Activity};
use crate::pair::Pair;
use crate::simulation::Simulation;

/// A running program: its threads, and the number of transactions each has completed.
pub struct Running {
    /// Numbers of the program's threads, without the [others](Workload::others).
    pub threads: Vec<u32>,
    finished: Vec<Rc<Cell<u64>>>,
}

impl Running {
    /// Transactions of each thread so far.
    pub fn finished(&self) -> Vec<u64> {
        self.finished.iter().map(|count| count.get()).collect()
    }
}

/// Starts `threads` threads of `workload` in a process, with locks of `pair`. They run until the
/// simulation ends.
pub fn start(
    simulation: &mut Simulation,
    process: usize,
    workload: &Workload,
    pair: &Pair,
    threads: u32,
) -> Running {
    start_staggered(simulation, process, workload, pair, threads, 0)
}

/// Same as [`start`], but each thread begins `stagger_ns` after the previous one.
pub fn start_staggered(
    simulation: &mut Simulation,
    process: usize,
    workload: &Workload,
    pair: &Pair,
    threads: u32,
    stagger_ns: u64,
) -> Running {
    let locks: Rc<Vec<Vec<Guarded>>> = Rc::new(
        workload
            .locks
            .iter()
            .map(|&count| {
                (0..count).map(|_| Guarded::new(simulation, process, workload, pair)).collect()
            })
            .collect(),
    );
    let databases = Rc::new(Databases::new(simulation, process, workload, pair, threads));
    let steps: Rc<[Step]> = workload.steps.clone().into();
    let program = steps.iter().find_map(|step| {
        if let Step::Validation { program } = step { Some(*program) } else { None }
    });
    let shared = program.map(|program| Shared::new(simulation, program, threads));
    let finished: Vec<Rc<Cell<u64>>> = (0..threads).map(|_| Rc::default()).collect();
    let checkpoint = workload.checkpoints.then_some(pair.checkpoint);
    let mut spawn = |number: u32, steps: &Rc<[Step]>, finished: Option<Rc<Cell<u64>>>| {
        let (locks, databases, steps) = (locks.clone(), databases.clone(), steps.clone());
        let mut worker = shared.as_ref().map(|shared| Worker::new(simulation, shared));
        let body = move || {
            let mut random = fastrand::Rng::with_seed(machine::random(u64::MAX));
            machine::set_activity(Activity::Work);
            if stagger_ns != 0 {
                machine::set_activity(Activity::Away);
                machine::wait_for_io(u64::from(number) * stagger_ns);
                machine::set_activity(Activity::Work);
            }
            // Spread the threads' starts.
            machine::work(machine::random(1000));
            loop {
                let worker = worker.as_mut();
                databases.transaction(number as usize, &steps, &locks, &mut random, worker);
                if let Some(finished) = &finished {
                    finished.set(finished.get() + 1);
                }
                if let Some(checkpoint) = checkpoint {
                    checkpoint();
                }
            }
        };
        simulation.spawn(process, format!("{} {number}", workload.name), body)
    };
    let counted = (0..threads).zip(&finished);
    let counted =
        counted.map(|(number, finished)| spawn(number, &steps, Some(finished.clone()))).collect();
    let mut number = threads;
    for others in &workload.others {
        let steps: Rc<[Step]> = others.steps.clone().into();
        for _ in 0..others.threads {
            spawn(number, &steps, None);
            number += 1;
        }
    }
    Running { threads: counted, finished }
}
