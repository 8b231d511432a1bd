//! Accesses to simulated memory: when they take effect, and how they wake pollers.

use super::abort::{check_for_abort, take_effect};
use super::memory::Access;
use super::running::{is_inside, suspend, with};
use super::scheduler::Flight;

/// How far an access may run ahead of simulated time. This is less than the latency of any transfer
/// between cores, so that no core sees a line too early. If no access could run ahead, every access
/// on a busy machine would be an event.
const LOOK_AHEAD_NS: u64 = 10;

/// Waits until no event is due before the caller's clock.
#[inline(always)]
pub(crate) fn synchronise() {
    if with(|machine| machine.clock.is_ahead(0)) {
        wait(Flight::Work(0));
    }
}

/// Waits until no event is due before the caller's clock, which is ahead of the next event.
#[cold]
pub(super) fn wait(flight: Flight) {
    wait_in_flight(flight);
    check_for_abort();
}

/// Same as [`wait`], in the middle of an access; the caller checks for an abort.
#[cold]
fn wait_in_flight(flight: Flight) {
    with(|machine| machine.suspend_until(flight, machine.clock.now));
    suspend();
}

/// Accesses `address` from the calling thread. The access takes effect on return.
#[inline(always)]
fn access(address: usize, access: Access) {
    if !is_inside() {
        return;
    }
    if with(|machine| machine.clock.is_ahead(LOOK_AHEAD_NS)) {
        wait(Flight::Work(0));
    }
    let transfer = with(|machine| {
        machine.memory.begin(&mut machine.clock.now, machine.current, machine.core, address, access)
    });
    if let Some(transfer) = transfer {
        if with(|machine| machine.clock.is_ahead(0)) {
            wait_in_flight(Flight::Work(0));
        }
        with(|machine| machine.memory.end(machine.current, transfer));
        check_for_abort();
    }
    take_effect(address, access);
}

#[inline(always)]
pub(crate) fn load(address: usize) {
    access(address, Access::Load);
}

#[inline(always)]
pub(crate) fn store(address: usize) {
    access(address, Access::Store);
}

#[inline(always)]
pub(crate) fn read_modify_write(address: usize) {
    access(address, Access::ReadModifyWrite);
}

/// Reports that the preceding access changed the value at `address`.
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

/// Executes a full fence on the calling thread.
pub(crate) fn fence() {
    with(|machine| machine.clock.now = machine.memory.fence(machine.current, machine.clock.now));
}
