//! Recorded critical sections of one lock, executed again by the threads of a simulated machine.
//!
//! The recording is a trace of `unconvoy predict --keep-trace`: the words that each sampled section
//! read and wrote, in the order of first access, and the thread that executed the section. A
//! simulated section accesses the same cache lines in the same order.
//!
//! **Which sections run at the same time.** As in Syncchar's model (section 4.2 of its report),
//! sections of different threads from one window of the recording. A simulated thread plays the
//! sections of one recorded thread for a turn, and then those of another recorded thread that no
//! simulated thread plays at the moment. The window moves through the recording evenly, from the
//! start of the simulation to its end. No more threads run than were recorded.
//!
//! **How long a section takes.** The trace has the mean time that the lock was held, but no time
//! for each section. Here, a section with twice as many words takes twice as long: each word gets
//! the same time, and so does the way to the end of the section. The recorded time contains the
//! cache hits and the accesses to memory. Only transfers between processors come on top.
//!
//! A word may be [left out](Change::LeftOut), or its accesses may [move](Change::Moved) out of the
//! section. A word that is left out keeps its time.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use unconvoy_syncchar::{Access, Section, set::LINE};

use crate::machine::{self, Activity, Lines, TransactionCounts};
use crate::pair::{Lock, Pair};
use crate::parameters::Parameters;
use crate::simulation::Simulation;

/// Sections of the recording that may run at the same time: the model's default window.
const WINDOW: usize = 512;
/// Sections that a simulated thread plays of one recorded thread, if the window has so many.
const TURN: u32 = 64;

/// The recorded sections of one lock, in the order of their unlocks, and what is changed in them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    sections: Arc<Vec<(Section, Vec<Access>)>>,
    changes: HashMap<u64, Change>,
}

/// What becomes of a section's accesses to a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// They are left out, as if each thread had its own copy of the word.
    LeftOut,
    /// They follow the section: one read-modify-write, or a load if the section only reads the
    /// word.
    Moved,
}

/// Mean times of a recorded lock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// Time of a section, in nanoseconds.
    pub section_ns: f64,
    /// Time from the end of a thread's section to the beginning of its next one, without waits.
    pub between_ns: f64,
}

impl Recording {
    /// Sections in the order of their unlocks.
    pub fn new(sections: Vec<(Section, Vec<Access>)>) -> Self {
        Recording { sections: Arc::new(sections), changes: HashMap::new() }
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// The same sections with a change of words, each given by the address of a byte in it.
    #[must_use]
    pub fn changed(&self, words: &[u64], change: Change) -> Self {
        let mut changed = self.clone();
        changed.changes.extend(words.iter().map(|address| (word_of(*address), change)));
        changed
    }

    /// The sections, with those accesses that stay in them.
    pub fn sections(&self) -> impl Iterator<Item = (Section, Vec<Access>)> {
        let stays = |access: &&Access| !self.changes.contains_key(&word_of(access.address));
        self.sections.iter().map(move |(section, accesses)| {
            (*section, accesses.iter().filter(stays).copied().collect())
        })
    }

    /// Number of cache lines that the sections access.
    pub fn lines(&self) -> usize {
        let all = self.sections.iter().flat_map(|(_, accesses)| accesses);
        all.map(|access| access.address / LINE).collect::<HashSet<_>>().len()
    }
}

fn word_of(address: u64) -> u64 {
    address & !7
}

/// An access to a cache line.
#[derive(Debug, Clone, Copy)]
struct Step {
    line: u32,
    is_read: bool,
    is_written: bool,
    change: Option<Change>,
}

#[derive(Debug)]
struct Played {
    /// Number of the recorded thread, from 0.
    thread: usize,
    does_io: bool,
    steps: Vec<Step>,
}

/// A recording, prepared for a machine.
struct Program {
    sections: Vec<Played>,
    /// The numbers of each recorded thread's sections.
    of_thread: Vec<Vec<usize>>,
    lines: Lines,
    /// Time of an access, and of the way to the end of the section, in picoseconds.
    step_ps: u64,
    hit_ps: u64,
}

impl Program {
    fn new(simulation: &mut Simulation, recording: &Recording, section_ns: f64) -> Self {
        let (mut lines, mut threads) = (HashMap::new(), HashMap::new());
        let mut of_thread: Vec<Vec<usize>> = Vec::new();
        let mut sections = Vec::with_capacity(recording.sections.len());
        let mut steps = 0;
        for (number, (section, accesses)) in recording.sections.iter().enumerate() {
            let next = threads.len();
            let thread = *threads.entry(section.thread).or_insert(next);
            if thread == of_thread.len() {
                of_thread.push(Vec::new());
            }
            of_thread[thread].push(number);
            steps += accesses.len() + 1;
            let step = |access: &Access| {
                let next = lines.len() as u32;
                let line = *lines.entry(access.address / LINE).or_insert(next);
                Step {
                    line,
                    is_read: access.read != 0,
                    is_written: access.written != 0,
                    change: recording.changes.get(&word_of(access.address)).copied(),
                }
            };
            let steps = accesses.iter().map(step).collect();
            sections.push(Played { thread, does_io: section.does_io(), steps });
        }
        let mean = steps as f64 / sections.len().max(1) as f64;
        Program {
            sections,
            of_thread,
            lines: simulation.lines(lines.len() * LINE as usize),
            step_ps: (1000.0 * section_ns / mean.max(1.0)) as u64,
            hit_ps: 1000 * simulation.parameters().memory.hit_ns,
        }
    }

