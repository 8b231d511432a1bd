//! The report: what waits for what, and the deadlocks among it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use unconvoy::catalogue::CONTENTION_MANAGERS;
use unconvoy_measure::arguments::counted;
use unconvoy_measure::chart::quantity;
use unconvoy_profile::Kind;

use super::graph::{Cycle, Graph, Holder, Holders, Lock, Manner, Unknown, Wait};
use super::subject::Thread;
use super::table::Tables;
use crate::members::LockType;
use crate::names::Names;

/// Whether a lock was acquired between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Not read twice: a core dump.
    Unknown,
    /// The same holder, and no acquisition.
    None,
    /// Another holder.
    HolderChanged,
    /// This many acquisitions.
    Acquisitions(u32),
}

/// What a report shows.
pub struct Report<'a> {
    pub title: String,
    pub tables: &'a Tables,
    pub graph: &'a Graph,
    pub cycles: &'a [Cycle],
    pub threads: &'a [Thread],
    pub names: &'a Names,
    /// The names of the locks, by address; see [`labels`].
    pub labels: &'a BTreeMap<u64, String>,
    /// The present time; `None` in a core dump.
    pub now: Option<u64>,
    /// Time between the two readings of each lock.
    pub between_s: f64,
    pub progress: &'a dyn Fn(u64) -> Progress,
    /// Whether a wait is there in both readings; true for a core dump.
    pub lasts: &'a dyn Fn(&Wait) -> bool,
    pub remarks: &'a [String],
}

