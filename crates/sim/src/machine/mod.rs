//! The machine: simulated time, and who does what in it.
//!
//! Every simulated thread is a coroutine; all of them, and what is here, run on one thread of the host. A thread runs
//! ahead of simulated time as long as nothing else is to happen before the time that its own clock shows (the
//! *horizon*; accesses to memory, up to some nanoseconds beyond it): work costs an addition, an access that its core's cache serves a few lookups. What would come too early
//! waits: the thread announces when it goes on, and is suspended.
//!
//! Accesses take effect one at a time in the order of simulated time, so that the machine is sequentially consistent
//! whatever the orderings say: it finds no missing fence. That is loom's part.

mod account;
mod address_set;
mod arena;
mod coherence;
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
use std::sync::atomic::Ordering::Relaxed;

use corosensei::{CoroutineResult, Yielder};

pub use account::{Activity, Split};
use account::{Load, LockClock};
pub use address_set::{AddressSet, recorded};
use arena::{Arena, LINES, Zeroes};
use coherence::{Access, Begun, Caches};
use event::{Event, Events};
pub use retry::{Refusal, abort_transaction, has_transactions, in_transaction, transaction};
pub(crate) use retry::{begin_transaction, end_transaction, leave_transaction, restartable, will_change};
use scheduler::Context;
use special::Special;
use thread::{Flight, State, Thread};
use transaction::Transactions;
pub use transaction::{Cause, TransactionCounts};

use unconvoy::platform::Atomic as _;

use crate::parameters::Parameters;
use crate::platform::SimulatedCell;
use crate::process::Process;

/// No thread.
const NOBODY: u32 = u32::MAX;

/// An access may take effect so much before what should have happened first: less than any line needs from one core to
/// another, so that none is seen to be somewhere too early. (Without this, every access of a busy machine is an event.)
const LOOK_AHEAD_NS: u64 = 10;

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

/// Waits until nothing else is to happen before the caller's clock.
#[inline(always)]
fn synchronise() {
    if with(|machine| machine.now > machine.horizon) {
        wait(Flight::Work(0));
    }
}

#[cold]
fn wait(flight: Flight) {
    wait_in_flight(flight);
    retry::look_for_doom();
}

/// The same in the middle of an access: the caller looks whether its transaction has been undone.
#[cold]
fn wait_in_flight(flight: Flight) {
    with(|machine| {
        let (current, now) = (machine.current, machine.now);
        machine.threads[current as usize].flight = flight;
        machine.announce(current, now);
    });
    suspend();
}

/// If the caller is to be preempted, now is the time.
fn reschedule() {
    let due = with(|machine| {
        let due = core::mem::take(&mut machine.resched);
        if due {
            machine.give_way();
        }
        due
    });
    if due {
        suspend();
    }
}

/// The calling thread accesses `address`, which takes effect on return.
#[inline(always)]
fn access(address: usize, access: Access) {
    if !is_inside() {
        return;
    }
    if with(|machine| machine.now > machine.horizon.saturating_add(LOOK_AHEAD_NS)) {
        wait(Flight::Work(0));
    }
    let transfer = with(|machine| {
        machine.accesses += 1;
        let Some(line) = machine.arena.line_of(address) else {
            machine.now += machine.parameters.memory.hit_ns;
            return None;
        };
        if machine.parameters.memory.store_buffer {
            let stores = &machine.threads[machine.current as usize].stores;
            let is_ours = stores.has_at_hand(line, machine.now);
            if access == Access::ReadModifyWrite {
                machine.now = machine.now.max(stores.drained_at());
            }
            if is_ours && access != Access::Load {
                machine.now += machine.caches.hold(machine.core, line, access);
                machine.threads[machine.current as usize].polling.note_change();
                return None;
            }
        }
        match machine.caches.begin(machine.now, machine.core, line, access) {
            Begun::Hit(cost) => {
                machine.now += cost;
                let version = machine.caches.version(line);
                let polling = &mut machine.threads[machine.current as usize].polling;
                match access {
                    Access::Load => polling.note_load(line, version),
                    Access::Store => {} // nobody has seen it
                    Access::ReadModifyWrite => polling.note_change(),
                }
                None
            }
            Begun::Miss(transfer) if access == Access::Store && machine.parameters.memory.store_buffer => {
                machine.misses += 1;
                machine.caches.end(transfer);
                machine.threads[machine.current as usize].stores.push(line, transfer.takes, transfer.done);
                machine.now += machine.parameters.memory.hit_ns;
                machine.threads[machine.current as usize].polling.note_change();
                None
            }
            Begun::Miss(transfer) => {
                machine.misses += 1;
                if access == Access::ReadModifyWrite {
                    let stores = &mut machine.threads[machine.current as usize].stores;
                    stores.note_arrival(line, transfer.takes, transfer.done);
                }
                machine.now = transfer.done;
                Some(transfer)
            }
        }
    });
    if let Some(transfer) = transfer {
        if with(|machine| machine.now > machine.horizon) {
            wait_in_flight(Flight::Work(0));
        }
        with(|machine| {
            machine.caches.end(transfer);
            let version = machine.caches.version(transfer.line);
            let polling = &mut machine.threads[machine.current as usize].polling;
            if access == Access::Load {
                polling.note_load(transfer.line, version);
            } else {
                polling.note_change();
            }
        });
        retry::look_for_doom();
    }
    if with(|machine| machine.attention != 0) {
        retry::takes_effect(address, access);
    }
}