    /// Executes a section of the recording. As a transaction, this may happen more than once.
    fn execute(&self, number: usize) {
        let section = &self.sections[number];
        if section.does_io {
            // Nothing can undo a system call.
            machine::leave_transaction();
        }
        for step in &section.steps {
            match step.change {
                None => self.access(step),
                Some(Change::LeftOut) => machine::work_ps(self.step_ps),
                Some(Change::Moved) => {}
            }
        }
        machine::work_ps(self.step_ps);
    }

    fn access(&self, step: &Step) {
        let address = self.lines.address(step.line as usize);
        let accesses = u64::from(step.is_read) + u64::from(step.is_written);
        machine::work_ps(self.step_ps.saturating_sub(accesses * self.hit_ps));
        if step.is_read {
            machine::load(address);
        }
        if step.is_written {
            machine::store(address);
        }
    }

    /// Executes the accesses that have moved out of a section.
    fn execute_moved(&self, number: usize) {
        for step in &self.sections[number].steps {
            if step.change != Some(Change::Moved) {
                continue;
            }
            let address = self.lines.address(step.line as usize);
            machine::work_ps(self.step_ps.saturating_sub(self.hit_ps));
            match step.is_written {
                true => machine::read_modify_write(address),
                false => machine::load(address),
            }
        }
    }
}

/// Chooses the sections that the simulated threads execute.
struct Choice {
    /// Sections chosen so far, and in all.
    begun: u64,
    total: u64,
    /// Whether a simulated thread plays each recorded thread.
    is_played: Vec<bool>,
}

/// What a simulated thread plays.
#[derive(Clone, Copy)]
struct Turn {
    /// The recorded thread.
    thread: usize,
    /// The section after the last one that was played.
    next: usize,
    left: u32,
}

impl Choice {
    /// The next section for a simulated thread; `None` at the end of the simulation.
    fn next(&mut self, program: &Program, turn: &mut Option<Turn>) -> Option<usize> {
        if self.begun == self.total {
            return None;
        }
        let count = program.sections.len();
        let start = (self.begun as u128 * count as u128 / u128::from(self.total)) as usize;
        let start = start.min(count.saturating_sub(WINDOW));
        self.begun += 1;
        if let Some(Turn { thread, next, left: 1.. }) = *turn {
            let own = &program.of_thread[thread];
            let place = own.partition_point(|&section| section < next.max(start));
            if let Some(&section) = own.get(place).filter(|&&section| section < start + WINDOW) {
                return Some(played(turn, thread, section));
            }
        }
        if let Some(former) = turn.take() {
            self.is_played[former.thread] = false;
        }
        let section = self.free_section(program, start);
        let thread = program.sections[section].thread;
        self.is_played[thread] = true;
        *turn = Some(Turn { thread, next: section + 1, left: TURN - 1 });
        Some(section)
    }

