//! The controller's work for the special set at each interval: ends time slices, calls the policy
//! of crates/sched, and lets the [back end](super::back_end) move threads.
//!
//! # A time slice
//!
//! In the kernel a slice is what a task does between two context switches (section 3.2). A process
//! does not see its context switches. Here a slice ends at the controller's interval, once the
//! thread has run for [`SLICE_NS`]. The slice's running time is processor time, which, as in the
//! paper, leaves out the time off the processor. Its waiting time is the time that the thread
//! polled. The controller reads both, so a waiter only adds up its waiting time.
//!
//! After [`Scheduler::new`], nothing here allocates, panics or uses thread-local storage; see
//! [`hook`].
//!
//! [`hook`]: unconvoy_locks::runtime::hook

use core::sync::atomic::Ordering::Relaxed;

use unconvoy_locks::load::sensor::Reading;
use unconvoy_sched::{Parameters, Policy, Slice, Totals};

use super::back_end::{Entry, Process, Threads};
use super::kernel::Kernel;
use super::mask::Mask;
use super::threads::{ALONE, FREE, Record, Records, SLICE_NS};

/// A thread leaves the set after it has not waited for a lock for this long. The paper has no
/// way back from the set ([`unconvoy_sched::task`]): it measures every task that acquires a lock,
/// free or not. Here only threads that wait are measured.
const FORGET_NS: u64 = 1_000_000_000;

/// Time between two checks of the available processors.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// Counters for the statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Number of processors that the set is chosen from; 0: none yet.
    pub(super) cores: u32,
    /// The set's size; 0: no set.
    pub(super) bound: u32,
    pub(super) tasks: u32,
    /// The largest number of threads in the set.
    pub(super) most_tasks: u32,
    /// Number of times that a thread got a mask for the set.
    pub(super) moves: u64,
    /// Slices that counted towards a change of the bound.
    pub(super) votes: u64,
    /// Searches started because the last result no longer held, or was old.
    pub(super) searches: u64,
}

pub(super) struct Scheduler {
    parameters: fn(u32) -> Parameters,
    policy: Policy,
    threads: Threads,
    look_at: u64,
    interval_began: u64,
    /// Processor time of the set's threads in this interval.
    set_ran: u64,
    /// Votes counted by earlier policies.
    votes_before: u64,
    counters: Counters,
}

