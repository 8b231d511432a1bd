//! The machine: its parts, and what they have to do with each other.
//!
//! | what happens | parts |
//! | --- | --- |
//! | a thread changes a line | [`Memory`] knows who polls it, [`Scheduler`] whether they have a processor, [`Clock`] when they go on |
//! | a thread loses its processor | [`Transactions`] undo what it was in the middle of, before [`Scheduler`] takes it off |
//! | an access meets a transaction | [`Transactions`] say which is undone, and then all of the above |
//! | a thread wakes another one | [`Futexes`] know which, [`Scheduler`] where it runs, and for whom another one has to go |
//!
//! No part knows another one, but that the scheduler announces on the clock.

use std::any::Any;
use std::fmt;

use unconvoy_sched::{Change, Policy, State as Standing};

use super::clock::{Clock, Event};
use super::futexes::Futexes;
use super::memory::{Access, Memory};
use super::scheduler::{Flight, Scheduler, Special, Split, State};
use super::thread::{NOBODY, Thread};
use super::transactions::{Cause, TransactionCounts, Transactions};
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
    /// What the threads of a process share beside their locks: not the machine's to know.
    processes: Vec<Box<dyn Any>>,
    pub(super) random: fastrand::Rng,
    /// The thread that runs, or `NOBODY` between two.
    pub(super) current: u32,
    /// The core that it runs on.
    pub(super) core: usize,
    /// It is to be preempted at the end of what it does.
    pub(super) preempt_due: bool,
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

/// That nothing will ever happen again, though threads have not ended: who they are, and what they
/// wait for.
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

/// Whether a program goes on.
pub(super) enum Progress {
    Goes,
    /// All threads have ended.
    Ended,
    Hangs(Hang),
}

impl Machine {
    pub(crate) fn new(parameters: Parameters, seed: u64) -> std::io::Result<Self> {
        let mut clock = Clock::default();
        clock.push(parameters.scheduler.balance_ns, Event::Balance);
        Ok(Machine {
            memory: Memory::new(parameters.topology, parameters.memory)?,
            clock,
            scheduler: Scheduler::new(parameters.topology, parameters.scheduler),
            transactions: Transactions::new(parameters.transactions),
            futexes: Futexes::new(&parameters.scheduler),
            threads: Vec::new(),
            processes: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
            current: NOBODY,
            core: 0,
            preempt_due: false,
            parameters,
        })
    }

    pub(crate) fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    pub(crate) fn counts(&self) -> Counts {
        let ((switches, preemptions), (accesses, misses)) = (self.scheduler.counts(), self.memory.counts());
        Counts { switches, preemptions, accesses, misses, events: self.clock.handled() }
    }

    /// What came of the transactions so far.
    pub(crate) fn transactions(&self) -> TransactionCounts {
        self.transactions.counts()
    }

    pub(crate) fn runnable(&self, process: usize) -> u32 {
        self.scheduler.accounts.runnable(process)
    }

    pub(crate) fn split(&mut self, thread: u32) -> Split {
        self.scheduler.accounts.split(thread, self.clock.now)
    }

    /// A lock to keep the time of; its number.
    pub(crate) fn add_lock(&mut self) -> usize {
        self.scheduler.accounts.add_lock()
    }

    /// Moves `value` to the machine's memory, on cache lines of its own. It is not dropped with the
    /// machine.
    pub(crate) fn place<T>(&mut self, value: T) -> *mut T {
        self.memory.place(value)
    }

    /// Switches the lock-contention-aware scheduler on, before there are threads.
    pub(crate) fn schedule_specially(&mut self, parameters: unconvoy_sched::Parameters) {
        self.scheduler.schedule_specially(parameters, self.clock.now);
    }

    pub(crate) fn policy(&self) -> Option<&Policy> {
        self.scheduler.special().map(Special::policy)
    }

    pub(crate) fn changes_of_the_set(&self) -> &[(u64, Change)] {
        self.scheduler.special().map_or(&[], Special::changes)
    }

    /// How a thread stands, and the context that it runs on or ran on last.
    pub(crate) fn standing(&self, thread: u32) -> (Standing, usize) {
        let task = self.scheduler.task(thread);
        (task.standing(), task.context())
    }

    /// A process, and what its threads share; its number.
    pub(crate) fn add_process(&mut self, shared: impl Any) -> usize {
        self.processes.push(Box::new(shared));
        self.scheduler.accounts.add_process();
        self.processes.len() - 1
    }

    /// What the threads of a process share.
    ///
    /// # Panics
    ///
    /// It is of another type.
    pub(crate) fn process<T: Any>(&mut self, number: usize) -> &mut T {
        self.processes[number].downcast_mut().expect("a process of the type that was added")
    }

