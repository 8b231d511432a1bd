//! The parameters of a machine: contexts, caches, and the operating system's scheduler.
//!
//! All times are in nanoseconds. A machine file holds these parameters in TOML.

use std::num::NonZeroU32;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use crate::dispatch::Dispatch;
use crate::messages;
use crate::quantiles::Quantiles;

/// A count of at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32")]
pub struct Count(u32);

impl TryFrom<u32> for Count {
    type Error = String;

    fn try_from(count: u32) -> Result<Self, String> {
        match count {
            0 => Err(messages::count_of_zero().to_string()),
            _ if count > Self::MOST => Err(messages::count_too_large(Self::MOST)),
            _ => Ok(Count(count)),
        }
    }
}

impl Count {
    /// Upper limit of every count, so that products do not overflow.
    pub(crate) const MOST: u32 = 4096;

    /// A constant count, for the presets.
    ///
    /// # Panics
    ///
    /// Panics if `count` is 0 or above the limit.
    pub const fn new(count: u32) -> Self {
        assert!(count != 0 && count <= Self::MOST);
        Count(count)
    }
}

impl Deref for Count {
    type Target = u32;

    fn deref(&self) -> &u32 {
        &self.0
    }
}

/// How contexts are grouped. Contexts with neighbouring numbers share the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Number of sockets.
    pub sockets: Count,
    /// Last-level caches per socket.
    pub caches_per_socket: Count,
    /// Cores per last-level cache. Each core has a first-level cache.
    pub cores_per_cache: Count,
    /// Hardware contexts per core.
    pub contexts_per_core: Count,
}

impl Topology {
    /// Number of hardware contexts of the machine.
    pub fn contexts(&self) -> usize {
        self.cores() * *self.contexts_per_core as usize
    }

    /// Number of cores of the machine.
    pub fn cores(&self) -> usize {
        [self.sockets, self.caches_per_socket, self.cores_per_cache]
            .iter()
            .map(|count| **count as usize)
            .product()
    }

    pub(crate) fn distance(&self, one: usize, other: usize) -> Distance {
        let cache = *self.cores_per_cache as usize;
        let socket = cache * *self.caches_per_socket as usize;
        match () {
            () if one == other => Distance::SameCore,
            () if one / cache == other / cache => Distance::SameCache,
            () if one / socket == other / socket => Distance::SameSocket,
            () => Distance::OtherSocket,
        }
    }
}

/// The smallest unit of a machine that contains two cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Distance {
    SameCore,
    SameCache,
    SameSocket,
    OtherSocket,
}

/// Upper limit of [`Memory::mwait_exit_ns`]: 1 ms, above the exit latency of every state that Linux
/// enters by `mwait` on servers (`drivers/idle/intel_idle.c`).
pub const LONGEST_MWAIT_EXIT_NS: u64 = 1_000_000;

/// Costs of memory accesses, by location of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Load or store served by the core's own cache.
    pub hit_ns: u64,
    /// Transfer from a core behind the same last-level cache.
    pub same_cache_ns: u64,
    /// Transfer from a core behind another cache of the socket.
    pub same_socket_ns: u64,
    /// Transfer from a core of another socket.
    pub other_socket_ns: u64,
    /// Transfer from memory, for a line in no cache.
    pub memory_ns: u64,
    /// Extra cost of a read-modify-write over a store.
    pub rmw_ns: u64,
    /// How long a line is busy with one reader's copy. (A write keeps it busy for the whole
    /// transfer.)
    pub read_occupancy_ns: u64,
    /// Whether a core continues while the line of a store is in transfer. Its next atomic access or
    /// fence waits for the line. The core then writes the line before any other core gets it.
    #[serde(default)]
    pub store_buffer: bool,
    /// Full memory fence.
    pub fence_ns: u64,
    /// One turn of a polling loop, without its loads.
    pub pause_ns: u64,
    /// From a write to a line, or an interrupt, until a context that waits in `mwait` for it runs
    /// on; the transfer of the line comes on top. At most [`LONGEST_MWAIT_EXIT_NS`]. Without this
    /// key the machine has no such instruction, and waiters pause instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mwait_exit_ns: Option<u64>,
    /// Clock read.
    pub clock_ns: u64,
    /// Slowdown of computation for each other busy context of the core, in thousandths.
    pub shared_core_slowdown: u32,
}

/// Which waiting thread a context runs next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The one with the least virtual run time.
    #[default]
    RunTime,
    /// The one whose slice ends first in virtual run time, among those that have run no longer than
    /// the average: EEVDF, the scheduler of Linux since 6.6 (Stoica and Abdel-Wahab, 1995).
    Deadline,
    /// The one of the highest priority, by Solaris' time-sharing class.
    TimeSharing,
}

