//! The machine: simulated time, and who does what in it.
//!
//! Every simulated thread is a coroutine; all of them, and what is here, run on one thread of the host. A thread runs
//! ahead of simulated time as long as nothing else is to happen before the time that its own clock shows (the
//! *horizon*; accesses to memory, up to some nanoseconds beyond it): work costs an addition, an access that its core's cache serves a few lookups. What would come too early
//! waits: the thread announces when it goes on, and is suspended.
//!
//! Accesses take effect one at a time in the order of simulated time, so that the machine is sequentially consistent
//! whatever the orderings say: it finds no missing fence. That is loom's part.
//!
//! Here is the machine itself and how it runs; what its threads do to it is in `access` (memory) and `calls` (all else).

mod access;
mod account;
mod address_set;
mod arena;
mod calls;
mod coherence;
mod data;
mod event;
mod futex;
mod polling;
mod retry;
mod scheduler;
mod special;
mod stores;
mod thread;
mod transaction;

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fmt;

use corosensei::{CoroutineResult, Yielder};

pub(crate) use access::{changed, load, read_modify_write, store};
pub use account::{Activity, Split};
use account::{Load, LockClock};
pub use address_set::{AddressSet, recorded};
use arena::{Arena, LINES, Zeroes};
pub use calls::*;
use coherence::Caches;
pub(crate) use data::Lines;
pub use data::{Word, wait_for_word};
use event::{Event, Events};
pub use retry::{Refusal, abort_transaction, has_transactions, in_transaction, transaction};
pub(crate) use retry::{begin_transaction, end_transaction, leave_transaction, restartable, will_change};
use scheduler::Context;
use special::Special;
use thread::{Flight, State, Thread};
use transaction::Transactions;
pub use transaction::{Cause, TransactionCounts};

use crate::parameters::Parameters;
use crate::process::Process;

/// No thread.
const NOBODY: u32 = u32::MAX;

thread_local! {
    /// The machine whose thread runs on this thread of the host; null outside of simulated threads.
    static RUNNING: Cell<*mut Machine> = const { Cell::new(core::ptr::null_mut()) };
}

/// A simulated machine.
pub struct Machine {
    parameters: Parameters,
    arena: Arena,
    caches: Caches,
    /// For lines that a suspended thread has watched, its list's place in `watchers`; 0 for others.
    watch_list: Zeroes<u32>,
    watchers: Vec<Vec<u32>>,
    events: Events,
    threads: Vec<Thread>,
    contexts: Vec<Context>,
    /// Contexts without a thread.
    idle: usize,
    busy_in_core: Vec<u32>,
    /// Threads in run queues.
    queued: usize,
    parked: HashMap<usize, VecDeque<u32>>,
    clocks: Vec<LockClock>,
    loads: Vec<Load>,
    processes: Vec<Process>,
    /// The lock-contention-aware scheduler, if there is one.
    special: Option<Special>,
    random: fastrand::Rng,
    switch_lock_free_at: u64,
    /// The thread that runs, or `NOBODY` between two.
    current: u32,
    /// Its clock.
    now: u64,
    /// When something else happens.
    horizon: u64,
    core: usize,
    /// The running thread is to be preempted.
    resched: bool,
    switches: u64,
    preemptions: u64,
    accesses: u64,
    misses: u64,
    handled: u64,
    /// `None`: the machine has none.
    transactions: Option<Transactions>,
    /// Transactions, and threads whose accesses are recorded: unless it is 0, each access is looked at.
    attention: u32,
    /// Transactions whose threads do not know that they have been undone.
    doomed: u32,
}

/// What a machine did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Context switches.
    pub switches: u64,
    /// Threads that were preempted.
    pub preemptions: u64,
    /// Accesses to simulated memory.
    pub accesses: u64,
    /// Those that another cache or memory had to serve.
    pub misses: u64,
    /// Events of the simulation.
    pub events: u64,
}

/// That nothing will ever happen again, though threads have not ended: who they are, and what they wait for.
#[derive(Debug)]
pub struct Hang {
    at: u64,
    threads: String,
}

impl fmt::Display for Hang {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the simulated program hangs at {} ns:\n{}", self.at, self.threads)
    }
}

impl std::error::Error for Hang {}

