//! How a machine runs: one event after the other, and how its threads find it.
//!
//! Every simulated thread is a coroutine; all of them, and the machine, run on one thread of the
//! host. A thread runs ahead of simulated time as long as nothing else is to happen before the time
//! that its own clock shows (the *horizon*; accesses to memory, up to some nanoseconds beyond it):
//! work costs an addition, an access that its core's cache serves a few lookups. What would come
//! too early waits: the thread announces when it goes on, and is suspended.

use std::cell::Cell;

use corosensei::CoroutineResult;

use super::clock::Event;
use super::interplay::{Hang, Machine, Progress};
use super::scheduler::{Flight, State};
use super::thread::{NOBODY, Thread};

thread_local! {
    /// The machine whose thread runs on this thread of the host; null outside of simulated threads.
    static RUNNING: Cell<*mut Machine> = const { Cell::new(core::ptr::null_mut()) };
}

/// Starts a thread of a process, whose sensor counts it if it `is_load`; its number.
///
/// # Panics
///
/// There is no memory for its stack.
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

/// Simulates until the time `end`, or until all threads have ended.
pub(crate) fn run(machine: &mut Machine, end: u64) -> Result<(), Hang> {
    let machine = core::ptr::from_mut(machine);
    let before = RUNNING.replace(machine);
    let result = loop {
        // SAFETY: borrowed for this call; a simulated thread that runs in between has its own
        // reference, which ends there.
        let this = unsafe { &mut *machine };
        match this.clock.next(end) {
            None => break Ok(()),
            // SAFETY: as above.
            Some(Event::Resume { thread, .. }) => unsafe { resume(machine, thread) },
            Some(Event::Timer { thread, .. }) => this.time_out(thread),
            Some(Event::Tick { context }) => this.tick(context as usize),
            Some(Event::Balance) => match this.balance() {
                Progress::Goes => {}
                Progress::Ended => break Ok(()),
                Progress::Hangs(hang) => break Err(hang),
            },
        }
    };
    RUNNING.set(before);
    result
}

/// `thread`, on a context, goes on until it is suspended or ends.
///
/// # Safety
///
/// `machine` is valid, and nobody has a reference to it.
unsafe fn resume(machine: *mut Machine, thread: u32) {
    // SAFETY: the caller's.
    let this = unsafe { &mut *machine };
    this.scheduler.task_mut(thread).set_flight(Flight::Work(0));
    let Some(mut body) = this.threads[thread as usize].body.take() else { return };
    this.current = thread;
    this.core = this.scheduler.core_of(thread);
    this.clock.begin_run();
    let result = body.resume(());
    // SAFETY: the caller's; the thread that had a reference is suspended or has ended.
    let this = unsafe { &mut *machine };
    match result {
        CoroutineResult::Return(()) => this.leave(State::Done),
        CoroutineResult::Yield(()) => this.threads[thread as usize].body = Some(body),
    }
    this.current = NOBODY;
}

/// Whether the caller is a simulated thread.
#[inline(always)]
pub(crate) fn is_inside() -> bool {
    let machine = RUNNING.get();
    // SAFETY: set for as long as it is valid; nobody has a reference across calls.
    !machine.is_null() && unsafe { (*machine).current } != NOBODY
}

/// Whether the caller is called while a machine runs.
pub(super) fn is_running() -> bool {
    !RUNNING.get().is_null()
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
    // SAFETY: set for as long as it is valid; references do not outlive this function, and `work`
    // suspends nobody.
    work(unsafe { &mut *machine })
}

/// Suspends the calling thread, which has announced when it goes on, or is blocked.
pub(super) fn suspend() {
    let yielder = with(|machine| machine.threads[machine.current as usize].yielder);
    // SAFETY: the running thread's own, which lives on the stack that this runs on.
    unsafe { (*yielder).suspend(()) };
}