    /// Adds a thread, which can run from now on.
    pub(super) fn add_thread(&mut self, thread: Thread) -> u32 {
        let number = self.threads.len() as u32;
        self.memory.add_thread();
        self.clock.add_thread();
        // Programs do not begin all their threads' slices at one time.
        self.scheduler.add_thread(self.random.u64(0..self.parameters.scheduler.slice_ns));
        self.transactions.add_thread();
        self.futexes.add_thread();
        self.scheduler.accounts.add_thread(self.clock.now, thread.is_load.then_some(thread.process));
        self.threads.push(thread);
        self.wake(number);
        number
    }

    /// `thread`, which was blocked, can run from now on.
    fn wake(&mut self, thread: u32) {
        let Machine { scheduler, clock, current, .. } = self;
        if let Some(context) = scheduler.wake(thread, *current, clock) {
            self.preempt(context);
        }
    }

    /// Has another thread run on `context`, if that may be.
    fn preempt(&mut self, context: usize) {
        let Some(thread) = self.scheduler.request_preemption(context) else { return };
        if thread == self.current {
            self.preempt_due = true; // in the middle of what it does: at the end of it
            return;
        }
        self.abort_before_leave(thread);
        self.scheduler.preempt(context, &mut self.clock);
    }

    /// A context ticks.
    pub(super) fn tick(&mut self, context: usize) {
        if self.scheduler.tick(context, &mut self.clock) {
            self.preempt(context);
            self.scheduler.arm_tick(context, &mut self.clock);
        }
    }

    /// Run queues are evened out, unless the program has come to its end.
    pub(super) fn balance(&mut self) -> Progress {
        let is_over = |thread: u32| self.scheduler.task(thread).state() == State::Done;
        let is_stuck =
            |thread: u32| self.scheduler.task(thread).state() == State::Blocked && !self.futexes.is_timed(thread);
        let mut threads = 0..self.threads.len() as u32;
        if threads.clone().all(is_over) {
            return Progress::Ended;
        }
        if self.scheduler.is_idle() && threads.all(|thread| is_over(thread) || is_stuck(thread)) {
            return Progress::Hangs(Hang { at: self.clock.now, threads: self.describe_threads() });
        }
        self.clock.push(self.clock.now + self.parameters.scheduler.balance_ns, Event::Balance);
        if self.scheduler.has_waiting() {
            // From anywhere, so that the same contexts are not always the first to lose.
            let first = self.random.usize(0..self.scheduler.contexts());
            self.scheduler.serve_idle(first, &mut self.clock);
            if let Some((from, to)) = self.scheduler.to_push_out() {
                self.abort_before_leave(self.scheduler.running_on(from));
                self.scheduler.push_out(from, to, &mut self.clock);
            }
            self.scheduler.even_out(first, &mut self.clock);
        }
        Progress::Goes
    }

    /// The running thread, in a call to the machine, lets another one run: `late` if it should have
    /// earlier. To be suspended.
    pub(super) fn give_way(&mut self, late: bool) {
        self.abort_before_leave(self.current);
        let Machine { scheduler, clock, current, .. } = self;
        if late {
            scheduler.give_way_late(*current, clock);
        } else {
            scheduler.give_way(*current, clock);
        }
    }

    /// The running thread, which is in no transaction, yields. To be suspended if true.
    pub(super) fn yield_now(&mut self) -> bool {
        self.scheduler.yield_now(self.current, &mut self.clock)
    }

    /// The running thread, which is in no transaction, blocks or ends. To be suspended.
    pub(super) fn leave(&mut self, state: State) {
        self.scheduler.leave(self.current, state, &mut self.clock);
    }

    /// The running thread, about to acquire a lock, goes to the special set if it has to. To be
    /// suspended if true.
    pub(super) fn go_to_set(&mut self) -> bool {
        self.scheduler.place_in_set(self.current).is_some_and(|(there, cost)| self.move_to(there, cost))
    }

    /// The running task ends, and another one begins in its place; both together take `ns`. To be
    /// suspended if true.
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

    /// Announces when the running thread, which is to be suspended, goes on, and what it does until
    /// then.
    #[inline]
    pub(super) fn suspend_until(&mut self, flight: Flight, at: u64) {
        self.scheduler.task_mut(self.current).set_flight(flight);
        self.clock.announce(self.current, at);
    }

    /// The running thread parks on `place`, until it is woken there or until `deadline`. To be
    /// suspended.
    pub(super) fn park(&mut self, place: usize, deadline: Option<u64>) {
        self.futexes.park(self.current, place);
        match deadline {
            Some(deadline) => self.sleep(deadline),
            None => self.leave(State::Blocked),
        }
    }

    /// The running thread sleeps until the time `deadline`. To be suspended.
    pub(super) fn sleep(&mut self, deadline: u64) {
        // A controller has a timer of high resolution where others have not (ASPLOS 2010, section
        // 3.2.1).
        let exact = !self.threads[self.current as usize].is_load;
        self.sleep_exactly(self.futexes.rings_at(deadline, exact, self.clock.now));
    }