impl Machine {
    pub(crate) fn new(parameters: Parameters, seed: u64) -> std::io::Result<Self> {
        let topology = parameters.topology;
        let per_core = *topology.contexts_per_core as usize;
        let contexts: Vec<Context> = (0..topology.contexts()).map(|number| Context::new(number / per_core)).collect();
        let mut events = Events::default();
        events.push(parameters.scheduler.balance_ns, Event::Balance);
        Ok(Machine {
            arena: Arena::new()?,
            caches: Caches::new(topology, parameters.memory),
            watch_list: Zeroes::new(LINES),
            watchers: Vec::new(),
            events,
            threads: Vec::new(),
            idle: contexts.len(),
            contexts,
            busy_in_core: vec![0; topology.cores()],
            queued: 0,
            parked: HashMap::new(),
            clocks: Vec::new(),
            loads: Vec::new(),
            processes: Vec::new(),
            special: None,
            random: fastrand::Rng::with_seed(seed),
            switch_lock_free_at: 0,
            current: NOBODY,
            now: 0,
            horizon: 0,
            core: 0,
            resched: false,
            switches: 0,
            preemptions: 0,
            accesses: 0,
            misses: 0,
            handled: 0,
            transactions: parameters.transactions.map(Transactions::new),
            attention: 0,
            doomed: 0,
            parameters,
        })
    }

