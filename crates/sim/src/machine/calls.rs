//! Operations of a simulated thread other than memory accesses: work, read the clock, wait, sleep,
//! and report its activity.

use unconvoy::primitive::Kind;

use super::abort::{in_transaction, leave_transaction, take_effect};
use super::access::{load, synchronise, wait};
use super::interplay::Machine;
use super::memory::Access;
use super::running::{is_inside, is_running, spawn, suspend, with};
use super::scheduler::{Activity, Flight, State};

/// Reads the clock, in nanoseconds of simulated time.
pub fn now() -> u64 {
    if !is_inside() {
        return if is_running() { time() } else { 0 };
    }
    with(|machine| {
        machine.clock.now += machine.parameters.memory.clock_ns;
        machine.memory.record_clock_read(machine.current);
    });
    synchronise();
    time()
}

/// Computes for `ns` nanoseconds, longer if other contexts of the core are busy.
pub fn work(ns: u64) {
    with(|machine| {
        let others = u64::from(machine.scheduler.active_in_core(machine.core).saturating_sub(1));
        let slowdown = u64::from(machine.parameters.memory.shared_core_slowdown) * others;
        machine.clock.now += ns + ns * slowdown / 1000;
        machine.memory.record_change(machine.current);
    });
}

/// Same as [`work`], in picoseconds. Rounds the fraction of a nanosecond up or down at random.
pub(crate) fn work_ps(ps: u64) {
    let (ns, part) = (ps / 1000, ps % 1000);
    work(ns + u64::from(part != 0 && random(1000) < part));
}

/// The calling thread's clock, without the cost of reading it.
pub(crate) fn time() -> u64 {
    with(|machine| machine.clock.now)
}

/// The core that the calling thread runs on.
pub(crate) fn core() -> usize {
    with(|machine| machine.core)
}

/// Spends `ns` nanoseconds, unaffected by other contexts.
pub(crate) fn spend(ns: u64) {
    with(|machine| machine.clock.now += ns);
}

/// Reads the clock in a loop until `ns` nanoseconds have passed.
pub(crate) fn delay(ns: u64) {
    leave_transaction();
    synchronise();
    with(|machine| {
        machine.clock.now += ns.max(machine.parameters.memory.clock_ns);
        machine.memory.record_change(machine.current);
    });
    if with(|machine| machine.clock.is_ahead(0)) {
        wait(Flight::Until(time()));
    }
}

/// Ends one turn of a polling loop.
pub(crate) fn pause() {
    leave_transaction();
    synchronise();
    with(|machine| machine.clock.now += machine.parameters.memory.pause_ns);
    suspend_if_polling(Flight::Poll);
}

/// Ends one turn of a loop that counts its turns. The thread is not suspended: every turn is
/// simulated.
pub(crate) fn pause_counted() {
    leave_transaction();
    synchronise();
    with(|machine| {
        machine.clock.now += machine.parameters.memory.pause_ns;
        machine.memory.record_change(machine.current);
    });
}

/// Suspends the calling thread if its last turn only polled.
fn suspend_if_polling(flight: Flight) {
    let is_polling = with(|machine| {
        let span = machine.memory.begin_polling(machine.current);
        if let Some(span) = span {
            machine.suspend_until(flight, machine.clock.now + span);
        }
        span.is_some()
    });
    if is_polling {
        suspend();
    }
}

pub(crate) fn yield_now() {
    leave_transaction();
    with(|machine| machine.clock.now += machine.parameters.scheduler.yield_ns);
    synchronise();
    enter_kernel();
    if with(Machine::yield_now) {
        suspend();
    } else {
        suspend_if_polling(Flight::YieldingPoll);
    }
}

