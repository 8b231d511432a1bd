//! Execution of a transaction's steps.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::guarded::Guarded;
use super::lookup::Lookups;
use super::step::{Step, Workload};
use super::table::{Costs, Table};
use super::validation::Worker;
use crate::machine::{self, Activity, Word};
use crate::pair::Pair;
use crate::simulation::Simulation;

/// The data that the threads of a program share, beside what its mutexes guard.
pub(super) struct Databases {
    rows: Vec<Row>,
    /// Indexed by thread: where it sleeps for a row.
    sleep_words: Vec<Word>,
    table: Option<Table>,
    lookups: Option<Lookups>,
}

/// A row of a database. A transaction locks rows until it ends; a waiter sleeps at once and
/// receives the row from its holder. These are logical locks, which a database keeps in its own
/// tables, not mutexes.
struct Row {
    is_held: Cell<bool>,
    /// The program's threads that wait, in order of arrival. Threads may fall asleep in another
    /// order, so each sleeps on a word of its own: a wake-up reaches the new holder and no other.
    waiters: RefCell<VecDeque<usize>>,
    word: Word,
}

/// Time to find a row's entry in the lock table.
const LOOK_UP_NS: u64 = 500;

impl Databases {
    pub(super) fn new(
        simulation: &mut Simulation,
        process: usize,
        workload: &Workload,
        pair: &Pair,
        threads: u32,
    ) -> Self {
        let steps = &workload.steps;
        let rows =
            steps.iter().map(|step| if let Step::Hold { rows } = step { *rows } else { 0 }).max();
        let row = |_| Row {
            is_held: Cell::new(false),
            waiters: RefCell::new(VecDeque::new()),
            word: simulation.word(),
        };
        let rows: Vec<Row> = (0..rows.unwrap_or(0)).map(row).collect();
        let others: u32 = workload.others.iter().map(|others| others.threads).sum();
        let sleepers = if rows.is_empty() { 0 } else { threads + others };
        let sleep_words = (0..sleepers).map(|_| simulation.word()).collect();
        let has_table = steps.iter().any(|step| matches!(step, Step::Table { .. }));
        let table = has_table.then(|| Table::new(simulation, 1));
        let has_lookups = workload.has_shared_lock();
        let lookups = has_lookups.then(|| Lookups::new(simulation, process, pair));
        Databases { rows, sleep_words, table, lookups }
    }

    /// Executes the steps once, for thread `number` of the program.
    pub(super) fn transaction(
        &self,
        number: usize,
        steps: &[Step],
        locks: &[Vec<Guarded>],
        random: &mut fastrand::Rng,
        mut worker: Option<&mut Worker>,
    ) {
        let mut held: Vec<usize> = Vec::new();
        for step in steps {
            match *step {
                Step::Work { ns } => machine::work(ns),
                Step::Varying { ns } => machine::work(exponential(ns)),
                Step::Section { group, ns, lines } => {
                    let group = &locks[group];
                    let which = if group.len() == 1 {
                        0
                    } else {
                        machine::random(group.len() as u64) as usize
                    };
                    group[which].section(ns, lines);
                }
                Step::Hold { rows } => {
                    // Lock rows in ascending order to prevent deadlock.
                    let row = machine::random(u64::from(rows)) as usize;
                    if held.last().is_none_or(|&last| row > last) {
                        self.hold(row, number);
                        held.push(row);
                    }
                }
                Step::Perhaps { group, per_million, ns, lines } => {
                    if machine::random(1_000_000) < u64::from(per_million) {
                        locks[group][0].section(exponential(ns), lines);
                    }
                }
                Step::Measured { ps } => machine::work_ps(ps),
                Step::Clock { ns } => machine::delay(ns),
                Step::Clocked { group, ns, lines, dispatch_ps } => {
                    locks[group][0].clocked(ns, lines, dispatch_ps);
                }
                Step::Nested { outer, inner, outer_ns, inner_ns, dispatch_ps } => {
                    let inner = || locks[inner][0].clocked(inner_ns, 1, dispatch_ps);
                    locks[outer][0].around(outer_ns, 1, dispatch_ps, inner);
                }
                Step::Table { outside_ps, section_ps, visit_ps, call_ps, dispatch_ps } => {
                    let call_ps = locks[0][0].lock.call_ps(call_ps, dispatch_ps);
                    let costs = Costs { outside_ps, section_ps, visit_ps, call_ps };
                    if let Some(table) = &self.table {
                        table.operation(random, &locks[0], costs);
                    }
                }
                Step::Lookup { changes_per_million, outside_ps } => {
                    if let Some(lookups) = &self.lookups {
                        lookups.operation(random, changes_per_million, outside_ps);
                    }
                }
                Step::Renew { one_in, ns } => {
                    if machine::random(u64::from(one_in)) == 0 {
                        machine::renew(ns);
                    }
                }
                Step::Away { ns } => {
                    machine::set_activity(Activity::Away);
                    machine::wait_for_io(ns);
                    machine::set_activity(Activity::Work);
                }
                Step::Validation { .. } => {
                    if let Some(worker) = worker.as_deref_mut() {
                        worker.think();
                        worker.section(|body| {
                            locks[0][0].lock.section(body);
                        });
                    }
                }
            }
        }
        held.into_iter().for_each(|row| self.release_row(row));
    }

    fn hold(&self, row: usize, number: usize) {
        machine::work(LOOK_UP_NS);
        let row = &self.rows[row];
        row.word.increment();
        if row.is_held.replace(true) {
            row.waiters.borrow_mut().push_back(number);
            machine::set_activity(Activity::Away);
            let is_waiting = || row.waiters.borrow().contains(&number);
            machine::wait_for_word(&self.sleep_words[number], is_waiting);
            machine::set_activity(Activity::Work);
        }
    }

    fn release_row(&self, row: usize) {
        machine::work(LOOK_UP_NS);
        let row = &self.rows[row];
        row.word.increment();
        let next = row.waiters.borrow_mut().pop_front();
        match next {
            Some(number) => self.sleep_words[number].wake_one(),
            None => row.is_held.set(false),
        }
    }
}

/// A random time, exponentially distributed with a mean of `ns` nanoseconds.
fn exponential(ns: u64) -> u64 {
    const STEPS: u64 = 1 << 32;
    let uniform = (machine::random(STEPS) + 1) as f64 / STEPS as f64;
    (-(ns as f64) * uniform.ln()).round() as u64
}
