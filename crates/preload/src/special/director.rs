//! What the controller does for the special set at each of its intervals: ends time slices, tells the policy of
//! crates/sched, and moves threads.
//!
//! # A time slice
//!
//! In the kernel a slice is what a task does between two context switches (section 3.2). Nobody tells a process of those.
//! Here a slice ends at the controller's interval, once the thread has run for [`SLICE_NS`]: what it ran is its processor
//! time, which leaves out, as in the paper, the time that it was off the processor, and what it waited is what it polled.
//! Both are read by the controller, so that a waiter does nothing but add up.
//!
//! # Masks
//!
//! A thread of the set has the set's processors for its mask. Within that the kernel balances, as it does among the rest
//! (section 3.4); the processor that it begins on is the policy's. Threads that do not wait for locks keep their mask, which
//! has the set's processors too: idle, they are anybody's.
//!
//! The first thread that is told of and may run on several processors says which ones the set is chosen from. Threads with
//! another mask are left alone: the program chose it. So are those whose mask is found to be another one than it was left,
//! and those with a real-time policy, which would keep everybody else from a small set.
//!
//! Nothing here allocates once it was [made](Director::new), panics or uses thread-local storage; see [`companion`].
//!
//! [`companion`]: unconvoy_locks::platform::native::companion

use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::load::sensor::Reading;
use unconvoy_sched::set::target;
use unconvoy_sched::{Change, Parameters, Policy, Slice, State, Task};

use super::mask::{MAX, Mask};
use super::threads::{ALONE, FREE, MOST, PLACED, Record, Records, SLICE_NS};

/// A thread of the set that waits for nothing for so long is none any more. The paper has no way back from the set
/// ([`unconvoy_sched::task`]): there a task that acquires a lock, free or not, is measured; here only one that waits.
const FORGET_NS: u64 = 1_000_000_000;

/// Time between two looks at the processors that there are.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// Why the kernel did not do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no such thread any more.
    Gone,
    /// Nobody may here: a filter of system calls, say.
    Forbidden,
    /// Something about this thread, or these processors.
    Unfit,
}

/// What is asked of the kernel.
pub(super) trait Kernel {
    /// Processor time of `thread` so far, nanoseconds.
    fn ran(&mut self, thread: u32) -> Option<u64>;
    /// The mask of `thread`, 0 being the caller, whose mask is [`Mask::ALL`]: then, all processors that may be had.
    fn mask(&mut self, thread: u32) -> Result<Mask, Refusal>;
    /// Sets it.
    fn set_mask(&mut self, thread: u32, mask: &Mask) -> Result<(), Refusal>;
    /// From now on threads of the set get back `given`, and are to believe meanwhile that they have `mask`.
    fn publish(&mut self, given: &Mask, mask: &Mask);
    /// Whether `thread` shares processors with others by the usual policies.
    fn is_ordinary(&mut self, thread: u32) -> bool;
}

/// What is known of a record's thread.
#[derive(Debug, Clone, Default)]
struct Entry {
    /// That of the record when this was begun; 0: nothing is known.
    serial: u32,
    task: Task,
    /// What it had run and waited when its slice began.
    slice_ran: u64,
    slice_waited: u64,
    /// The same at the last interval.
    ran: u64,
    waited: u64,
    /// When it was last seen to wait.
    waited_at: u64,
    slice_ended: bool,
    is_confined: bool,
    /// When it was placed, of the [`Director::epoch`]s, which begin with 1, and on which of the cores.
    epoch: u32,
    core: u32,
    /// [`Mask::print`] of the mask that it was given then.
    print: u64,
}

/// The processors that the set is chosen from.
#[derive(Clone, Copy)]
struct Base {
    /// What the threads had.
    mask: Mask,
    /// What they get back.
    given: Mask,
}

/// What has been done, for the statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Deeds {
    /// Processors that the set is chosen from; 0: none yet.
    pub(super) cores: u32,
    /// Of these, the set's; 0: there is none.
    pub(super) bound: u32,
    /// Threads in it.
    pub(super) tasks: u32,
    /// The most there were.
    pub(super) most_tasks: u32,
    /// Times that a thread was given a mask for the set.
    pub(super) moves: u64,
    /// Slices that said something about the bound.
    pub(super) votes: u64,
    /// Searches that were begun because the last one's result did not hold, or was old.
    pub(super) searches: u64,
}