    /// A section of a recorded thread that is not played, from the narrowest window around the
    /// position that has one. There is one, because no more threads run than were recorded.
    fn free_section(&self, program: &Program, start: usize) -> usize {
        let count = program.sections.len();
        let mut width = WINDOW;
        loop {
            let from = start.saturating_sub((width - WINDOW) / 2);
            let to = (from + width).min(count);
            let first = from + machine::random((to - from) as u64) as usize;
            let is_free = |&section: &usize| !self.is_played[program.sections[section].thread];
            let found = (first..to).chain(from..first).find(is_free);
            match found {
                Some(section) => return section,
                None => width *= 2,
            }
        }
    }
}

fn played(turn: &mut Option<Turn>, thread: usize, section: usize) -> usize {
    let left = turn.map_or(0, |turn| turn.left - 1);
    *turn = Some(Turn { thread, next: section + 1, left });
    section
}

/// An execution of recorded sections.
#[derive(Debug, Clone)]
pub struct Execution<'a> {
    /// The machine. A line that no processor has touched yet takes `memory_ns`.
    pub machine: &'a Parameters,
    /// What to execute; not empty.
    pub recording: &'a Arc<Recording>,
    /// How long it takes.
    pub times: Times,
    /// The lock, or transactions.
    pub pair: &'a Pair,
    /// Greatest number of threads.
    pub threads: u32,
    /// Number of sections to execute, of all threads together.
    pub sections: u64,
    /// Random seed.
    pub seed: u64,
}

/// Counts the threads that hold or want the lock.
#[derive(Default)]
struct Usage {
    threads: u32,
    since: u64,
    busy: u64,
    within: u64,
    end: u64,
}

impl Usage {
    fn enter(&mut self, now: u64) {
        if self.threads == 0 {
            self.since = now;
        }
        self.threads += 1;
    }

    fn leave(&mut self, now: u64, within: u64) {
        self.threads -= 1;
        if self.threads == 0 {
            self.busy += now.saturating_sub(self.since);
        }
        self.within += within;
    }
}

/// The result of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// When the last section ended, in nanoseconds.
    pub ns: u64,
    /// Time in sections of all threads, without aborted attempts, in nanoseconds.
    pub within_ns: u64,
    /// Time with a thread in a section or waiting for one, in nanoseconds.
    pub busy_ns: u64,
    /// Outcomes of the machine's transactions.
    pub transactions: TransactionCounts,
    /// Number of threads.
    pub threads: u32,
}

impl Execution<'_> {
    /// Executes the sections.
    ///
    /// # Errors
    ///
    /// The host has no memory for the machine, or the program hangs.
    pub fn complete(&self) -> anyhow::Result<Completion> {
        let mut simulation = Simulation::new(self.machine, self.seed)?;
        let process = simulation.process();
        let lock: Lock = simulation.lock(process, self.pair);
        let program = Rc::new(Program::new(&mut simulation, self.recording, self.times.section_ns));
        let recorded = program.of_thread.len();
        let threads = self.threads.min(recorded as u32);
        let choice = Rc::new(RefCell::new(Choice {
            begun: 0,
            total: self.sections,
            is_played: vec![false; recorded],
        }));
        let usage: Rc<RefCell<Usage>> = Rc::default();
        // Uniform around the mean, because the trace does not say how the times vary.
        let between = (2.0 * self.times.between_ns) as u64 + 1;
        for number in 0..threads {
            let (program, choice) = (program.clone(), choice.clone());
            let usage = usage.clone();
            simulation.spawn(process, format!("thread {number}"), move || {
                machine::set_activity(Activity::Work);
                let mut turn = None;
                loop {
                    machine::work(machine::random(between));
                    // All random choices come before the section, which may run more than once.
                    let section = choice.borrow_mut().next(&program, &mut turn);
                    let Some(section) = section else { break };
                    machine::synchronise();
                    usage.borrow_mut().enter(machine::time());
                    let took = lock.section(|| {
                        let begin = machine::time();
                        program.execute(section);
                        machine::time() - begin
                    });
                    machine::synchronise();
                    usage.borrow_mut().leave(machine::time(), took);
                    program.execute_moved(section);
                    let end = &mut usage.borrow_mut().end;
                    *end = machine::time().max(*end);
                }
            });
        }
        simulation.run(u64::MAX - 1)?;
        let usage = usage.borrow();
        Ok(Completion {
            ns: usage.end,
            within_ns: usage.within,
            busy_ns: usage.busy,
            transactions: simulation.transactions(),
            threads,
        })
    }
}
