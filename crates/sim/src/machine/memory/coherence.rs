//! Caches and their coherence, line by line.
//!
//! A line has an owner, the core that wrote it last (or read it first), and a version that each
//! change of owner moves on. A core's cache remembers which version of which lines it has, so that
//! a write elsewhere invalidates every copy without naming them: a copy of an old version is none.
//! A cache has as many entries as a first-level data cache has lines, and each line one place in
//! it.
//!
//! | access | condition | cost |
//! | --- | --- | --- |
//! | load | the core has this version | a hit |
//! | load | else | the distance to the owner; the line is busy for `read_occupancy_ns` |
//! | store, read-modify-write | the core owns the line, and no other has read it since | a hit |
//! | the same | else | the distance to the owner or to the farthest reader; the line is busy for as long |
//!
//! A line that is busy is waited for, first come, first served: that is what makes a storm of
//! test-and-sets slow. The access takes effect when its transfer is done.
//!
//! With a store buffer, a store that misses is not waited for ([`stores`](super::stores)): its line
//! is busy until the transfer is done, and whoever wants it meanwhile gets it after that.
//!
//! What is *not* modelled: bandwidth (of different lines), prefetching, and caches between the
//! first and the last level.

use super::arena::LINES;
use crate::machine::zeroes::{Zeroable, Zeroes};
use crate::parameters::{Memory, Topology};

/// Lines of a core's cache: 32 KiB of 64 bytes, the first-level data cache of most processors since
/// 2006.
const CACHED: usize = 512;

/// No core.
const NOBODY: u16 = 0;

/// A line of memory. All zeroes: nobody has it.
#[derive(Clone, Copy)]
struct Line {
    busy_until: u64,
    version: u32,
    /// The owner's number and 1, or 0.
    owner: u16,
    /// As [`Distance`](crate::parameters::Distance): how far from the owner it was read since it
    /// was last written.
    read_at: u8,
}

// SAFETY: numbers.
unsafe impl Zeroable for Line {}

/// Which version of which line a place in a core's cache has: `line + 1 << 32 | version`.
type Copy = u64;

fn copy_of(line: usize, version: u32) -> Copy {
    (line as u64 + 1) << 32 | u64::from(version)
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Load,
    Store,
    ReadModifyWrite,
}

/// A transfer that an access waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) line: usize,
    core: usize,
    pub(crate) access: Access,
    pub(crate) done: u64,
    /// How much of that is the line's way, and not the wait for others.
    pub(crate) takes: u64,
}

/// How an access begins.
pub(crate) enum Begun {
    /// Done so many nanoseconds later.
    Hit(u64),
    Miss(Transfer),
}

pub(crate) struct Caches {
    lines: Zeroes<Line>,
    copies: Zeroes<Copy>,
    topology: Topology,
    memory: Memory,
    latency: [u64; 4],
}

impl Caches {
    pub(crate) fn new(topology: Topology, memory: Memory) -> Self {
        let latency = [memory.same_cache_ns, memory.same_cache_ns, memory.same_socket_ns, memory.other_socket_ns];
        let copies = Zeroes::new(topology.cores() * CACHED);
        Caches { lines: Zeroes::new(LINES), copies, topology, memory, latency }
    }

    /// The version of `line`: another one whenever a copy of it has become old.
    #[inline(always)]
    pub(crate) fn version(&mut self, line: usize) -> u32 {
        self.lines.at(line).version
    }

    /// Begins an access of `core` at the time `now`.
    #[inline(always)]
    pub(crate) fn begin(&mut self, now: u64, core: usize, line: usize, access: Access) -> Begun {
        let state = self.lines.at(line);
        let version = state.version;
        let is_alone = state.owner as usize == core + 1 && state.read_at == 0;
        let has_it = *self.copies.at(core * CACHED + line % CACHED) == copy_of(line, version);
        let hit = self.memory.hit_ns;
        match access {
            Access::Load if has_it => Begun::Hit(hit),
            Access::Store if has_it && is_alone => Begun::Hit(hit),
            Access::ReadModifyWrite if has_it && is_alone => Begun::Hit(hit + self.memory.rmw_ns),
            _ => Begun::Miss(self.miss(now, core, line, access)),
        }
    }

    #[cold]
    fn miss(&mut self, now: u64, core: usize, line: usize, access: Access) -> Transfer {
        let (owner, read_at) = (self.lines.at(line).owner, self.lines.at(line).read_at);
        let cost = match owner {
            NOBODY => self.memory.memory_ns,
            owner => {
                let distance = self.topology.distance(core, owner as usize - 1) as u8;
                let farthest = if access == Access::Load { distance } else { distance.max(read_at) };
                self.latency[farthest as usize]
            }
        };
        let extra = if access == Access::ReadModifyWrite { self.memory.rmw_ns } else { 0 };
        let occupancy = if access == Access::Load { self.memory.read_occupancy_ns.min(cost) } else { cost + extra };
        let state = self.lines.at(line);
        let start = state.busy_until.max(now);
        state.busy_until = start + occupancy;
        if access != Access::Load || owner == NOBODY {
            // Whoever comes next has to wait for us and gets it from us; what others read until we
            // have it is the version before.
            state.owner = core as u16 + 1;
            state.read_at = 0;
        }
        Transfer { line, core, access, done: start + cost + extra, takes: cost }
    }

    /// An access of `core` that writes to `line`, which has just come, before anybody who waits for
    /// it has: what it takes.
    #[inline]
    pub(crate) fn hold(&mut self, core: usize, line: usize, access: Access) -> u64 {
        let state = self.lines.at(line);
        state.version = state.version.wrapping_add(1);
        let version = state.version;
        *self.copies.at(core * CACHED + line % CACHED) = copy_of(line, version);
        self.memory.hit_ns + if access == Access::ReadModifyWrite { self.memory.rmw_ns } else { 0 }
    }

    /// The transfer is done, and the access takes effect.
    #[inline]
    pub(crate) fn end(&mut self, transfer: Transfer) {
        let Transfer { line, core, access, .. } = transfer;
        let owner = self.lines.at(line).owner;
        let is_owner = owner as usize == core + 1;
        let distance =
            if is_owner || owner == NOBODY { 0 } else { self.topology.distance(core, owner as usize - 1) as u8 };
        let state = self.lines.at(line);
        if access == Access::Load {
            state.read_at = state.read_at.max(distance);
        } else {
            state.version = state.version.wrapping_add(1);
            if is_owner {
                state.read_at = 0;
            }
        }
        *self.copies.at(core * CACHED + line % CACHED) = copy_of(line, state.version);
    }
}