/// Parks the calling thread on `address`, as a thread of `kind`, until a wake-up or `deadline`.
/// Returns at once if `is_changed` returns true: the word then has another value.
pub(crate) fn park(
    address: usize,
    kind: Option<Kind>,
    is_changed: impl FnOnce() -> bool,
    deadline: Option<u64>,
) {
    leave_transaction();
    with(|machine| machine.clock.now += machine.parameters.scheduler.park_ns);
    load(address);
    synchronise();
    enter_kernel();
    let is_late = deadline.is_some_and(|deadline| time() >= deadline);
    take_effect(address, Access::Load); // The kernel reads the word once more.
    if is_late || is_changed() {
        return;
    }
    with(|machine| {
        machine.memory.record_change(machine.current);
        machine.park(address, kind, deadline);
    });
    suspend();
}

/// Wakes up to `count` threads parked on `address`: those of one kind, or of every kind.
pub(crate) fn unpark(address: usize, kind: Option<Kind>, count: u32) {
    leave_transaction();
    with(|machine| machine.clock.now += machine.parameters.scheduler.wake_call_ns);
    synchronise();
    enter_kernel();
    with(|machine| {
        machine.memory.record_change(machine.current);
        machine.unpark(address, kind, count);
    });
    reschedule();
}

/// Sleeps for `ns` nanoseconds.
pub fn sleep(ns: u64) {
    leave_transaction();
    synchronise();
    with(|machine| machine.sleep(machine.clock.now + ns));
    suspend();
}

/// Waits for input or output for `ns` nanoseconds. An interrupt ends the wait, independently of
/// timer ticks.
pub fn wait_for_io(ns: u64) {
    leave_transaction();
    synchronise();
    with(|machine| machine.sleep_exactly(machine.clock.now + ns));
    suspend();
}

/// Records that the calling thread is in a system call.
fn enter_kernel() {
    with(|machine| machine.scheduler.enter_kernel(machine.current));
}

/// Gives up the processor if a preemption is due.
fn reschedule() {
    let due = with(|machine| {
        let due = core::mem::take(&mut machine.preempt_due);
        if due {
            machine.give_way(false);
        }
        due
    });
    if due {
        suspend();
    }
}

/// Whether `thread` is on a context now. Solaris publishes this in memory shared with the process.
pub(crate) fn is_on_processor(thread: u32) -> bool {
    with(|machine| machine.scheduler.task(thread).state() == State::Running)
}

/// Number of the calling thread.
pub fn current() -> u32 {
    thread()
}

/// Requests a slice extension for the calling thread, or ends the request.
pub(crate) fn ask_for_extension(asks: bool) {
    synchronise();
    let was_extended = with(|machine| {
        machine.clock.now += machine.parameters.memory.hit_ns;
        machine.scheduler.task_mut(machine.current).ask_for_extension(asks)
    });
    if was_extended {
        yield_now();
    }
}

/// Prepares to acquire a lock: the lock-contention-aware scheduler may migrate the thread.
pub(crate) fn before_lock() {
    if !with(|machine| machine.scheduler.has_special_set()) {
        return;
    }
    with(|machine| machine.clock.now += 2 * machine.parameters.memory.clock_ns);
    synchronise();
    if with(Machine::go_to_set) {
        suspend();
    }
}

/// Ends the calling thread's task and starts the next; the two together take `ns` nanoseconds.
pub(crate) fn renew(ns: u64) {
    synchronise();
    if with(|machine| machine.renew(ns)) {
        suspend();
    }
}

/// Disables preemption of the calling thread. Calls nest; [`allow_preemption`] undoes one.
pub(crate) fn forbid_preemption() {
    with(|machine| machine.scheduler.task_mut(machine.current).forbid_preemption());
}

/// See [`forbid_preemption`].
pub(crate) fn allow_preemption() {
    if with(|machine| machine.scheduler.task_mut(machine.current).allow_preemption()) {
        synchronise();
        with(|machine| machine.give_way(true));
        suspend();
    }
}