impl Scheduler {
    /// A scheduler without threads. `order` has the machine's processors; processors that it lacks
    /// come last.
    pub(super) fn new(parameters: fn(u32) -> Parameters, order: Vec<u16>) -> Self {
        Scheduler {
            parameters,
            policy: Policy::new(parameters(1), 0),
            threads: Threads::new(order),
            look_at: 0,
            interval_began: 0,
            set_ran: 0,
            votes_before: 0,
            counters: Counters::default(),
        }
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether the kernel refuses to set any mask.
    pub(super) fn is_forbidden(&self) -> bool {
        self.threads.is_forbidden
    }

    /// Runs when a controller starts.
    pub(super) fn begin(&mut self, kernel: &mut impl Kernel, now: u64) {
        let threads = &mut self.threads;
        threads.base = None;
        self.interval_began = now;
        self.look_at = now + LOOK_EVERY_NS;
        threads
            .entries
            .iter_mut()
            .filter(|entry| entry.serial != 0)
            .for_each(|entry| *entry = Entry::default());
        match kernel.set_mask(0, &Mask::ALL).and_then(|()| kernel.mask(0)) {
            Ok(available) => threads.available = available,
            Err(_) => threads.is_forbidden = true,
        }
    }

    /// Runs at the end of each interval.
    pub(super) fn interval(&mut self, records: &Records, kernel: &mut impl Kernel, now: u64) {
        if self.is_forbidden() {
            return;
        }
        if now >= self.look_at || core::mem::take(&mut self.threads.may_differ) {
            self.look_at = now + LOOK_EVERY_NS;
            if let Ok(available) = kernel.mask(0)
                && available != self.threads.available
            {
                // Start over: the kernel has changed the threads' masks itself.
                self.restore_all(records, kernel, true);
                self.threads.available = available;
                self.threads.base = None;
            }
        }
        self.threads.is_changed = false;
        self.set_ran = 0;
        for (place, record) in records.used().iter().enumerate() {
            self.update(place, record, records, kernel, now);
        }
        let is_changed = self.threads.is_changed;
        for (place, record) in records.used().iter().enumerate() {
            self.move_if_due(place, record, records, kernel, is_changed);
        }
        if self.is_forbidden() {
            self.restore_all(records, kernel, false);
        }
        self.count();
    }

    /// Runs when the controller stops: restores every thread's mask.
    pub(super) fn end(&mut self, records: &Records, kernel: &mut impl Kernel) {
        self.restore_all(records, kernel, false);
        self.replace_policy(1, 0);
        self.threads.base = None;
        self.count();
    }

    /// Limits the capacity in `reading`, whose interval ended at `now`, for load control: threads
    /// of the set have no more processors than the set.
    pub(super) fn limit(&mut self, reading: Reading, now: u64) -> Reading {
        let interval = now.saturating_sub(core::mem::replace(&mut self.interval_began, now));
        if self.threads.base.is_none() || self.policy.tasks() == 0 || interval == 0 {
            return reading;
        }
        let in_set = self.set_ran as f64 / interval as f64;
        let others = (reading.runnable - reading.waiting - in_set).max(0.0);
        Reading {
            capacity: reading.capacity.min(f64::from(self.policy.bound()) + others),
            ..reading
        }
    }

    fn count(&mut self) {
        let Scheduler { policy, threads, .. } = self;
        self.counters = Counters {
            cores: self.counters.cores.max(threads.cores.len() as u32),
            bound: if threads.base.is_some() { policy.bound() } else { 0 },
            tasks: policy.tasks(),
            most_tasks: self.counters.most_tasks.max(policy.tasks()),
            moves: threads.moves,
            votes: self.votes_before + policy.voted(),
            searches: threads.searches,
        };
    }

    fn replace_policy(&mut self, cores: u32, now: u64) {
        self.votes_before += self.policy.voted();
        self.policy = Policy::new((self.parameters)(cores), now);
    }

    /// Updates the entry of a record's thread, and ends its slice when due.
    fn update(
        &mut self,
        place: usize,
        record: &Record,
        records: &Records,
        kernel: &mut impl Kernel,
        now: u64,
    ) {
        let Some(thread) = record.thread() else { return self.forget(place, records, kernel) };
        let Some(ran) = kernel.ran(thread) else {
            self.forget(place, records, kernel);
            return record.give_back();
        };
        let waited = record.waited.load(Relaxed);
        let serial = record.serial.load(Relaxed);
        if self
            .threads
            .entries
            .get(place)
            .is_none_or(|entry| entry.serial != serial || ran < entry.ran)
        {
            self.forget(place, records, kernel);
            let entry = Entry { serial, ran, waited, waited_at: now, ..Entry::default() };
            return self.add_thread(place, record, kernel, entry, now);
        }
        let Some(entry) = self.threads.entries.get_mut(place) else { return };
        let grown = ran - core::mem::replace(&mut entry.ran, ran);
        if entry.is_confined {
            self.set_ran += grown;
        }
        if core::mem::replace(&mut entry.waited, waited) != waited {
            entry.waited_at = now;
        }
        let so_far = Totals { ran_ns: ran, waited_ns: waited };
        let is_idle = now.saturating_sub(entry.waited_at) > FORGET_NS;
        if record.status.load(Relaxed) == ALONE || (is_idle && entry.task.is_lock_intensive()) {
            self.policy.slice_begins(&mut entry.task, so_far);
            self.policy
                .dismiss(&mut Process { threads: &mut self.threads, records, kernel }, place);
        } else if entry.task.slice_ran_ns(ran) >= SLICE_NS {
            entry.slice_ended = true;
            let core = if entry.task.is_placed() { entry.core } else { Slice::ELSEWHERE };
            let slice = entry.task.slice(core, so_far);
            self.policy.slice_ends(
                &mut Process { threads: &mut self.threads, records, kernel },
                place,
                slice,
                now,
            );
        }
    }

    /// Adds a thread without an entry.
    fn add_thread(
        &mut self,
        place: usize,
        record: &Record,
        kernel: &mut impl Kernel,
        mut entry: Entry,
        now: u64,
    ) {
        let Some(thread) = record.thread() else { return };
        let Ok(mask) = kernel.mask(thread) else { return };
        if self.threads.base.is_none() && mask.count() > 1 {
            self.threads.choose_from(mask, kernel);
            self.replace_policy(self.threads.cores.len().max(1) as u32, now);
            self.threads.choose_set(self.policy.bound());
        }
        let is_ours = self.threads.base.is_some_and(|base| base.mask == mask);
        if (!is_ours || !kernel.is_ordinary(thread)) && record.take(FREE) {
            record.release(ALONE);
        }
        self.policy
            .slice_begins(&mut entry.task, Totals { ran_ns: entry.ran, waited_ns: entry.waited });
        if let Some(known) = self.threads.entries.get_mut(place) {
            *known = entry;
        }
    }

    /// Moves the thread if the policy says so, and starts its next slice.
    fn move_if_due(
        &mut self,
        place: usize,
        record: &Record,
        records: &Records,
        kernel: &mut impl Kernel,
        is_changed: bool,
    ) {
        let Scheduler { policy, threads, .. } = self;
        let Some(entry) = threads.entries.get_mut(place).filter(|entry| entry.serial != 0) else {
            return;
        };
        if entry.is_confined && record.status.load(Relaxed) == FREE {
            entry.task.displace(); // it was outside of the set
        }
        let mut process = Process { threads, records, kernel };
        let is_moved = policy.before_lock(&mut process, place);
        if record.status.load(Relaxed) == ALONE {
            policy.dismiss(&mut process, place);
        }
        let Some(entry) = threads.entries.get_mut(place) else { return };
        if core::mem::take(&mut entry.slice_ended) || is_moved || is_changed {
            policy.slice_begins(
                &mut entry.task,
                Totals { ran_ns: entry.ran, waited_ns: entry.waited },
            );
        }
    }

    fn restore_all(&mut self, records: &Records, kernel: &mut impl Kernel, by_force: bool) {
        for place in 0..records.used().len() {
            Process { threads: &mut self.threads, records, kernel }.restore(place, by_force);
            self.forget(place, records, kernel);
        }
    }

    /// Drops the entry: the thread has ended, or its history no longer counts.
    fn forget(&mut self, place: usize, records: &Records, kernel: &mut impl Kernel) {
        if self.threads.entries.get(place).is_some_and(|entry| entry.serial != 0) {
            self.threads.leave(place);
            self.policy.ends(
                &mut Process { threads: &mut self.threads, records, kernel },
                place,
                None,
            );
            self.threads
                .entries
                .get_mut(place)
                .into_iter()
                .for_each(|entry| *entry = Entry::default());
        }
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
