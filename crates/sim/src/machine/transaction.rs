//! Hardware transactions, as the caches see them: who has read and written which line, whose access is a conflict, and
//! what an abort takes back. (How a thread gets back to the beginning is [`retry`](super::retry)'s part.)
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
//! **Invariant 1.** A transaction that has aborted has been undone by the time that the access which caused it reads or
//! writes: memory holds what it held, and no line is the transaction's. Its thread is told when it next runs, and runs
//! none of its program before that.
//!
//! **Invariant 2.** So nobody ever reads what a transaction wrote that does not commit, and no transaction reads two
//! things that do not belong together.
//!
//! What is taken back are [cells](crate::platform::SimulatedCell) in the machine's memory, and what the machine knows of
//! the thread. A cell on a stack is not taken back: it is its thread's own, and its frame may be gone.
//!
//! What is *not* modelled: aborts by page faults, by lines that a cache loses to other lines (but for the lines that a
//! transaction writes, `write_ways`), and by contexts that share a core's cache. A transaction holds until its thread
//! loses the processor.

use core::mem::MaybeUninit;

use unconvoy::platform::{Abort, ThreadNote};

use super::arena::{LINES, Zeroable, Zeroes};
use super::coherence::Access;
use super::thread::{Flight, State};
use super::{Machine, NOBODY};
use crate::parameters::{self, Policy};

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
pub(super) const CELL_BYTES: usize = 8;

/// What a cell held. As bytes without a meaning, because it may be a pointer.
struct Undo {
    place: *mut MaybeUninit<u8>,
    bytes: [MaybeUninit<u8>; CELL_BYTES],
    len: usize,
}

/// A thread's transaction, or none.
#[derive(Default)]
pub(super) struct Transaction {
    /// Beginnings without an end; 0 outside.
    pub(super) depth: u32,
    /// It has been undone, and its thread does not know yet.
    pub(super) doom: Option<Cause>,
    /// When its first try began. Kept from one try to the next.
    pub(super) age: Option<u64>,
    begun: u64,
    read: Vec<u32>,
    written: Vec<u32>,
    undo: Vec<Undo>,
    note: ThreadNote,
}

impl Transaction {
    /// Whether its thread is inside one that has not been undone.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.depth != 0 && self.doom.is_none()
    }
}

/// The transactions that have accessed a line.
struct Marks {
    writer: u32,
    readers: Vec<u32>,
}

// SAFETY: a number.
unsafe impl Zeroable for u32 {}

/// The machine's part of it.
pub(super) struct Transactions {
    parameters: parameters::Transactions,
    /// By line, the place of its marks and 1; 0 if it has none.
    places: Zeroes<u32>,
    marks: Vec<Marks>,
    free: Vec<u32>,
    pub(super) live: u32,
    pub(super) counts: TransactionCounts,
}

impl Transactions {
    pub(super) fn new(parameters: parameters::Transactions) -> Self {
        Transactions {
            parameters,
            places: Zeroes::new(LINES),
            marks: Vec::new(),
            free: Vec::new(),
            live: 0,
            counts: TransactionCounts::default(),
        }
    }

    pub(super) fn parameters(&self) -> &parameters::Transactions {
        &self.parameters
    }

    pub(super) fn abort_ns(&self) -> u64 {
        self.parameters.abort_ns
    }

    fn of(&mut self, line: u32) -> &mut Marks {
        let place = self.places.at(line as usize);
        if *place == 0 {
            let free = self.free.pop().unwrap_or_else(|| {
                self.marks.push(Marks { writer: NOBODY, readers: Vec::new() });
                self.marks.len() as u32 - 1
            });
            *place = free + 1;
        }
        &mut self.marks[*place as usize - 1]
    }

    /// Whose transactions an access of `thread` is in conflict with.
    fn opponents(&mut self, line: u32, thread: u32, writes: bool) -> Vec<u32> {
        let place = *self.places.at(line as usize);
        if place == 0 {
            return Vec::new();
        }
        let marks = &self.marks[place as usize - 1];
        let writer = Some(marks.writer).filter(|&writer| writer != NOBODY && writer != thread);
        let readers =
            marks.readers.iter().copied().filter(|&reader| writes && reader != thread && Some(reader) != writer);
        writer.into_iter().chain(readers).collect()
    }

    /// `line` is no more in the sets of `thread`.
    fn unmark(&mut self, line: u32, thread: u32) {
        let place = *self.places.at(line as usize);
        if place == 0 {
            return; // it was read and written
        }
        let marks = &mut self.marks[place as usize - 1];
        if marks.writer == thread {
            marks.writer = NOBODY;
        }
        marks.readers.retain(|&reader| reader != thread);
        if marks.writer == NOBODY && marks.readers.is_empty() {
            *self.places.at(line as usize) = 0;
            self.free.push(place - 1);
        }
    }
}

impl Machine {
    /// The running thread's access takes effect now. The cause, if its own transaction is what aborts.
    #[cold]
    pub(super) fn takes_effect(&mut self, address: usize, access: Access) -> Option<Cause> {
        let offset = self.arena.offset_of(address)?;
        let line = self.arena.line_of(address)? as u32;
        let (thread, writes) = (self.current, access != Access::Load);
        if let Some(set) = &mut self.threads[thread as usize].recorded {
            set.add(offset as u64, line, access);
        }
        let transactions = self.transactions.as_mut()?;
        if transactions.live == 0 {
            return None;
        }
        let is_inside = self.threads[thread as usize].transaction.is_live();
        let opponents = transactions.opponents(line, thread, writes);
        if is_inside && opponents.iter().any(|&other| self.is_stronger(other, thread)) {
            return Some(Cause::Conflict);
        }
        for other in opponents {
            self.dooms(other, Cause::Conflict);
        }
        if is_inside { self.adds(line, writes) } else { None }
    }

