//! Accesses to simulated memory: when they take effect, and what they tell who polls.

use super::coherence::{Access, Begun};
use super::thread::Flight;
use super::{is_inside, retry, suspend, with};

/// An access may take effect so much before what should have happened first: less than any line needs from one core to
/// another, so that none is seen to be somewhere too early. (Without this, every access of a busy machine is an event.)
const LOOK_AHEAD_NS: u64 = 10;

/// Waits until nothing else is to happen before the caller's clock.
#[inline(always)]
pub(super) fn synchronise() {
    if with(|machine| machine.now > machine.horizon) {
        wait(Flight::Work(0));
    }
}

#[cold]
pub(super) fn wait(flight: Flight) {
    wait_in_flight(flight);
    retry::look_for_doom();
}

/// The same in the middle of an access: the caller looks whether its transaction has been undone.
#[cold]
pub(super) fn wait_in_flight(flight: Flight) {
    with(|machine| {
        let (current, now) = (machine.current, machine.now);
        machine.threads[current as usize].flight = flight;
        machine.announce(current, now);
    });
    suspend();
}

/// The calling thread accesses `address`, which takes effect on return.
#[inline(always)]
fn access(address: usize, access: Access) {
    if !is_inside() {
        return;
    }
    if with(|machine| machine.now > machine.horizon.saturating_add(LOOK_AHEAD_NS)) {
        wait(Flight::Work(0));
    }
    let transfer = with(|machine| {
        machine.accesses += 1;
        let Some(line) = machine.arena.line_of(address) else {
            machine.now += machine.parameters.memory.hit_ns;
            return None;
        };
        if machine.parameters.memory.store_buffer {
            let stores = &machine.threads[machine.current as usize].stores;
            let is_ours = stores.has_at_hand(line, machine.now);
            if access == Access::ReadModifyWrite {
                machine.now = machine.now.max(stores.drained_at());
            }
            if is_ours && access != Access::Load {
                machine.now += machine.caches.hold(machine.core, line, access);
                machine.threads[machine.current as usize].polling.note_change();
                return None;
            }
        }
        match machine.caches.begin(machine.now, machine.core, line, access) {
            Begun::Hit(cost) => {
                machine.now += cost;
                let version = machine.caches.version(line);
                let polling = &mut machine.threads[machine.current as usize].polling;
                match access {
                    Access::Load => polling.note_load(line, version),
                    Access::Store => {} // nobody has seen it
                    Access::ReadModifyWrite => polling.note_change(),
                }
                None
            }
            Begun::Miss(transfer) if access == Access::Store && machine.parameters.memory.store_buffer => {
                machine.misses += 1;
                machine.caches.end(transfer);
                machine.threads[machine.current as usize].stores.push(line, transfer.takes, transfer.done);
                machine.now += machine.parameters.memory.hit_ns;
                machine.threads[machine.current as usize].polling.note_change();
                None
            }
            Begun::Miss(transfer) => {
                machine.misses += 1;
                if access == Access::ReadModifyWrite {
                    let stores = &mut machine.threads[machine.current as usize].stores;
                    stores.note_arrival(line, transfer.takes, transfer.done);
                }
                machine.now = transfer.done;
                Some(transfer)
            }
        }
    });
    if let Some(transfer) = transfer {
        if with(|machine| machine.now > machine.horizon) {
            wait_in_flight(Flight::Work(0));
        }
        with(|machine| {
            machine.caches.end(transfer);
            let version = machine.caches.version(transfer.line);
            let polling = &mut machine.threads[machine.current as usize].polling;
            if access == Access::Load {
                polling.note_load(transfer.line, version);
            } else {
                polling.note_change();
            }
        });
        retry::look_for_doom();
    }
    if with(|machine| machine.attention != 0) {
        retry::takes_effect(address, access);
    }
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
pub(crate) fn changed(address: usize) {
    if is_inside() {
        with(|machine| {
            if let Some(line) = machine.arena.line_of(address) {
                machine.wake_watchers(line);
            }
        });
    }
}