/// The state between two intervals.
pub(super) struct Director {
    parameters: fn(u32) -> Parameters,
    /// The machine's processors, in the order in which they come into the set.
    order: Vec<u16>,
    /// Those of the base, in that order.
    cores: Vec<u16>,
    /// Threads placed on each of them.
    loads: Vec<u32>,
    entries: Vec<Entry>,
    policy: Policy,
    base: Option<Base>,
    /// What the user gave of late, if that was not all that there is: processors of it may be offline just now.
    asked: Option<Mask>,
    available: Mask,
    set: Mask,
    /// How often the set has become another one.
    epoch: u32,
    look_at: u64,
    interval_began: u64,
    /// What threads of the set ran in this interval.
    set_ran: u64,
    /// Of policies before this one.
    votes_before: u64,
    deeds: Deeds,
    is_forbidden: bool,
}

impl Director {
    /// Begins with no threads. `order` has the machine's processors; those that it leaves out come last.
    pub(super) fn new(parameters: fn(u32) -> Parameters, mut order: Vec<u16>) -> Self {
        order.truncate(MAX);
        order.extend((0..MAX as u16).filter(|processor| !order.contains(processor)).collect::<Vec<_>>());
        Director {
            parameters,
            order,
            cores: Vec::with_capacity(MAX),
            loads: vec![0; MAX],
            entries: vec![Entry::default(); MOST],
            policy: Policy::new(parameters(1), 0),
            base: None,
            asked: None,
            available: Mask::EMPTY,
            set: Mask::EMPTY,
            epoch: 0,
            look_at: 0,
            interval_began: 0,
            set_ran: 0,
            votes_before: 0,
            deeds: Deeds::default(),
            is_forbidden: false,
        }
    }

    pub(super) fn deeds(&self) -> Deeds {
        self.deeds
    }

    /// Whether the kernel has refused to set masks at all.
    pub(super) fn is_forbidden(&self) -> bool {
        self.is_forbidden
    }

    /// A controller begins.
    pub(super) fn begin(&mut self, kernel: &mut impl Kernel, now: u64) {
        self.base = None;
        self.interval_began = now;
        self.look_at = now + LOOK_EVERY_NS;
        self.entries.iter_mut().filter(|entry| entry.serial != 0).for_each(|entry| *entry = Entry::default());
        match kernel.set_mask(0, &Mask::ALL).and_then(|()| kernel.mask(0)) {
            Ok(available) => self.available = available,
            Err(_) => self.is_forbidden = true,
        }
    }