/// A load from `address`.
#[inline(always)]
pub(crate) fn load(address: usize) {
    access(address, Access::Load);
}

/// A store to `address`.
#[inline(always)]
pub(crate) fn store(address: usize) {
    access(address, Access::Store);
}

/// A read-modify-write of `address`.
#[inline(always)]
pub(crate) fn read_modify_write(address: usize) {
    access(address, Access::ReadModifyWrite);
}

/// What is at `address` has become something else by the access before.
#[inline(always)]
pub(crate) fn changed(address: usize) {
    if is_inside() {
        with(|machine| {
            if let Some(line) = machine.arena.line_of(address) {
                machine.wake_watchers(line);
            }
        });
    }
}

/// Nanoseconds of simulated time.
pub fn now() -> u64 {
    if !is_inside() {
        return if RUNNING.get().is_null() { 0 } else { with(|machine| machine.now) };
    }
    with(|machine| {
        machine.now += machine.parameters.memory.clock_ns;
        machine.threads[machine.current as usize].polling.note_clock();
    });
    synchronise();
    with(|machine| machine.now)
}

/// The calling thread computes for `ns` nanoseconds, longer if its core has other contexts at work.
pub fn work(ns: u64) {
    with(|machine| {
        let others = u64::from(machine.busy_in_core[machine.core].saturating_sub(1));
        let slowdown = u64::from(machine.parameters.memory.shared_core_slowdown) * others;
        machine.now += ns + ns * slowdown / 1000;
        machine.threads[machine.current as usize].polling.note_change();
    });
}

/// As [`work`], in picoseconds; what is left of a nanosecond is one or none, by chance.
pub(crate) fn work_ps(ps: u64) {
    let (ns, part) = (ps / 1000, ps % 1000);
    work(ns + u64::from(part != 0 && random(1000) < part));
}

/// The time that the calling thread's clock shows, without what a look at it costs.
pub(crate) fn time() -> u64 {
    with(|machine| machine.now)
}

/// The core that the calling thread runs on.
pub(crate) fn core() -> usize {
    with(|machine| machine.core)
}

/// The calling thread spends `ns` nanoseconds that no other context has a part in.
pub(crate) fn spend(ns: u64) {
    with(|machine| machine.now += ns);
}

/// The calling thread looks at the clock until `ns` nanoseconds have passed.
pub(crate) fn delay(ns: u64) {
    leave_transaction();
    synchronise();
    with(|machine| {
        machine.now += ns.max(machine.parameters.memory.clock_ns);
        machine.threads[machine.current as usize].polling.note_change();
    });
    if with(|machine| machine.now > machine.horizon) {
        let until = with(|machine| machine.now);
        wait(Flight::Until(until));
    }
}

/// The calling thread has done one turn of a loop that polls.
pub(crate) fn pause() {
    leave_transaction();
    synchronise();
    with(|machine| machine.now += machine.parameters.memory.pause_ns);
    rest(Flight::Poll);
}

/// The calling thread has done one turn of a loop that counts its turns: the next one is simulated too.
pub(crate) fn pause_counted() {
    leave_transaction();
    synchronise();
    with(|machine| {
        machine.now += machine.parameters.memory.pause_ns;
        machine.threads[machine.current as usize].polling.note_change();
    });
}

/// Suspends the calling thread if all that it did was to look.
fn rest(flight: Flight) {
    let suspended = with(|machine| {
        let suspended = machine.pauses();
        if suspended {
            let current = machine.current;
            let at = machine.now + machine.next_span();
            machine.threads[current as usize].flight = flight;
            machine.announce(current, at);
        }
        suspended
    });
    if suspended {
        suspend();
    }
}