impl Report<'_> {
    /// Renders the report.
    pub fn render(&self) -> String {
        let mut text = self.heading();
        for cycle in self.cycles {
            text += &self.deadlock(cycle);
        }
        for lock in self.graph.locks.values() {
            text += &self.lock(lock);
        }
        text += &self.control();
        text += &self.stacks();
        for remark in self.remarks {
            let _ = writeln!(text, "{remark}");
        }
        text
    }

    fn heading(&self) -> String {
        let Tables { lock, load, is_libcs, .. } = self.tables;
        let locks = if *is_libcs { "libc's locks".to_string() } else { format!("{lock}+{load}") };
        let waited: BTreeSet<u64> = self.graph.waits.iter().map(|wait| wait.lock).collect();
        let is_programs = |thread: &&Thread| Some(thread.id) != self.tables.control.controller;
        let threads = self.threads.iter().filter(is_programs).count();
        let waits = self.graph.waits.len();
        let mut title = self.title.clone();
        title[..1].make_ascii_uppercase();
        let mut text = format!("{title}: {locks}\n");
        if waits == 0 {
            let none = format!("No thread of {threads} waits for a lock.");
            let is_known = self.tables.has_all_waits;
            text += if is_known { &none } else { CUT_OFF };
            text.push('\n');
            return text;
        }
        let _ = writeln!(
            text,
            "{} of {} for {}.",
            counted(waits as u64, "thread"),
            if waits == 1 { format!("{threads} waits") } else { format!("{threads} wait") },
            counted(waited.len() as u64, "lock")
        );
        if !self.tables.is_libcs {
            let order = CONTENTION_MANAGERS.iter().find(|it| it.entry.name == lock);
            if let Some(manager) = order {
                let _ = writeln!(
                    text,
                    "Waiters are listed by arrival. Order in which {lock} is acquired: {}.",
                    manager.order
                );
            }
        }
        text
    }

    /// A deadlock: who holds what, and waits for what.
    fn deadlock(&self, cycle: &Cycle) -> String {
        let waits: Vec<&Wait> = cycle.iter().map(|&index| &self.graph.waits[index]).collect();
        let mut text = match waits.len() {
            1 => "\nDeadlock: a thread waits for a lock that it holds.\n".to_string(),
            count => format!(
                "\nDeadlock of {count} threads: each waits for a lock that the next one holds.\n"
            ),
        };
        for (index, wait) in waits.iter().enumerate() {
            // The previous wait of the cycle is for a lock that this thread holds.
            let before = waits[(index + waits.len() - 1) % waits.len()];
            let holder = self.holder(before.lock, wait.thread);
            let held = holder.map_or(String::new(), |holder| self.taken(holder));
            let (thread, own) = (self.thread(wait.thread), self.name(before.lock));
            let _ = writeln!(text, "  {thread} holds {own}{held}");
            let _ =
                writeln!(text, "    and waits for {}{}", self.name(wait.lock), self.place(wait));
        }
        if waits.len() > 1 {
            text += "Remedy: acquire these locks in the same order everywhere.\n";
        }
        text
    }

    fn holder(&self, lock: u64, thread: u32) -> Option<&Holder> {
        match &self.graph.locks.get(&lock)?.holders {
            Holders::Known(holders) => holders.iter().find(|holder| holder.thread == thread),
            _ => None,
        }
    }

    /// One lock with its holders and waiters.
    fn lock(&self, lock: &Lock) -> String {
        let Lock { address, kind, is_libcs, .. } = lock;
        let whose = if *is_libcs && !self.tables.is_libcs { " of libc's" } else { "" };
        let name = self.name(*address);
        // A name may end in the address.
        let at = format!("{address:#x}");
        let place = if name.ends_with(&at) { String::new() } else { format!(" at {at}") };
        let mut text = format!("\n{name} ({}{whose}{place})\n", kind.name());
        match &lock.holders {
            Holders::Known(holders) => {
                for holder in holders {
                    let _ = writeln!(text, "  held by {}", self.holding(holder, *address));
                }
            }
            Holders::Free => text += "  no holder now\n",
            Holders::Unknown(why) => {
                let _ = writeln!(text, "  {}", self.unknown(*why));
            }
        }
        for (index, (_, wait)) in self.graph.waits_for(*address).enumerate() {
            let _ = writeln!(text, "  {}. {}", index + 1, self.waiter(wait, *kind));
        }
        if self.graph.waits_for(*address).next().is_some() {
            text += &self.verdict(lock);
        }
        text
    }

    fn unknown(&self, why: Unknown) -> String {
        match why {
            Unknown::Readers(readers) if self.tables.keeps_held => {
                format!("held by {}: not recorded which", counted(readers as u64, "reader"))
            }
            Unknown::Readers(readers) => format!(
                "held by {}: which threads, only `run --watchdog` records",
                counted(readers as u64, "reader")
            ),
            Unknown::Published => {
                "free, or held by readers: which threads, only `run --watchdog` records".into()
            }
            Unknown::Writer => {
                "held by a writer that has just acquired it, or is releasing it".into()
            }
            Unknown::Spin => {
                "holder unknown: a spin lock has no room for it; `run --watchdog` records it".into()
            }
            Unknown::Unreadable => "holder unknown: the lock's memory cannot be read".into(),
        }
    }

    /// The wait of a lock's holder. A holder that waits for the same lock acquired it between the
    /// readings of the wait and of the lock, unless that is a deadlock.
    fn wait_of_holder(&self, thread: u32, lock: u64) -> Option<usize> {
        let wait = self.graph.wait_of(thread);
        wait.filter(|&wait| self.graph.waits[wait].lock != lock || self.is_in_cycle(wait))
    }

    fn is_in_cycle(&self, wait: usize) -> bool {
        self.cycles.iter().flatten().any(|&index| index == wait)
    }

    /// The holder of a lock, and what it does.
    fn holding(&self, holder: &Holder, lock: u64) -> String {
        let mut text = format!("{}{}", self.thread(holder.thread), self.taken(holder));
        if self.has_ended(holder.thread) {
            text += ", which has ended";
        } else if let Some(wait) = self.wait_of_holder(holder.thread, lock) {
            let _ = write!(text, ", which waits for {}", self.name(self.graph.waits[wait].lock));
        }
        text
    }

    fn waiter(&self, wait: &Wait, kind: Kind) -> String {
        let mut text = self.thread(wait.thread);
        if kind == Kind::RwLock && (wait.is_shared || wait.begin.is_some()) {
            text += if wait.is_shared { " to read" } else { " to write" };
        }
        if let Some(begin) = wait.begin {
            match self.now {
                Some(now) => {
                    let ns = now.saturating_sub(begin);
                    let _ = write!(text, " for {}", quantity::seconds(ns as f64 * 1e-9));
                }
                None => {
                    // A dump has no present time.
                    let first = self.graph.waits.iter().filter_map(|it| it.begin).min();
                    let ns = begin - first.unwrap_or(begin);
                    let after = quantity::seconds(ns as f64 * 1e-9);
                    let _ = write!(text, ", {after} after the first wait");
                }
            }
        }
        text += match wait.manner {
            Manner::Parked => ", asleep until a release",
            Manner::SleepsForLoad => ", asleep for load",
            Manner::Polls => ", polling",
        };
        match self.place(wait) {
            unknown if unknown.is_empty() => text,
            place => text + "," + &place,
        }
    }

    /// Whether the waits are part of a deadlock, wait for one, or are only long.
    fn verdict(&self, lock: &Lock) -> String {
        let mut in_cycles = self.cycles.iter().flatten();
        let is_in_cycle = in_cycles.any(|&index| self.graph.waits[index].lock == lock.address);
        if is_in_cycle {
            return "  part of the deadlock\n".into();
        }
        let text = match (self.progress)(lock.address) {
            Progress::Acquisitions(count) => {
                let mut waits = self.graph.waits_for(lock.address);
                let have_waited = waits.all(|(_, wait)| (self.lasts)(wait));
                format!(
                    "no deadlock: acquired {} in {:.1} s{}",
                    counted(count as u64, "time"),
                    self.between_s,
                    if have_waited { " while these threads waited" } else { "" }
                )
            }
            Progress::HolderChanged => "no deadlock: the holder changes".to_string(),
            Progress::None | Progress::Unknown => self.stuck_behind(lock),
        };
        format!("  {text}\n")
    }

    /// Why a lock does not move on.
    fn stuck_behind(&self, lock: &Lock) -> String {
        let Holders::Known(holders) = &lock.holders else {
            return "no deadlock found: the holder is unknown".into();
        };
        let (mut thread, mut held) = (holders[0].thread, lock.address);
        // Follow the holders; a chain is no longer than the number of waits.
        for _ in 0..self.graph.waits.len() {
            let Some(wait) = self.wait_of_holder(thread, held) else { break };
            if self.is_in_cycle(wait) {
                return format!("blocked by the deadlock through {}", self.thread(thread));
            }
            let next = self.graph.waits[wait].lock;
            let holders = self.graph.locks.get(&next).map(|lock| &lock.holders);
            let Some(Holders::Known(holders)) = holders else { break };
            (thread, held) = (holders[0].thread, next);
        }
        match self.wait_of_holder(thread, held) {
            None if self.has_ended(thread) => {
                format!("no deadlock: {} ended and did not release it", self.thread(thread))
            }
            None => format!("no deadlock: {} holds it and waits for no lock", self.thread(thread)),
            Some(_) => format!("no deadlock found: {} waits in turn", self.thread(thread)),
        }
    }

    fn control(&self) -> String {
        if self.tables.is_libcs || self.tables.load != "control" {
            return String::new();
        }
        let control = &self.tables.control;
        let mut text = format!(
            "\nLoad control: {} asleep for load, target {}; ",
            counted(control.sleepers.len() as u64, "thread"),
            control.target
        );
        match (control.controller, control.reading) {
            (None, _) => text += "no controller runs\n",
            (Some(_), None) => text += "the controller has not read the load yet\n",
            (Some(_), Some((runnable, capacity))) => {
                let _ = writeln!(text, "controller: load {runnable:.1}, {capacity:.1} processors");
            }
        }
        for (thread, key) in &control.sleepers {
            let lock = self.graph.waits.iter().find(|wait| wait.thread == *thread);
            let lock = match lock {
                Some(wait) => self.name(wait.lock).to_string(),
                None => format!("the lock with key {key:#x}"),
            };
            let _ = writeln!(text, "  {} waits for {lock}", self.thread(*thread));
        }
        text
    }

    fn stacks(&self) -> String {
        let mut text = String::new();
        let mut groups: Vec<(u64, &[u64], Vec<u32>)> = Vec::new();
        let (ended, others): (Vec<&Wait>, Vec<_>) =
            self.graph.waits.iter().partition(|wait| wait.has_ended);
        for Wait { lock, stack, thread, .. } in others {
            match groups.iter_mut().find(|group| (group.0, group.1) == (*lock, stack)) {
                Some((.., threads)) => threads.push(*thread),
                None => groups.push((*lock, stack, vec![*thread])),
            }
        }
        for (lock, stack, threads) in groups {
            let (first, lock) = (self.thread(threads[0]), self.name(lock));
            let _ = match threads.len() {
                1 => writeln!(text, "\n{first} waits for {lock}"),
                count => {
                    let others = counted(count as u64 - 1, "other");
                    writeln!(text, "\n{first} and {others} wait for {lock}")
                }
            };
            text += &self.stack(stack);
        }
        for wait in ended {
            let (thread, lock) = (self.thread(wait.thread), self.name(wait.lock));
            let _ = writeln!(text, "\n{thread} waited for {lock}");
            text += "  no stack: the wait ended while it was read\n";
        }
        let other_holders = self.graph.other_holders();
        for thread in other_holders.into_iter().filter(|&thread| !self.has_ended(thread)) {
            let _ = writeln!(text, "\n{} holds a lock and waits for none", self.thread(thread));
            match self.graph.holders.get(&thread) {
                Some(stack) => text += &self.stack(stack),
                None => text += "  it runs now\n",
            }
        }
        text
    }

    fn stack(&self, stack: &[u64]) -> String {
        if stack.is_empty() {
            return "  no stack: the thread's registers are unknown\n".into();
        }
        let functions = self.names.functions(stack);
        functions.iter().rev().map(|function| format!("  {function}\n")).collect()
    }

    /// Whether a thread, such as the holder of a lock, is no longer there.
    fn has_ended(&self, id: u32) -> bool {
        !self.threads.iter().any(|thread| thread.id == id)
    }

    /// A thread's id and name.
    fn thread(&self, id: u32) -> String {
        let found = self.threads.iter().find(|thread| thread.id == id);
        match found.map(|thread| thread.name.as_str()).filter(|name| !name.is_empty()) {
            Some(name) => format!("thread {id} ({name})"),
            None => format!("thread {id}"),
        }
    }

    /// Where a thread waits.
    fn place(&self, wait: &Wait) -> String {
        self.names.place(&wait.stack).map_or(String::new(), |place| format!(" in {place}"))
    }

    /// Where a thread took a lock.
    fn taken(&self, holder: &Holder) -> String {
        let place = (holder.place != 0).then(|| self.names.place(&[holder.place])).flatten();
        place.map_or(String::new(), |place| format!(", acquired in {place}"))
    }

    /// The name of a lock.
    fn name(&self, address: u64) -> &str {
        self.labels.get(&address).map_or("an unknown lock", String::as_str)
    }
}

