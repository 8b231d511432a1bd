//! What a machine is made of: contexts, caches, and what the operating system's scheduler does when.
//!
//! All times are nanoseconds. A machine file is this in TOML; what it leaves out is the [`host`](crate::presets)
//! preset's.

use std::num::NonZeroU32;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// A count of at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32")]
pub struct Count(u32);

impl TryFrom<u32> for Count {
    type Error = String;

    fn try_from(count: u32) -> Result<Self, String> {
        match count {
            0 => Err("a machine has at least one of these".to_string()),
            _ if count > Self::MOST => Err(format!("at most {} can be simulated", Self::MOST)),
            _ => Ok(Count(count)),
        }
    }
}

impl Count {
    /// More than a machine can have of anything, so that products do not overflow.
    const MOST: u32 = 4096;

    /// For the presets.
    ///
    /// # Panics
    ///
    /// `count` is 0.
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

/// How contexts are grouped. Context 0 is next to context 1 in all of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Sockets of the machine.
    pub sockets: Count,
    /// Last-level caches of a socket.
    pub caches_per_socket: Count,
    /// Cores behind one last-level cache. A core has a first-level cache.
    pub cores_per_cache: Count,
    /// Hardware contexts of a core.
    pub contexts_per_core: Count,
}

impl Topology {
    /// Hardware contexts of the machine.
    pub fn contexts(&self) -> usize {
        self.cores() * *self.contexts_per_core as usize
    }

    /// Cores of the machine.
    pub fn cores(&self) -> usize {
        [self.sockets, self.caches_per_socket, self.cores_per_cache].iter().map(|count| **count as usize).product()
    }

    /// How far two cores are from each other.
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

/// The smallest part of a machine that two cores share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Distance {
    SameCore,
    SameCache,
    SameSocket,
    OtherSocket,
}

/// What an access to memory costs, by where the line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// A load or store that the core's own cache serves.
    pub hit_ns: u64,
    /// A line that another core behind the same last-level cache has.
    pub same_cache_ns: u64,
    /// A line that a core behind another cache of the socket has.
    pub same_socket_ns: u64,
    /// A line that a core of another socket has.
    pub other_socket_ns: u64,
    /// A line that no cache has.
    pub memory_ns: u64,
    /// What a read-modify-write costs beyond a store.
    pub rmw_ns: u64,
    /// For how long a line serves nobody else while a reader gets a copy. (A writer has it to itself for the whole
    /// of its transfer.)
    pub read_occupancy_ns: u64,
    /// Whether a core goes on while a line that it stores to is on its way. Its next atomic access and its next fence
    /// wait for that; then it is the first to have the line.
    #[serde(default)]
    pub store_buffer: bool,
    /// A full memory fence.
    pub fence_ns: u64,
    /// One turn of a polling loop beyond its loads.
    pub pause_ns: u64,
    /// A look at the clock.
    pub clock_ns: u64,
    /// By how many thousandths computation slows down for each other busy context of the core.
    pub shared_core_slowdown: u32,
}

/// The operating system's scheduler, futexes and timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// How long a thread runs before another one that waits for its context has its turn.
    pub slice_ns: u64,
    /// How often a context looks whether the slice is over.
    pub tick_ns: u64,
    /// A context switch.
    pub switch_ns: u64,
    /// What an idle context takes beyond that to begin with a thread that has woken.
    pub idle_exit_ns: u64,
    /// Context switches per second that the machine is capable of, as all of them pass one lock; 0: no limit.
    pub switches_per_s: u64,
    /// The system call that parks, up to the context switch.
    pub park_ns: u64,
    /// The system call that wakes, and finds nobody.
    pub wake_call_ns: u64,
    /// What it takes for each thread that it wakes.
    pub wake_thread_ns: u64,
    /// What it takes beyond that if the thread goes to a context that is idle, which has to be told.
    #[serde(default)]
    pub wake_idle_ns: u64,
    /// The system call that yields, with nobody to yield to.
    pub yield_ns: u64,
    /// A thread that wakes has run this much less than those that waited, at most.
    pub sleeper_credit_ns: u64,
    /// A thread that wakes preempts one that has run this much more.
    pub wake_preempt_ns: u64,
    /// How often threads are moved from a longer run queue to a shorter one.
    pub balance_ns: u64,
    /// How much longer a thread may run that asked not to be preempted; 0: nobody can ask.
    pub extension_ns: u64,
    /// Sleeps end at multiples of this; 0: at any time.
    pub timer_tick_ns: u64,
    /// And so much late.
    pub timer_slack_ns: u64,
    /// Starting a thread.
    pub spawn_ns: u64,
    /// What a reading of the load costs, whatever the number of threads.
    pub sensor_ns: u64,
    /// And for each thread of the process.
    pub sensor_thread_ns: u64,
}

/// Where the numbers of a machine are from that was measured, and what programs take on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrated {
    /// When.
    pub date: String,
    /// Its processors, as the system calls them.
    pub processor: String,
    /// Its kernel.
    pub kernel: String,
    /// Whether it was busy with something else meanwhile, so that times may be too long.
    pub busy: bool,
    /// What the programs of `unconvoy bench` take.
    pub programs: Programs,
}

/// What one turn of the benchmark's programs takes on one thread beyond the accesses that are simulated, in picoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Programs {
    /// A turn of `counter` beyond its section and think time.
    pub counter_turn_ps: u64,
    /// What it takes more with another lock than the default: the interposer goes through a table of locks.
    pub counter_dispatch_ps: u64,
    /// Of an operation of `hashtable`, what comes before the lock.
    pub table_outside_ps: u64,
    /// What comes under the lock, beyond the way along the list.
    pub table_section_ps: u64,
    /// A step on that way.
    pub table_visit_ps: u64,
    /// Calling what locks and unlocks.
    pub table_call_ps: u64,
    /// What that takes more with another lock than the default.
    pub table_dispatch_ps: u64,
}