    /// The same, whatever the resolution of timers.
    pub(super) fn sleep_exactly(&mut self, end: u64) {
        self.leave(State::Blocked);
        self.futexes.set_timed(self.current);
        self.clock.set_timer(self.current, end);
    }

    /// The running thread wakes up to `count` threads that are parked on `place`.
    pub(super) fn unpark(&mut self, place: usize, count: u32) {
        for _ in 0..count {
            let Some(thread) = self.futexes.unpark(place) else { return };
            self.clock.now += self.parameters.scheduler.wake_thread_ns;
            self.end_sleep(thread);
        }
    }

    /// The time of a blocked thread is up.
    pub(super) fn time_out(&mut self, thread: u32) {
        self.futexes.time_out(thread);
        self.end_sleep(thread);
    }

    fn end_sleep(&mut self, thread: u32) {
        self.clock.cancel(thread);
        self.wake(thread);
    }

    /// The running thread has changed what is in `line`: a thread that polls it sees that with its
    /// next turn.
    #[inline(always)]
    pub(super) fn change_line(&mut self, line: usize) {
        let Machine { memory, scheduler, clock, random, parameters, current, .. } = self;
        let turn = parameters.memory.pause_ns + parameters.memory.hit_ns;
        memory.change(line, *current, |watcher| {
            let is_polling = scheduler.task(watcher).is_polling();
            if is_polling {
                // Somewhere in the turn that it is in.
                let at = clock.now + random.u64(0..=turn);
                if at < clock.resumes_at(watcher) {
                    clock.announce(watcher, at);
                }
            }
            is_polling
        });
    }

    /// The running thread's access takes effect now. The cause, if its own transaction is what
    /// aborts.
    #[cold]
    pub(super) fn take_effect(&mut self, address: usize, access: Access) -> Option<Cause> {
        let (word, line) = (self.memory.offset_of(address)?, self.memory.line_of(address)?);
        let thread = self.current;
        self.transactions.record(thread, word, line, access);
        match self.transactions.opponents(thread, line, access) {
            Ok(opponents) => opponents.into_iter().for_each(|other| self.abort_other(other, Cause::Conflict)),
            Err(cause) => return Some(cause),
        }
        self.transactions.add(thread, line, access)
    }

    /// The running thread, which is in no transaction, begins one.
    pub(super) fn begin_transaction(&mut self) {
        self.clock.now += self.transactions.parameters().map_or(0, |parameters| parameters.begin_ns);
        let state = self.threads[self.current as usize].state;
        self.transactions.begin(self.current, self.clock.now, state);
    }

    /// Undoes the running thread's transaction, which goes back to its beginning.
    pub(super) fn abort(&mut self, cause: Cause) {
        self.undo(self.current, cause);
        self.clock.now += self.transactions.abort_ns();
        self.transactions.restart(self.current, cause);
    }

    /// Undoes the transaction of a thread, which goes back to its beginning when it next runs.
    fn abort_other(&mut self, thread: u32, cause: Cause) {
        self.undo(thread, cause);
        self.transactions.put_off_abort(thread, cause);
        let task = self.scheduler.task_mut(thread);
        task.set_flight(Flight::Work(0));
        if task.state() == State::Running {
            self.clock.announce(thread, self.clock.now + self.transactions.abort_ns());
        }
    }

    fn undo(&mut self, thread: u32, cause: Cause) {
        let undone = self.transactions.undo(thread, cause, self.clock.now);
        for line in undone.cells.into_iter().filter_map(|cell| self.memory.line_of(cell)).collect::<Vec<_>>() {
            self.change_line(line);
        }
        self.threads[thread as usize].state = undone.state;
    }

    /// `thread` is about to lose its processor, which no transaction survives.
    fn abort_before_leave(&mut self, thread: u32) {
        if self.transactions.is_live(thread) {
            self.abort_other(thread, Cause::Preempted);
        }
    }

    /// A line for each thread that has not ended: what it is at.
    pub(crate) fn describe_threads(&self) -> String {
        let describe = |(thread, number): (&Thread, u32)| {
            let task = self.scheduler.task(number);
            let place = self.futexes.place_of(number).and_then(|place| self.memory.offset_of(place));
            let parked = place.map_or(String::new(), |place| format!(" on {place:#x}"));
            let (activity, place) = self.scheduler.accounts.whereabouts(number);
            let line = format!(
                "  {}: {activity:?}, {place:?}{parked}, context {}, {:?}\n",
                thread.name,
                task.context(),
                task.flight()
            );
            (task.state() != State::Done).then_some(line)
        };
        self.threads.iter().zip(0..).filter_map(describe).collect()
    }
}
