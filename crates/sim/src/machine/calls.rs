//! What a simulated thread does beside accesses to memory: work, look at the clock, wait, sleep, and say what it is at.

use super::access::{load, synchronise, wait};
use super::account::Activity;
use super::retry::{self, in_transaction, leave_transaction};
use super::thread::{Flight, State};
use super::{Machine, RUNNING, is_inside, suspend, with};

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
