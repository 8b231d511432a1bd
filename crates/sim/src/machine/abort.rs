//! Transactions that end before their section does: how a thread learns of that.
//!
//! A processor puts its registers back. Here the thread unwinds, from wherever it learned of the
//! abort to a frame that has the beginning in it ([`retry`](super::retry)). So what the section
//! owned is dropped, as in any Rust program that panics; no hook runs, and nothing is printed. (To
//! copy stacks, as `setjmp` would have it, would free memory twice or never as soon as a section
//! owns some.)
//!
//! What unwinding drops must not wait for anything simulated.

use std::panic::resume_unwind;

use super::memory::Access;
use super::running::{is_inside, with};
use super::transactions::{CELL_BYTES, Cause};

/// What an aborted transaction unwinds with.
pub(super) struct Undone;

/// Unwinds to the beginning if the calling thread's transaction has been undone while the thread
/// was suspended.
#[inline(always)]
pub(super) fn learn_of_abort() {
    if with(|machine| machine.transactions.have_pending_aborts()) {
        unwind_if_aborted();
    }
}

#[cold]
fn unwind_if_aborted() {
    let is_aborted = with(|machine| {
        let Some(cause) = machine.transactions.learn_of_abort(machine.current) else { return false };
        machine.transactions.restart(machine.current, cause);
        true
    });
    if is_aborted {
        resume_unwind(Box::new(Undone));
    }
}

/// Undoes the calling thread's transaction, which it is inside of, and unwinds to its beginning.
fn abort(cause: Cause) -> ! {
    with(|machine| machine.abort(cause));
    resume_unwind(Box::new(Undone))
}

/// An access to `address` takes effect: the calling thread's, which may be in a transaction, or
/// meet one.
#[inline(always)]
pub(super) fn take_effect(address: usize, access: Access) {
    if with(|machine| machine.transactions.watch_accesses()) {
        meet_transactions(address, access);
    }
}

#[cold]
fn meet_transactions(address: usize, access: Access) {
    if let Some(cause) = with(|machine| machine.take_effect(address, access)) {
        abort(cause);
    }
}

/// The calling thread is about to write to `place`, where a [cell](super::SimulatedCell) is.
///
/// # Safety
///
/// It is valid for reads, and for writes for as long as the machine's memory if it is in that.
#[inline(always)]
pub(super) unsafe fn will_change<T>(place: *mut T) {
    const { assert!(size_of::<T>() <= CELL_BYTES, "a cell of a simulated machine has room in its undo log") };
    if is_inside() && with(|machine| machine.transactions.watch_accesses()) {
        // SAFETY: the caller's; `T` is no larger than a cell.
        unsafe { remember(place.cast(), size_of::<T>()) };
    }
}

/// # Safety
///
/// As [`will_change`], for `len` bytes.
#[cold]
unsafe fn remember(place: *mut u8, len: usize) {
    with(|machine| {
        if machine.memory.line_of(place.addr()).is_some() {
            // SAFETY: the caller's; in the machine's memory it stays valid for longer than the
            // transaction.
            unsafe { machine.transactions.remember(machine.current, place, len) };
        }
    });
}

/// Whether the calling thread is inside a transaction.
pub fn in_transaction() -> bool {
    is_inside() && with(|machine| machine.transactions.is_live(machine.current))
}

/// The calling thread does what no transaction can hold.
#[inline]
pub(crate) fn leave_transaction() {
    if in_transaction() {
        abort(Cause::Call);
    }
}

/// Undoes the calling thread's transaction, and goes back to its beginning. Does nothing outside of
/// one.
pub fn abort_transaction() {
    if in_transaction() {
        abort(Cause::Explicit);
    }
}