/// Starts the controller thread of a process. The process does not count it as load.
pub(crate) fn start_controller(process: usize, name: &str, body: impl FnOnce() + 'static) {
    leave_transaction();
    with(|machine| machine.clock.now += machine.parameters.scheduler.spawn_ns);
    synchronise();
    with(|machine| spawn(machine, process, name.to_string(), false, body));
    reschedule();
}

/// Run and run-queue time of the threads of `process`, or of all processes.
pub(crate) fn run_times(process: Option<usize>) -> (u64, u64) {
    synchronise();
    with(|machine| machine.scheduler.accounts.run_times(process, machine.clock.now))
}

/// Spends the time of reading the run and run-queue times of all threads of the caller's process.
pub(crate) fn read_load() {
    with(|machine| {
        let scheduler = &machine.parameters.scheduler;
        let threads = machine
            .scheduler
            .accounts
            .threads_of(machine.threads[machine.current as usize].process);
        machine.clock.now += scheduler.sensor_ns + scheduler.sensor_thread_ns * u64::from(threads);
    });
}

pub(crate) fn capacity() -> f64 {
    with(|machine| machine.scheduler.contexts() as f64)
}

pub(crate) fn thread() -> u32 {
    with(|machine| machine.current)
}

pub(crate) fn process() -> usize {
    with(|machine| machine.threads[machine.current as usize].process)
}

pub(crate) fn thread_state() -> unconvoy::load::ThreadState {
    with(|machine| machine.threads[machine.current as usize].state)
}

pub(crate) fn set_thread_state(state: unconvoy::load::ThreadState) {
    with(|machine| machine.threads[machine.current as usize].state = state);
}

/// Row of the calling thread in the table of its process's visible readers.
pub(crate) fn row() -> Option<usize> {
    with(|machine| machine.threads[machine.current as usize].row)
}

pub(crate) fn set_row(row: usize) {
    with(|machine| machine.threads[machine.current as usize].row = Some(row));
}

/// A number for `address` that is the same in every run of a simulation. Stack addresses get random
/// numbers.
pub(crate) fn number_of(address: usize) -> u64 {
    with(|machine| {
        machine
            .memory
            .offset_of(address)
            .map_or_else(|| machine.random.u64(..), |offset| offset as u64)
    })
}

/// A random number below `limit`, from the machine's only generator.
pub fn random(limit: u64) -> u64 {
    with(|machine| machine.random.u64(0..limit))
}

/// Records what the calling thread does from now on.
pub fn set_activity(activity: Activity) {
    synchronise();
    with(|machine| {
        machine.scheduler.accounts.set_activity(machine.current, activity, machine.clock.now)
    });
}

/// Records that the calling thread begins to acquire a lock. Inside a transaction no thread waits,
/// so nothing is recorded there.
pub(crate) fn begin_wait(lock: usize) {
    synchronise();
    if !in_transaction() {
        with(|machine| machine.scheduler.begin_wait(machine.current, lock, machine.clock.now));
    }
}

/// Records that the calling thread has acquired a lock.
pub(crate) fn end_wait(lock: usize) {
    synchronise();
    if in_transaction() {
        enter_section();
    } else {
        with(|machine| machine.scheduler.acquire(machine.current, lock, machine.clock.now));
    }
}

/// Records that the calling thread enters a critical section without a lock.
pub(crate) fn enter_section() {
    synchronise();
    with(|machine| machine.scheduler.accounts.enter_section(machine.current, machine.clock.now));
}

/// Records that the calling thread leaves a critical section that it entered without a lock.
pub(crate) fn leave_section() {
    synchronise();
    if !in_transaction() {
        with(|machine| {
            machine.scheduler.accounts.leave_section(machine.current, machine.clock.now)
        });
    }
}

/// Records that the calling thread releases a lock.
pub(crate) fn release(lock: usize) {
    synchronise();
    with(|machine| machine.scheduler.release(machine.current, lock, machine.clock.now));
}
