//! Hardware transactions, as the caches see them: who has read and written which line, whose access
//! is a conflict, and what an abort takes back. (How a thread gets back to the beginning is the
//! part of [`abort`](super::abort) and [`retry`](super::retry).)
//!
//! Conflicts are found at once, line by line, at the moment when an access takes effect:
//!
//! | access | line | what happens |
//! | --- | --- | --- |
//! | of a thread outside | written by a transaction | that transaction aborts |
//! | of a thread outside, that writes | read by transactions | they abort |
//! | of a transaction, the same two | of others | by [`Policy`], they abort or it does |
//! | of a transaction | free, or only read by all | the line is in its set, if that has room |
//!
//! **Invariant 1.** A transaction that has aborted has been undone by the time that the access
//! which caused it reads or writes: memory holds what it held, and no line is the transaction's.
//! Its thread is told when it next runs, and runs none of its program before that.
//!
//! **Invariant 2.** So nobody ever reads what a transaction wrote that does not commit, and no
//! transaction reads two things that do not belong together.
//!
//! What is taken back are [cells](crate::machine::SimulatedCell) in the machine's memory, and what
//! the machine knows of the thread. A cell on a stack is not taken back: it is its thread's own,
//! and its frame may be gone.
//!
//! What is *not* modelled: aborts by page faults, by lines that a cache loses to other lines (but
//! for the lines that a transaction writes, `write_ways`), and by contexts that share a core's
//! cache. A transaction holds until its thread loses the processor.

mod address_set;
mod marks;

use core::mem::MaybeUninit;

use unconvoy::load::ThreadState;
use unconvoy::primitive::Abort;

pub use address_set::AddressSet;

use super::memory::Access;
use crate::parameters::{self, Policy};
use marks::Marks;

/// Why a transaction was undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Another thread accessed a line of it, or it one of another transaction that was to win.
    Conflict,
    /// It read or wrote more lines than it may.
    Capacity,
    /// Its thread called the kernel, or polled.
    Call,
    /// Its thread lost the processor.
    Preempted,
    /// Its thread asked for it.
    Explicit,
}

impl Cause {
    /// What the processor says of it. As on Intel's, only a conflict is said to be worth a retry.
    pub fn abort(self) -> Abort {
        Abort { may_succeed_on_retry: self == Cause::Conflict }
    }
}

/// What came of a machine's transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransactionCounts {
    /// Those that took effect.
    pub commits: u64,
    /// Aborts by [`Cause::Conflict`].
    pub conflicts: u64,
    /// By [`Cause::Capacity`].
    pub capacity: u64,
    /// By [`Cause::Call`].
    pub calls: u64,
    /// By [`Cause::Preempted`].
    pub preempted: u64,
    /// By [`Cause::Explicit`].
    pub explicit: u64,
    /// Thread nanoseconds between beginnings and aborts.
    pub wasted_ns: u64,
}

impl TransactionCounts {
    /// Aborts of all causes.
    pub fn aborts(&self) -> u64 {
        self.conflicts + self.capacity + self.calls + self.preempted + self.explicit
    }

    /// What came since `before`.
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
            Cause::Explicit => &mut self.explicit,
        } += 1;
    }
}

/// The largest cell.
pub(crate) const CELL_BYTES: usize = 8;

/// What a cell held. As bytes without a meaning, because it may be a pointer.
struct Undo {
    place: *mut MaybeUninit<u8>,
    bytes: [MaybeUninit<u8>; CELL_BYTES],
    len: usize,
}

/// What a thread knows of the section that it may have to start over.
#[derive(Default)]
pub(crate) struct Attempts {
    /// Whether a beginning may begin something: the thread is in the acquire of a section that can
    /// be run again.
    pub(crate) may_begin: bool,
    /// What came of the section's tries.
    pub(crate) aborts: Vec<Cause>,
    /// How many of them the acquire has reported again.
    pub(crate) reported: usize,
}

/// A thread's transaction, or none.
#[derive(Default)]
struct Transaction {
    /// Beginnings without an end; 0 outside.
    depth: u32,
    /// It has been undone, and its thread does not know yet.
    pending: Option<Cause>,
    /// When its first try began. Kept from one try to the next.
    age: Option<u64>,
    begun: u64,
    read: Vec<u32>,
    written: Vec<u32>,
    undo: Vec<Undo>,
    /// The thread's state at the beginning.
    state: ThreadState,
    attempts: Attempts,
    /// What the thread accesses, if that is recorded.
    recorded: Option<Box<AddressSet>>,
}

