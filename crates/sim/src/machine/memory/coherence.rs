//! Caches and their coherence, line by line.
//!
//! A line has an owner, the core that last wrote it (or first read it), and a version that each
//! transfer for writing increments. A core's cache stores the versions of its copies. A write
//! elsewhere therefore invalidates every copy without a list of them: a copy of an old version is
//! invalid. A cache has as many entries as a first-level data cache has lines, and is
//! direct-mapped.
//!
//! | access | condition | cost |
//! | --- | --- | --- |
//! | load | the core has the current version | a hit |
//! | load | otherwise | distance to the owner; the line is busy for `read_occupancy_ns` |
//! | store, read-modify-write | the core owns the line, and no other has read it since | a hit |
//! | store, read-modify-write | otherwise | distance to the owner or the farthest reader; the line is busy that long |
//!
//! Requests for a busy line are served in order of arrival, which makes a storm of test-and-sets
//! slow. An access takes effect at the end of its transfer.
//!
//! With a store buffer, a thread does not wait for a store that misses ([`stores`](super::stores)).
//! The line is busy until the transfer ends, and later requests are served after that.
//!
//! *Not* modelled: bandwidth across lines, prefetching, and caches between the first and the last
//! level.

use super::arena::LINES;
use crate::machine::zeroes::{Zeroable, Zeroes};
use crate::parameters::{Memory, Topology};

/// Lines of a core's cache: 32 KiB in lines of 64 bytes, the first-level data cache of most
/// processors since 2006.
const CACHED: usize = 512;

/// Stands for "no core" in `Line::owner`.
const NO_CORE: u16 = 0;

/// A line of memory. All zeroes: no core has it.
#[derive(Clone, Copy)]
struct Line {
    busy_until: u64,
    version: u32,
    /// Number of the owner plus 1, or 0.
    owner: u16,
    /// Distance from the owner to the farthest reader since the last write, as a
    /// [`Distance`](crate::parameters::Distance).
    read_at: u8,
}

// SAFETY: all-zero bytes are valid for the fields, which are integers.
unsafe impl Zeroable for Line {}

/// Line and version of an entry in a core's cache: `line + 1 << 32 | version`.
type Copy = u64;

fn copy_of(line: usize, version: u32) -> Copy {
    (line as u64 + 1) << 32 | u64::from(version)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Load,
    Store,
    ReadModifyWrite,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) line: usize,
    core: usize,
    pub(crate) access: Access,
    pub(crate) done: u64,
    /// Latency of the transfer, without the wait for earlier ones.
    pub(crate) takes: u64,
}

/// First half of an access.
pub(crate) enum Begun {
    /// The access completes after this many nanoseconds.
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
        let latency = [
            memory.same_cache_ns,
            memory.same_cache_ns,
            memory.same_socket_ns,
            memory.other_socket_ns,
        ];
        let copies = Zeroes::new(topology.cores() * CACHED);
        Caches { lines: Zeroes::new(LINES), copies, topology, memory, latency }
    }

    /// The version of `line`, which changes when copies of the line become invalid.
    #[inline(always)]
    pub(crate) fn version(&mut self, line: usize) -> u32 {
        self.lines.at(line).version
    }

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
            NO_CORE => self.memory.memory_ns,
            owner => {
                let distance = self.topology.distance(core, owner as usize - 1) as u8;
                let farthest =
                    if access == Access::Load { distance } else { distance.max(read_at) };
                self.latency[farthest as usize]
            }
        };
        let extra = if access == Access::ReadModifyWrite { self.memory.rmw_ns } else { 0 };
        let occupancy = if access == Access::Load {
            self.memory.read_occupancy_ns.min(cost)
        } else {
            cost + extra
        };
        let state = self.lines.at(line);
        let start = state.busy_until.max(now);
        state.busy_until = start + occupancy;
        if access != Access::Load || owner == NO_CORE {
            // Later requests wait for this transfer, and this core then serves them. Until the
            // transfer ends, a core with a copy reads the previous version.
            state.owner = core as u16 + 1;
            state.read_at = 0;
        }
        Transfer { line, core, access, done: start + cost + extra, takes: cost }
    }

    /// Writes to `line`, which `core` has just received, before the line goes to the waiting cores.
    /// Returns the cost.
    #[inline]
    pub(crate) fn hold(&mut self, core: usize, line: usize, access: Access) -> u64 {
        let state = self.lines.at(line);
        state.version = state.version.wrapping_add(1);
        let version = state.version;
        *self.copies.at(core * CACHED + line % CACHED) = copy_of(line, version);
        self.memory.hit_ns + if access == Access::ReadModifyWrite { self.memory.rmw_ns } else { 0 }
    }

    /// Ends a transfer; its access takes effect.
    #[inline]
    pub(crate) fn end(&mut self, transfer: Transfer) {
        let Transfer { line, core, access, .. } = transfer;
        let owner = self.lines.at(line).owner;
        let is_owner = owner as usize == core + 1;
        let distance = if is_owner || owner == NO_CORE {
            0
        } else {
            self.topology.distance(core, owner as usize - 1) as u8
        };
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
