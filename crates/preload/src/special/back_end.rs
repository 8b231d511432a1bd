//! The process as a back end of the policy: tasks are threads, and a thread's affinity mask
//! confines it to cores.
//!
//! A thread of the set has the set's processors as its mask. The kernel balances within the set, as
//! it does among the other processors (section 3.4); the policy chooses the processor on which a
//! thread starts. Threads that do not wait for locks keep their mask, which includes the set's
//! processors: any thread may use them while they are idle.
//!
//! The set is chosen from the mask of the first known thread that may run on several processors.
//! Threads with another mask are left alone, since the program chose it. So are threads whose mask
//! changed without this scheduler, and threads with a real-time policy, which would keep all others
//! off a small set.

use core::sync::atomic::Ordering::Relaxed;

use unconvoy_sched::{BackEnd, Change, Task};

use super::kernel::{Kernel, Refusal};
use super::mask::{MAX, Mask};
use super::threads::{ALONE, FREE, MOST, PLACED, Record, Records};

/// The scheduler's knowledge of a record's thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    /// The record's serial when this entry was created; 0: empty.
    pub(super) serial: u32,
    pub(super) task: Task,
    /// Running and waiting time at the last interval.
    pub(super) ran: u64,
    pub(super) waited: u64,
    /// Time of the last interval in which the thread waited.
    pub(super) waited_at: u64,
    pub(super) slice_ended: bool,
    pub(super) is_confined: bool,
    /// Index of the core that the thread was placed on.
    pub(super) core: u32,
    /// [`Mask::fingerprint`] of the mask that the thread was then given.
    pub(super) fingerprint: u64,
}

/// The processors that the set is chosen from.
#[derive(Clone, Copy)]
pub(super) struct Base {
    /// The mask that the threads had.
    pub(super) mask: Mask,
    /// The mask that they get back.
    given: Mask,
}

/// The threads, and the processors that they have.
pub(super) struct Threads {
    /// The machine's processors, in the order in which they join the set.
    order: Vec<u16>,
    /// The processors of the base, in that order.
    pub(super) cores: Vec<u16>,
    /// Number of threads placed on each core.
    loads: Vec<u32>,
    pub(super) entries: Vec<Entry>,
    pub(super) base: Option<Base>,
    /// The user's latest mask, unless it was all processors. Some of its processors may be offline
    /// at present.
    asked: Option<Mask>,
    pub(super) available: Mask,
    set: Mask,
    /// The set has changed in this interval.
    pub(super) is_changed: bool,
    /// The available processors may differ from [`available`](Self::available).
    pub(super) may_differ: bool,
    /// The kernel refuses to set any mask.
    pub(super) is_forbidden: bool,
    pub(super) moves: u64,
    pub(super) searches: u64,
}

impl Threads {
    /// No threads. `order` has the machine's processors; processors that it lacks come last.
    pub(super) fn new(mut order: Vec<u16>) -> Self {
        order.truncate(MAX);
        order.extend(
            (0..MAX as u16).filter(|processor| !order.contains(processor)).collect::<Vec<_>>(),
        );
        Threads {
            order,
            cores: Vec::with_capacity(MAX),
            loads: vec![0; MAX],
            entries: vec![Entry::default(); MOST],
            base: None,
            asked: None,
            available: Mask::EMPTY,
            set: Mask::EMPTY,
            is_changed: false,
            may_differ: false,
            is_forbidden: false,
            moves: 0,
            searches: 0,
        }
    }

    /// From now on, chooses the set from the processors of `mask`.
    pub(super) fn choose_from(&mut self, mask: Mask, kernel: &mut impl Kernel) {
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
    }

    /// Makes the first `bound` cores the set; its threads get new places.
    pub(super) fn choose_set(&mut self, bound: u32) {
        self.set = Mask::of(self.cores.iter().copied().take(bound as usize));
        self.is_changed = true;
        self.loads.fill(0);
        self.entries.iter_mut().for_each(|entry| entry.task.displace());
    }

    /// Frees a thread's place in the set.
    pub(super) fn leave(&mut self, place: usize) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        if entry.task.is_placed() {
            self.loads
                .get_mut(entry.core as usize)
                .into_iter()
                .for_each(|load| *load = load.saturating_sub(1));
        }
        entry.is_confined = false;
    }
}