impl Transaction {
    /// Whether its thread is inside one that has not been undone.
    #[inline]
    fn is_live(&self) -> bool {
        self.depth != 0 && self.pending.is_none()
    }
}

/// What an abort takes back beside the cells' contents.
pub(crate) struct Undone {
    /// The thread's state at the beginning.
    pub(crate) state: ThreadState,
    /// Addresses of the cells, from the last one that was written to the first.
    pub(crate) cells: Vec<usize>,
}

/// A machine's transactions.
pub(crate) struct Transactions {
    /// `None`: the machine has none.
    parameters: Option<parameters::Transactions>,
    marks: Marks,
    /// By thread.
    threads: Vec<Transaction>,
    live: u32,
    /// Transactions, and threads whose accesses are recorded.
    attention: u32,
    /// Transactions whose threads do not know that they have been undone.
    pending: u32,
    counts: TransactionCounts,
}

impl Transactions {
    pub(crate) fn new(parameters: Option<parameters::Transactions>) -> Self {
        Transactions {
            parameters,
            marks: Marks::new(),
            threads: Vec::new(),
            live: 0,
            attention: 0,
            pending: 0,
            counts: TransactionCounts::default(),
        }
    }

    /// A thread more.
    pub(crate) fn add_thread(&mut self) {
        self.threads.push(Transaction::default());
    }

    /// What the machine's transactions are like, if it has some.
    pub(crate) fn parameters(&self) -> Option<&parameters::Transactions> {
        self.parameters.as_ref()
    }

    /// What an abort costs.
    pub(crate) fn abort_ns(&self) -> u64 {
        self.parameters.map_or(0, |parameters| parameters.abort_ns)
    }

    /// What came of the transactions so far.
    pub(crate) fn counts(&self) -> TransactionCounts {
        self.counts
    }

    /// Whether accesses are to be [recorded](Self::record) and [looked at](Self::opponents).
    #[inline(always)]
    pub(crate) fn watch_accesses(&self) -> bool {
        self.attention != 0
    }

    /// Whether there are threads that do not know that their transactions have been undone.
    #[inline(always)]
    pub(crate) fn have_pending_aborts(&self) -> bool {
        self.pending != 0
    }

    /// Whether `thread` is inside a transaction that has not been undone.
    #[inline]
    pub(crate) fn is_live(&self, thread: u32) -> bool {
        self.threads[thread as usize].is_live()
    }

    pub(crate) fn attempts(&mut self, thread: u32) -> &mut Attempts {
        &mut self.threads[thread as usize].attempts
    }

    /// The section of `thread` is not tried again: its next transaction is as old as its own begin.
    pub(crate) fn forget_age(&mut self, thread: u32) {
        self.threads[thread as usize].age = None;
    }

    /// Has the accesses of `thread` recorded in `set`, or in none; in which they were.
    pub(crate) fn exchange_recorded(&mut self, thread: u32, set: Option<Box<AddressSet>>) -> Option<Box<AddressSet>> {
        self.attention += u32::from(set.is_some());
        let before = core::mem::replace(&mut self.threads[thread as usize].recorded, set);
        self.attention -= u32::from(before.is_some());
        before
    }

    /// `thread` accesses a word: its offset in the machine's memory, and its line.
    pub(crate) fn record(&mut self, thread: u32, word: usize, line: usize, access: Access) {
        if let Some(set) = &mut self.threads[thread as usize].recorded {
            set.add(word as u64, line as u32, access);
        }
    }

    /// Whose transactions have to be undone, in or outside of a transaction, for an access of
    /// `thread`. The cause, if that is in a transaction itself, and it is this one that aborts.
    pub(crate) fn opponents(&mut self, thread: u32, line: usize, access: Access) -> Result<Vec<u32>, Cause> {
        if self.live == 0 {
            return Ok(Vec::new());
        }
        let opponents = self.marks.opponents(line as u32, thread, access != Access::Load);
        let loses = self.is_live(thread) && opponents.iter().any(|&other| self.is_stronger(other, thread));
        if loses { Err(Cause::Conflict) } else { Ok(opponents) }
    }

    /// Whether the transaction of `other` wins, though `thread` asks for its line.
    fn is_stronger(&self, other: u32, thread: u32) -> bool {
        let age = |thread: u32| (self.threads[thread as usize].age, thread);
        let policy = self.parameters.map(|parameters| parameters.policy);
        policy == Some(Policy::Timestamp) && age(other) < age(thread)
    }

