//! Accesses to simulated memory: when they take effect, and what those see that poll.

use super::abort::{learn_of_abort, take_effect};
use super::memory::Access;
use super::running::{is_inside, suspend, with};
use super::scheduler::Flight;

/// An access may take effect so much before what should have happened first: less than any line
/// needs from one core to another, so that none is seen to be somewhere too early. (Without this,
/// every access of a busy machine is an event.)
const LOOK_AHEAD_NS: u64 = 10;

/// Waits until nothing else is to happen before the caller's clock.
#[inline(always)]
pub(super) fn synchronise() {
    if with(|machine| machine.clock.is_ahead(0)) {
        wait(Flight::Work(0));
    }
}

/// Waits until nothing else is to happen before the caller's clock, which is ahead of that.
#[cold]
pub(super) fn wait(flight: Flight) {
    wait_in_flight(flight);
    learn_of_abort();
}

/// The same in the middle of an access: the caller learns of an abort.
#[cold]
fn wait_in_flight(flight: Flight) {
    with(|machine| machine.suspend_until(flight, machine.clock.now));
    suspend();
}

/// The calling thread accesses `address`, which takes effect on return.
#[inline(always)]
fn access(address: usize, access: Access) {
    if !is_inside() {
        return;
    }
    if with(|machine| machine.clock.is_ahead(LOOK_AHEAD_NS)) {
        wait(Flight::Work(0));
    }
    let transfer =
        with(|machine| machine.memory.begin(&mut machine.clock.now, machine.current, machine.core, address, access));
    if let Some(transfer) = transfer {
        if with(|machine| machine.clock.is_ahead(0)) {
            wait_in_flight(Flight::Work(0));
        }
        with(|machine| machine.memory.end(machine.current, transfer));
        learn_of_abort();
    }
    take_effect(address, access);
}

/// A load from `address`.
#[inline(always)]
pub(crate) fn load(address: usize) {
    access(address, Access::Load);
}

/// A store to `address`.
#[inline(always)]
pub(crate) fn store(address: usize) {
    access(address, Access::Store);
}

/// A read-modify-write of `address`.
#[inline(always)]
pub(crate) fn read_modify_write(address: usize) {
    access(address, Access::ReadModifyWrite);
}

/// What is at `address` has become something else by the access before.
#[inline(always)]
pub(super) fn changed(address: usize) {
    if is_inside() {
        with(|machine| {
            if let Some(line) = machine.memory.line_of(address) {
                machine.change_line(line);
            }
        });
    }
}

/// The calling thread makes a full fence.
pub(crate) fn fence() {
    with(|machine| machine.clock.now = machine.memory.fence(machine.current, machine.clock.now));
}