/// The process during an interval. A thread's id is the index of its record.
pub(super) struct Process<'a, K> {
    pub(super) threads: &'a mut Threads,
    pub(super) records: &'a Records,
    pub(super) kernel: &'a mut K,
}

impl<K: Kernel> Process<'_, K> {
    /// Restores a thread's mask, unless another party has changed the mask meanwhile. With
    /// `by_force`, restores the mask in any case.
    pub(super) fn restore(&mut self, place: usize, by_force: bool) {
        let Some((record, base)) = self.records.used().get(place).zip(self.threads.base) else {
            return;
        };
        let Some(entry) = self.threads.entries.get_mut(place) else { return };
        entry.is_confined = false;
        let Some(thread) = record.thread() else { return };
        if record.take(PLACED) {
            if by_force
                || self
                    .kernel
                    .mask(thread)
                    .is_ok_and(|mask| mask.fingerprint() == entry.fingerprint)
            {
                let _ = self.kernel.set_mask(thread, &base.given);
            }
            record.release(FREE);
        }
    }

    /// Whether the thread still has its last known mask. If not, releases its record, which was
    /// taken from the status `from`.
    fn has_its_mask(&mut self, record: &Record, thread: u32, from: u32, expected: u64) -> bool {
        let has_another = self.kernel.mask(thread).is_ok_and(|mask| mask.fingerprint() != expected);
        if has_another {
            // Either another party set the mask, or the available processors changed.
            let are_others =
                self.kernel.mask(0).is_ok_and(|available| available != self.threads.available);
            self.threads.may_differ |= are_others;
            record.release(if are_others { from } else { ALONE });
        }
        !has_another
    }
}

impl<K: Kernel> BackEnd for Process<'_, K> {
    type Id = usize;

    fn task(&mut self, place: usize) -> Option<&mut Task> {
        self.threads.entries.get_mut(place).map(|entry| &mut entry.task)
    }

    fn core(&self, place: usize) -> u32 {
        self.threads.entries.get(place).map_or(0, |entry| entry.core)
    }

    fn load(&self, core: u32, _: usize) -> u32 {
        self.threads.loads.get(core as usize).copied().unwrap_or(0)
    }

    fn confine(&mut self, place: usize, core: u32, bound: u32) -> bool {
        let Some((record, base)) = self.records.used().get(place).zip(self.threads.base) else {
            return false;
        };
        let (Some(thread), Some(entry)) = (record.thread(), self.threads.entries.get(place)) else {
            return false;
        };
        let from = record.status.load(Relaxed);
        let expected = if from == PLACED { entry.fingerprint } else { base.mask.fingerprint() };
        if !matches!(from, FREE | PLACED) || !record.take(from) {
            return false; // it is outside of the set, or busy
        }
        if !self.has_its_mask(record, thread, from, expected) {
            return false;
        }
        let Process { threads, kernel, .. } = self;
        let is_all = bound as usize >= threads.cores.len();
        let done = if is_all {
            kernel.set_mask(thread, &base.given)
        } else {
            record.announce_placement();
            // It starts on this core; from there the kernel balances.
            let first = threads.cores.get(core as usize).copied();
            let begin = kernel.set_mask(thread, &Mask::of(first));
            begin.and_then(|()| kernel.set_mask(thread, &threads.set))
        };
        let Some(entry) = threads.entries.get_mut(place) else { return false };
        entry.is_confined = done.is_ok() && !is_all;
        match done {
            Ok(()) => {
                (entry.core, entry.fingerprint) = (core, threads.set.fingerprint());
                threads.loads.get_mut(core as usize).into_iter().for_each(|load| *load += 1);
                threads.moves += 1;
                record.release(if is_all { FREE } else { PLACED });
            }
            Err(refusal) => {
                threads.is_forbidden |= refusal == Refusal::Forbidden;
                // Also undoes the first half of a placement.
                let _ = kernel.set_mask(thread, &base.given);
                record.release(if refusal == Refusal::Unfit { ALONE } else { FREE });
            }
        }
        done.is_ok()
    }

    fn release(&mut self, place: usize) {
        self.restore(place, false);
        self.threads.leave(place);
    }

    fn resize(&mut self, change: Change, _: u64) {
        self.threads.searches += u64::from(change.restarts);
        if change.from != change.to {
            self.threads.choose_set(change.to);
        }
    }
}