    /// Adds a line that `thread` accesses, and that is nobody else's any more, to the sets of its
    /// transaction. The cause, if that has to abort. Does nothing outside of one.
    pub(crate) fn add(&mut self, thread: u32, line: usize, access: Access) -> Option<Cause> {
        let own = &mut self.threads[thread as usize];
        let parameters = self.parameters.as_ref().filter(|_| own.is_live())?;
        let line = line as u32;
        let is_full = if access != Access::Load && self.marks.write(line, thread) {
            let sets = (parameters.write_lines.get() / parameters.write_ways).max(1);
            own.written.push(line);
            let neighbours = own.written.iter().filter(|&&other| other % sets == line % sets).count();
            neighbours > parameters.write_ways.get() as usize
        } else if access == Access::Load && self.marks.read(line, thread) {
            own.read.push(line);
            own.read.len() > parameters.read_lines.get() as usize
        } else {
            false
        };
        is_full.then_some(Cause::Capacity)
    }

    /// `thread` is about to write `len` bytes, those of a cell in the machine's memory, at `place`.
    ///
    /// # Safety
    ///
    /// They are valid for reads, and for writes until its transaction has ended.
    pub(crate) unsafe fn remember(&mut self, thread: u32, place: *mut u8, len: usize) {
        let own = &mut self.threads[thread as usize];
        if !own.is_live() {
            return;
        }
        let mut bytes = [MaybeUninit::uninit(); CELL_BYTES];
        let place = place.cast::<MaybeUninit<u8>>();
        // SAFETY: the caller's, and a cell has at most as many bytes.
        unsafe { core::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), len) };
        own.undo.push(Undo { place, bytes, len });
    }

    /// `thread`, which is in no transaction, begins one. `state` is what is remembered of it.
    pub(crate) fn begin(&mut self, thread: u32, now: u64, state: ThreadState) {
        let own = &mut self.threads[thread as usize];
        (own.depth, own.begun, own.state) = (1, now, state);
        own.age.get_or_insert(now);
        self.live += 1;
        self.attention += 1;
    }

    /// `thread` begins a part of the transaction that it is in; false if it is in none.
    pub(crate) fn begin_part(&mut self, thread: u32) -> bool {
        let own = &mut self.threads[thread as usize];
        let is_part = own.is_live();
        own.depth += u32::from(is_part);
        is_part
    }

    /// A part of the transaction of `thread` ends; false if that is the transaction itself, which
    /// may [take effect](Self::commit) then.
    pub(crate) fn end_part(&mut self, thread: u32) -> bool {
        let own = &mut self.threads[thread as usize];
        let is_part = own.depth > 1;
        own.depth -= u32::from(is_part);
        is_part
    }

    /// The transaction of `thread` takes effect.
    pub(crate) fn commit(&mut self, thread: u32) {
        self.release_lines(thread);
        let own = &mut self.threads[thread as usize];
        own.undo.clear();
        (own.depth, own.age) = (0, None);
        self.counts.commits += 1;
    }

    /// Empties the sets of a thread's transaction.
    fn release_lines(&mut self, thread: u32) {
        let own = &mut self.threads[thread as usize];
        for line in own.read.drain(..).chain(own.written.drain(..)) {
            self.marks.unmark(line, thread);
        }
        self.live -= 1;
        self.attention -= 1;
    }

    /// Undoes the transaction of `thread`, which is to go back to its beginning.
    pub(crate) fn undo(&mut self, thread: u32, cause: Cause, now: u64) -> Undone {
        self.release_lines(thread);
        let own = &mut self.threads[thread as usize];
        let cells = own.undo.drain(..).rev().map(|Undo { place, bytes, len }| {
            // SAFETY: the bytes of a cell in the machine's memory, which stays and which nobody has
            // a reference into that is no cell's.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, len) };
            place.addr()
        });
        let cells = cells.collect();
        self.counts.count(cause);
        self.counts.wasted_ns += now.saturating_sub(own.begun);
        Undone { state: own.state, cells }
    }

    /// `thread`, whose transaction has been undone, [learns](Self::learn_of_abort) that when it
    /// next runs.
    pub(crate) fn put_off_abort(&mut self, thread: u32, cause: Cause) {
        self.pending += 1;
        self.threads[thread as usize].pending = Some(cause);
    }

    /// If the transaction of `thread` has been undone while it did not run: why.
    pub(crate) fn learn_of_abort(&mut self, thread: u32) -> Option<Cause> {
        let cause = self.threads[thread as usize].pending.take()?;
        self.pending -= 1;
        Some(cause)
    }

    /// `thread`, whose transaction has been undone, goes back to its beginning.
    pub(crate) fn restart(&mut self, thread: u32, cause: Cause) {
        let own = &mut self.threads[thread as usize];
        own.depth = 0;
        own.attempts.aborts.push(cause);
    }
}

#[cfg(test)]
mod tests;
