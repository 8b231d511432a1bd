//! Hardware transactions as the caches see them: which threads have read and written which lines,
//! which accesses conflict, and what an abort undoes. ([`abort`](super::abort) and
//! [`retry`](super::retry) return a thread to the beginning.)
//!
//! Conflicts are detected eagerly, line by line, when an access takes effect:
//!
//! | access | line | result |
//! | --- | --- | --- |
//! | non-transactional | written by a transaction | that transaction aborts |
//! | non-transactional write | read by transactions | they abort |
//! | transactional | as in either row above | [`Policy`] decides which side aborts |
//! | transactional | in no other transaction, or only read by all | the line joins the set, if the set has room |
//!
//! **Invariant 1.** A transaction is undone before the access that aborts it reads or writes:
//! memory again holds the values from before the transaction, and no line belongs to the
//! transaction. Its thread detects the abort when it next runs, and executes no program code before
//! that.
//!
//! **Invariant 2.** By Invariant 1, no thread reads a write of a transaction that does not commit,
//! and no transaction reads an inconsistent state.
//!
//! An abort restores [cells](crate::machine::SimulatedCell) in the machine's memory and the
//! machine's state of the thread. It does not restore cells on a stack: they are private to the
//! thread, and their frame may be gone.
//!
//! *Not* modelled: aborts by page faults, by cache evictions (except among the lines that a
//! transaction writes, `write_ways`), and by contexts that share a core's cache. A transaction may
//! last until its thread loses the processor.

mod address_set;
mod lines;

use core::mem::MaybeUninit;

use unconvoy::load::ThreadState;
use unconvoy::primitive::Abort;

pub use address_set::AddressSet;

use super::memory::Access;
use crate::parameters::{self, Policy};
use lines::LineTable;

/// Why a transaction was undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Another thread accessed one of its lines, or it accessed a line of a transaction with
    /// priority.
    Conflict,
    /// It read or wrote more lines than fit.
    Capacity,
    /// Its thread made a system call or polled.
    Call,
    /// Its thread lost the processor.
    Preempted,
    /// Its thread requested the abort, for this reason.
    Explicit(Abort),
}

impl Cause {
    /// The abort status that the processor reports. As on Intel's, only a conflict suggests a
    /// retry.
    pub fn abort(self) -> Abort {
        match self {
            Cause::Conflict => Abort::Conflict,
            Cause::Explicit(because) => because,
            Cause::Capacity | Cause::Call | Cause::Preempted => Abort::Hopeless,
        }
    }
}

/// Outcomes of a machine's transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransactionCounts {
    /// Commits.
    pub commits: u64,
    /// Aborts by [`Cause::Conflict`].
    pub conflicts: u64,
    /// Aborts by [`Cause::Capacity`].
    pub capacity: u64,
    /// Aborts by [`Cause::Call`].
    pub calls: u64,
    /// Aborts by [`Cause::Preempted`].
    pub preempted: u64,
    /// Aborts by [`Cause::Explicit`].
    pub explicit: u64,
    /// Thread time between the beginnings and the aborts of transactions, in nanoseconds.
    pub wasted_ns: u64,
}

impl TransactionCounts {
    /// Aborts of all causes.
    pub fn aborts(&self) -> u64 {
        self.conflicts + self.capacity + self.calls + self.preempted + self.explicit
    }

    /// The outcomes since `before`.
    pub fn since(&self, before: &TransactionCounts) -> TransactionCounts {
        TransactionCounts {
            commits: self.commits - before.commits,
            conflicts: self.conflicts - before.conflicts,
            capacity: self.capacity - before.capacity,
            calls: self.calls - before.calls,
            preempted: self.preempted - before.preempted,
            explicit: self.explicit - before.explicit,
            wasted_ns: self.wasted_ns - before.wasted_ns,
        }
    }

    fn count(&mut self, cause: Cause) {
        *match cause {
            Cause::Conflict => &mut self.conflicts,
            Cause::Capacity => &mut self.capacity,
            Cause::Call => &mut self.calls,
            Cause::Preempted => &mut self.preempted,
            Cause::Explicit(_) => &mut self.explicit,
        } += 1;
    }
}

pub(crate) const CELL_BYTES: usize = 8;

/// The old value of a cell, as untyped bytes because it may be a pointer.
struct Undo {
    place: *mut MaybeUninit<u8>,
    bytes: [MaybeUninit<u8>; CELL_BYTES],
    len: usize,
}

/// The history of a section that may have to restart.
#[derive(Default)]
pub(crate) struct Attempts {
    /// Whether a transaction may begin: the thread is in the acquire of a restartable section.
    pub(crate) may_begin: bool,
    /// Causes of the section's aborts so far.
    pub(crate) aborts: Vec<Cause>,
    /// How many of them the current run of the acquire has reported.
    pub(crate) reported: usize,
}

