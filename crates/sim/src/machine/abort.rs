//! How a thread returns to the beginning of an aborted transaction.
//!
//! A processor restores its registers. Here, the thread unwinds from the point where it detects the
//! abort to the frame that began the transaction ([`retry`](super::retry)). Unwinding drops the
//! section's values, as after a panic in any Rust program, but runs no panic hook and prints
//! nothing. Jumping back as `longjmp` does, or restoring a copy of the stack, would leak memory
//! that the section owns or free it twice.
//!
//! A destructor that unwinding runs must not wait for a simulated event.

use std::panic::resume_unwind;

use unconvoy::primitive::Abort;

use super::memory::Access;
use super::running::{is_inside, with};
use super::transactions::{CELL_BYTES, Cause};

/// Panic payload of an aborted transaction.
pub(super) struct Undone;

/// Unwinds to the beginning of the calling thread's transaction if another thread undid it while
/// the caller was suspended.
#[inline(always)]
pub(super) fn check_for_abort() {
    if with(|machine| machine.transactions.have_pending_aborts()) {
        unwind_if_aborted();
    }
}

#[cold]
fn unwind_if_aborted() {
    let is_aborted = with(|machine| {
        let Some(cause) = machine.transactions.take_pending_abort(machine.current) else {
            return false;
        };
        machine.transactions.restart(machine.current, cause);
        true
    });
    if is_aborted {
        resume_unwind(Box::new(Undone));
    }
}

/// Undoes the calling thread's transaction and unwinds to its beginning. The caller is inside it.
fn abort(cause: Cause) -> ! {
    with(|machine| machine.abort(cause));
    resume_unwind(Box::new(Undone))
}

/// Applies the calling thread's access to `address` to the running transactions, its own included.
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

/// Saves the value of a [cell](super::SimulatedCell) before the calling thread writes to it.
///
/// # Safety
///
/// `place` is valid for reads. If it lies in the machine's memory, it is valid for writes as long
/// as that memory exists.
#[inline(always)]
pub(super) unsafe fn will_change<T>(place: *mut T) {
    const { assert!(size_of::<T>() <= CELL_BYTES, "a cell does not fit the undo log") };
    if is_inside() && with(|machine| machine.transactions.watch_accesses()) {
        // SAFETY: the caller guarantees validity; `T` is no larger than a cell.
        unsafe { remember(place.cast(), size_of::<T>()) };
    }
}

/// # Safety
///
/// See [`will_change`], for `len` bytes.
#[cold]
unsafe fn remember(place: *mut u8, len: usize) {
    with(|machine| {
        if machine.memory.line_of(place.addr()).is_some() {
            // SAFETY: the caller guarantees validity; the machine's memory outlives the
            // transaction.
            unsafe { machine.transactions.remember(machine.current, place, len) };
        }
    });
}

/// Whether the calling thread is inside a transaction.
pub fn in_transaction() -> bool {
    is_inside() && with(|machine| machine.transactions.is_live(machine.current))
}

/// The lock that the calling thread's transaction has elided; 0 outside a transaction.
pub(crate) fn elided_lock() -> usize {
    if !is_inside() {
        return 0;
    }
    with(|machine| machine.transactions.elided_lock(machine.current))
}

/// Records the lock that the calling thread's transaction has elided.
pub(crate) fn set_elided_lock(address: usize) {
    with(|machine| machine.transactions.set_elided_lock(machine.current, address));
}

/// Aborts the calling thread's transaction, if any, before an operation that no transaction
/// supports.
#[inline]
pub(crate) fn leave_transaction() {
    if in_transaction() {
        abort(Cause::Call);
    }
}

/// Aborts the calling thread's transaction and returns to its beginning, which reports `because`.
/// Does nothing outside a transaction.
pub fn abort_transaction(because: Abort) {
    if in_transaction() {
        abort(Cause::Explicit(because));
    }
}
