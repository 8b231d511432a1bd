//! The machine: it owns its parts and passes data between them.
//!
//! | event | parts |
//! | --- | --- |
//! | a thread changes a line | [`Memory`] names its pollers; [`Clock`] reschedules those that [`Scheduler`] runs |
//! | a thread loses its processor | [`Transactions`] undo its transaction before [`Scheduler`] deschedules it |
//! | an access conflicts with a transaction | [`Transactions`] choose the victim; then both rows above apply |
//! | a thread wakes another | [`Futexes`] choose the sleeper, [`Scheduler`] its context and the thread to preempt |
//!
//! No part knows another, except that the scheduler schedules events on the clock.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;

use unconvoy::primitive::Kind;
use unconvoy_sched::{Change, Policy, State as SpecialState};

use super::clock::{Clock, Event};
use super::futexes::Futexes;
use super::memory::{Access, Memory};
use super::scheduler::{Flight, Scheduler, Special, State};
use super::thread::{NO_THREAD, Thread};
use super::transactions::{Cause, Transactions};
use crate::messages;
use crate::parameters::Parameters;

/// A simulated machine.
pub struct Machine {
    pub(super) parameters: Parameters,
    pub(super) memory: Memory,
    pub(super) clock: Clock,
    pub(super) scheduler: Scheduler,
    pub(super) transactions: Transactions,
    pub(super) futexes: Futexes,
    pub(super) threads: Vec<Thread>,
    /// Data that the threads of a process share beside their locks; opaque to the machine.
    processes: Vec<Box<dyn Any>>,
    /// The context on which the threads of a process begin, if set.
    starts_on: HashMap<usize, usize>,
    pub(super) random: fastrand::Rng,
    /// The running thread, or `NO_THREAD` between two threads.
    pub(super) current: u32,
    pub(super) core: usize,
    /// The running thread is to be preempted at the end of its operation.
    pub(super) preempt_due: bool,
}

/// A deadlock: threads remain, but no future event can wake any of them. Lists these threads and
/// what they wait for.
#[derive(Debug)]
pub struct Hang {
    at: u64,
    threads: String,
}

impl fmt::Display for Hang {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&messages::hang(self.at, &self.threads))
    }
}

impl std::error::Error for Hang {}

pub(super) enum Progress {
    Continues,
    /// All threads have ended.
    Ended,
    Hung(Hang),
}

impl Machine {
    pub(crate) fn new(parameters: Parameters, seed: u64) -> std::io::Result<Self> {
        let mut clock = Clock::default();
        clock.push(parameters.scheduler.balance_ns, Event::Balance);
        Ok(Machine {
            memory: Memory::new(parameters.topology, parameters.memory)?,
            clock,
            scheduler: Scheduler::new(parameters.topology, parameters.scheduler, seed),
            transactions: Transactions::new(parameters.transactions),
            futexes: Futexes::new(&parameters.scheduler),
            threads: Vec::new(),
            processes: Vec::new(),
            starts_on: HashMap::new(),
            random: fastrand::Rng::with_seed(seed),
            current: NO_THREAD,
            core: 0,
            preempt_due: false,
            parameters,
        })
    }

    pub(crate) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Adds a lock to the accounts and returns its number.
    pub(crate) fn add_lock(&mut self) -> usize {
        self.scheduler.accounts.add_lock()
    }

    pub(crate) fn allocate<T>(&mut self, value: T) -> *mut T {
        self.memory.allocate(value)
    }

    pub(crate) fn enable_special_set(&mut self, parameters: unconvoy_sched::Parameters) {
        self.scheduler.enable_special_set(parameters, self.clock.now);
    }

    pub(crate) fn policy(&self) -> Option<&Policy> {
        self.scheduler.special().map(Special::policy)
    }

    pub(crate) fn set_changes(&self) -> &[(u64, Change)] {
        self.scheduler.special().map_or(&[], Special::changes)
    }

    pub(crate) fn special_state(&self, thread: u32) -> (SpecialState, usize) {
        let task = self.scheduler.task(thread);
        (task.special_state(), task.context())
    }

