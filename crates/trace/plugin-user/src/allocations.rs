//! A thread's allocations and its view of the program's heap.

use crate::collector::{Collector, heap};
use crate::guest;
use crate::heap::{Frames, View};
use std::collections::HashMap;
use unconvoy_trace_collector::collection::locks;
use unconvoy_trace_collector::state::{State, register};
use unconvoy_trace_stream::{Access, Record, Region, append};

/// Most stack between an allocator and another one that it calls.
const NESTED: u64 = 4096;

#[derive(Default)]
pub struct Allocations {
    current: Option<Allocating>,
    sites: HashMap<Frames, u32>,
    view: View,
}

/// An allocator between its entry and its return.
struct Allocating {
    stack: u64,
    returns_to: u64,
    size: u64,
    /// The address at which the allocator stores its result, if it does not return it.
    stored_at: Option<u64>,
    site: u32,
}

impl Allocations {
    pub fn enter(
        &mut self,
        collector: &Collector,
        stack: u64,
        returns_to: u64,
        (size, stored_at): (u64, Option<u64>),
    ) {
        // An allocator that calls another (`operator new` calls `malloc`) counts as one allocation.
        // Farther below, the earlier one has ended unseen, for example by an exception.
        let is_nested = |outer: &Allocating| (1..NESTED).contains(&outer.stack.wrapping_sub(stack));
        if self.current.as_ref().is_some_and(is_nested) {
            return;
        }
        let frames = [returns_to, 0, 0, 0];
        let site = self.sites.get(&frames).copied().or_else(|| {
            let mut returns = collector
                .allocator_returns
                .write()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            returns.insert(returns_to);
            let site = heap().site(frames)?;
            self.sites.insert(frames, site);
            Some(site)
        });
        self.current = site.map(|site| Allocating { stack, returns_to, size, stored_at, site });
    }

    /// Checks whether the allocator returned to `pc`.
    pub fn return_to(&mut self, pc: u64, state: State, thread: u32) {
        let Some(allocating) = &self.current else { return };
        if allocating.returns_to != pc || state.register(register::RSP) != allocating.stack + 8 {
            return;
        }
        let result = state.register(register::RAX);
        let address = match allocating.stored_at {
            None => result,
            // SAFETY: the allocator has succeeded and just stored its result there.
            Some(at) if result == 0 => unsafe { guest::read::<u64>(at) },
            Some(_) => 0,
        };
        if address != 0 {
            heap().add(Region::new(address, allocating.size), thread, allocating.site);
        }
        self.current = None;
    }

    /// Frees an allocation and retires the locks in it.
    pub fn free(address: u64) {
        if let Some(piece) = heap().remove(address) {
            locks().retire_within(piece);
        }
    }

    /// Appends the record of the allocation that contains an access, unless it was written before.
    pub fn describe(&mut self, access: &Access, out: &mut Vec<u8>) {
        self.describe_at(access.address + u64::from(access.touched().trailing_zeros()), out);
    }

    /// The same for an address.
    pub fn describe_at(&mut self, address: u64, out: &mut Vec<u8>) {
        if let Some(piece) = heap().take_new(address, &mut self.view) {
            append(out, &Record::Allocation(piece.allocation()));
        }
    }
}
