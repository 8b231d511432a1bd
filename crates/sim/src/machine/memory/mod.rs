//! Memory: the cache lines of a program's data, their copies, and the threads that poll them.
//!
//! Threads and cores are numbers. The caller passes in the time, and an access advances it by its
//! cost.

mod arena;
mod coherence;
mod polling;
mod stores;

use std::io;

pub(crate) use arena::{LINE, LINES};
pub(crate) use coherence::{Access, Transfer};

use crate::parameters::{self, Topology};
use arena::Arena;
use coherence::{Begun, Caches};
use polling::{Polling, Watchers};
use stores::Stores;

/// Accesses of one thread that are not finished.
#[derive(Default)]
struct View {
    polling: Polling,
    stores: Stores,
}

pub(crate) struct Memory {
    parameters: parameters::Memory,
    arena: Arena,
    caches: Caches,
    watchers: Watchers,
    /// Indexed by thread.
    views: Vec<View>,
    accesses: u64,
    misses: u64,
}

impl Memory {
    pub(crate) fn new(topology: Topology, parameters: parameters::Memory) -> io::Result<Self> {
        Ok(Memory {
            parameters,
            arena: Arena::new()?,
            caches: Caches::new(topology, parameters),
            watchers: Watchers::new(),
            views: Vec::new(),
            accesses: 0,
            misses: 0,
        })
    }

    pub(crate) fn add_thread(&mut self) {
        self.views.push(View::default());
    }

    pub(crate) fn allocate<T>(&mut self, value: T) -> *mut T {
        self.arena.allocate(value)
    }

    #[inline(always)]
    pub(crate) fn line_of(&self, address: usize) -> Option<usize> {
        self.arena.line_of(address)
    }

    pub(crate) fn offset_of(&self, address: usize) -> Option<usize> {
        self.arena.offset_of(address)
    }

    /// Number of accesses, and how many of them another cache or memory served.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.accesses, self.misses)
    }

    /// Begins an access of `thread`, which runs on `core`, and advances `now` to its completion. If
    /// it returns a transfer, the access takes effect at the transfer's [end](Self::end).
    #[inline(always)]
    pub(crate) fn begin(
        &mut self,
        now: &mut u64,
        thread: u32,
        core: usize,
        address: usize,
        access: Access,
    ) -> Option<Transfer> {
        self.accesses += 1;
        let Some(line) = self.arena.line_of(address) else {
            *now += self.parameters.hit_ns;
            return None;
        };
        let View { polling, stores } = &mut self.views[thread as usize];
        if self.parameters.store_buffer {
            let is_ours = stores.is_held(line, *now);
            if access == Access::ReadModifyWrite {
                *now = (*now).max(stores.drained_at());
            }
            if is_ours && access != Access::Load {
                *now += self.caches.hold(core, line, access);
                polling.record_change();
                return None;
            }
        }
        match self.caches.begin(*now, core, line, access) {
            Begun::Hit(cost) => {
                *now += cost;
                match access {
                    Access::Load => polling.record_load(line, self.caches.version(line)),
                    Access::Store => {} // No other thread polls the line.
                    Access::ReadModifyWrite => polling.record_change(),
                }
                None
            }
            Begun::Miss(transfer) if access == Access::Store && self.parameters.store_buffer => {
                self.misses += 1;
                self.caches.end(transfer);
                stores.push(line, transfer.takes, transfer.done);
                *now += self.parameters.hit_ns;
                polling.record_change();
                None
            }
            Begun::Miss(transfer) => {
                self.misses += 1;
                if access == Access::ReadModifyWrite {
                    stores.record_arrival(line, transfer.takes, transfer.done);
                }
                *now = transfer.done;
                Some(transfer)
            }
        }
    }

    /// Completes the transfer that `thread` waited for, and its access.
    #[inline]
    pub(crate) fn end(&mut self, thread: u32, transfer: Transfer) {
        self.caches.end(transfer);
        let polling = &mut self.views[thread as usize].polling;
        if transfer.access == Access::Load {
            polling.record_load(transfer.line, self.caches.version(transfer.line));
        } else {
            polling.record_change();
        }
    }

    /// Executes a full fence of `thread` at `now`, and returns its completion time.
    pub(crate) fn fence(&self, thread: u32, now: u64) -> u64 {
        now.max(self.views[thread as usize].stores.drained_at()) + self.parameters.fence_ns
    }

    #[inline(always)]
    pub(crate) fn record_clock_read(&mut self, thread: u32) {
        self.views[thread as usize].polling.record_clock_read();
    }

    /// Records an action of `thread` that others may see, or during which it must not be suspended.
    #[inline(always)]
    pub(crate) fn record_change(&mut self, thread: u32) {
        self.views[thread as usize].polling.record_change();
    }

    /// Ends a polling turn of `thread`. If the turn only polled lines that are still unchanged,
    /// the thread watches these lines from now on, and may be suspended for the returned span.
    #[inline]
    pub(crate) fn begin_polling(&mut self, thread: u32) -> Option<u64> {
        let View { polling, .. } = &mut self.views[thread as usize];
        if !polling.end_turn() {
            return None;
        }
        if !polling.is_current(|line| self.caches.version(line)) {
            polling.start();
            return None;
        }
        self.watchers.watch_loaded(thread, polling);
        Some(polling.next_span())
    }

    /// Makes `thread` watch one line, whatever its last turn did.
    pub(crate) fn watch(&mut self, thread: u32, line: usize) {
        let View { polling, .. } = &mut self.views[thread as usize];
        polling.start();
        self.watchers.watch(line as u32, thread, polling);
    }

    /// Reports that `writer` changed `line`. Removes the other watchers and calls `wake` for
    /// each; `wake` returns whether the thread was suspended to poll.
    #[inline(always)]
    pub(crate) fn change(&mut self, line: usize, writer: u32, wake: impl FnMut(u32) -> bool) {
        if let Some(list) = self.watchers.list(line) {
            wake_all(list, &mut self.views, line, writer, wake);
        }
    }
}

