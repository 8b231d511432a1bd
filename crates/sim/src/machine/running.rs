//! The main loop of a machine, and how its threads find the machine.
//!
//! Every simulated thread is a coroutine. All of them and the machine run on one host thread. A
//! simulated thread runs ahead of simulated time until its own clock reaches the *horizon*, the
//! time of the next event. (Memory accesses may pass the horizon by a few nanoseconds.) Work then
//! costs one addition, and a cache hit a few lookups. An operation beyond the horizon waits: the
//! thread schedules its resumption and is suspended.

use std::cell::Cell;

use corosensei::CoroutineResult;

use super::clock::Event;
use super::interplay::{Hang, Machine, Progress};
use super::scheduler::{Flight, State};
use super::thread::{NO_THREAD, Thread};

thread_local! {
        /// The machine whose thread runs on this host thread; null outside simulated threads.
    static RUNNING: Cell<*mut Machine> = const { Cell::new(core::ptr::null_mut()) };
}

/// Starts a thread of a process and returns its number. The load sensor of the process counts it if
/// `is_load`.
///
/// # Panics
///
/// Panics if the host has no memory for its stack.
pub(crate) fn spawn(
    machine: &mut Machine,
    process: usize,
    name: String,
    is_load: bool,
    body: impl FnOnce() + 'static,
) -> u32 {
    let thread = Thread::new(name, process, is_load, |yielder| {
        with(|machine| machine.threads[machine.current as usize].yielder = yielder);
        body();
    });
    machine.add_thread(thread.expect("memory for a thread's stack"))
}

/// Simulates until `end`, or until all threads have ended.
pub(crate) fn run(machine: &mut Machine, end: u64) -> Result<(), Hang> {
    let machine = core::ptr::from_mut(machine);
    let before = RUNNING.replace(machine);
    let result = loop {
        // SAFETY: borrowed for this iteration; a simulated thread that runs in between has
        // its own reference, which ends before `resume` returns.
        let this = unsafe { &mut *machine };
        match this.clock.next(end) {
            None => break Ok(()),
            // SAFETY: `this` is not used after `resume`.
            Some(Event::Resume { thread, .. }) => unsafe { resume(machine, thread) },
            Some(Event::Timer { thread, .. }) => this.time_out(thread),
            Some(Event::Tick { context }) => this.tick(context as usize),
            Some(Event::Interruption { context }) => this.interrupt(context as usize),
            Some(Event::Balance) => match this.balance() {
                Progress::Continues => {}
                Progress::Ended => break Ok(()),
                Progress::Hung(hang) => break Err(hang),
            },
        }
    };
    RUNNING.set(before);
    result
}

/// Runs `thread`, which has a context, until it is suspended or ends.
///
/// # Safety
///
/// `machine` is valid, and no reference to it exists.
unsafe fn resume(machine: *mut Machine, thread: u32) {
    // SAFETY: guaranteed by the caller.
    let this = unsafe { &mut *machine };
    this.scheduler.end_mwait(thread, this.clock.now);
    this.scheduler.task_mut(thread).set_flight(Flight::Work(0));
    let Some(mut body) = this.threads[thread as usize].body.take() else { return };
    this.current = thread;
    this.core = this.scheduler.core_of(thread);
    this.clock.begin_run();
    let result = body.resume(());
    // SAFETY: guaranteed by the caller; the thread whose code held a reference is suspended or
    // has ended.
    let this = unsafe { &mut *machine };
    match result {
        CoroutineResult::Return(()) => this.leave(State::Done),
        CoroutineResult::Yield(()) => this.threads[thread as usize].body = Some(body),
    }
    this.current = NO_THREAD;
}

/// Whether the caller is a simulated thread.
#[inline(always)]
pub(crate) fn is_inside() -> bool {
    let machine = RUNNING.get();
    // SAFETY: the pointer is set only while the machine is valid, and no reference lives across
    // calls.
    !machine.is_null() && unsafe { (*machine).current } != NO_THREAD
}

/// Whether a machine runs on this host thread.
pub(super) fn is_running() -> bool {
    !RUNNING.get().is_null()
}

/// Passes the caller's machine to `work`, which must not suspend the caller.
///
/// # Panics
///
/// Panics if no machine runs on this host thread.
#[inline(always)]
pub(crate) fn with<R>(work: impl FnOnce(&mut Machine) -> R) -> R {
    let machine = RUNNING.get();
    assert!(!machine.is_null(), "called outside a simulated machine");
    // SAFETY: the pointer is set only while the machine is valid. The reference ends with this
    // function, and `work` suspends no thread.
    work(unsafe { &mut *machine })
}

/// Suspends the calling thread, which has scheduled its resumption or is blocked.
pub(super) fn suspend() {
    let yielder = with(|machine| machine.threads[machine.current as usize].yielder);
    // SAFETY: the running thread's own yielder, which lives on the current stack.
    unsafe { (*yielder).suspend(()) };
}