/// As [`pause`], but for up to `ns` nanoseconds, or until what is at `address` changes.
pub(crate) fn doze(address: usize, ns: u64) {
    leave_transaction();
    synchronise();
    let watches = with(|machine| machine.arena.line_of(address).map(|line| machine.watches_alone(line)));
    if watches.is_some() {
        with(|machine| {
            let current = machine.current;
            machine.threads[current as usize].flight = Flight::Poll;
            machine.announce(current, machine.now + ns);
        });
        suspend();
    }
}

/// The calling thread yields.
pub(crate) fn yield_now() {
    leave_transaction();
    with(|machine| machine.now += machine.parameters.scheduler.yield_ns);
    synchronise();
    if with(Machine::yields) {
        suspend();
    } else {
        rest(Flight::YieldingPoll);
    }
}

/// The calling thread parks on `address` unless `is_changed` says that it holds something else; until it is woken, or
/// until `deadline`.
pub(crate) fn park(address: usize, is_changed: impl FnOnce() -> bool, deadline: Option<u64>) {
    leave_transaction();
    with(|machine| machine.now += machine.parameters.scheduler.park_ns);
    load(address);
    synchronise();
    let is_late = with(|machine| deadline.is_some_and(|deadline| machine.now >= deadline));
    retry::is_seen(address);
    if is_late || is_changed() {
        return;
    }
    with(|machine| {
        machine.threads[machine.current as usize].polling.note_change();
        machine.blocks(address, deadline);
    });
    suspend();
}

/// The calling thread wakes up to `count` threads that are parked on `address`.
pub(crate) fn unpark(address: usize, count: u32) {
    leave_transaction();
    with(|machine| machine.now += machine.parameters.scheduler.wake_call_ns);
    synchronise();
    with(|machine| {
        machine.threads[machine.current as usize].polling.note_change();
        machine.wakes(address, count);
    });
    reschedule();
}

/// The calling thread sleeps for `ns` nanoseconds.
pub fn sleep(ns: u64) {
    leave_transaction();
    synchronise();
    with(|machine| {
        let until = machine.now + ns;
        machine.sleeps(until);
    });
    suspend();
}

/// The calling thread waits for input or output for `ns` nanoseconds: an interrupt ends that, and no tick.
pub fn away(ns: u64) {
    leave_transaction();
    synchronise();
    with(|machine| {
        let until = machine.now + ns;
        machine.sleeps_exactly(until);
    });
    suspend();
}

