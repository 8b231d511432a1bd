//! The programs that Syncchar's predictions were validated with (Porter and Witchel 2008, section 5): Prob, RW and
//! RB-Tree.
//!
//! | program | a critical section | published |
//! | --- | --- | --- |
//! | Prob | with a probability of 50 % writes one shared variable, otherwise works on private data | the probability |
//! | RW | one thread writes a shared data structure; all others read it, and work on private data with what they read | who writes |
//! | RB-Tree | inserts a random key into a red-black tree, or removes it | 75 % insertions, keys to 200 |
//!
//! All have one lock, and 32 threads with an equal number of sections. How long a section takes, and what there is between
//! two, is not published; here a section that computes takes [`SECTION_NS`], and there are [`THINK_NS`] on average
//! between two: of those that were tried (docs/evaluation/simulated.md) what comes nearest to what the report finds. A
//! section of RB-Tree is as long as its accesses are. Nor is published when in a section the shared data
//! are written: here a value is computed and then written, and read before it is worked with. Written first, half of
//! Prob's sections would run one after the other from their beginning to their end, and no number of processors gain more
//! than a factor of 2.6; with 32 the report predicts about 16 (the
//! sections that do not write) and says that this is too little, so its own writes cannot be first. That is an inference:
//! the report's numbers are in a figure that its text does not repeat.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use super::red_black::{NodeNumber, RedBlackTree};
use crate::machine::{self, Activity, AddressSet, TransactionCounts, Word};
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

/// Threads of each in the report.
pub const THREADS: u32 = 32;

/// Computation in a section: 200 instructions of the report's machine, as long as one access to its memory.
const SECTION_NS: u64 = 200;
/// Computation between two sections, on average.
const THINK_NS: u64 = 400;

/// Lines of RW's shared data structure.
const SHARED_LINES: usize = 4;
/// In percent, how many of RB-Tree's sections insert.
const INSERTIONS: u64 = 75;
/// RB-Tree's largest key; the smallest is 0.
const LARGEST_KEY: u64 = 200;

/// What a program's threads share.
pub(super) struct Shared {
    program: Program,
    lines: Vec<Word>,
    tree: RedBlackTree,
    /// Of the tree's nodes, those that no thread has.
    nodes: RefCell<Vec<NodeNumber>>,
    workers: Cell<u32>,
}

/// A thread of a program, and what is its own.
pub(super) struct Worker {
    shared: Rc<Shared>,
    is_first: bool,
    private: Word,
    /// Nodes that are not in the tree.
    spare: Vec<NodeNumber>,
}

impl Shared {
    /// The data of a program of up to `threads` threads. RB-Tree's tree has every other key.
    pub(super) fn new(simulation: &mut Simulation, program: Program, threads: u32) -> Rc<Self> {
        let is_tree = program == Program::RbTree;
        // Every key may be in the tree, and every thread have one that it is about to insert and one that it has removed.
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
    /// The next thread of a program.
    pub(super) fn new(simulation: &mut Simulation, shared: &Rc<Shared>) -> Self {
        let number = shared.workers.replace(shared.workers.get() + 1);
        let spare = shared.nodes.borrow_mut().pop().into_iter().collect();
        Worker { shared: shared.clone(), is_first: number == 0, private: simulation.word(), spare }
    }

    /// What is between two sections.
    pub(super) fn thinks(&self) {
        machine::work(machine::random(2 * THINK_NS + 1));
    }

    /// One critical section, in what `run` makes of it: a lock's, a transaction's, a recorded one.
    pub(super) fn section(&mut self, run: impl FnOnce(&mut dyn FnMut() -> Change)) {
        let plan = self.plan();
        let change = Cell::new(Change::Nothing);
        run(&mut || {
            let result = self.carry_out(plan);
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

    /// All that is left to chance: before the section, which may run more than once.
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

    fn carry_out(&self, plan: Plan) -> Change {
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
                let sum = shared.lines.iter().fold(0, |sum: u32, line| sum.wrapping_add(line.get()));
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
            Plan::Remove(key) => return shared.tree.remove(key).map_or(Change::Nothing, Change::Removed),
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

/// What a section did to the program's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    Nothing,
    /// The thread's spare node is in the tree.
    Inserted,
    /// This one is not any more.
    Removed(NodeNumber),
}

/// A program that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// When its last thread ended, in nanoseconds.
    pub ns: u64,
    /// Critical sections of all threads.
    pub sections: u64,
    /// What came of the machine's transactions.
    pub transactions: TransactionCounts,
    /// Of RB-Tree, the keys that are left in the tree.
    pub keys: BTreeSet<u32>,
}

impl Completion {
    /// Sections per second.
    pub fn per_s(&self) -> f64 {
        self.sections as f64 * 1e9 / self.ns as f64
    }

    /// Transactions that were undone for each that took effect; 0 if none did.
    pub fn aborts_per_commit(&self) -> f64 {
        self.transactions.aborts() as f64 / self.transactions.commits.max(1) as f64
    }
}

/// One critical section's address set, recorded while it ran under its lock. The lock's own words are not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Which thread, from 0.
    pub thread: u32,
    /// What it accessed.
    pub set: AddressSet,
}

/// Some threads that go through an equal number of a program's sections, and stop: as the report measured execution
/// times.
#[derive(Debug, Clone, Copy)]
pub struct Execution<'a> {
    /// On what.
    pub machine: &'a Parameters,
    /// Of what.
    pub program: Program,
    /// How its sections exclude each other.
    pub pair: &'a Pair,
    /// Whether that is a lock of the kernel, whose waiters and holder are not preempted. Of pairs that are locks.
    pub in_kernel: bool,
    /// How many threads.
    pub threads: u32,
    /// Sections of each.
    pub sections: u32,
    /// Of all that is left to chance.
    pub seed: u64,
}

impl Execution<'_> {
    /// Runs it to its end.
    ///
    /// # Errors
    ///
    /// There is no memory for the machine, the program hangs, or RB-Tree's tree is none any more.
    pub fn complete(&self) -> anyhow::Result<Completion> {
        self.run(|_: u32, lock: &Lock, body: &mut dyn FnMut() -> Change| {
            lock.section(body);
        })
    }

    /// The same under a lock: what each section read and wrote, in the order of their ends.
    ///
    /// # Errors
    ///
    /// As of [`complete`](Self::complete).
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
                    worker.thinks();
                    worker.section(|body| section(thread, &lock, body));
                }
                end.set(machine::now().max(end.get()));
            });
        }
        simulation.run(u64::MAX - 1)?;
        let keys = shared.tree.check().map_err(|error| anyhow!("the tree is none any more: {error}"))?;
        Ok(Completion {
            ns: end.get(),
            sections: u64::from(self.threads) * u64::from(sections),
            transactions: simulation.transactions(),
            keys,
        })
    }
}
