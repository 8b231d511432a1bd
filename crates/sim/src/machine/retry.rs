//! Transactions from a thread's point of view: how it returns to the beginning after an abort.
//!
//! An [aborted](super::abort) section may run any number of times. Its side effects outside the
//! machine's memory are not undone.
//!
//! An eliding lock begins its transaction in the middle of an acquire
//! ([`Transactions::begin_transaction`](unconvoy::primitive::Transactions::begin_transaction)), and
//! that call must return a second time with the cause of the abort. The call has no frame to unwind
//! to. The whole acquire therefore runs again. Its calls of `begin_transaction` first report the
//! earlier aborts, in order; only then does a call begin a transaction.
//!
//! *Unlike* on a processor, the lock's code before the beginning of the transaction runs again and
//! takes time (`elided` reads its adaptation state). A bare [`lock`](crate::pair::Lock::lock)
//! begins no transaction and takes the lock, because no enclosing frame can restart the acquire.

use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, resume_unwind};

use unconvoy::primitive::Begun;

use super::abort::{Undone, in_transaction};
use super::access::synchronise;
use super::calls::{delay, random};
use super::interplay::Machine;
use super::running::{is_inside, with};
use super::transactions::{AddressSet, Attempts, Cause};

/// Why a section did not run as a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The machine has no transactions.
    Unavailable,
    /// The transaction aborted for a cause that a retry does not remove.
    Aborted(Cause),
}

/// Whether the machine has transactions.
pub fn has_transactions() -> bool {
    with(|machine| machine.transactions.parameters().is_some())
}

/// [`Transactions::begin_transaction`](unconvoy::primitive::Transactions::begin_transaction).
pub(crate) fn begin_transaction() -> Begun {
    if !is_inside() {
        return Begun::Unavailable;
    }
    with(|machine| {
        let Machine { transactions, current, .. } = machine;
        if transactions.begin_part(*current) {
            return Begun::Started;
        }
        let is_available = transactions.parameters().is_some();
        let attempts = transactions.attempts(*current);
        if !attempts.may_begin || !is_available {
            return Begun::Unavailable;
        }
        if let Some(cause) = attempts.aborts.get(attempts.reported) {
            attempts.reported += 1;
            return Begun::Aborted(cause.abort());
        }
        machine.begin_transaction();
        Begun::Started
    })
}

/// Ends the innermost transaction and commits if it is the outermost. The caller is inside one.
pub(crate) fn end_transaction() {
    let is_part = with(|machine| {
        let is_part = machine.transactions.end_part(machine.current);
        if let (false, Some(parameters)) = (is_part, machine.transactions.parameters()) {
            machine.clock.now += parameters.commit_ns;
        }
        is_part
    });
    if !is_part {
        // A conflicting access up to this point undoes the transaction.
        synchronise();
        with(|machine| machine.transactions.commit(machine.current));
    }
}

/// Runs `acquire`, in which a lock may begin a transaction, and `section`, which ends the
/// transaction or releases the lock. Runs both again after each abort.
pub(crate) fn restartable<R>(acquire: impl Fn(), mut section: impl FnMut() -> R) -> R {
    with_attempts(|attempts| attempts.aborts.clear());
    loop {
        with_attempts(|attempts| (attempts.may_begin, attempts.reported) = (true, 0));
        let result = caught(|| {
            acquire();
            with_attempts(|attempts| attempts.may_begin = false);
            section()
        });
        if let Some(result) = result {
            with_attempts(|attempts| attempts.aborts.clear());
            with(|machine| machine.transactions.clear_age(machine.current));
            return result;
        }
    }
}

/// Runs `section` as a transaction, and retries after conflicts and preemptions until it commits.
/// Before a retry after a conflict, the thread waits for a random time, whose limit doubles with
/// each conflict ([`Transactions`](crate::parameters::Transactions)). Inside a transaction,
/// `section` becomes part of that transaction.
///
/// # Errors
///
/// The machine has no transactions, or the abort's cause would recur. The caller must run the
/// section in another way.
pub fn transaction<R>(mut section: impl FnMut() -> R) -> Result<R, Refusal> {
    if in_transaction() {
        return Ok(section());
    }
    let Some(parameters) = with(|machine| machine.transactions.parameters().copied()) else {
        return Err(Refusal::Unavailable);
    };
    let mut limit = parameters.backoff_first_ns;
    loop {
        let before = with_attempts(|attempts| attempts.aborts.len());
        let result = caught(|| {
            with(Machine::begin_transaction);
            let result = section();
            end_transaction();
            result
        });
        if let Some(result) = result {
            return Ok(result);
        }
        let cause = with_attempts(|attempts| attempts.aborts.drain(before..).next_back());
        match cause {
            Some(Cause::Conflict) if limit != 0 => {
                delay(random(limit + 1));
                limit = (2 * limit).min(parameters.backoff_limit_ns);
            }
            None | Some(Cause::Conflict | Cause::Preempted) => {}
            Some(cause @ (Cause::Capacity | Cause::Call | Cause::Explicit(_))) => {
                with(|machine| machine.transactions.clear_age(machine.current));
                return Err(Refusal::Aborted(cause));
            }
        }
    }
}

fn with_attempts<R>(work: impl FnOnce(&mut Attempts) -> R) -> R {
    with(|machine| work(machine.transactions.attempts(machine.current)))
}

/// Runs `section`. Returns `None` if the transaction that began in it was undone.
fn caught<R>(section: impl FnOnce() -> R) -> Option<R> {
    // A half-executed section changed only the machine's memory, and those changes were undone.
    match catch_unwind(AssertUnwindSafe(section)) {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Undone>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// Runs `section` and records the memory it accessed. Aborted attempts leave no record. A recorded
/// section nested in it is recorded separately.
pub fn recorded<R>(section: impl FnOnce() -> R) -> (R, AddressSet) {
    let recording = Recording::begin();
    let result = section();
    (result, recording.end())
}

/// Records the calling thread's accesses during its lifetime.
struct Recording {
    before: Option<Box<AddressSet>>,
}

fn exchange(set: Option<Box<AddressSet>>) -> Option<Box<AddressSet>> {
    with(|machine| machine.transactions.exchange_recorded(machine.current, set))
}

impl Recording {
    fn begin() -> Self {
        Recording { before: exchange(Some(Box::default())) }
    }

    fn end(mut self) -> AddressSet {
        let set = exchange(self.before.take());
        core::mem::forget(self);
        set.map_or_else(AddressSet::default, |set| *set)
    }
}

impl Drop for Recording {
    /// Discards the record of an aborted section.
    fn drop(&mut self) {
        exchange(self.before.take());
    }
}