    pub(crate) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            switches: self.switches,
            preemptions: self.preemptions,
            accesses: self.accesses,
            misses: self.misses,
            events: self.handled,
        }
    }

    pub(crate) fn place<T>(&mut self, value: T) -> *mut T {
        self.arena.place(value)
    }

    pub(crate) fn add_process(&mut self, process: Process) -> usize {
        self.processes.push(process);
        self.loads.push(Load::default());
        self.processes.len() - 1
    }

    pub(crate) fn process(&mut self, number: usize) -> &mut Process {
        &mut self.processes[number]
    }

    /// Run and run-queue time of a process's threads so far, in thread nanoseconds.
    pub(crate) fn load_of(&mut self, process: usize, now: u64) -> (u64, u64) {
        let load = &mut self.loads[process];
        load.book(now);
        (load.ran, load.waited)
    }

    pub(crate) fn runnable(&self, process: usize) -> u32 {
        self.loads[process].runnable()
    }

    pub(crate) fn lock_clock(&mut self) -> usize {
        self.new_clock()
    }

    pub(crate) fn split(&mut self, thread: u32) -> Split {
        self.split_of(thread, self.now)
    }

    /// Starts a thread; its number.
    ///
    /// # Panics
    ///
    /// There is no memory for its stack.
    pub(crate) fn spawn(&mut self, process: usize, name: String, body: impl FnOnce() + 'static) -> u32 {
        self.processes[process].add_thread();
        self.start(process, name, true, body)
    }

    pub(crate) fn spawn_apart(&mut self, process: usize, name: String, body: impl FnOnce() + 'static) -> u32 {
        self.start(process, name, false, body)
    }

    fn start(&mut self, process: usize, name: String, is_load: bool, body: impl FnOnce() + 'static) -> u32 {
        let number = self.threads.len();
        // Over the cores first, then over their contexts.
        let (cores, contexts) = (self.busy_in_core.len(), self.contexts.len());
        let place = number % contexts;
        let context = place % cores * (contexts / cores) + place / cores;
        let mut thread =
            Thread::new(name, process, is_load, context, self.now, body).expect("memory for a thread's stack");
        // Programs do not begin all their threads' slices at one time.
        thread.slice_used = self.random.u64(0..self.parameters.scheduler.slice_ns);
        self.threads.push(thread);
        self.wake(number as u32, self.now);
        number as u32
    }

    /// The running thread makes a full fence.
    pub(crate) fn fence(&mut self) {
        let drained = self.threads[self.current as usize].stores.drained_at();
        self.now = self.now.max(drained);
        self.now += self.parameters.memory.fence_ns;
    }

    fn push(&mut self, time: u64, event: Event) {
        self.horizon = self.horizon.min(time);
        self.events.push(time, event);
    }

    /// Whether threads are left that nothing will wake.
    fn is_dead(&self) -> bool {
        let is_stuck = |thread: &Thread| thread.state == State::Blocked && !thread.is_timed;
        self.idle == self.contexts.len()
            && self.threads.iter().any(|thread| thread.state != State::Done)
            && self.threads.iter().all(|thread| thread.state == State::Done || is_stuck(thread))
    }

    fn hang(&self) -> Hang {
        Hang { at: self.now, threads: self.describe() }
    }

    /// What every thread that has not ended is at.
    pub(crate) fn threads(&self) -> String {
        self.describe()
    }

    /// Simulates until `end`, or until all threads have ended.
    ///
    /// # Safety
    ///
    /// `machine` is valid and nobody else uses it meanwhile.
    pub(crate) unsafe fn run(machine: *mut Machine, end: u64) -> Result<(), Hang> {
        let before = RUNNING.replace(machine);
        let result = loop {
            // SAFETY: the caller's; a simulated thread that runs in between has its own reference, which ends there.
            let this = unsafe { &mut *machine };
            if this.events.next() > end {
                this.now = end;
                break Ok(());
            }
            let Some((time, event)) = this.events.pop() else { break Ok(()) };
            this.now = time;
            this.handled += 1;
            match event {
                Event::Resume { thread, token } => {
                    let known = &this.threads[thread as usize];
                    if known.token == token && known.state == State::Running {
                        // SAFETY: the caller's.
                        unsafe { Self::resume(machine, thread) };
                    }
                }
                Event::Timer { thread, token } => this.timer(thread, token, time),
                Event::Tick { context } => this.tick(context as usize, time),
                Event::Balance if this.threads.iter().all(|thread| thread.state == State::Done) => break Ok(()),
                Event::Balance if this.is_dead() => break Err(this.hang()),
                Event::Balance => this.balance(time),
            }
        };
        RUNNING.set(before);
        result
    }

    /// # Safety
    ///
    /// As [`run`](Self::run).
    unsafe fn resume(machine: *mut Machine, thread: u32) {
        // SAFETY: the caller's.
        let this = unsafe { &mut *machine };
        let known = &mut this.threads[thread as usize];
        known.flight = Flight::Work(0);
        let context = known.context;
        let Some(mut body) = known.body.take() else { return };
        this.current = thread;
        this.core = this.contexts[context].core;
        this.horizon = this.events.next();
        let result = body.resume(());
        // SAFETY: the caller's; the thread that had a reference is suspended or has ended.
        let this = unsafe { &mut *machine };
        if let CoroutineResult::Return(()) = result {
            this.leaves(State::Done);
        } else {
            this.threads[thread as usize].body = Some(body);
        }
        this.current = NOBODY;
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for body in self.threads.iter_mut().filter_map(|thread| thread.body.as_mut()) {
            // Threads that have not ended are forgotten where they stand: to unwind them would run code of locks
            // that expect a machine.
            // SAFETY: what is on their stacks is never used again; it is lost if it owns memory.
            unsafe { body.force_reset() };
        }
    }
}

/// A coroutine has begun.
fn began(yielder: *const Yielder<(), ()>) {
    with(|machine| {
        let current = machine.current as usize;
        machine.threads[current].yielder = yielder;
    });
}

/// Whether the caller is a simulated thread.
#[inline(always)]
pub(crate) fn is_inside() -> bool {
    let machine = RUNNING.get();
    // SAFETY: set for as long as it is valid; nobody has a reference across calls.
    !machine.is_null() && unsafe { (*machine).current } != NOBODY
}

/// Does something with the machine that the caller runs on. It must not suspend the caller.
///
/// # Panics
///
/// The caller is no simulated thread.
#[inline(always)]
pub(crate) fn with<R>(work: impl FnOnce(&mut Machine) -> R) -> R {
    let machine = RUNNING.get();
    assert!(!machine.is_null(), "not on a simulated machine");
    // SAFETY: set for as long as it is valid; references do not outlive this function, and `work` suspends nobody.
    work(unsafe { &mut *machine })
}

fn suspend() {
    let yielder = with(|machine| machine.threads[machine.current as usize].yielder);
    // SAFETY: the running thread's own, which lives on the stack that this runs on.
    unsafe { (*yielder).suspend(()) };
}
