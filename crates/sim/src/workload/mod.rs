//! What simulated programs do: transactions of work, critical sections and waits, over and over.

mod bench;
mod kernel;
mod mixes;
pub mod profile;
mod program;
pub mod red_black;
pub(crate) mod table;
pub mod validation;

use std::cell::Cell;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::machine::{self, Activity};
use crate::pair::{Lock, Pair};
use crate::simulation::Simulation;

pub(crate) use bench::USUAL;
pub use bench::{bench_counter, hashtable};
pub use mixes::{WORKLOADS, named, on};
use program::Databases;
use validation::{Program, Shared, Worker};

/// A program: every thread goes through these steps again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// What results call it.
    pub name: String,
    /// Groups of locks, by the number of locks in each; a step takes one of its group by chance.
    pub locks: Vec<u32>,
    /// One transaction.
    pub steps: Vec<Step>,
    /// Whether the locks are the operating system's: without owners and statistics, and who waits for a spin lock or
    /// holds one is not preempted.
    #[serde(default)]
    pub in_kernel: bool,
}

/// A part of a transaction. Times are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Computation outside of critical sections, for exactly so long.
    Work {
        /// How long.
        ns: u64,
    },
    /// The same, exponentially distributed about a mean.
    Varying {
        /// The mean.
        ns: u64,
    },
    /// A critical section.
    Section {
        /// Which group's lock.
        group: usize,
        /// Computation in it.
        ns: u64,
        /// Cache lines of shared data that it writes.
        lines: u32,
    },
    /// A row or table of a database is locked for the rest of the transaction: who has to wait sleeps.
    Hold {
        /// Among so many rows, one by chance.
        rows: u32,
    },
    /// A critical section that comes by chance, of exponentially distributed length.
    Perhaps {
        /// Which group's lock.
        group: usize,
        /// How often of a million times.
        per_million: u32,
        /// Mean of the computation in it.
        ns: u64,
        /// Cache lines of shared data that it writes.
        lines: u32,
    },
    /// Computation outside of critical sections whose time was measured: picoseconds.
    Measured {
        /// How long.
        ps: u64,
    },
    /// A critical section that looks at the clock until its time is over, whether or not it had a processor.
    Clocked {
        /// Which group's lock.
        group: usize,
        /// Until when.
        ns: u64,
        /// Cache lines of shared data that it writes.
        lines: u32,
        /// What the calls that lock and unlock take more with another lock than the default, picoseconds.
        dispatch_ps: u64,
    },
    /// The same outside of critical sections.
    Clock {
        /// Until when.
        ns: u64,
    },
    /// An operation on the hash table of `unconvoy bench hashtable`, whose buckets have the locks of the first group.
    /// Picoseconds.
    Table {
        /// To choose a key and an operation.
        outside_ps: u64,
        /// Under the lock, whatever the list.
        section_ps: u64,
        /// For each node on the way to the key.
        visit_ps: u64,
        /// What the calls that lock and unlock take beyond their accesses.
        call_ps: u64,
        /// What they take more with another lock than the default.
        dispatch_ps: u64,
    },
    /// The task ends, by chance, and another one is started in its place.
    Renew {
        /// In one of so many transactions; at least 1.
        one_in: u32,
        /// What both take.
        ns: u64,
    },
    /// Input or output.
    Away {
        /// How long.
        ns: u64,
    },
    /// A critical section of a validation program, under the first lock, and what is before it. A workload has one
    /// such step.
    Validation {
        /// Which.
        program: Program,
    },
}

/// The counter micro-benchmark: one lock, and a fixed time between two requests.
pub fn counter(section_ns: u64, think_ns: u64, lines: u32) -> Workload {
    let section = Step::Section { group: 0, ns: section_ns, lines };
    Workload {
        name: "counter".to_string(),
        locks: vec![1],
        steps: vec![section, Step::Work { ns: think_ns }],
        in_kernel: false,
    }
}

/// `locks` locks, one of them by chance for each section of 500 ns, and 20 us on average between two.
pub(crate) fn buckets(locks: u32) -> Workload {
    let section = Step::Section { group: 0, ns: 500, lines: 1 };
    Workload {
        name: "buckets".to_string(),
        locks: vec![locks],
        steps: vec![section, Step::Varying { ns: 20_000 }],
        in_kernel: false,
    }
}

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

/// A lock and the data that it protects.
pub(crate) struct Guarded {
    lock: Lock,
    data: Vec<machine::Word>,
}

impl Guarded {
    fn new(simulation: &mut Simulation, process: usize, workload: &Workload, pair: &Pair) -> Self {
        let lines = workload.steps.iter().map(|step| match step {
            Step::Section { lines, .. } | Step::Clocked { lines, .. } | Step::Perhaps { lines, .. } => *lines,
            _ => 0,
        });
        let lines = lines.max().unwrap_or(0);
        let lock =
            if workload.in_kernel { simulation.kernel_lock(process, pair) } else { simulation.lock(process, pair) };
        Guarded { lock, data: (0..lines).map(|_| simulation.word()).collect() }
    }

    /// One critical section that lasts until the clock says so.
    fn clocked(&self, ns: u64, lines: u32, call_ps: u64) {
        machine::work_ps(call_ps / 2);
        self.lock.lock();
        for word in &self.data[..lines as usize] {
            word.increment();
        }
        machine::delay(ns);
        machine::work_ps(call_ps - call_ps / 2);
        self.lock.unlock();
    }

    /// One critical section.
    fn section(&self, ns: u64, lines: u32) {
        self.lock.section(|| {
            for word in &self.data[..lines as usize] {
                word.increment();
            }
            machine::work(ns);
        });
    }
}