#[cold]
fn wake_all(
    list: &mut Vec<u32>,
    views: &mut [View],
    line: usize,
    writer: u32,
    mut wake: impl FnMut(u32) -> bool,
) {
    list.retain(|&watcher| {
        if watcher == writer {
            return true;
        }
        let polling = &mut views[watcher as usize].polling;
        polling.forget(line as u32);
        if wake(watcher) {
            polling.record_wake_up();
        }
        false
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    /// A memory with threads 0 and 1 on cores 0 and 1 of preset `server`, and the address of a
    /// line.
    fn memory(store_buffer: bool) -> (Memory, parameters::Memory, usize) {
        let mut parameters = presets::named("server").expect("a preset");
        parameters.memory.store_buffer = store_buffer;
        let mut memory = Memory::new(parameters.topology, parameters.memory).expect("memory");
        (0..2).for_each(|_| memory.add_thread());
        let address = memory.allocate(0_u64).addr();
        (memory, parameters.memory, address)
    }

    /// Runs a whole access and returns its duration.
    fn takes(memory: &mut Memory, begin: u64, thread: u32, address: usize, access: Access) -> u64 {
        let mut now = begin;
        if let Some(transfer) = memory.begin(&mut now, thread, thread as usize, address, access) {
            memory.end(thread, transfer);
        }
        now - begin
    }

    #[test]
    fn access_cost_depends_on_line_location() {
        let (mut memory, parameters, address) = memory(false);
        assert_eq!(takes(&mut memory, 0, 0, address, Access::Store), parameters.memory_ns);
        assert_eq!(takes(&mut memory, 1_000, 0, address, Access::Store), parameters.hit_ns);
        assert_eq!(takes(&mut memory, 2_000, 1, address, Access::Load), parameters.same_cache_ns);
        assert_eq!(takes(&mut memory, 3_000, 1, address, Access::Load), parameters.hit_ns);
        // The store invalidates the copy of core 1.
        assert_eq!(takes(&mut memory, 4_000, 0, address, Access::Store), parameters.same_cache_ns);
        assert_eq!(takes(&mut memory, 5_000, 1, address, Access::Load), parameters.same_cache_ns);
        assert_eq!(memory.counts(), (6, 4));
    }

    #[test]
    fn busy_line_serialises_transfers() {
        let (mut memory, parameters, address) = memory(false);
        takes(&mut memory, 0, 0, address, Access::ReadModifyWrite);
        let one = parameters.same_cache_ns + parameters.rmw_ns;
        assert_eq!(takes(&mut memory, 1_000, 1, address, Access::ReadModifyWrite), one);
        assert_eq!(takes(&mut memory, 1_000, 0, address, Access::ReadModifyWrite), 2 * one);
    }

    #[test]
    fn buffered_store_hits_and_fence_waits() {
        let (mut memory, parameters, address) = memory(true);
        assert_eq!(takes(&mut memory, 0, 0, address, Access::Store), parameters.hit_ns);
        assert_eq!(memory.fence(0, 1), parameters.memory_ns + parameters.fence_ns);
        assert_eq!(memory.fence(0, 9_000), 9_000 + parameters.fence_ns);
        assert_eq!(memory.fence(1, 1), 1 + parameters.fence_ns, "another thread's buffer is empty");
    }

    #[test]
    fn stack_access_always_hits() {
        let (mut memory, parameters, _) = memory(false);
        let local = 0_u64;
        let address = core::ptr::from_ref(&local).addr();
        assert_eq!((memory.line_of(address), memory.offset_of(address)), (None, None));
        assert_eq!(takes(&mut memory, 0, 0, address, Access::ReadModifyWrite), parameters.hit_ns);
    }

    #[test]
    fn poller_is_suspended_until_its_line_changes() {
        let (mut memory, _, address) = memory(false);
        let line = memory.line_of(address).expect("the machine's");
        let turn = |memory: &mut Memory| {
            takes(memory, 0, 0, address, Access::Load);
            memory.record_clock_read(0);
            memory.begin_polling(0)
        };
        assert_eq!(turn(&mut memory), None, "nothing is recorded before the first pause");
        assert!(turn(&mut memory).is_some());
        let mut woken = Vec::new();
        memory.change(line, 0, |thread| {
            woken.push(thread);
            true
        });
        assert!(woken.is_empty(), "a thread is not woken by its own change");
        takes(&mut memory, 0, 1, address, Access::Store);
        for _ in 0..2 {
            memory.change(line, 1, |thread| {
                woken.push(thread);
                true
            });
        }
        assert_eq!(woken, [0], "woken once, and no longer a watcher");
        takes(&mut memory, 0, 0, address, Access::Load);
        memory.record_clock_read(0);
        takes(&mut memory, 0, 1, address, Access::Store);
        assert_eq!(memory.begin_polling(0), None, "a loaded line has changed");
    }
}
