//! Transactions, as a thread sees them: how it gets back to the beginning.
//!
//! An [aborted](super::abort) section runs any number of times: what it does beside the machine's
//! memory is not taken back.
//!
//! Locks that elide have their beginning in the middle of an acquire
//! ([`Transactions::begin_transaction`](unconvoy::primitive::Transactions::begin_transaction)), which is to
//! come back a second time with the reason. That call is on no frame of ours; so the acquire is run
//! again from its start, and its beginnings report the aborts that there were, in their order,
//! before one begins a transaction in earnest.
//!
//! *Not* as on a processor: what the lock does before its beginning is done again, in its time
//! (`elided` reads its adaptation). And where no frame has the beginning in it, there is no
//! transaction: a bare [`lock`](crate::pair::Lock::lock) takes the lock.

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
    /// The machine has none.
    Unavailable,
    /// It has been undone, and would be again.
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
        let has_some = transactions.parameters().is_some();
        let attempts = transactions.attempts(*current);
        if !attempts.may_begin || !has_some {
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

/// Ends the innermost transaction; the outermost takes effect. The caller is inside one.
pub(crate) fn end_transaction() {
    let is_part = with(|machine| {
        let is_part = machine.transactions.end_part(machine.current);
        if let (false, Some(parameters)) = (is_part, machine.transactions.parameters()) {
            machine.clock.now += parameters.commit_ns;
        }
        is_part
    });
    if !is_part {
        // A conflicting access until then undoes it.
        synchronise();
        with(|machine| machine.transactions.commit(machine.current));
    }
}

/// Runs `acquire`, in which a lock may begin a transaction, and `section`, which ends it or
/// releases the lock; both again for as often as that is undone.
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
            with(|machine| machine.transactions.forget_age(machine.current));
            return result;
        }
    }
}

/// Runs `section` as a transaction, and again after conflicts and preemptions, until it takes
/// effect. After a conflict it waits a random time first, longer from one to the next
/// ([`Transactions`](crate::parameters::Transactions)). Inside of a transaction it is a part of
/// that.
///
/// # Errors
///
/// It was undone for what a retry does not mend, or there are no transactions: it has to be run in
/// another way.
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
            Some(cause @ (Cause::Capacity | Cause::Call | Cause::Explicit)) => {
                with(|machine| machine.transactions.forget_age(machine.current));
                return Err(Refusal::Aborted(cause));
            }
        }
    }
}

fn with_attempts<R>(work: impl FnOnce(&mut Attempts) -> R) -> R {
    with(|machine| work(machine.transactions.attempts(machine.current)))
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

/// Runs `section`, and tells what it read and wrote: alone, and not what an attempt did that was
/// undone. Sections in it that are recorded too are not in it.
pub fn recorded<R>(section: impl FnOnce() -> R) -> (R, AddressSet) {
    let recording = Recording::begin();
    let result = section();
    (result, recording.end())
}

/// While it lives, accesses of the calling thread are recorded.
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
    /// The section was undone.
    fn drop(&mut self) {
        exchange(self.before.take());
    }
}