/// Names the locks, as in a profile. Locks with the same name also have their addresses.
pub fn labels(graph: &Graph, names: &Names) -> BTreeMap<u64, String> {
    let plain: BTreeMap<u64, String> =
        graph.locks.iter().map(|(&address, lock)| (address, name(graph, names, lock))).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    plain.values().for_each(|name| *counts.entry(name).or_default() += 1);
    let label = |(&address, name): (&u64, &String)| {
        let is_shared = counts[name.as_str()] > 1;
        (address, if is_shared { format!("{name} {address:#x}") } else { name.clone() })
    };
    plain.iter().map(label).collect()
}

fn name(graph: &Graph, names: &Names, lock: &Lock) -> String {
    let kind = match lock.kind {
        Kind::Mutex => LockType::Mutex,
        Kind::RwLock => LockType::RwLock,
        _ => LockType::Spin,
    };
    let waits = graph.waits_for(lock.address);
    let uses: Vec<_> = waits.map(|(_, wait)| (wait.stack.as_slice(), "waited for in")).collect();
    let label = format!("{} {:#x}", lock.kind.name(), lock.address);
    let name = names.lock(Some(lock.address), Some(kind), &label, &uses);
    name.unwrap_or(label)
}

/// Stands for the number of waiting threads.
const CUT_OFF: &str =
    "Which threads wait is not known: the core lacks the library's table of waits.";
