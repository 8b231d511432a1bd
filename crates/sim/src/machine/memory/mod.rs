//! Memory: the lines that a program's data is on, who has copies of them, and who waits for them to
//! change.
//!
//! It knows threads by their numbers, and cores by theirs. Time is a number that is passed in: what
//! an access takes is added to it.

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

/// What one thread has under way.
#[derive(Default)]
struct View {
    polling: Polling,
    stores: Stores,
}

/// A machine's memory.
pub(crate) struct Memory {
    parameters: parameters::Memory,
    arena: Arena,
    caches: Caches,
    watchers: Watchers,
    /// By thread.
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

    /// A thread more.
    pub(crate) fn add_thread(&mut self) {
        self.views.push(View::default());
    }

    /// Moves `value` to this memory, on cache lines of its own. It is not dropped with the machine.
    pub(crate) fn place<T>(&mut self, value: T) -> *mut T {
        self.arena.place(value)
    }

    /// The line in which `address` is; `None` for memory that is not the machine's, such as a
    /// stack.
    #[inline(always)]
    pub(crate) fn line_of(&self, address: usize) -> Option<usize> {
        self.arena.line_of(address)
    }

    /// `address` as an offset into this memory.
    pub(crate) fn offset_of(&self, address: usize) -> Option<usize> {
        self.arena.offset_of(address)
    }

    /// Accesses so far, and those of them that another cache or memory had to serve.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.accesses, self.misses)
    }

    /// `thread`, on `core`, begins an access at the time `now`, which becomes the time when the
    /// access is done. If a transfer is returned, the access takes effect when that
    /// [ends](Self::end).
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
            let is_ours = stores.has_at_hand(line, *now);
            if access == Access::ReadModifyWrite {
                *now = (*now).max(stores.drained_at());
            }
            if is_ours && access != Access::Load {
                *now += self.caches.hold(core, line, access);
                polling.note_change();
                return None;
            }
        }
        match self.caches.begin(*now, core, line, access) {
            Begun::Hit(cost) => {
                *now += cost;
                match access {
                    Access::Load => polling.note_load(line, self.caches.version(line)),
                    Access::Store => {} // nobody has seen it
                    Access::ReadModifyWrite => polling.note_change(),
                }
                None
            }
            Begun::Miss(transfer) if access == Access::Store && self.parameters.store_buffer => {
                self.misses += 1;
                self.caches.end(transfer);
                stores.push(line, transfer.takes, transfer.done);
                *now += self.parameters.hit_ns;
                polling.note_change();
                None
            }
            Begun::Miss(transfer) => {
                self.misses += 1;
                if access == Access::ReadModifyWrite {
                    stores.note_arrival(line, transfer.takes, transfer.done);
                }
                *now = transfer.done;
                Some(transfer)
            }
        }
    }

    /// The transfer that `thread` waited for is done, and its access takes effect.
    #[inline]
    pub(crate) fn end(&mut self, thread: u32, transfer: Transfer) {
        self.caches.end(transfer);
        let polling = &mut self.views[thread as usize].polling;
        if transfer.access == Access::Load {
            polling.note_load(transfer.line, self.caches.version(transfer.line));
        } else {
            polling.note_change();
        }
    }

    /// `thread` makes a full fence at the time `now`: when it is done.
    pub(crate) fn fence(&self, thread: u32, now: u64) -> u64 {
        now.max(self.views[thread as usize].stores.drained_at()) + self.parameters.fence_ns
    }

    /// `thread` has looked at the clock.
    #[inline(always)]
    pub(crate) fn note_clock(&mut self, thread: u32) {
        self.views[thread as usize].polling.note_clock();
    }

    /// `thread` did what another may see, or what it may not be suspended in the middle of.
    #[inline(always)]
    pub(crate) fn note_change(&mut self, thread: u32) {
        self.views[thread as usize].polling.note_change();
    }

    /// `thread`, which polls, has paused. If all that it did was to look, and what it saw has not
    /// changed, it watches that from now on: for how long it may be suspended.
    #[inline]
    pub(crate) fn rest(&mut self, thread: u32) -> Option<u64> {
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

    /// `thread` watches one line, whatever it did before.
    pub(crate) fn watch(&mut self, thread: u32, line: usize) {
        let View { polling, .. } = &mut self.views[thread as usize];
        polling.start();
        self.watchers.watch(line as u32, thread, polling);
    }

    /// `writer` has changed what is in `line`. Others that watch it do so no more; `wake` is called
    /// for each of them, and returns whether the thread was suspended for the line's sake.
    #[inline(always)]
    pub(crate) fn change(&mut self, line: usize, writer: u32, wake: impl FnMut(u32) -> bool) {
        if let Some(list) = self.watchers.list(line) {
            wake_all(list, &mut self.views, line, writer, wake);
        }
    }
}

