//! Transactions, as a thread sees them: how it gets back to the beginning.
//!
//! A processor puts its registers back. Here the thread unwinds, from wherever it was told of the abort to a frame that
//! has the beginning in it ([`transaction`], [`restartable`]), which runs it once more. So what the section owned is
//! dropped, as in any Rust program that panics; no hook runs, and nothing is printed. (To copy stacks, as `setjmp` would
//! have it, would free memory twice or never as soon as a section owns some.) A section may therefore run any number of
//! times: what it does beside the machine's memory is not taken back.
//!
//! Locks that elide have their beginning in the middle of an acquire
//! ([`Platform::begin_transaction`](unconvoy::platform::Platform::begin_transaction)), which is to come back a second
//! time with the reason. That call is on no frame of ours; so the acquire is run again from its start, and its beginnings
//! report the aborts that there were, in their order, before one begins a transaction in earnest.
//!
//! *Not* as on a processor: what the lock does before its beginning is done again, in its time (`elided` reads its
//! adaptation). And where no frame has the beginning in it, there is no transaction: a bare
//! [`lock`](crate::pair::Lock::lock) takes the lock.
//!
//! What unwinding drops must not wait for anything simulated.

use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};

use unconvoy::platform::Begun;

use super::access::synchronise;
use super::coherence::Access;
use super::transaction::{CELL_BYTES, Cause, TransactionCounts, Transactions};
use super::{Machine, is_inside, with};

/// Why a section did not run as a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The machine has none.
    Unavailable,
    /// It has been undone, and would be again.
    Aborted(Cause),
}

/// What an aborted transaction unwinds with.
struct Undone;

/// What a thread knows of the section that it may have to start over.
#[derive(Default)]
pub(super) struct Restart {
    /// Whether a beginning may begin something: the thread is in the acquire of a [`restartable`] section.
    may_begin: bool,
    /// What came of the section's tries.
    aborts: Vec<Cause>,
    /// How many of them the acquire has been told again.
    told: usize,
}

/// Unwinds to the beginning if the calling thread's transaction has been undone while the thread was suspended.
#[inline(always)]
pub(super) fn look_for_doom() {
    if with(|machine| machine.doomed != 0) {
        unwind_if_doomed();
    }
}

#[cold]
fn unwind_if_doomed() {
    let is_doomed = with(|machine| {
        let own = &mut machine.threads[machine.current as usize].transaction;
        let Some(cause) = own.doom.take() else { return false };
        machine.doomed -= 1;
        machine.ends_with(cause);
        true
    });
    if is_doomed {
        resume_unwind(Box::new(Undone));
    }
}

/// Undoes the calling thread's transaction, which it is inside of, and unwinds to its beginning.
fn undo(cause: Cause) -> ! {
    with(|machine| {
        machine.undoes(machine.current, cause);
        machine.now += machine.transactions.as_ref().map_or(0, Transactions::abort_ns);
        machine.ends_with(cause);
    });
    resume_unwind(Box::new(Undone))
}

impl Machine {
    /// The running thread goes back to the beginning.
    fn ends_with(&mut self, cause: Cause) {
        let thread = &mut self.threads[self.current as usize];
        thread.transaction.depth = 0;
        thread.restart.aborts.push(cause);
    }

    /// What came of the transactions so far.
    pub(crate) fn transactions(&self) -> TransactionCounts {
        self.transactions.as_ref().map_or_else(TransactionCounts::default, |transactions| transactions.counts)
    }
}

/// An access to `address` takes effect: the calling thread's, where there are transactions or somebody records.
#[cold]
pub(super) fn takes_effect(address: usize, access: Access) {
    if let Some(cause) = with(|machine| machine.takes_effect(address, access)) {
        undo(cause);
    }
}

/// What is at `address` is about to be looked at once more, without another access.
pub(super) fn is_seen(address: usize) {
    if with(|machine| machine.attention != 0) {
        takes_effect(address, Access::Load);
    }
}

/// The calling thread is about to change the cell of `T` at `place`.
///
/// # Safety
///
/// `place` is valid for reads.
#[inline(always)]
pub(crate) unsafe fn will_change<T>(place: *mut T) {
    const { assert!(size_of::<T>() <= CELL_BYTES, "a cell of a simulated machine has room in its undo log") };
    if is_inside() && with(|machine| machine.attention != 0) {
        // SAFETY: the caller's.
        with(|machine| unsafe { machine.remembers(place.cast(), size_of::<T>()) });
    }
}

/// The calling thread does what no transaction can hold.
#[inline]
pub(crate) fn leave_transaction() {
    if in_transaction() {
        undo(Cause::Call);
    }
}

