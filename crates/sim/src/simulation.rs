//! A machine with a program on it: what workloads are written with.

use unconvoy::load::LoadControl;
use unconvoy::primitive::Atomic as _;
use unconvoy_sched::{Change, Policy, State};

use crate::machine::{self, Counts, Hang, Lines, Machine, Split, TransactionCounts, Word};
use crate::pair::{Lock, Pair};
use crate::parameters::Parameters;
use crate::process::Process;

/// A machine and what runs on it. It stays on one thread of the host.
pub struct Simulation {
    machine: Box<Machine>,
}

impl Simulation {
    /// A machine on which nothing runs. The same seed gives the same results.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
    pub fn new(parameters: &Parameters, seed: u64) -> std::io::Result<Self> {
        Ok(Simulation { machine: Box::new(Machine::new(parameters.clone(), seed)?) })
    }

    /// A process; its number.
    pub fn process(&mut self) -> usize {
        let process = Process::new(&mut self.machine);
        self.machine.add_process(process)
    }

    /// What the threads of a process share.
    fn shared(&mut self, process: usize) -> &mut Process {
        self.machine.process(process)
    }

    /// A lock. The process's load control has the interval that goes with it.
    pub fn lock(&mut self, process: usize, pair: &Pair) -> Lock {
        self.set_interval(process, pair.interval_ns);
        Lock::new(&mut self.machine, pair)
    }

    /// A lock of the operating system's kernel.
    pub fn kernel_lock(&mut self, process: usize, pair: &Pair) -> Lock {
        self.set_interval(process, pair.interval_ns);
        Lock::in_kernel(&mut self.machine, pair)
    }

    /// A word of shared data.
    pub fn word(&mut self) -> Word {
        Word::new(&mut self.machine)
    }

    /// Moves `value` to the machine's memory, on cache lines of its own.
    pub(crate) fn settle<T>(&mut self, value: T) -> &'static T {
        // SAFETY: nothing that the machine's threads do outlives it, and nobody else is given such references.
        unsafe { &*self.machine.place(value) }
    }

    /// Lines of shared data, one after the other.
    pub(crate) fn lines(&mut self, bytes: usize) -> Lines {
        Lines::new(&mut self.machine, bytes)
    }

    /// Sets the interval of the process's controller, in nanoseconds.
    pub fn set_interval(&mut self, process: usize, ns: u64) {
        self.control(process).interval.store(ns, std::sync::atomic::Ordering::Relaxed);
    }

    /// The load control of a process.
    pub fn control(&mut self, process: usize) -> &'static LoadControl<machine::Simulated> {
        self.shared(process).control()
    }

    /// Has the process's controllers aim at so many contexts, and not at all that there are.
    pub fn aim_at(&mut self, process: usize, contexts: f64) {
        self.shared(process).aim_at(contexts);
    }

    /// Has the process's controllers read the load of the whole machine, as the sensor `loadavg` does.
    pub fn see_all(&mut self, process: usize) {
        self.shared(process).see_all();
    }

    /// Has the process no controller, as where an experiment sets the sleep target.
    pub fn without_controller(&mut self, process: usize) {
        self.shared(process).set_controlled(false);
    }

    /// Has the machine's scheduler be the lock-contention-aware one (ACM TACO 9(4), 2013).
    ///
    /// # Panics
    ///
    /// There are threads already.
    pub fn schedule_specially(&mut self, parameters: unconvoy_sched::Parameters) {
        self.machine.schedule_specially(parameters);
    }

    /// That scheduler's policy, if it is the machine's.
    pub fn policy(&self) -> Option<&Policy> {
        self.machine.policy()
    }

    /// When the special set's size became another one, and which.
    pub fn changes_of_the_set(&self) -> &[(u64, Change)] {
        self.machine.changes_of_the_set()
    }

    /// Whether thread `thread` is lock-intensive, and the context that it runs on or ran on last.
    pub fn standing(&self, thread: u32) -> (State, usize) {
        self.machine.standing(thread)
    }

    /// Starts a thread; its number.
    pub fn spawn(&mut self, process: usize, name: impl Into<String>, body: impl FnOnce() + 'static) -> u32 {
        machine::spawn(&mut self.machine, process, name.into(), true, body)
    }

    /// Starts a thread that is no load of the process; its number.
    pub fn spawn_apart(&mut self, process: usize, name: &str, body: impl FnOnce() + 'static) -> u32 {
        machine::spawn(&mut self.machine, process, name.to_string(), false, body)
    }

    /// Simulates until the time `end` in nanoseconds, or until all threads have ended.
    ///
    /// # Errors
    ///
    /// Nothing will ever happen again, although threads have not ended.
    pub fn run(&mut self, end: u64) -> Result<(), Hang> {
        machine::run(&mut self.machine, end)
    }

    /// Where the time of thread `thread` went so far.
    pub fn split(&mut self, thread: u32) -> Split {
        self.machine.split(thread)
    }

    /// What the machine did so far.
    pub fn counts(&self) -> Counts {
        self.machine.counts()
    }

    /// What came of the machine's transactions so far.
    pub fn transactions(&self) -> TransactionCounts {
        self.machine.transactions()
    }

    /// Threads of a process that run or wait to run.
    pub fn runnable(&self, process: usize) -> u32 {
        self.machine.runnable(process)
    }

    /// Intervals that the process's controllers served.
    pub fn intervals(&mut self, process: usize) -> u32 {
        self.shared(process).intervals()
    }

    /// What every thread that has not ended is at.
    pub fn threads(&self) -> String {
        self.machine.describe_threads()
    }

    /// The machine's description.
    pub fn parameters(&self) -> &Parameters {
        self.machine.parameters()
    }
}