/// The transaction of a thread, if any.
#[derive(Default)]
struct Transaction {
    /// Nesting depth; 0 outside a transaction.
    depth: u32,
    /// Set if the transaction was undone and its thread has not detected it yet.
    pending: Option<Cause>,
    /// When its first attempt began; kept until the section commits or gives up.
    age: Option<u64>,
    begun: u64,
    read: Vec<u32>,
    written: Vec<u32>,
    undo: Vec<Undo>,
    /// The thread's load control state at the beginning.
    state: ThreadState,
    /// The address that the transaction has recorded as that of an elided lock.
    elided_lock: usize,
    attempts: Attempts,
    /// The recorded accesses of the thread, while recording.
    recorded: Option<Box<AddressSet>>,
}

impl Transaction {
    /// Whether the thread is inside a transaction that has not been undone.
    #[inline]
    fn is_live(&self) -> bool {
        self.depth != 0 && self.pending.is_none()
    }
}

/// State that the machine restores after an abort.
pub(crate) struct Undone {
    /// The thread's load control state at the beginning.
    pub(crate) state: ThreadState,
    /// Addresses of the restored cells, last write first.
    pub(crate) cells: Vec<usize>,
}

pub(crate) struct Transactions {
    /// `None` if the machine has no transactions.
    parameters: Option<parameters::Transactions>,
    lines: LineTable,
    /// Indexed by thread.
    threads: Vec<Transaction>,
    live: u32,
    /// Number of live transactions plus recording threads.
    attention: u32,
    /// Number of undone transactions that their threads have not detected yet.
    pending: u32,
    counts: TransactionCounts,
}

impl Transactions {
    pub(crate) fn new(parameters: Option<parameters::Transactions>) -> Self {
        Transactions {
            parameters,
            lines: LineTable::new(),
            threads: Vec::new(),
            live: 0,
            attention: 0,
            pending: 0,
            counts: TransactionCounts::default(),
        }
    }

    pub(crate) fn add_thread(&mut self) {
        self.threads.push(Transaction::default());
    }

    pub(crate) fn parameters(&self) -> Option<&parameters::Transactions> {
        self.parameters.as_ref()
    }

    pub(crate) fn abort_ns(&self) -> u64 {
        self.parameters.map_or(0, |parameters| parameters.abort_ns)
    }

    pub(crate) fn counts(&self) -> TransactionCounts {
        self.counts
    }

    /// Whether accesses must be [recorded](Self::record) and [checked](Self::opponents).
    #[inline(always)]
    pub(crate) fn watch_accesses(&self) -> bool {
        self.attention != 0
    }

    /// Whether any thread has an undetected abort.
    #[inline(always)]
    pub(crate) fn have_pending_aborts(&self) -> bool {
        self.pending != 0
    }

    #[inline]
    pub(crate) fn is_live(&self, thread: u32) -> bool {
        self.threads[thread as usize].is_live()
    }

    pub(crate) fn attempts(&mut self, thread: u32) -> &mut Attempts {
        &mut self.threads[thread as usize].attempts
    }

    /// Forgets the section's first attempt, because the section will not be retried as a
    /// transaction.
    pub(crate) fn clear_age(&mut self, thread: u32) {
        self.threads[thread as usize].age = None;
    }

    /// Replaces the set that records the accesses of `thread`, and returns the old one.
    pub(crate) fn exchange_recorded(
        &mut self,
        thread: u32,
        set: Option<Box<AddressSet>>,
    ) -> Option<Box<AddressSet>> {
        self.attention += u32::from(set.is_some());
        let before = core::mem::replace(&mut self.threads[thread as usize].recorded, set);
        self.attention -= u32::from(before.is_some());
        before
    }

    /// Records an access of `thread`: the word's offset in the machine's memory, and its line.
    pub(crate) fn record(&mut self, thread: u32, word: usize, line: usize, access: Access) {
        if let Some(set) = &mut self.threads[thread as usize].recorded {
            set.add(word as u64, line as u32, access);
        }
    }

    /// Threads whose transactions an access of `thread` aborts. Returns a cause instead if the
    /// access aborts the transaction of `thread` itself.
    pub(crate) fn opponents(
        &mut self,
        thread: u32,
        line: usize,
        access: Access,
    ) -> Result<Vec<u32>, Cause> {
        if self.live == 0 {
            return Ok(Vec::new());
        }
        let opponents = self.lines.opponents(line as u32, thread, access != Access::Load);
        let loses =
            self.is_live(thread) && opponents.iter().any(|&other| self.is_stronger(other, thread));
        if loses { Err(Cause::Conflict) } else { Ok(opponents) }
    }

    /// Whether the transaction of `other` has priority over the requester `thread`.
    fn is_stronger(&self, other: u32, thread: u32) -> bool {
        let age = |thread: u32| (self.threads[thread as usize].age, thread);
        let policy = self.parameters.map(|parameters| parameters.policy);
        policy == Some(Policy::Timestamp) && age(other) < age(thread)
    }

