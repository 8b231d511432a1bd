//! The programs that validated Syncchar's predictions (Porter and Witchel 2008, section 5): Prob,
//! RW and RB-Tree.
//!
//! | program | a critical section | published |
//! | --- | --- | --- |
//! | Prob | writes one shared variable with a probability of 50 %, otherwise works on private data | the probability |
//! | RW | one thread writes a shared structure; the others read it and work on private data | which threads write |
//! | RB-Tree | inserts a random key into a red-black tree, or removes it | 75 % insertions, keys to 200 |
//!
//! Each program has one lock, and 32 threads with equal numbers of sections. The report publishes
//! neither the time of a section nor the time between sections. Here, a computing section takes
//! [`SECTION_NS`], and [`THINK_NS`] pass between sections on average. Among the values tried
//! (docs/evaluation/simulated.md), these come nearest to the report's findings. A section of
//! RB-Tree takes as long as its accesses.
//!
//! Nor does the report say when a section writes the shared data. Here, a section first computes
//! and then writes, or reads and then computes. If Prob wrote first, half of its sections would run
//! one after the other in full, and no number of processors would gain more than a factor of 2.6.
//! For 32 processors the report predicts a factor of about 16, from the sections that do not write,
//! and says that the measured factor is higher. Its Prob therefore cannot write first. This is an
//! inference, because the report gives the numbers only in a figure.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use super::red_black::{NodeNumber, RedBlackTree};
use crate::machine::{self, Activity, AddressSet, TransactionCounts, Word};
use crate::messages;
use crate::pair::{Lock, Pair};
use crate::parameters::Parameters;
use crate::simulation::Simulation;

/// One of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// One variable, written by half of the sections.
    Prob,
    /// One writer, many readers.
    Rw,
    /// A red-black tree.
    RbTree,
}

/// Number of threads of each program in the report.
pub const THREADS: u32 = 32;

/// Computation in a section: 200 instructions of the report's machine, the time of one access to
/// its memory.
const SECTION_NS: u64 = 200;
/// Mean computation between two sections.
const THINK_NS: u64 = 400;

const SHARED_LINES: usize = 4;
/// Percentage of RB-Tree's sections that insert.
const INSERTIONS: u64 = 75;
/// Largest key of RB-Tree; the smallest is 0.
const LARGEST_KEY: u64 = 200;

/// Data that a program's threads share.
pub(super) struct Shared {
    program: Program,
    lines: Vec<Word>,
    tree: RedBlackTree,
    /// Tree nodes that no thread owns.
    nodes: RefCell<Vec<NodeNumber>>,
    workers: Cell<u32>,
}

/// A thread of a program, with its private data.
pub(super) struct Worker {
    shared: Rc<Shared>,
    is_first: bool,
    private: Word,
    /// Nodes that are not in the tree.
    spare: Vec<NodeNumber>,
}

impl Shared {
    /// Creates the data of a program with up to `threads` threads. RB-Tree's tree holds every other
    /// key.
    pub(super) fn new(simulation: &mut Simulation, program: Program, threads: u32) -> Rc<Self> {
        let is_tree = program == Program::RbTree;
        // Enough if every key is in the tree, and every thread has one node to insert and one that
        // it has removed.
        let count = if is_tree { LARGEST_KEY as u32 + 1 + 2 * threads } else { 0 };
        let (tree, mut nodes) = RedBlackTree::new(simulation, count);
        if is_tree {
            for key in (0..=LARGEST_KEY as u32).step_by(2) {
                if let Some(node) = nodes.pop() {
                    tree.insert(key, node);
                }
            }
        }
        Rc::new(Shared {
            program,
            lines: (0..SHARED_LINES).map(|_| simulation.word()).collect(),
            tree,
            nodes: RefCell::new(nodes),
            workers: Cell::new(0),
        })
    }
}

impl Worker {
    /// Creates the next thread of a program.
    pub(super) fn new(simulation: &mut Simulation, shared: &Rc<Shared>) -> Self {
        let number = shared.workers.replace(shared.workers.get() + 1);
        let spare = shared.nodes.borrow_mut().pop().into_iter().collect();
        Worker { shared: shared.clone(), is_first: number == 0, private: simulation.word(), spare }
    }

    pub(super) fn think(&self) {
        machine::work(machine::random(2 * THINK_NS + 1));
    }

    /// Passes one critical section to `run`, which executes it under a lock, as a transaction, or
    /// recorded.
    pub(super) fn section(&mut self, run: impl FnOnce(&mut dyn FnMut() -> Change)) {
        let plan = self.plan();
        let change = Cell::new(Change::Nothing);
        run(&mut || {
            let result = self.execute(plan);
            change.set(result);
            result
        });
        match change.get() {
            Change::Nothing => {}
            Change::Inserted => {
                self.spare.pop();
                self.spare.extend(self.shared.nodes.borrow_mut().pop());
            }
            Change::Removed(node) => self.shared.nodes.borrow_mut().push(node),
        }
    }

    /// Makes all random choices before the section, which may run more than once.
    fn plan(&self) -> Plan {
        match self.shared.program {
            Program::Prob if machine::random(2) == 0 => Plan::Write,
            Program::Prob => Plan::Private,
            Program::Rw if self.is_first => Plan::Publish,
            Program::Rw => Plan::Read,
            Program::RbTree if machine::random(100) < INSERTIONS => {
                Plan::Insert(machine::random(LARGEST_KEY + 1) as u32)
            }
            Program::RbTree => Plan::Remove(machine::random(LARGEST_KEY + 1) as u32),
        }
    }

