//! What a simulated thread does beside accesses to memory: work, look at the clock, wait, sleep,
//! and say what it is at.

use super::abort::{in_transaction, leave_transaction, take_effect};
use super::access::{load, synchronise, wait};
use super::interplay::Machine;
use super::memory::Access;
use super::running::{is_inside, is_running, spawn, suspend, with};
use super::scheduler::{Activity, Flight, State};

/// Nanoseconds of simulated time.
pub fn now() -> u64 {
    if !is_inside() {
        return if is_running() { time() } else { 0 };
    }
    with(|machine| {
        machine.clock.now += machine.parameters.memory.clock_ns;
        machine.memory.note_clock(machine.current);
    });
    synchronise();
    time()
}

/// The calling thread computes for `ns` nanoseconds, longer if its core has other contexts at work.
pub fn work(ns: u64) {
    with(|machine| {
        let others = u64::from(machine.scheduler.busy_in_core(machine.core).saturating_sub(1));
        let slowdown = u64::from(machine.parameters.memory.shared_core_slowdown) * others;
        machine.clock.now += ns + ns * slowdown / 1000;
        machine.memory.note_change(machine.current);
    });
}

/// As [`work`], in picoseconds; what is left of a nanosecond is one or none, by chance.
pub(crate) fn work_ps(ps: u64) {
    let (ns, part) = (ps / 1000, ps % 1000);
    work(ns + u64::from(part != 0 && random(1000) < part));
}

/// The time that the calling thread's clock shows, without what a look at it costs.
pub(crate) fn time() -> u64 {
    with(|machine| machine.clock.now)
}

/// The core that the calling thread runs on.
pub(crate) fn core() -> usize {
    with(|machine| machine.core)
}

/// The calling thread spends `ns` nanoseconds that no other context has a part in.
pub(crate) fn spend(ns: u64) {
    with(|machine| machine.clock.now += ns);
}

/// The calling thread looks at the clock until `ns` nanoseconds have passed.
pub(crate) fn delay(ns: u64) {
    leave_transaction();
    synchronise();
    with(|machine| {
        machine.clock.now += ns.max(machine.parameters.memory.clock_ns);
        machine.memory.note_change(machine.current);
    });
    if with(|machine| machine.clock.is_ahead(0)) {
        wait(Flight::Until(time()));
    }
}

/// The calling thread has done one turn of a loop that polls.
pub(crate) fn pause() {
    leave_transaction();
    synchronise();
    with(|machine| machine.clock.now += machine.parameters.memory.pause_ns);
    rest(Flight::Poll);
}

/// The calling thread has done one turn of a loop that counts its turns: the next one is simulated
/// too.
pub(crate) fn pause_counted() {
    leave_transaction();
    synchronise();
    with(|machine| {
        machine.clock.now += machine.parameters.memory.pause_ns;
        machine.memory.note_change(machine.current);
    });
}

/// Suspends the calling thread if all that it did was to look.
fn rest(flight: Flight) {
    let rests = with(|machine| {
        let span = machine.memory.rest(machine.current);
        if let Some(span) = span {
            machine.suspend_until(flight, machine.clock.now + span);
        }
        span.is_some()
    });
    if rests {
        suspend();
    }
}

/// As [`pause`], but for up to `ns` nanoseconds, or until what is at `address` changes.
pub(crate) fn doze(address: usize, ns: u64) {
    leave_transaction();
    synchronise();
    let watches = with(|machine| {
        let line = machine.memory.line_of(address);
        if let Some(line) = line {
            machine.memory.watch(machine.current, line);
            machine.suspend_until(Flight::Poll, machine.clock.now + ns);
        }
        line.is_some()
    });
    if watches {
        suspend();
    }
}

/// The calling thread yields.
pub(crate) fn yield_now() {
    leave_transaction();
    with(|machine| machine.clock.now += machine.parameters.scheduler.yield_ns);
    synchronise();
    if with(Machine::yield_now) {
        suspend();
    } else {
        rest(Flight::YieldingPoll);
    }
}

/// The calling thread parks on `address` unless `is_changed` says that it holds something else;
/// until it is woken, or until `deadline`.
pub(crate) fn park(address: usize, is_changed: impl FnOnce() -> bool, deadline: Option<u64>) {
    leave_transaction();
    with(|machine| machine.clock.now += machine.parameters.scheduler.park_ns);
    load(address);
    synchronise();
    let is_late = deadline.is_some_and(|deadline| time() >= deadline);
    take_effect(address, Access::Load); // it is read once more
    if is_late || is_changed() {
        return;
    }
    with(|machine| {
        machine.memory.note_change(machine.current);
        machine.park(address, deadline);
    });
    suspend();
}

/// The calling thread wakes up to `count` threads that are parked on `address`.
pub(crate) fn unpark(address: usize, count: u32) {
    leave_transaction();
    with(|machine| machine.clock.now += machine.parameters.scheduler.wake_call_ns);
    synchronise();
    with(|machine| {
        machine.memory.note_change(machine.current);
        machine.unpark(address, count);
    });
    reschedule();
}