    /// Whether the transaction of `other` wins, though `thread` asks for its line.
    fn is_stronger(&self, other: u32, thread: u32) -> bool {
        let age = |thread: u32| (self.threads[thread as usize].transaction.age, thread);
        let policy = self.transactions.as_ref().map(|transactions| transactions.parameters.policy);
        policy == Some(Policy::Timestamp) && age(other) < age(thread)
    }

    /// Adds a line to the sets of the running thread's transaction.
    fn adds(&mut self, line: u32, writes: bool) -> Option<Cause> {
        let transactions = self.transactions.as_mut()?;
        let parameters = transactions.parameters;
        let own = &mut self.threads[self.current as usize].transaction;
        let marks = transactions.of(line);
        if writes && marks.writer != self.current {
            marks.writer = self.current;
            let sets = (parameters.write_lines.get() / parameters.write_ways).max(1);
            own.written.push(line);
            let neighbours = own.written.iter().filter(|&&other| other % sets == line % sets).count();
            return (neighbours > parameters.write_ways.get() as usize).then_some(Cause::Capacity);
        }
        if !writes && !marks.readers.contains(&self.current) {
            marks.readers.push(self.current);
            own.read.push(line);
            return (own.read.len() > parameters.read_lines.get() as usize).then_some(Cause::Capacity);
        }
        None
    }

    /// The running thread is about to write `len` bytes, those of a cell, at `place`.
    ///
    /// # Safety
    ///
    /// They are valid for reads.
    #[cold]
    pub(super) unsafe fn remembers(&mut self, place: *mut u8, len: usize) {
        let own = &mut self.threads[self.current as usize].transaction;
        if !own.is_live() || self.arena.line_of(place.addr()).is_none() {
            return;
        }
        let mut bytes = [MaybeUninit::uninit(); CELL_BYTES];
        let place = place.cast::<MaybeUninit<u8>>();
        // SAFETY: the caller's, and a cell has at most as many bytes.
        unsafe { core::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), len) };
        own.undo.push(Undo { place, bytes, len });
    }

    /// The running thread, which is in no transaction, begins one.
    pub(super) fn begins_transaction(&mut self) {
        let Some(transactions) = &mut self.transactions else { return };
        self.now += transactions.parameters.begin_ns;
        transactions.live += 1;
        self.attention += 1;
        let thread = &mut self.threads[self.current as usize];
        let own = &mut thread.transaction;
        (own.depth, own.begun, own.note) = (1, self.now, thread.note);
        own.age.get_or_insert(self.now);
    }

    /// The running thread's transaction takes effect.
    pub(super) fn commits(&mut self) {
        self.lets_go(self.current);
        let own = &mut self.threads[self.current as usize].transaction;
        own.undo.clear();
        (own.depth, own.age) = (0, None);
        if let Some(transactions) = &mut self.transactions {
            transactions.counts.commits += 1;
        }
    }

    /// Empties the sets of a thread's transaction.
    fn lets_go(&mut self, thread: u32) {
        let Some(transactions) = &mut self.transactions else { return };
        let own = &mut self.threads[thread as usize].transaction;
        for line in own.read.drain(..).chain(own.written.drain(..)) {
            transactions.unmark(line, thread);
        }
        transactions.live -= 1;
        self.attention -= 1;
    }

    /// Undoes the transaction of `thread`.
    pub(super) fn undoes(&mut self, thread: u32, cause: Cause) {
        self.lets_go(thread);
        let mut undo = core::mem::take(&mut self.threads[thread as usize].transaction.undo);
        for Undo { place, bytes, len } in undo.drain(..).rev() {
            // SAFETY: the bytes of a cell in the machine's memory, which stays and which nobody has a reference into
            // that is no cell's.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, len) };
            if let Some(line) = self.arena.line_of(place.addr()) {
                self.wake_watchers(line);
            }
        }
        let known = &mut self.threads[thread as usize];
        known.transaction.undo = undo; // for its room
        known.note = known.transaction.note;
        let begun = known.transaction.begun;
        if let Some(transactions) = &mut self.transactions {
            transactions.counts.count(cause);
            transactions.counts.wasted_ns += self.now.saturating_sub(begun);
        }
    }

    /// Undoes the transaction of a thread that is not the running one, which goes back to its beginning.
    fn dooms(&mut self, thread: u32, cause: Cause) {
        self.undoes(thread, cause);
        self.doomed += 1;
        let known = &mut self.threads[thread as usize];
        known.transaction.doom = Some(cause);
        known.flight = Flight::Work(0);
        if known.state == State::Running {
            let cost = self.transactions.as_ref().map_or(0, Transactions::abort_ns);
            self.announce(thread, self.now + cost);
        }
    }

    /// `thread` is about to lose its processor.
    #[cold]
    pub(super) fn loses_processor(&mut self, thread: u32) {
        if self.threads[thread as usize].transaction.is_live() {
            self.dooms(thread, Cause::Preempted);
        }
    }
}