/// A word of shared data, on a cache line of its own.
#[derive(Clone, Copy)]
pub struct Word(&'static SimulatedCell<u32>);

impl Word {
    pub(crate) fn new(machine: &mut Machine) -> Self {
        // SAFETY: the machine's memory, which stays as long as its threads, and is shared as cells are.
        Word(unsafe { &*machine.place(SimulatedCell::new(0)) })
    }

    /// The calling thread reads the word and writes it, in two accesses.
    pub fn increment(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The calling thread reads the word; outside of simulated threads, what it holds.
    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// The calling thread writes the word.
    pub fn set(&self, value: u32) {
        self.0.store(value, Relaxed);
    }

    /// Wakes a thread that [waits](wait_for_word).
    pub fn wake_one(&self) {
        unpark(core::ptr::from_ref(self.0).addr(), 1);
    }
}

/// The calling thread sleeps at `word` until it is woken there and `is_waiting` is false.
pub fn wait_for_word(word: &Word, is_waiting: impl Fn() -> bool) {
    while is_waiting() {
        park(core::ptr::from_ref(word.0).addr(), || !is_waiting(), None);
    }
}

/// Some memory of the machine, by cache lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    base: usize,
    count: usize,
}

impl Lines {
    pub(crate) fn new(machine: &mut Machine, bytes: usize) -> Self {
        let count = bytes.div_ceil(arena::LINE);
        let place = (0..count).map(|_| machine.place([0_u8; arena::LINE]).addr());
        Lines { base: place.min().unwrap_or(0), count }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Of the line of this number.
    pub(crate) fn address(&self, line: usize) -> usize {
        self.base + line * arena::LINE
    }
}

/// Whether `thread` is on a context at this moment, as Solaris tells a process in memory that it shares with it.
pub(crate) fn is_on_processor(thread: u32) -> bool {
    with(|machine| machine.threads[thread as usize].state == State::Running)
}

/// The calling thread's number.
pub fn current() -> u32 {
    thread()
}

/// The calling thread asks not to be preempted, or does so no more.
pub(crate) fn ask_for_extension(asks: bool) {
    synchronise();
    let was_extended = with(|machine| {
        machine.now += machine.parameters.memory.hit_ns;
        let current = machine.current as usize;
        let thread = &mut machine.threads[current];
        thread.wants_extension = asks;
        !asks && core::mem::take(&mut thread.extended)
    });
    if was_extended {
        yield_now();
    }
}

/// The calling thread is about to acquire a lock: under the lock-contention-aware scheduler it may have to go elsewhere.
pub(crate) fn before_lock() {
    if !with(|machine| machine.is_special()) {
        return;
    }
    with(|machine| machine.now += 2 * machine.parameters.memory.clock_ns);
    synchronise();
    if with(Machine::goes_to_set) {
        suspend();
    }
}

/// The calling thread's task ends, and another one takes its place; both together take `ns` nanoseconds.
pub(crate) fn renew(ns: u64) {
    synchronise();
    if with(|machine| machine.renews(ns)) {
        suspend();
    }
}

/// The calling thread is not preempted until it [allows](allow_preemption) that as often as it forbade it.
pub(crate) fn forbid_preemption() {
    with(|machine| machine.threads[machine.current as usize].unpreemptible += 1);
}

/// See [`forbid_preemption`].
pub(crate) fn allow_preemption() {
    let is_due = with(|machine| {
        let thread = &mut machine.threads[machine.current as usize];
        thread.unpreemptible -= 1;
        thread.unpreemptible == 0 && core::mem::take(&mut thread.preempt_due)
    });
    if is_due {
        synchronise();
        with(|machine| {
            machine.preemptions += 1;
            machine.give_way();
        });
        suspend();
    }
}

/// Starts a thread that is no load of its process: its controller.
pub(crate) fn start_companion(process: usize, name: &str, body: impl FnOnce() + 'static) {
    leave_transaction();
    with(|machine| machine.now += machine.parameters.scheduler.spawn_ns);
    synchronise();
    with(|machine| machine.start(process, name.to_string(), false, body));
    reschedule();
}

/// Run and run-queue time of a process's threads, or of all.
pub(crate) fn run_times(process: Option<usize>) -> (u64, u64) {
    synchronise();
    with(|machine| {
        let those = process.map_or(0..machine.processes.len(), |process| process..process + 1);
        those.map(|process| machine.load_of(process, machine.now)).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    })
}

/// The calling thread reads the run and run-queue times of `threads` threads.
pub(crate) fn read_load(threads: u32) {
    let ns = with(|machine| {
        let scheduler = &machine.parameters.scheduler;
        scheduler.sensor_ns + scheduler.sensor_thread_ns * u64::from(threads)
    });
    spend(ns);
}

/// Contexts of the machine.
pub(crate) fn capacity() -> f64 {
    with(|machine| machine.contexts.len() as f64)
}

/// The calling thread's number, its process, and what load control remembers of it.
pub(crate) fn thread() -> u32 {
    with(|machine| machine.current)
}

pub(crate) fn process() -> usize {
    with(|machine| machine.threads[machine.current as usize].process)
}

pub(crate) fn note() -> unconvoy::platform::ThreadNote {
    with(|machine| machine.threads[machine.current as usize].note)
}

pub(crate) fn set_note(note: unconvoy::platform::ThreadNote) {
    with(|machine| machine.threads[machine.current as usize].note = note);
}

/// A number for `address` that another run of the same simulation gives it too. What is on a stack is told apart by
/// chance.
pub(crate) fn number_of(address: usize) -> u64 {
    with(|machine| machine.arena.offset_of(address).map_or_else(|| machine.random.u64(..), |offset| offset as u64))
}

/// A random number below `limit`, of the machine's one sequence.
pub fn random(limit: u64) -> u64 {
    with(|machine| machine.random.u64(0..limit))
}

/// Says what the calling thread is at from now on.
pub fn set_activity(activity: Activity) {
    synchronise();
    with(|machine| machine.set_activity(activity));
}

/// The calling thread begins to acquire a lock. In a transaction nobody waits, and no time is kept of locks.
pub(crate) fn begins_to_wait(lock: usize) {
    synchronise();
    if !in_transaction() {
        with(|machine| machine.begins_to_wait(lock));
    }
}

pub(crate) fn has_acquired(lock: usize) {
    synchronise();
    if in_transaction() {
        with(Machine::enters_section);
    } else {
        with(|machine| machine.has_acquired(lock));
    }
}

/// The calling thread is in a critical section, without a lock.
pub(crate) fn enters_section() {
    synchronise();
    with(Machine::enters_section);
}

/// The calling thread has left a critical section that it was in without a lock.
pub(crate) fn has_left_section() {
    synchronise();
    if !in_transaction() {
        with(Machine::leaves_section);
    }
}

pub(crate) fn releases(lock: usize) {
    synchronise();
    with(|machine| machine.releases(lock));
}