#[cold]
fn wake_all(list: &mut Vec<u32>, views: &mut [View], line: usize, writer: u32, mut wake: impl FnMut(u32) -> bool) {
    list.retain(|&watcher| {
        if watcher == writer {
            return true;
        }
        let polling = &mut views[watcher as usize].polling;
        polling.forget(line as u32);
        if wake(watcher) {
            polling.note_wake_up();
        }
        false
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    /// Threads 0 and 1, on cores 0 and 1 of the preset `server`, and the address of a line.
    fn memory(store_buffer: bool) -> (Memory, parameters::Memory, usize) {
        let mut parameters = presets::named("server").expect("a preset");
        parameters.memory.store_buffer = store_buffer;
        let mut memory = Memory::new(parameters.topology, parameters.memory).expect("memory");
        (0..2).for_each(|_| memory.add_thread());
        let address = memory.place(0_u64).addr();
        (memory, parameters.memory, address)
    }

    /// An access from its begin to its end: what it takes.
    fn takes(memory: &mut Memory, begin: u64, thread: u32, address: usize, access: Access) -> u64 {
        let mut now = begin;
        if let Some(transfer) = memory.begin(&mut now, thread, thread as usize, address, access) {
            memory.end(thread, transfer);
        }
        now - begin
    }

    #[test]
    fn line_comes_from_memory_then_from_the_other_core_then_hits() {
        let (mut memory, parameters, address) = memory(false);
        assert_eq!(takes(&mut memory, 0, 0, address, Access::Store), parameters.memory_ns);
        assert_eq!(takes(&mut memory, 1_000, 0, address, Access::Store), parameters.hit_ns);
        assert_eq!(takes(&mut memory, 2_000, 1, address, Access::Load), parameters.same_cache_ns);
        assert_eq!(takes(&mut memory, 3_000, 1, address, Access::Load), parameters.hit_ns);
        // The copy of core 1 is invalidated.
        assert_eq!(takes(&mut memory, 4_000, 0, address, Access::Store), parameters.same_cache_ns);
        assert_eq!(takes(&mut memory, 5_000, 1, address, Access::Load), parameters.same_cache_ns);
        assert_eq!(memory.counts(), (6, 4));
    }

    #[test]
    fn busy_line_serves_one_transfer_at_a_time() {
        let (mut memory, parameters, address) = memory(false);
        takes(&mut memory, 0, 0, address, Access::ReadModifyWrite);
        let one = parameters.same_cache_ns + parameters.rmw_ns;
        assert_eq!(takes(&mut memory, 1_000, 1, address, Access::ReadModifyWrite), one);
        assert_eq!(takes(&mut memory, 1_000, 0, address, Access::ReadModifyWrite), 2 * one);
    }

    #[test]
    fn buffered_store_hits_and_the_fence_waits_for_its_line() {
        let (mut memory, parameters, address) = memory(true);
        assert_eq!(takes(&mut memory, 0, 0, address, Access::Store), parameters.hit_ns);
        assert_eq!(memory.fence(0, 1), parameters.memory_ns + parameters.fence_ns);
        assert_eq!(memory.fence(0, 9_000), 9_000 + parameters.fence_ns);
        assert_eq!(memory.fence(1, 1), 1 + parameters.fence_ns, "another thread's buffer is empty");
    }

    #[test]
    fn stack_has_no_line_and_always_hits() {
        let (mut memory, parameters, _) = memory(false);
        let local = 0_u64;
        let address = core::ptr::from_ref(&local).addr();
        assert_eq!((memory.line_of(address), memory.offset_of(address)), (None, None));
        assert_eq!(takes(&mut memory, 0, 0, address, Access::ReadModifyWrite), parameters.hit_ns);
    }

    #[test]
    fn poller_rests_until_another_thread_changes_its_line() {
        let (mut memory, _, address) = memory(false);
        let line = memory.line_of(address).expect("the machine's");
        let turn = |memory: &mut Memory| {
            takes(memory, 0, 0, address, Access::Load);
            memory.note_clock(0);
            memory.rest(0)
        };
        assert_eq!(turn(&mut memory), None, "the turn before the first pause is not known");
        assert!(turn(&mut memory).is_some());
        let mut woken = Vec::new();
        memory.change(line, 0, |thread| {
            woken.push(thread);
            true
        });
        assert!(woken.is_empty(), "its own change");
        takes(&mut memory, 0, 1, address, Access::Store);
        for _ in 0..2 {
            memory.change(line, 1, |thread| {
                woken.push(thread);
                true
            });
        }
        assert_eq!(woken, [0], "once: it does not watch any more");
        takes(&mut memory, 0, 0, address, Access::Load);
        memory.note_clock(0);
        takes(&mut memory, 0, 1, address, Access::Store);
        assert_eq!(memory.rest(0), None, "what it saw has changed since");
    }
}