    /// Adds a process with the data that its threads share, and returns its number.
    pub(crate) fn add_process(&mut self, shared: impl Any) -> usize {
        self.processes.push(Box::new(shared));
        self.scheduler.accounts.add_process();
        self.processes.len() - 1
    }

    /// The data that the threads of a process share.
    ///
    /// # Panics
    ///
    /// Panics if the data has another type.
    pub(crate) fn process<T: Any>(&mut self, number: usize) -> &mut T {
        self.processes[number].downcast_mut().expect("a process of the type that was added")
    }

    /// Adds a thread, which is runnable at once.
    pub(super) fn add_thread(&mut self, thread: Thread) -> u32 {
        let number = self.threads.len() as u32;
        self.memory.add_thread();
        self.clock.add_thread();
        // The first slices end at different times, as in a running program.
        self.scheduler.add_thread(self.random.u64(0..self.parameters.scheduler.slice_ns));
        if let Some(&context) = self.starts_on.get(&thread.process).filter(|_| thread.is_load) {
            self.scheduler.start_on(number, context);
        }
        self.transactions.add_thread();
        self.futexes.add_thread();
        self.scheduler
            .accounts
            .add_thread(self.clock.now, thread.is_load.then_some(thread.process));
        self.threads.push(thread);
        self.wake(number);
        number
    }

    /// Lets the threads of `process` that are added from now on begin on `context`.
    pub(crate) fn start_on(&mut self, process: usize, context: usize) {
        self.starts_on.insert(process, context);
    }

    fn wake(&mut self, thread: u32) {
        let Machine { scheduler, clock, current, .. } = self;
        let preempted = scheduler.wake(thread, *current, clock);
        self.preempt(preempted);
    }

    /// Preempts the thread on `context`, now or as soon as possible, and then the threads that its
    /// move to another context preempts.
    pub(super) fn preempt(&mut self, mut next: Option<usize>) {
        while let Some(context) = next {
            let Some(thread) = self.scheduler.request_preemption(context) else { return };
            if thread == self.current {
                self.preempt_due = true; // `reschedule` acts on it at the end of the operation.
                return;
            }
            self.abort_before_leave(thread);
            next = self.scheduler.preempt(context, &mut self.clock);
        }
    }

    pub(super) fn tick(&mut self, context: usize) {
        if self.scheduler.tick(context, &mut self.clock) {
            if let Some(thread) = self.scheduler.request_preemption(context) {
                self.abort_before_leave(thread);
                let next = self.scheduler.preempt_at_tick(context, &mut self.clock);
                self.preempt(next);
            }
            self.scheduler.arm_tick(context, &mut self.clock);
        }
    }

    /// Balances the run queues, unless the program has ended or hangs.
    pub(super) fn balance(&mut self) -> Progress {
        let is_over = |thread: u32| self.scheduler.task(thread).state() == State::Done;
        let is_stuck = |thread: u32| {
            self.scheduler.task(thread).state() == State::Blocked && !self.futexes.is_timed(thread)
        };
        let mut threads = 0..self.threads.len() as u32;
        if threads.clone().all(is_over) {
            return Progress::Ended;
        }
        if self.scheduler.is_idle() && threads.all(|thread| is_over(thread) || is_stuck(thread)) {
            return Progress::Hung(Hang { at: self.clock.now, threads: self.describe_threads() });
        }
        self.clock.push(self.clock.now + self.parameters.scheduler.balance_ns, Event::Balance);
        for context in self.scheduler.raise_priorities(&mut self.clock) {
            self.preempt(Some(context));
        }
        if self.scheduler.has_waiting() {
            // Start anywhere, so that the same contexts are not always the first to lose a thread.
            let first = self.random.usize(0..self.scheduler.contexts());
            self.scheduler.serve_idle(first, &mut self.clock);
            if let Some((from, to)) = self.scheduler.to_push_out() {
                self.abort_before_leave(self.scheduler.running_on(from));
                self.scheduler.push_out(from, to, &mut self.clock);
            }
            self.scheduler.balance_queues(first, &mut self.clock);
        }
        Progress::Continues
    }