/// The operating system's scheduler, futexes and timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// Which waiting thread runs next.
    #[serde(default)]
    pub order: Order,
    /// The dispatch table of the order `time-sharing`; without it, Solaris' default table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Dispatch>,
    /// How long a thread runs before another thread that waits for its context takes over.
    pub slice_ns: u64,
    /// Period at which a context checks whether its thread's slice is over.
    pub tick_ns: u64,
    /// Time between the ticks of a context and of the next one. Without it, the ticks of the
    /// contexts are spread evenly over the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_skew_ns: Option<u64>,
    /// How long a tick keeps the running thread from its context, if that thread goes on.
    #[serde(default)]
    pub tick_work_ns: Quantiles,
    /// From the last instruction of a thread that a tick preempts to the first one of the next
    /// thread, the context switch included; if 0, the switch alone.
    #[serde(default)]
    pub tick_switch_ns: Quantiles,
    /// Context switch.
    pub switch_ns: u64,
    /// Extra time until an idle context runs a woken thread.
    pub idle_exit_ns: u64,
    /// Context switches per second that the machine can do, because all of them pass one lock; 0:
    /// no limit.
    pub switches_per_s: u64,
    /// System call that parks, without the context switch.
    pub park_ns: u64,
    /// System call that wakes, if no thread sleeps.
    pub wake_call_ns: u64,
    /// Extra cost of that call for each woken thread.
    pub wake_thread_ns: u64,
    /// Extra cost if the woken thread's context is idle and must be interrupted.
    #[serde(default)]
    pub wake_idle_ns: u64,
    /// System call that yields, if no other thread waits for the context.
    pub yield_ns: u64,
    /// Upper limit of a woken thread's lead in virtual run time over the waiting threads.
    pub sleeper_credit_ns: u64,
    /// A woken thread preempts the running thread if the latter has run for longer by more than
    /// this.
    pub wake_preempt_ns: u64,
    /// Period of balancing between run queues.
    pub balance_ns: u64,
    /// Whether balancing evens out a difference of one waiting thread only at every second attempt,
    /// as Linux does: half a thread's load is the most that it moves at the first.
    #[serde(default)]
    pub balance_hesitates: bool,
    /// Slice extension for a thread that requests one; 0: unavailable.
    pub extension_ns: u64,
    /// Sleeps end at multiples of this; 0: at any time.
    pub timer_tick_ns: u64,
    /// Delay of every timer.
    pub timer_slack_ns: u64,
    /// Start of a thread.
    pub spawn_ns: u64,
    /// Reading the load, whatever the number of threads.
    pub sensor_ns: u64,
    /// Extra cost of a reading for each thread of the process.
    pub sensor_thread_ns: u64,
}

impl Scheduler {
    /// The dispatch table, if the order is `time-sharing`.
    pub(crate) fn time_sharing(&self) -> Option<Dispatch> {
        let dispatch = self.dispatch.unwrap_or(Dispatch::SOLARIS);
        (self.order == Order::TimeSharing).then_some(dispatch)
    }
}

/// Origin of a calibrated machine's numbers, and the costs of programs on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrated {
    /// Date of the calibration.
    pub date: String,
    /// Processor model, as the system reports it.
    pub processor: String,
    /// Kernel version.
    pub kernel: String,
    /// Whether other programs used the machine, so that times may be too long.
    pub busy: bool,
    /// Costs of the programs of `unconvoy bench`.
    pub programs: Programs,
}

/// Costs of a turn of the benchmark's programs on one thread, without the simulated accesses, in
/// picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Programs {
    /// A turn of `counter` without its section and think time.
    pub counter_turn_ps: u64,
    /// Extra cost of a lock other than the default, because the interposer calls it through a table
    /// of locks.
    pub counter_dispatch_ps: u64,
    /// The part of a `hashtable` operation before the lock.
    pub table_outside_ps: u64,
    /// The part under the lock, without the walk along the list.
    pub table_section_ps: u64,
    /// One step of the walk.
    pub table_visit_ps: u64,
    /// The calls that lock and unlock.
    pub table_call_ps: u64,
    /// Extra cost of these calls for a lock other than the default.
    pub table_dispatch_ps: u64,
}

/// Which transaction survives a conflict. A transaction always loses to a non-transactional access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The requester: the transaction that has the line aborts.
    Requester,
    /// The older one, counting from its first attempt; the requester may have to abort.
    Timestamp,
}

/// Hardware transactions with eager conflict detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transactions {
    /// Which transaction survives a conflict.
    pub policy: Policy,
    /// Most lines that a transaction may read.
    pub read_lines: NonZeroU32,
    /// Most lines that it may write: the size of the cache that holds them.
    pub write_lines: NonZeroU32,
    /// Most lines that it may write within one set of that cache: the associativity. Divides
    /// `write_lines`.
    pub write_ways: NonZeroU32,
    /// Beginning a transaction.
    pub begin_ns: u64,
    /// Committing it.
    pub commit_ns: u64,
    /// From the cause of an abort until the thread is back at the beginning.
    pub abort_ns: u64,
    /// Upper limit of the random wait before the first retry after a conflict; 0: no wait. Eliding
    /// locks have retry policies of their own.
    pub backoff_first_ns: u64,
    /// The limit doubles with each further conflict, up to this value.
    pub backoff_limit_ns: u64,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Name in results.
    pub name: String,
    /// How contexts are grouped.
    pub topology: Topology,
    /// Memory and clock.
    pub memory: Memory,
    /// The operating system.
    pub scheduler: Scheduler,
    /// Hardware transactions; a machine without this table has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<Transactions>,
    /// Origin of the numbers, if the machine was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibrated: Option<Calibrated>,
}

impl Parameters {
    /// A short description of the machine, with the origin of its numbers.
    pub fn origin(&self) -> String {
        let contexts = self.topology.contexts();
        let measured = match &self.calibrated {
            Some(calibrated) => {
                let busy = if calibrated.busy { ", WHILE IT WAS BUSY" } else { "" };
                format!(
                    ", calibrated {} ({}, {}{busy})",
                    calibrated.date, calibrated.processor, calibrated.kernel
                )
            }
            None if self.name == "host" => ", not calibrated".to_string(),
            None => String::new(),
        };
        format!("{} ({contexts} contexts{measured})", self.name)
    }
}