/// The calling thread sleeps for `ns` nanoseconds.
pub fn sleep(ns: u64) {
    leave_transaction();
    synchronise();
    with(|machine| machine.sleep(machine.clock.now + ns));
    suspend();
}

/// The calling thread waits for input or output for `ns` nanoseconds: an interrupt ends that, and
/// no tick.
pub fn away(ns: u64) {
    leave_transaction();
    synchronise();
    with(|machine| machine.sleep_exactly(machine.clock.now + ns));
    suspend();
}

/// If the caller is to be preempted, now is the time.
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

/// Whether `thread` is on a context at this moment, as Solaris tells a process in memory that it
/// shares with it.
pub(crate) fn is_on_processor(thread: u32) -> bool {
    with(|machine| machine.scheduler.task(thread).state() == State::Running)
}

/// The calling thread's number.
pub fn current() -> u32 {
    thread()
}

/// The calling thread asks not to be preempted, or does so no more.
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

/// The calling thread is about to acquire a lock: under the lock-contention-aware scheduler it may
/// have to go elsewhere.
pub(crate) fn before_lock() {
    if !with(|machine| machine.scheduler.is_special()) {
        return;
    }
    with(|machine| machine.clock.now += 2 * machine.parameters.memory.clock_ns);
    synchronise();
    if with(Machine::go_to_set) {
        suspend();
    }
}

/// The calling thread's task ends, and another one takes its place; both together take `ns`
/// nanoseconds.
pub(crate) fn renew(ns: u64) {
    synchronise();
    if with(|machine| machine.renew(ns)) {
        suspend();
    }
}

/// The calling thread is not preempted until it [allows](allow_preemption) that as often as it
/// forbade it.
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

/// Starts a thread that is no load of its process: its controller.
pub(crate) fn start_controller(process: usize, name: &str, body: impl FnOnce() + 'static) {
    leave_transaction();
    with(|machine| machine.clock.now += machine.parameters.scheduler.spawn_ns);
    synchronise();
    with(|machine| spawn(machine, process, name.to_string(), false, body));
    reschedule();
}

/// Run and run-queue time of a process's threads, or of all.
pub(crate) fn run_times(process: Option<usize>) -> (u64, u64) {
    synchronise();
    with(|machine| machine.scheduler.accounts.run_times(process, machine.clock.now))
}

/// The calling thread reads the run and run-queue times of all threads of its process.
pub(crate) fn read_load() {
    with(|machine| {
        let scheduler = &machine.parameters.scheduler;
        let threads = machine.scheduler.accounts.threads_of(machine.threads[machine.current as usize].process);
        machine.clock.now += scheduler.sensor_ns + scheduler.sensor_thread_ns * u64::from(threads);
    });
}

/// Contexts of the machine.
pub(crate) fn capacity() -> f64 {
    with(|machine| machine.scheduler.contexts() as f64)
}

/// The calling thread's number, its process, and what load control remembers of it.
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

/// A number for `address` that another run of the same simulation gives it too. What is on a stack
/// is told apart by chance.
pub(crate) fn number_of(address: usize) -> u64 {
    with(|machine| machine.memory.offset_of(address).map_or_else(|| machine.random.u64(..), |offset| offset as u64))
}

/// A random number below `limit`, of the machine's one sequence.
pub fn random(limit: u64) -> u64 {
    with(|machine| machine.random.u64(0..limit))
}

/// Says what the calling thread is at from now on.
pub fn set_activity(activity: Activity) {
    synchronise();
    with(|machine| machine.scheduler.accounts.set_activity(machine.current, activity, machine.clock.now));
}

/// The calling thread begins to acquire a lock. In a transaction nobody waits, and no time is kept
/// of locks.
pub(crate) fn begin_wait(lock: usize) {
    synchronise();
    if !in_transaction() {
        with(|machine| machine.scheduler.accounts.begin_wait(machine.current, lock, machine.clock.now));
    }
}

/// The calling thread has acquired a lock.
pub(crate) fn end_wait(lock: usize) {
    synchronise();
    if in_transaction() {
        enter_section();
    } else {
        with(|machine| machine.scheduler.accounts.acquire(machine.current, lock, machine.clock.now));
    }
}

/// The calling thread is in a critical section, without a lock.
pub(crate) fn enter_section() {
    synchronise();
    with(|machine| machine.scheduler.accounts.enter_section(machine.current, machine.clock.now));
}

/// The calling thread has left a critical section that it was in without a lock.
pub(crate) fn leave_section() {
    synchronise();
    if !in_transaction() {
        with(|machine| machine.scheduler.accounts.leave_section(machine.current, machine.clock.now));
    }
}

/// The calling thread releases a lock.
pub(crate) fn release(lock: usize) {
    synchronise();
    with(|machine| machine.scheduler.accounts.release(machine.current, lock, machine.clock.now));
}