    /// Deschedules the running thread, which is inside an operation. `late` means that the
    /// preemption was due earlier. The caller suspends the thread.
    pub(super) fn give_way(&mut self, late: bool) {
        self.abort_before_leave(self.current);
        let Machine { scheduler, clock, current, .. } = self;
        let next = match late {
            true => scheduler.give_way_late(*current, clock),
            false => scheduler.give_way(*current, clock),
        };
        self.preempt(next);
    }

    /// Yields for the running thread, which is in no transaction. Returns whether the caller must
    /// suspend the thread.
    pub(super) fn yield_now(&mut self) -> bool {
        let (gives_way, next) = self.scheduler.yield_now(self.current, &mut self.clock);
        self.preempt(next);
        gives_way
    }

    /// Blocks or ends the running thread, which is in no transaction. The caller suspends it.
    pub(super) fn leave(&mut self, state: State) {
        self.scheduler.leave(self.current, state, &mut self.clock);
    }

    /// Moves the running thread, which is about to acquire a lock, to the special set if it belongs
    /// there. Returns whether the caller must suspend the thread.
    pub(super) fn go_to_set(&mut self) -> bool {
        self.scheduler
            .place_in_set(self.current)
            .is_some_and(|(there, cost)| self.move_to(there, cost))
    }

    /// Ends the running task and starts another in its place; the two together take `ns`. Returns
    /// whether the caller must suspend the thread.
    pub(super) fn renew(&mut self, ns: u64) -> bool {
        let there = self.scheduler.renew(self.current);
        if there.is_none() {
            self.clock.now += ns;
        }
        there.is_some_and(|there| self.move_to(there, ns))
    }

    fn move_to(&mut self, there: usize, cost: u64) -> bool {
        self.abort_before_leave(self.current);
        self.scheduler.move_to(self.current, there, cost, &mut self.clock);
        true
    }

    /// Schedules the resumption of the running thread. `flight` is its activity until then. The
    /// caller suspends it.
    #[inline]
    pub(super) fn suspend_until(&mut self, flight: Flight, at: u64) {
        self.scheduler.task_mut(self.current).set_flight(flight);
        self.clock.schedule_resume(self.current, at);
    }

    /// Parks the running thread on `address` until a wake-up or `deadline`. The caller suspends it.
    pub(super) fn park(&mut self, address: usize, kind: Option<Kind>, deadline: Option<u64>) {
        self.futexes.park(self.current, address, kind);
        match deadline {
            Some(deadline) => self.sleep(deadline),
            None => self.leave(State::Blocked),
        }
    }

    /// Puts the running thread to sleep until `deadline`. The caller suspends it.
    pub(super) fn sleep(&mut self, deadline: u64) {
        // Only a controller has a timer of high resolution (ASPLOS 2010, section 3.2.1).
        let exact = !self.threads[self.current as usize].is_load;
        self.sleep_exactly(self.futexes.fires_at(deadline, exact, self.clock.now));
    }

    /// Same as [`sleep`](Self::sleep), but without rounding the end to the timer's resolution.
    pub(super) fn sleep_exactly(&mut self, end: u64) {
        self.leave(State::Blocked);
        self.futexes.set_timed(self.current);
        self.clock.set_timer(self.current, end);
    }

    /// Wakes up to `count` threads parked on `address`.
    pub(super) fn unpark(&mut self, address: usize, kind: Option<Kind>, count: u32) {
        for _ in 0..count {
            let Some(thread) = self.futexes.unpark(address, kind) else { return };
            self.clock.now += self.parameters.scheduler.wake_thread_ns;
            self.end_sleep(thread);
        }
    }

    /// Wakes a blocked thread whose time is up.
    pub(super) fn time_out(&mut self, thread: u32) {
        self.futexes.time_out(thread);
        self.end_sleep(thread);
    }

    fn end_sleep(&mut self, thread: u32) {
        self.clock.cancel(thread);
        self.wake(thread);
    }

