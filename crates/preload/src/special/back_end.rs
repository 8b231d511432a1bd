//! The process as a back end of the policy: tasks are threads, and a thread is kept to cores by its mask of processors.
//!
//! A thread of the set has the set's processors for its mask. Within that the kernel balances, as it does among the rest
//! (section 3.4); the processor that it begins on is the policy's. Threads that do not wait for locks keep their mask, which
//! has the set's processors too: idle, they are anybody's.
//!
//! The first known thread that may run on several processors says which ones the set is chosen from. Threads with
//! another mask are left alone: the program chose it. So are those whose mask is found to be another one than it was left,
//! and those with a real-time policy, which would keep everybody else from a small set.

use core::sync::atomic::Ordering::Relaxed;

use unconvoy_sched::{BackEnd, Change, Task};

use super::kernel::{Kernel, Refusal};
use super::mask::{MAX, Mask};
use super::threads::{ALONE, FREE, MOST, PLACED, Record, Records};

/// What is known of a record's thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    /// That of the record when this was begun; 0: nothing is known.
    pub(super) serial: u32,
    pub(super) task: Task,
    /// What it had run and waited at the last interval.
    pub(super) ran: u64,
    pub(super) waited: u64,
    /// When it was last seen to wait.
    pub(super) waited_at: u64,
    pub(super) slice_ended: bool,
    pub(super) is_confined: bool,
    /// On which of the cores it was placed.
    pub(super) core: u32,
    /// [`Mask::print`] of the mask that it was given then.
    pub(super) print: u64,
}

/// The processors that the set is chosen from.
#[derive(Clone, Copy)]
pub(super) struct Base {
    /// What the threads had.
    pub(super) mask: Mask,
    /// What they get back.
    given: Mask,
}

/// The threads, and the processors that they have.
pub(super) struct Threads {
    /// The machine's processors, in the order in which they come into the set.
    order: Vec<u16>,
    /// Those of the base, in that order.
    pub(super) cores: Vec<u16>,
    /// Threads placed on each of them.
    loads: Vec<u32>,
    pub(super) entries: Vec<Entry>,
    pub(super) base: Option<Base>,
    /// What the user gave of late, if that was not all that there is: processors of it may be offline just now.
    asked: Option<Mask>,
    pub(super) available: Mask,
    set: Mask,
    /// The set has become another one.
    pub(super) is_changed: bool,
    /// The processors that there are may be others than [`available`](Self::available).
    pub(super) may_differ: bool,
    /// The kernel refuses to set masks at all.
    pub(super) is_forbidden: bool,
    /// Times that a thread was given a mask for the set.
    pub(super) moves: u64,
    /// Searches that were begun because the last one's result did not hold, or was old.
    pub(super) searches: u64,
}

impl Threads {
    /// None. `order` has the machine's processors; those that it leaves out come last.
    pub(super) fn new(mut order: Vec<u16>) -> Self {
        order.truncate(MAX);
        order.extend((0..MAX as u16).filter(|processor| !order.contains(processor)).collect::<Vec<_>>());
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

    /// The set is chosen from the processors of `mask` from now on.
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

    /// The set has the first `bound` cores from now on; who is in it gets another place.
    pub(super) fn choose_set(&mut self, bound: u32) {
        self.set = Mask::of(self.cores.iter().copied().take(bound as usize));
        self.is_changed = true;
        self.loads.fill(0);
        self.entries.iter_mut().for_each(|entry| entry.task.displace());
    }

    /// A thread leaves its place in the set.
    pub(super) fn leave(&mut self, place: usize) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        if entry.task.is_placed() {
            self.loads.get_mut(entry.core as usize).into_iter().for_each(|load| *load = load.saturating_sub(1));
        }
        entry.is_confined = false;
    }
}

/// The process, during an interval. A thread's id is the place of its record.
pub(super) struct Process<'a, K> {
    pub(super) threads: &'a mut Threads,
    pub(super) records: &'a Records,
    pub(super) kernel: &'a mut K,
}

impl<K: Kernel> Process<'_, K> {
    /// Gives a thread its mask back, unless somebody has given it another one; in any case if `by_force`.
    pub(super) fn restore(&mut self, place: usize, by_force: bool) {
        let Some((record, base)) = self.records.used().get(place).zip(self.threads.base) else { return };
        let Some(entry) = self.threads.entries.get_mut(place) else { return };
        entry.is_confined = false;
        let Some(thread) = record.thread() else { return };
        if record.take(PLACED) {
            if by_force || self.kernel.mask(thread).is_ok_and(|mask| mask.print() == entry.print) {
                let _ = self.kernel.set_mask(thread, &base.given);
            }
            record.release(FREE);
        }
    }

    /// Whether the thread, whose record was taken from the status `from`, has the mask that it was left. If not, lets go of it.
    fn has_its_mask(&mut self, record: &Record, thread: u32, from: u32, expected: u64) -> bool {
        let has_another = self.kernel.mask(thread).is_ok_and(|mask| mask.print() != expected);
        if has_another {
            // Either somebody chose another one for it, or the processors are others.
            let are_others = self.kernel.mask(0).is_ok_and(|available| available != self.threads.available);
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
        let Some((record, base)) = self.records.used().get(place).zip(self.threads.base) else { return false };
        let (Some(thread), Some(entry)) = (record.thread(), self.threads.entries.get(place)) else { return false };
        let from = record.status.load(Relaxed);
        let expected = if from == PLACED { entry.print } else { base.mask.print() };
        if !matches!(from, FREE | PLACED) || !record.take(from) {
            return false; // it is outside just now
        }
        if !self.has_its_mask(record, thread, from, expected) {
            return false;
        }
        let Process { threads, kernel, .. } = self;
        let is_all = bound as usize >= threads.cores.len();
        let done = if is_all {
            kernel.set_mask(thread, &base.given)
        } else {
            record.expect_placing();
            // There it begins; from there the kernel balances.
            let first = threads.cores.get(core as usize).copied();
            let begin = kernel.set_mask(thread, &Mask::of(first));
            begin.and_then(|()| kernel.set_mask(thread, &threads.set))
        };
        let Some(entry) = threads.entries.get_mut(place) else { return false };
        entry.is_confined = done.is_ok() && !is_all;
        match done {
            Ok(()) => {
                (entry.core, entry.print) = (core, threads.set.print());
                threads.loads.get_mut(core as usize).into_iter().for_each(|load| *load += 1);
                threads.moves += 1;
                record.release(if is_all { FREE } else { PLACED });
            }
            Err(refusal) => {
                threads.is_forbidden |= refusal == Refusal::Forbidden;
                // Also undoes the first half.
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
        self.threads.searches += u64::from(change.anew);
        if change.from != change.to {
            self.threads.choose_set(change.to);
        }
    }
}