/// Whether the machine has transactions.
pub fn has_transactions() -> bool {
    with(|machine| machine.transactions.is_some())
}

/// Whether the calling thread is inside a transaction.
pub fn in_transaction() -> bool {
    is_inside() && with(|machine| machine.threads[machine.current as usize].transaction.is_live())
}

/// Undoes the calling thread's transaction, and goes back to its beginning. Does nothing outside of one.
pub fn abort_transaction() {
    if in_transaction() {
        undo(Cause::Explicit);
    }
}

/// [`Platform::begin_transaction`](unconvoy::platform::Platform::begin_transaction).
pub(crate) fn begin_transaction() -> Begun {
    if !is_inside() {
        return Begun::Unavailable;
    }
    with(|machine| {
        let thread = &mut machine.threads[machine.current as usize];
        if thread.transaction.is_live() {
            thread.transaction.depth += 1;
            return Begun::Started;
        }
        let restart = &mut thread.restart;
        if !restart.may_begin || machine.transactions.is_none() {
            return Begun::Unavailable;
        }
        if let Some(cause) = restart.aborts.get(restart.told) {
            restart.told += 1;
            return Begun::Aborted(cause.abort());
        }
        machine.begins_transaction();
        Begun::Started
    })
}

/// Ends the innermost transaction; the outermost takes effect. The caller is inside one.
pub(crate) fn end_transaction() {
    let is_outermost = with(|machine| {
        let own = &mut machine.threads[machine.current as usize].transaction;
        let is_outermost = own.depth == 1;
        if !is_outermost {
            own.depth -= 1;
        } else if let Some(transactions) = &machine.transactions {
            machine.now += transactions.parameters().commit_ns;
        }
        is_outermost
    });
    if is_outermost {
        // Who conflicts with it until then undoes it.
        synchronise();
        with(Machine::commits);
    }
}

/// Runs `acquire`, in which a lock may begin a transaction, and `section`, which ends it or releases the lock; both
/// again for as often as that is undone.
pub(crate) fn restartable<R>(acquire: impl Fn(), mut section: impl FnMut() -> R) -> R {
    with_restart(|restart| restart.aborts.clear());
    loop {
        with_restart(|restart| (restart.may_begin, restart.told) = (true, 0));
        let result = caught(|| {
            acquire();
            with_restart(|restart| restart.may_begin = false);
            section()
        });
        if let Some(result) = result {
            with_restart(|restart| restart.aborts.clear());
            with(|machine| machine.threads[machine.current as usize].transaction.age = None);
            return result;
        }
    }
}

/// Runs `section` as a transaction, and again after conflicts and preemptions, until it takes effect. After a conflict
/// it waits a random time first, longer from one to the next ([`Transactions`](crate::parameters::Transactions)).
/// Inside of a transaction it is a part of that.
///
/// # Errors
///
/// It was undone for what a retry does not mend, or there are no transactions: it has to be run in another way.
pub fn transaction<R>(mut section: impl FnMut() -> R) -> Result<R, Refusal> {
    if in_transaction() {
        return Ok(section());
    }
    let Some(parameters) = with(|machine| machine.transactions.as_ref().map(|all| *all.parameters())) else {
        return Err(Refusal::Unavailable);
    };
    let mut limit = parameters.backoff_first_ns;
    loop {
        let before = with_restart(|restart| restart.aborts.len());
        let result = caught(|| {
            with(Machine::begins_transaction);
            let result = section();
            end_transaction();
            result
        });
        if let Some(result) = result {
            return Ok(result);
        }
        let cause = with_restart(|restart| restart.aborts.drain(before..).next_back());
        match cause {
            Some(Cause::Conflict) if limit != 0 => {
                super::delay(super::random(limit + 1));
                limit = (2 * limit).min(parameters.backoff_limit_ns);
            }
            None | Some(Cause::Conflict | Cause::Preempted) => {}
            Some(cause @ (Cause::Capacity | Cause::Call | Cause::Explicit)) => {
                with(|machine| machine.threads[machine.current as usize].transaction.age = None);
                return Err(Refusal::Aborted(cause));
            }
        }
    }
}

fn with_restart<R>(work: impl FnOnce(&mut Restart) -> R) -> R {
    with(|machine| work(&mut machine.threads[machine.current as usize].restart))
}

/// What `section` returns, or `None` if the transaction that began in it has been undone.
fn caught<R>(section: impl FnOnce() -> R) -> Option<R> {
    // What a section has half done is the machine's memory, and has been undone.
    match catch_unwind(AssertUnwindSafe(section)) {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Undone>() => None,
        Err(payload) => resume_unwind(payload),
    }
}