    /// Wakes the threads that poll `line` after the running thread has changed it. They see the
    /// change in their next turn.
    #[inline(always)]
    pub(super) fn change_line(&mut self, line: usize) {
        let Machine { memory, scheduler, clock, random, parameters, current, .. } = self;
        let turn = parameters.memory.pause_ns + parameters.memory.hit_ns;
        memory.change(line, *current, |watcher| {
            let task = scheduler.task(watcher);
            let delay = if task.is_polling() {
                random.u64(0..=turn) // the rest of the watcher's current turn
            } else if let Some(exit_ns) = task.waits_for_write(line) {
                exit_ns
            } else {
                return false;
            };
            let at = (clock.now + delay).max(scheduler.back_at(watcher));
            if at < clock.resumes_at(watcher) {
                clock.schedule_resume(watcher, at);
            }
            true
        });
    }

    /// Applies the running thread's access to the transactions. Returns a cause if the thread's
    /// own transaction aborts.
    #[cold]
    pub(super) fn take_effect(&mut self, address: usize, access: Access) -> Option<Cause> {
        let (word, line) = (self.memory.offset_of(address)?, self.memory.line_of(address)?);
        let thread = self.current;
        self.transactions.record(thread, word, line, access);
        match self.transactions.opponents(thread, line, access) {
            Ok(opponents) => {
                opponents.into_iter().for_each(|other| self.abort_other(other, Cause::Conflict))
            }
            Err(cause) => return Some(cause),
        }
        self.transactions.add(thread, line, access)
    }

    /// Begins a transaction of the running thread, which is in none.
    pub(super) fn begin_transaction(&mut self) {
        self.clock.now +=
            self.transactions.parameters().map_or(0, |parameters| parameters.begin_ns);
        let state = self.threads[self.current as usize].state;
        self.transactions.begin(self.current, self.clock.now, state);
    }

    /// Undoes the running thread's transaction; the thread returns to its beginning.
    pub(super) fn abort(&mut self, cause: Cause) {
        self.undo(self.current, cause);
        self.clock.now += self.transactions.abort_ns();
        self.transactions.restart(self.current, cause);
    }

    /// Undoes the transaction of another thread, which returns to its beginning when it next runs.
    fn abort_other(&mut self, thread: u32, cause: Cause) {
        self.undo(thread, cause);
        self.transactions.defer_abort(thread, cause);
        let task = self.scheduler.task_mut(thread);
        task.set_flight(Flight::Work(0));
        if task.state() == State::Running {
            let at = self.clock.now + self.transactions.abort_ns();
            self.clock.schedule_resume(thread, at.max(self.scheduler.back_at(thread)));
        }
    }

    fn undo(&mut self, thread: u32, cause: Cause) {
        let undone = self.transactions.undo(thread, cause, self.clock.now);
        for line in undone
            .cells
            .into_iter()
            .filter_map(|cell| self.memory.line_of(cell))
            .collect::<Vec<_>>()
        {
            self.change_line(line);
        }
        self.threads[thread as usize].state = undone.state;
    }

    /// Aborts the transaction of `thread`, which is about to lose its processor.
    pub(super) fn abort_before_leave(&mut self, thread: u32) {
        if self.transactions.is_live(thread) {
            self.abort_other(thread, Cause::Preempted);
        }
    }

    /// One line for each unfinished thread, with its activity.
    pub(crate) fn describe_threads(&self) -> String {
        let describe = |(thread, number): (&Thread, u32)| {
            let task = self.scheduler.task(number);
            let address =
                self.futexes.parked_at(number).and_then(|address| self.memory.offset_of(address));
            let parked = address.map_or(String::new(), |address| format!(" on {address:#x}"));
            let (activity, state) = self.scheduler.accounts.activity_and_state(number);
            let line = format!(
                "  {}: {activity:?}, {state:?}{parked}, context {}, {:?}\n",
                thread.name,
                task.context(),
                task.flight()
            );
            (task.state() != State::Done).then_some(line)
        };
        self.threads.iter().zip(0..).filter_map(describe).collect()
    }
}