    fn execute(&self, plan: Plan) -> Change {
        let shared = &self.shared;
        match plan {
            Plan::Write => {
                machine::work(SECTION_NS);
                shared.lines[0].set(machine::current());
            }
            Plan::Private => {
                machine::work(SECTION_NS);
                self.private.set(machine::current());
            }
            Plan::Publish => {
                machine::work(SECTION_NS);
                shared.lines.iter().for_each(|line| line.set(machine::current()));
            }
            Plan::Read => {
                let sum =
                    shared.lines.iter().fold(0, |sum: u32, line| sum.wrapping_add(line.get()));
                machine::work(SECTION_NS);
                self.private.set(sum);
            }
            Plan::Insert(key) => {
                if let Some(&spare) = self.spare.last()
                    && shared.tree.insert(key, spare)
                {
                    return Change::Inserted;
                }
            }
            Plan::Remove(key) => {
                return shared.tree.remove(key).map_or(Change::Nothing, Change::Removed);
            }
        }
        Change::Nothing
    }
}

#[derive(Clone, Copy)]
enum Plan {
    Write,
    Private,
    Publish,
    Read,
    Insert(u32),
    Remove(u32),
}

/// Effect of a section on the program's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// No effect.
    Nothing,
    /// The thread's spare node is now in the tree.
    Inserted,
    /// This node is no longer in the tree.
    Removed(NodeNumber),
}

/// The result of a completed program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// When the last thread ended, in nanoseconds.
    pub ns: u64,
    /// Number of critical sections of all threads.
    pub sections: u64,
    /// Outcomes of the machine's transactions.
    pub transactions: TransactionCounts,
    /// Keys left in RB-Tree's tree.
    pub keys: BTreeSet<u32>,
}

impl Completion {
    /// Sections per second.
    pub fn per_s(&self) -> f64 {
        self.sections as f64 * 1e9 / self.ns as f64
    }

    /// Aborts per commit; the number of aborts if nothing committed.
    pub fn aborts_per_commit(&self) -> f64 {
        self.transactions.aborts() as f64 / self.transactions.commits.max(1) as f64
    }
}

/// The address set of one critical section under its lock, without the lock's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Number of the thread, from 0.
    pub thread: u32,
    /// The accesses.
    pub set: AddressSet,
}

/// An execution in which every thread runs an equal number of the program's sections and ends. The
/// report measures execution times in this way.
#[derive(Debug, Clone, Copy)]
pub struct Execution<'a> {
    /// The machine.
    pub machine: &'a Parameters,
    /// The program.
    pub program: Program,
    /// The lock, or transactions.
    pub pair: &'a Pair,
    /// Whether `pair` becomes a kernel lock, whose waiters and holder are not preempted. Only for
    /// locks.
    pub in_kernel: bool,
    /// Number of threads.
    pub threads: u32,
    /// Sections per thread.
    pub sections: u32,
    /// Random seed.
    pub seed: u64,
}

impl Execution<'_> {
    /// Runs the program to its end.
    ///
    /// # Errors
    ///
    /// The host has no memory for the machine, the program hangs, or RB-Tree's tree is corrupt.
    pub fn complete(&self) -> anyhow::Result<Completion> {
        self.run(|_: u32, lock: &Lock, body: &mut dyn FnMut() -> Change| {
            lock.section(body);
        })
    }

    /// Runs the program under a lock and returns the address sets of its sections, in the order of
    /// their ends.
    ///
    /// # Errors
    ///
    /// See [`complete`](Self::complete).
    pub fn address_sets(&self) -> anyhow::Result<Vec<Recorded>> {
        let all = Rc::new(RefCell::new(Vec::new()));
        let kept = all.clone();
        self.run(move |thread: u32, lock: &Lock, body: &mut dyn FnMut() -> Change| {
            let (_, set) = lock.section(|| machine::recorded(&mut *body));
            kept.borrow_mut().push(Recorded { thread, set });
        })?;
        Ok(all.take())
    }

    fn run(
        &self,
        section: impl Fn(u32, &Lock, &mut dyn FnMut() -> Change) + Clone + 'static,
    ) -> anyhow::Result<Completion> {
        let mut simulation = Simulation::new(self.machine, self.seed)?;
        let process = simulation.process();
        let lock = match self.in_kernel {
            true => simulation.kernel_lock(process, self.pair),
            false => simulation.lock(process, self.pair),
        };
        let shared = Shared::new(&mut simulation, self.program, self.threads);
        let end = Rc::new(Cell::new(0));
        let sections = self.sections;
        for thread in 0..self.threads {
            let mut worker = Worker::new(&mut simulation, &shared);
            let (end, section) = (end.clone(), section.clone());
            simulation.spawn(process, format!("thread {thread}"), move || {
                machine::set_activity(Activity::Work);
                for _ in 0..sections {
                    worker.think();
                    worker.section(|body| section(thread, &lock, body));
                }
                end.set(machine::now().max(end.get()));
            });
        }
        simulation.run(u64::MAX - 1)?;
        let keys = shared.tree.check().map_err(|error| anyhow!(messages::corrupt_tree(&error)))?;
        Ok(Completion {
            ns: end.get(),
            sections: u64::from(self.threads) * u64::from(sections),
            transactions: simulation.transactions(),
            keys,
        })
    }
}
