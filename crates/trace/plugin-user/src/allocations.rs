//! What a thread allocates, and what it knows of the program's heap.

use crate::collector::{Collector, heap};
use crate::guest;
use crate::heap::{Frames, View};
use std::collections::HashMap;
use unconvoy_trace_collector::collection::locks;
use unconvoy_trace_collector::state::{State, register};
use unconvoy_trace_stream::{Access, Record, Region, append};

/// See the [module](self).
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
    /// Where the address is stored, if it is not returned.
    stored_at: Option<u64>,
    site: u32,
}

impl Allocations {
    /// An allocator is entered.
    pub fn enter(&mut self, collector: &Collector, stack: u64, returns_to: u64, (size, stored_at): (u64, Option<u64>)) {
        // What an allocator allocates by another (`operator new` by `malloc`) is the outer's.
        if self.current.as_ref().is_some_and(|outer| stack < outer.stack) {
            return;
        }
        let frames = [returns_to, 0, 0, 0];
        let site = self.sites.get(&frames).copied().or_else(|| {
            let mut returns = collector.allocator_returns.write().unwrap_or_else(|poisoned| poisoned.into_inner());
            returns.insert(returns_to);
            let site = heap().site(frames)?;
            self.sites.insert(frames, site);
            Some(site)
        });
        self.current = site.map(|site| Allocating { stack, returns_to, size, stored_at, site });
    }

    /// An allocator's caller goes on, at `pc`.
    pub fn return_to(&mut self, pc: u64, state: State, thread: u32) {
        let Some(allocating) = &self.current else { return };
        if allocating.returns_to != pc || state.register(register::RSP) != allocating.stack + 8 {
            return;
        }
        let result = state.register(register::RAX);
        let address = match allocating.stored_at {
            None => result,
            // SAFETY: the allocator has succeeded, and just stored it there.
            Some(at) if result == 0 => unsafe { guest::read::<u64>(at) },
            Some(_) => 0,
        };
        if address != 0 {
            heap().add(Region::new(address, allocating.size), thread, allocating.site);
        }
        self.current = None;
    }

    /// A piece is given back.
    pub fn free(address: u64) {
        if let Some(piece) = heap().remove(address) {
            locks().retire_within(piece);
        }
    }

    /// Appends the piece that an access is in, unless it is known already.
    pub fn describe(&mut self, access: &Access, out: &mut Vec<u8>) {
        self.describe_at(access.address + u64::from(access.touched().trailing_zeros()), out);
    }

    /// Likewise of an address.
    pub fn describe_at(&mut self, address: u64, out: &mut Vec<u8>) {
        if let Some(piece) = heap().take_new(address, &mut self.view) {
            append(out, &Record::Allocation(piece.allocation()));
        }
    }
}