    /// Adds an accessed line, which no other transaction has now, to the sets of the transaction of
    /// `thread`. Returns a cause if the transaction must abort. Does nothing outside a transaction.
    pub(crate) fn add(&mut self, thread: u32, line: usize, access: Access) -> Option<Cause> {
        let own = &mut self.threads[thread as usize];
        let parameters = self.parameters.as_ref().filter(|_| own.is_live())?;
        let line = line as u32;
        let is_full = if access != Access::Load && self.lines.write(line, thread) {
            let sets = (parameters.write_lines.get() / parameters.write_ways).max(1);
            own.written.push(line);
            let neighbours =
                own.written.iter().filter(|&&other| other % sets == line % sets).count();
            neighbours > parameters.write_ways.get() as usize
        } else if access == Access::Load && self.lines.read(line, thread) {
            own.read.push(line);
            own.read.len() > parameters.read_lines.get() as usize
        } else {
            false
        };
        is_full.then_some(Cause::Capacity)
    }

    /// Saves `len` bytes of a cell in the machine's memory before `thread` writes to them.
    ///
    /// # Safety
    ///
    /// The bytes at `place` are valid for reads, and for writes until the transaction of `thread`
    /// ends.
    pub(crate) unsafe fn remember(&mut self, thread: u32, place: *mut u8, len: usize) {
        let own = &mut self.threads[thread as usize];
        if !own.is_live() {
            return;
        }
        let mut bytes = [MaybeUninit::uninit(); CELL_BYTES];
        let place = place.cast::<MaybeUninit<u8>>();
        // SAFETY: guaranteed by the caller; `bytes` is as large as the largest cell.
        unsafe { core::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), len) };
        own.undo.push(Undo { place, bytes, len });
    }

    /// Begins a transaction of `thread`, which is in none. An abort restores `state`.
    pub(crate) fn begin(&mut self, thread: u32, now: u64, state: ThreadState) {
        let own = &mut self.threads[thread as usize];
        (own.depth, own.begun, own.state, own.elided_lock) = (1, now, state, 0);
        own.age.get_or_insert(now);
        self.live += 1;
        self.attention += 1;
    }

    /// The address recorded by the transaction of `thread`; 0 outside a transaction.
    pub(crate) fn elided_lock(&self, thread: u32) -> usize {
        let own = &self.threads[thread as usize];
        if own.is_live() { own.elided_lock } else { 0 }
    }

    pub(crate) fn set_elided_lock(&mut self, thread: u32, address: usize) {
        self.threads[thread as usize].elided_lock = address;
    }

    /// Begins a nested transaction; false if `thread` is in no transaction.
    pub(crate) fn begin_part(&mut self, thread: u32) -> bool {
        let own = &mut self.threads[thread as usize];
        let is_part = own.is_live();
        own.depth += u32::from(is_part);
        is_part
    }

    /// Ends a nested transaction; false if the outermost one ends, which may
    /// [commit](Self::commit).
    pub(crate) fn end_part(&mut self, thread: u32) -> bool {
        let own = &mut self.threads[thread as usize];
        let is_part = own.depth > 1;
        own.depth -= u32::from(is_part);
        is_part
    }

    pub(crate) fn commit(&mut self, thread: u32) {
        self.release_lines(thread);
        let own = &mut self.threads[thread as usize];
        own.undo.clear();
        (own.depth, own.age) = (0, None);
        self.counts.commits += 1;
    }

    /// Empties the read and write sets of `thread`.
    fn release_lines(&mut self, thread: u32) {
        let own = &mut self.threads[thread as usize];
        for line in own.read.drain(..).chain(own.written.drain(..)) {
            self.lines.remove(line, thread);
        }
        self.live -= 1;
        self.attention -= 1;
    }

    /// Undoes the transaction of `thread`, which must return to its beginning.
    pub(crate) fn undo(&mut self, thread: u32, cause: Cause, now: u64) -> Undone {
        self.release_lines(thread);
        let own = &mut self.threads[thread as usize];
        let cells = own.undo.drain(..).rev().map(|Undo { place, bytes, len }| {
            // SAFETY: `remember` saved these bytes of a cell in the machine's memory, which stays
            // valid. The only references into a cell are shared, and cells are interior mutable.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, len) };
            place.addr()
        });
        let cells = cells.collect();
        self.counts.count(cause);
        self.counts.wasted_ns += now.saturating_sub(own.begun);
        Undone { state: own.state, cells }
    }

    /// Leaves the abort of `thread` to be [detected](Self::take_pending_abort) when the thread next
    /// runs.
    pub(crate) fn defer_abort(&mut self, thread: u32, cause: Cause) {
        self.pending += 1;
        self.threads[thread as usize].pending = Some(cause);
    }

    /// Returns the cause once if the transaction of `thread` was undone while the thread did not
    /// run.
    pub(crate) fn take_pending_abort(&mut self, thread: u32) -> Option<Cause> {
        let cause = self.threads[thread as usize].pending.take()?;
        self.pending -= 1;
        Some(cause)
    }

    /// Ends the undone transaction of `thread` and adds the cause to its history.
    pub(crate) fn restart(&mut self, thread: u32, cause: Cause) {
        let own = &mut self.threads[thread as usize];
        own.depth = 0;
        own.attempts.aborts.push(cause);
    }
}

#[cfg(test)]
mod tests;