    /// An interval has ended.
    pub(super) fn interval(&mut self, records: &Records, kernel: &mut impl Kernel, now: u64) {
        if self.is_forbidden {
            return;
        }
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY_NS;
            if let Ok(available) = kernel.mask(0)
                && available != self.available
            {
                self.processors_changed(records, kernel, available);
            }
        }
        let epoch = self.epoch;
        self.set_ran = 0;
        for (place, record) in records.used().iter().enumerate() {
            self.look(place, record, kernel, now);
        }
        let is_changed = epoch != self.epoch;
        for (place, record) in records.used().iter().enumerate() {
            self.direct(place, record, kernel, is_changed);
        }
        if self.is_forbidden {
            self.restore_all(records, kernel);
        }
        self.note();
    }

    /// The controller goes: every thread gets its mask back.
    pub(super) fn end(&mut self, records: &Records, kernel: &mut impl Kernel) {
        self.restore_all(records, kernel);
        self.votes_before += self.policy.voted();
        self.policy = Policy::new((self.parameters)(1), 0);
        self.base = None;
        self.note();
    }

    /// What load control is to make of `reading`, which ended at `now`: threads of the set have no more processors than the
    /// set has.
    pub(super) fn limit(&mut self, reading: Reading, now: u64) -> Reading {
        let interval = now.saturating_sub(core::mem::replace(&mut self.interval_began, now));
        if self.base.is_none() || self.policy.tasks() == 0 || interval == 0 {
            return reading;
        }
        let in_set = self.set_ran as f64 / interval as f64;
        let others = (reading.runnable - reading.waiting - in_set).max(0.0);
        Reading { capacity: reading.capacity.min(f64::from(self.policy.bound()) + others), ..reading }
    }

    fn note(&mut self) {
        let is_on = self.base.is_some();
        self.deeds.cores = self.deeds.cores.max(self.cores.len() as u32);
        self.deeds.tasks = self.policy.tasks();
        self.deeds.most_tasks = self.deeds.most_tasks.max(self.policy.tasks());
        self.deeds.bound = if is_on { self.policy.bound() } else { 0 };
        self.deeds.votes = self.votes_before + self.policy.voted();
    }

    /// Brings what is known of a record's thread up to date, and ends its slice if it is over.
    fn look(&mut self, place: usize, record: &Record, kernel: &mut impl Kernel, now: u64) {
        let Some(thread) = record.thread() else { return self.forget(place) };
        let Some(ran) = kernel.ran(thread) else {
            self.forget(place);
            return record.give_back();
        };
        let waited = record.waited.load(Relaxed);
        let serial = record.serial.load(Relaxed);
        if self.entries.get(place).is_none_or(|entry| entry.serial != serial || ran < entry.ran) {
            self.forget(place);
            return self.meet(place, record, kernel, Entry { serial, ran, waited, ..Entry::default() }, now);
        }
        let Some(entry) = self.entries.get_mut(place) else { return };
        let grown = ran - core::mem::replace(&mut entry.ran, ran);
        if entry.is_confined {
            self.set_ran += grown;
        }
        if core::mem::replace(&mut entry.waited, waited) != waited {
            entry.waited_at = now;
        }
        let is_idle = now.saturating_sub(entry.waited_at) > FORGET_NS;
        if record.status.load(Relaxed) == ALONE || (is_idle && entry.task.is_lock_intensive()) {
            self.restore(place, record, kernel, false);
            return self.dismiss(place);
        }
        if ran - entry.slice_ran >= SLICE_NS {
            entry.slice_ended = true;
            let is_there = entry.task.state() == State::Migrated && entry.epoch == self.epoch;
            let slice = Slice {
                core: if is_there { entry.core } else { u32::MAX },
                ran_ns: ran - entry.slice_ran,
                waited_ns: waited.saturating_sub(entry.slice_waited),
            };
            let change = self.policy.slice_ends(&mut entry.task, slice, now);
            if let Some(change) = change {
                self.follow(change);
            }
        }
    }

    /// A thread that nothing was known of.
    fn meet(&mut self, place: usize, record: &Record, kernel: &mut impl Kernel, mut entry: Entry, now: u64) {
        let Some(thread) = record.thread() else { return };
        let Ok(mask) = kernel.mask(thread) else { return };
        if self.base.is_none() && mask.count() > 1 {
            self.choose_from(mask, kernel, now);
        }
        let is_ours = self.base.is_some_and(|base| base.mask == mask);
        if (!is_ours || !kernel.is_ordinary(thread)) && record.take(FREE) {
            record.release(ALONE);
        }
        (entry.slice_ran, entry.slice_waited, entry.waited_at) = (entry.ran, entry.waited, now);
        self.policy.slice_begins(&mut entry.task);
        if let Some(known) = self.entries.get_mut(place) {
            *known = entry;
        }
    }

    /// The set is chosen from the processors of `mask` from now on.
    fn choose_from(&mut self, mask: Mask, kernel: &mut impl Kernel, now: u64) {
        let given = match self.asked {
            Some(asked) if asked.and(&self.available) == mask => asked,
            _ if mask == self.available => Mask::ALL,
            _ => mask,
        };
        self.asked = (given != Mask::ALL).then_some(given);
        kernel.publish(&given, &mask);
        self.base = Some(Base { mask, given });
        self.cores.clear();
        self.cores.extend(self.order.iter().copied().filter(|&processor| mask.has(processor)));
        self.votes_before += self.policy.voted();
        self.policy = Policy::new((self.parameters)(self.cores.len().max(1) as u32), now);
        self.choose_set();
    }

    fn choose_set(&mut self) {
        self.set = Mask::of(self.cores.iter().copied().take(self.policy.bound() as usize));
        self.epoch = self.epoch.wrapping_add(1);
        self.loads.fill(0);
    }

    fn follow(&mut self, change: Change) {
        self.deeds.searches += u64::from(change.anew);
        if change.from != change.to {
            self.choose_set();
        }
    }

    /// Begins the next slice, and moves the thread if it has to go elsewhere.
    fn direct(&mut self, place: usize, record: &Record, kernel: &mut impl Kernel, is_changed: bool) {
        let Some(entry) = self.entries.get_mut(place).filter(|entry| entry.serial != 0) else { return };
        self.policy.before_lock(&mut entry.task);
        let status = record.status.load(Relaxed);
        let is_out_of_place = entry.epoch != self.epoch || (entry.is_confined && status == FREE);
        let is_moved = entry.task.state() == State::Migrated && is_out_of_place && self.place(place, record, kernel);
        let Some(entry) = self.entries.get_mut(place) else { return };
        if is_moved || is_changed || core::mem::take(&mut entry.slice_ended) {
            entry.slice_ended = false;
            (entry.slice_ran, entry.slice_waited) = (entry.ran, entry.waited);
            self.policy.slice_begins(&mut entry.task);
        }
    }

    /// Gives a thread the set's mask. Whether that was done.
    fn place(&mut self, place: usize, record: &Record, kernel: &mut impl Kernel) -> bool {
        let (Some(thread), Some(base)) = (record.thread(), self.base) else { return false };
        let Some(entry) = self.entries.get_mut(place) else { return false };
        let from = record.status.load(Relaxed);
        if !matches!(from, FREE | PLACED) || !record.take(from) {
            return false; // it is outside just now
        }
        let before = if from == PLACED { entry.print } else { base.mask.print() };
        if kernel.mask(thread).is_ok_and(|mask| mask.print() != before) {
            // Either somebody chose another one for it, or the processors are others.
            if kernel.mask(0).is_ok_and(|available| available != self.available) {
                self.look_at = 0;
                record.release(from);
            } else {
                record.release(ALONE);
                self.dismiss(place);
            }
            return false;
        }
        let bound = self.policy.bound();
        let is_all = bound as usize >= self.cores.len();
        let core = target(bound, entry.core, |core| self.loads.get(core as usize).copied().unwrap_or(0));
        let first = self.cores.get(core as usize).copied();
        let done = if is_all {
            kernel.set_mask(thread, &base.given)
        } else {
            record.expect_placing();
            // There it begins; from there the kernel balances.
            let begin = kernel.set_mask(thread, &Mask::of(first));
            begin.and_then(|()| kernel.set_mask(thread, &self.set))
        };
        match done {
            Ok(()) => {
                (entry.epoch, entry.core, entry.is_confined) = (self.epoch, core, !is_all);
                entry.print = self.set.print();
                self.loads.get_mut(core as usize).into_iter().for_each(|load| *load += 1);
                self.deeds.moves += 1;
                record.release(if is_all { FREE } else { PLACED });
            }
            Err(refusal) => {
                self.is_forbidden |= refusal == Refusal::Forbidden;
                // Also undoes the first half.
                let _ = kernel.set_mask(thread, &base.given);
                record.release(if refusal == Refusal::Unfit { ALONE } else { FREE });
                entry.is_confined = false;
            }
        }
        done.is_ok()
    }

    /// Gives a thread its mask back, unless somebody has given it another one; in any case if `by_force`.
    fn restore(&mut self, place: usize, record: &Record, kernel: &mut impl Kernel, by_force: bool) {
        let (Some(entry), Some(base)) = (self.entries.get_mut(place), self.base) else { return };
        entry.is_confined = false;
        let Some(thread) = record.thread() else { return };
        if record.take(PLACED) {
            if by_force || kernel.mask(thread).is_ok_and(|mask| mask.print() == entry.print) {
                let _ = kernel.set_mask(thread, &base.given);
            }
            record.release(FREE);
        }
    }

    fn restore_all(&mut self, records: &Records, kernel: &mut impl Kernel) {
        for (place, record) in records.used().iter().enumerate() {
            self.restore(place, record, kernel, false);
            self.forget(place);
        }
    }

    /// Processors have come or gone: everything begins anew with those that there are.
    fn processors_changed(&mut self, records: &Records, kernel: &mut impl Kernel, available: Mask) {
        // The kernel has changed the threads' masks itself.
        for (place, record) in records.used().iter().enumerate() {
            self.restore(place, record, kernel, true);
            self.forget(place);
        }
        self.available = available;
        self.base = None;
    }

    /// The thread is none of the policy's any more.
    fn dismiss(&mut self, place: usize) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        self.policy.ends(&entry.task);
        if entry.epoch == self.epoch && entry.task.state() == State::Migrated {
            self.loads.get_mut(entry.core as usize).into_iter().for_each(|load| *load = load.saturating_sub(1));
        }
        entry.task = Task::default();
        entry.is_confined = false;
        entry.epoch = 0; // of no set: who comes again is placed again
        (entry.slice_ran, entry.slice_waited) = (entry.ran, entry.waited);
    }

    fn forget(&mut self, place: usize) {
        if self.entries.get(place).is_some_and(|entry| entry.serial != 0) {
            self.dismiss(place);
            self.entries.get_mut(place).into_iter().for_each(|entry| *entry = Entry::default());
        }
    }
}

#[cfg(test)]
#[path = "director_tests.rs"]
mod tests;