/// Who wins when two transactions meet at a line. Against what is in no transaction a transaction always loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The one whose access it is: the line is taken from the other, which aborts.
    Requester,
    /// The one that was begun first, counting from its first try. The other aborts, be it the one that asks.
    Timestamp,
}

/// Hardware transactions. Conflicts are found when a line is accessed, not at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transactions {
    /// Who wins.
    pub policy: Policy,
    /// Lines that a transaction may read.
    pub read_lines: NonZeroU32,
    /// Lines that it may write: the size of the cache that keeps them.
    pub write_lines: NonZeroU32,
    /// Lines that it may write of those that share a place in that cache: its associativity. Divides `write_lines`.
    pub write_ways: NonZeroU32,
    /// What the beginning costs.
    pub begin_ns: u64,
    /// What the end costs.
    pub commit_ns: u64,
    /// From the cause of an abort until the thread is back at the beginning.
    pub abort_ns: u64,
    /// After a conflict a transaction waits a random time of up to so much before it is tried again; 0: it does not
    /// wait. Locks that elide have their own ways.
    pub backoff_first_ns: u64,
    /// Twice as much after each further conflict, up to this.
    pub backoff_limit_ns: u64,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// What results call it.
    pub name: String,
    /// How contexts are grouped.
    pub topology: Topology,
    /// Caches and clock.
    pub memory: Memory,
    /// The operating system.
    pub scheduler: Scheduler,
    /// Hardware transactions; without this table the machine has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<Transactions>,
    /// Of a machine that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibrated: Option<Calibrated>,
}

impl Parameters {
    /// The machine in a few words, and whether its numbers were measured.
    pub fn origin(&self) -> String {
        let contexts = self.topology.contexts();
        let measured = match &self.calibrated {
            Some(calibrated) => {
                let busy = if calibrated.busy { ", WHILE IT WAS BUSY" } else { "" };
                format!(", calibrated {} ({}, {}{busy})", calibrated.date, calibrated.processor, calibrated.kernel)
            }
            None if self.name == "host" => ", not calibrated".to_string(),
            None => String::new(),
        };
        format!("{} ({contexts} contexts{measured})", self.name)
    }
}

/// The machine of a TOML file.
///
/// # Errors
///
/// The text is no TOML, has a key that is none of the machine's, lacks one, or a value makes no sense: with the key and
/// the line.
pub fn parse(text: &str) -> Result<Parameters, String> {
    let machine: Parameters = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_string())?;
    let contexts = machine.topology.contexts();
    if contexts > Count::MOST as usize {
        return Err(format!("[topology]: {contexts} contexts, and at most {} can be simulated", Count::MOST));
    }
    let scheduler = &machine.scheduler;
    for (key, value) in
        [("tick_ns", scheduler.tick_ns), ("slice_ns", scheduler.slice_ns), ("balance_ns", scheduler.balance_ns)]
    {
        if value == 0 {
            return Err(format!("line {}: scheduler.{key} is 0, and has to be longer", line_of(text, key)));
        }
    }
    if let Some(transactions) = &machine.transactions {
        let (lines, ways) = (transactions.write_lines, transactions.write_ways);
        if lines.get() % ways != 0 {
            let line = line_of(text, "write_ways");
            return Err(format!(
                "line {line}: transactions.write_ways is {ways}, which does not divide write_lines, {lines}"
            ));
        }
        if transactions.backoff_limit_ns < transactions.backoff_first_ns {
            let line = line_of(text, "backoff_limit_ns");
            return Err(format!("line {line}: transactions.backoff_limit_ns is shorter than backoff_first_ns"));
        }
    }
    Ok(machine)
}

/// The line of `key`, from 1; 0 if it has none of its own.
fn line_of(text: &str, key: &str) -> usize {
    text.lines().position(|line| line.trim_start().starts_with(key)).map_or(0, |line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn text() -> String {
        toml::to_string(&presets::named("server").expect("a preset")).expect("it is one of ours")
    }

    #[test]
    fn a_preset_is_a_file() {
        for (name, _) in presets::PRESETS {
            let preset = presets::named(name).expect("listed");
            assert_eq!(parse(&toml::to_string(&preset).expect("written")), Ok(preset), "{name}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_key_and_line() {
        let changed = |key: &str, value: &str| {
            let line = |line: &str| if line.starts_with(key) { format!("{key} = {value}") } else { line.to_string() };
            text().lines().map(line).collect::<Vec<_>>().join("\n")
        };
        let line_of = |key: &str| text().lines().position(|line| line.starts_with(key)).expect("a key") + 1;
        for (key, value, why) in [
            ("sockets", "0", "at least one"),
            ("contexts_per_core", "9999", "at most"),
            ("hit_ns", "-1", "-1"),
            ("switch_ns", "\"long\"", "string"),
            ("tick_ns", "0", "is 0"),
            ("policy", "\"coin\"", "requester"),
            ("read_lines", "0", "nonzero"),
            ("write_ways", "7", "does not divide"),
            ("backoff_limit_ns", "1", "shorter"),
        ] {
            let error = parse(&changed(key, value)).expect_err("refused");
            assert!(error.contains(&format!("line {}", line_of(key))), "{error}");
            assert!(error.contains(key) && error.contains(why), "{error}");
        }
        let error = parse(&text().replace("hit_ns", "hit_nanoseconds")).expect_err("refused");
        assert!(error.contains("unknown field `hit_nanoseconds`") && error.contains("line "), "{error}");
    }
}
