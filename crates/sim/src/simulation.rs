//! A machine with a program on it: the interface that workloads use.

use unconvoy::load::LoadControl;
use unconvoy::primitive::Atomic as _;
use unconvoy_sched::{Change, Policy, State};

use crate::machine::{
    self, Counts, Hang, Interruptions, Lines, Machine, Split, TransactionCounts, Waits, Word,
};
use crate::pair::{Lock, Pair, SharedLock};
use crate::parameters::Parameters;
use crate::process::{Process, Readers};

/// A machine and its program. It stays on one host thread.
pub struct Simulation {
    machine: Box<Machine>,
}

impl Simulation {
    /// Creates a machine without threads. Equal seeds give equal results.
    ///
    /// # Errors
    ///
    /// The host has no memory for the machine.
    pub fn new(parameters: &Parameters, seed: u64) -> std::io::Result<Self> {
        Ok(Simulation { machine: Box::new(Machine::new(parameters.clone(), seed)?) })
    }

    /// Adds a process and returns its number.
    pub fn process(&mut self) -> usize {
        let process = Process::new(&mut self.machine);
        self.machine.add_process(process)
    }

    /// The data that the threads of a process share.
    fn shared(&mut self, process: usize) -> &mut Process {
        self.machine.process(process)
    }

    /// Creates a lock, and sets the process's controller interval to the pair's.
    pub fn lock(&mut self, process: usize, pair: &Pair) -> Lock {
        self.set_interval(process, pair.interval_ns);
        Lock::new(&mut self.machine, pair)
    }

    /// Creates a lock of the simulated operating system's kernel.
    pub fn kernel_lock(&mut self, process: usize, pair: &Pair) -> Lock {
        self.set_interval(process, pair.interval_ns);
        Lock::in_kernel(&mut self.machine, pair)
    }

    /// Creates a reader-writer lock, and sets the process's controller interval to the pair's.
    ///
    /// # Panics
    ///
    /// Panics if the pair has no reader-writer lock.
    pub fn shared_lock(&mut self, process: usize, pair: &Pair) -> SharedLock {
        self.set_interval(process, pair.interval_ns);
        if !self.shared(process).has_readers() {
            let readers = self.allocate(Readers::new());
            self.shared(process).set_readers(readers);
        }
        SharedLock::new(&mut self.machine, pair)
    }

    /// Allocates a word of shared data.
    pub fn word(&mut self) -> Word {
        Word::new(&mut self.machine)
    }

    /// Moves `value` to the machine's memory, on cache lines of its own.
    pub(crate) fn allocate<T>(&mut self, value: T) -> &'static T {
        // SAFETY: the reference goes only to the machine's threads, and none of them outlives the
        // machine.
        unsafe { &*self.machine.allocate(value) }
    }

    /// Allocates consecutive lines of shared data.
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

    /// Makes the process's controllers aim at `contexts` instead of the whole machine.
    pub fn aim_at(&mut self, process: usize, contexts: f64) {
        self.shared(process).aim_at(contexts);
    }

    /// Makes the process's controllers read the load of the whole machine, like the sensor
    /// `loadavg`.
    pub fn read_machine_load(&mut self, process: usize) {
        self.shared(process).read_machine_load();
    }

    /// Lets the threads of `process` that are added from now on begin on `context`, even if another
    /// is idle: Linux puts a new thread on its creator's processor unless another is idle, and none
    /// is while two programs start.
    pub(crate) fn start_on(&mut self, process: usize, context: usize) {
        self.machine.start_on(process, context);
    }

    /// Disables the process's controller, for experiments that set the sleep target.
    pub fn without_controller(&mut self, process: usize) {
        self.shared(process).set_controlled(false);
    }

    /// Enables the lock-contention-aware scheduler (ACM TACO 9(4), 2013).
    ///
    /// # Panics
    ///
    /// Panics if the machine has threads already.
    pub fn enable_special_set(&mut self, parameters: unconvoy_sched::Parameters) {
        self.machine.enable_special_set(parameters);
    }

    /// Interrupts the machine's contexts at random times, which depend on `seed`.
    ///
    /// # Panics
    ///
    /// Panics if the mean time between two interruptions is 0.
    pub fn enable_interruptions(&mut self, parameters: Interruptions, seed: u64) {
        let process = self.process();
        self.machine.enable_interruptions(parameters, seed, process);
    }

    /// Number of interruptions so far.
    pub fn interruptions(&self) -> u64 {
        self.machine.interruptions()
    }

    /// Records the threads' waits for locks, and those of which more than `bound` nanoseconds
    /// count.
    ///
    /// # Panics
    ///
    /// Panics if the machine has threads already.
    pub(crate) fn record_waits(&mut self, bound: u64) {
        self.machine.record_waits(bound);
    }

    /// The waits so far, also those of threads that still wait. `None` unless they are recorded.
    pub(crate) fn waits(&mut self) -> Option<&Waits> {
        self.machine.waits()
    }

    /// The policy of the lock-contention-aware scheduler, if enabled.
    pub fn policy(&self) -> Option<&Policy> {
        self.machine.policy()
    }

    /// Changes of the special set's size, with their times.
    pub fn set_changes(&self) -> &[(u64, Change)] {
        self.machine.set_changes()
    }

    /// State of `thread` in the policy, and the context that it runs on or ran on last.
    pub fn special_state(&self, thread: u32) -> (State, usize) {
        self.machine.special_state(thread)
    }

    /// Starts a thread and returns its number.
    pub fn spawn(
        &mut self,
        process: usize,
        name: impl Into<String>,
        body: impl FnOnce() + 'static,
    ) -> u32 {
        machine::spawn(&mut self.machine, process, name.into(), true, body)
    }

    /// Starts a thread that does not count as load, and returns its number.
    pub fn spawn_uncounted(
        &mut self,
        process: usize,
        name: &str,
        body: impl FnOnce() + 'static,
    ) -> u32 {
        machine::spawn(&mut self.machine, process, name.to_string(), false, body)
    }

    /// Simulates until `end` (in nanoseconds), or until all threads have ended.
    ///
    /// # Errors
    ///
    /// The program hangs: no event can wake its remaining threads.
    pub fn run(&mut self, end: u64) -> Result<(), Hang> {
        machine::run(&mut self.machine, end)
    }

    /// The time of `thread` so far.
    pub fn split(&mut self, thread: u32) -> Split {
        self.machine.split(thread)
    }

    /// Time that each of the machine's contexts has had a thread so far, in nanoseconds.
    pub fn busy_times(&self) -> Vec<u64> {
        self.machine.busy_times()
    }

    /// The machine's event counts so far.
    pub fn counts(&self) -> Counts {
        self.machine.counts()
    }

    /// The outcomes of transactions so far.
    pub fn transactions(&self) -> TransactionCounts {
        self.machine.transactions()
    }

    /// Number of threads of a process that run or wait to run.
    pub fn runnable(&self, process: usize) -> u32 {
        self.machine.runnable(process)
    }

    /// Number of controller intervals of the process so far.
    pub fn intervals(&mut self, process: usize) -> u32 {
        self.shared(process).intervals()
    }

    /// Activities of the unfinished threads, one per line.
    pub fn threads(&self) -> String {
        self.machine.describe_threads()
    }

    /// The machine's parameters.
    pub fn parameters(&self) -> &Parameters {
        self.machine.parameters()
    }
}
