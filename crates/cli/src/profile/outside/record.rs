//! Fills a profile with what the BPF programs recorded.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use unconvoy_profile::layout::{MAGIC, VERSION};
use unconvoy_profile::{Kind, Profile, Source, read, weight};

use super::event::{Event, Header, Lock, Totals, WAIT, WAKE};
use super::target::Target;
use super::unwind::{Registers, Unwinder};
use crate::images::Images;
use crate::profile::kinds;
use crate::profile::remarks::OWN;

/// Number of wake-ups kept for each address. A wait that began before all of them has no holder.
const WAKES: usize = 1024;

/// The futex operation with which glibc waits for mutexes, and for nothing else.
pub const PLAIN_WAIT: u32 = 0;

/// A profile that is being filled.
pub struct Recorder {
    profile: Box<Profile>,
    pub unwinder: Unwinder,
    /// Names of functions, to recognise what a thread waits for.
    images: Images,
    names: HashMap<u64, Vec<String>>,
    /// Objects, by the addresses of their futexes.
    objects: HashMap<u64, Object>,
    wakes: HashMap<u64, VecDeque<Wake>>,
    /// Distance of a condition variable's first futex from its start.
    cond_offset: u64,
    period_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Object {
    kind: Kind,
    address: u64,
}

/// A thread woke waiters.
#[derive(Debug, Clone, Copy)]
struct Wake {
    at: u64,
    thread: u32,
    stack: u32,
}

/// A wait that has ended, or lasted until the end of the recording.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub address: u64,
    pub thread: u32,
    pub begin: u64,
    pub due: u64,
    pub end: u64,
    pub command: u32,
    pub is_first: bool,
}

impl Recorder {
    /// Prepares an empty profile.
    pub fn new(target: &Target, period_ns: u64, begin_ns: u64, begin_unix_ns: u64) -> Self {
        let profile = read::zeroed();
        let header = &profile.header;
        header.version.store(VERSION, Relaxed);
        header.pid.store(target.pid, Relaxed);
        header.size.store(size_of::<Profile>() as u64, Relaxed);
        header.period_ns.store(period_ns, Relaxed);
        header.begin_ns.store(begin_ns, Relaxed);
        header.begin_unix_ns.store(begin_unix_ns, Relaxed);
        header.unwinds.store(1, Relaxed);
        header.source.store(Source::Outside as u64, Relaxed);
        put(&header.lock, OWN.as_bytes());
        put(&header.program, target.program.to_string_lossy().as_bytes());
        header.magic.store(MAGIC, Relaxed);
        let mut recorder = Recorder {
            profile,
            unwinder: Unwinder::new(target),
            images: Images::default(),
            names: HashMap::new(),
            objects: HashMap::new(),
            wakes: HashMap::new(),
            cond_offset: cond_offset(target),
            period_ns,
        };
        recorder.read_images(target);
        recorder
    }

    fn read_images(&mut self, target: &Target) {
        let of = |one: &super::target::Mapping| crate::images::Mapping {
            base: one.start,
            end: one.end,
            offset: one.offset,
            path: target.readable(&one.path),
        };
        let mappings: Vec<_> = self.unwinder.mappings.iter().map(of).collect();
        self.images = Images::new(&mappings);
        self.names.clear();
    }

    /// Records an event.
    pub fn record(&mut self, target: &Target, event: Event<'_>) {
        let header = event.header;
        let registers = Registers { ip: header.ip, sp: header.sp, bp: header.bp };
        let frames = self.frames(target, registers, event.stack);
        match header.kind {
            WAIT => self.record_ended(header, &frames),
            WAKE => {
                let stack = self.profile.stack(self.without_libc(&frames));
                let wakes = self.wakes.entry(header.address).or_default();
                wakes.truncate(WAKES - 1);
                wakes.push_front(Wake { at: header.end, thread: header.thread, stack });
            }
            _ => {}
        }
    }

    fn record_ended(&mut self, header: Header, frames: &[u64]) {
        let wait = Ended {
            address: header.address,
            thread: header.thread,
            begin: header.begin,
            due: header.due,
            end: header.end,
            command: header.command,
            is_first: header.is_first != 0,
        };
        let holder = self.first_wake(&wait);
        self.record_wait(&wait, frames, holder);
    }

    /// Unwinds a stack.
    pub fn frames(&mut self, target: &Target, registers: Registers, stack: &[u8]) -> Vec<u64> {
        let before = self.unwinder.mappings.len();
        let frames = self.unwinder.unwind(target, registers, stack);
        if self.unwinder.mappings.len() != before {
            self.read_images(target);
        }
        frames
    }

    /// The first thread that woke waiters after the sample.
    fn first_wake(&self, wait: &Ended) -> u32 {
        let wakes = self.wakes.get(&wait.address).into_iter().flatten();
        let later = wakes.take_while(|wake| wake.at >= wait.due);
        let by_others = later.filter(|wake| wake.at <= wait.end && wake.thread != wait.thread);
        by_others.last().map_or(0, |wake| wake.stack)
    }

    /// Records a sampled wait, or the first at its address.
    pub fn record_wait(&mut self, wait: &Ended, frames: &[u64], holder: u32) {
        let object = match self.objects.get(&wait.address) {
            Some(object) if !wait.is_first => *object,
            _ => {
                let object = self.recognise(wait, frames);
                self.objects.insert(wait.address, object);
                object
            }
        };
        let stack = match object.kind {
            Kind::Futex | Kind::Event => self.profile.stack(frames),
            _ => self.profile.stack(self.without_libc(frames)),
        };
        let Some((index, lock)) = self.profile.lock(object.kind, object.address as usize) else {
            return;
        };
        if lock.first_stack.load(Relaxed) == 0 {
            lock.first_stack.store(stack, Relaxed);
        }
        if wait.end < wait.due {
            return;
        }
        let ns = wait.end - wait.begin;
        let (ns_for, count) = weight(ns, self.period_ns);
        self.profile.add_sample(index, (stack, holder), ns_for, count);
        self.profile.record_long_wait(ns, wait.end, index, stack, wait.thread);
    }

    fn recognise(&mut self, wait: &Ended, frames: &[u64]) -> Object {
        let names: Vec<String> = frames.iter().flat_map(|&pc| self.functions(pc)).collect();
        let kinds::Object { kind, label } = kinds::object(&names);
        let address = wait.address;
        match kind {
            // The mutex of a wait for a signal, which the thread takes again.
            Kind::Cond if wait.command == PLAIN_WAIT => Object { kind: Kind::Mutex, address },
            // The two groups of waiters have a futex each.
            Kind::Cond => Object { kind, address: (address & !7) - self.cond_offset },
            // The futexes of a phase and of writers are at 8 and 12.
            Kind::RwLock => Object { kind, address: (address & !7) - 8 },
            // A barrier's futex counts its rounds, after the number of threads that came.
            Kind::Event if label == kinds::BARRIER => Object { kind, address: address - 4 },
            _ => Object { kind, address },
        }
    }

    fn functions(&mut self, pc: u64) -> Vec<String> {
        let names = self
            .names
            .entry(pc)
            .or_insert_with(|| self.images.calls(pc).into_iter().map(|(name, _)| name).collect());
        names.clone()
    }

    /// The frames from the caller of libc on, as the interposer records them.
    fn without_libc<'a>(&self, frames: &'a [u64]) -> &'a [u64] {
        let is_in_libc = |pc: &u64| {
            let mappings = self.unwinder.mappings.iter().rev();
            let mut found = mappings.filter(|one| (one.start..one.end).contains(pc));
            found.next().is_some_and(|one| {
                let name = one.path.rsplit('/').next().unwrap_or_default();
                ["libc.so", "libc-2.", "libpthread"].iter().any(|start| name.starts_with(start))
            })
        };
        let first = frames.iter().position(|pc| !is_in_libc(pc)).unwrap_or(0);
        &frames[first..]
    }

    /// The number of a holder's stack, for a lock that is still held.
    pub fn holder_stack(&self, frames: &[u64]) -> u32 {
        self.profile.stack(self.without_libc(frames))
    }

    /// Counts a wait that lasted until the end of the recording.
    pub fn count_unfinished(&mut self, wait: &Ended) {
        let object = self.object_at(wait.address);
        if let Some((_, lock)) = self.profile.lock(object.kind, object.address as usize) {
            self.profile.record_wait(lock, wait.end - wait.begin, wait.end, false);
        }
    }

    fn object_at(&self, address: u64) -> Object {
        let unknown = Object { kind: Kind::Futex, address };
        self.objects.get(&address).copied().unwrap_or(unknown)
    }

    /// Adds the counts of the waits and holds at an address.
    pub fn add_counts(&self, address: u64, counts: &Lock) {
        let object = self.object_at(address);
        let header = &self.profile.header;
        let Some((_, lock)) = self.profile.lock(object.kind, object.address as usize) else {
            header.lost_waits.fetch_add(counts.waits as u32, Relaxed);
            return;
        };
        lock.waits.fetch_add(counts.waits, Relaxed);
        lock.wait_ns.fetch_add(counts.wait_ns, Relaxed);
        lock.slept.fetch_add(counts.waits as u32, Relaxed);
        lock.timed_out.fetch_add(counts.timed_out as u32, Relaxed);
        if lock.longest_ns.fetch_max(counts.longest_ns, Relaxed) < counts.longest_ns {
            lock.longest_at.store(counts.longest_at, Relaxed);
        }
        let has_holder = matches!(object.kind, Kind::Mutex | Kind::Futex);
        if has_holder {
            lock.holds.fetch_add(counts.holds, Relaxed);
            lock.hold_ns.fetch_add(counts.hold_ns, Relaxed);
            lock.longest_hold_ns.fetch_max(counts.longest_hold_ns, Relaxed);
        }
        let Some(histograms) = self.profile.histograms_of(lock) else { return };
        for (to, count) in histograms.waits.iter().zip(counts.wait_counts) {
            to.fetch_add(count, Relaxed);
        }
        for (to, count) in histograms.holds.iter().zip(counts.hold_counts) {
            to.fetch_add(if has_holder { count } else { 0 }, Relaxed);
        }
    }

    /// Completes the profile. `path` maps the files' paths.
    pub fn finish(
        self,
        target: &Target,
        end_ns: u64,
        has_ended: bool,
        totals: Totals,
    ) -> Box<Profile> {
        let header = &self.profile.header;
        header.last_ns.store(end_ns, Relaxed);
        header.ended.store(u32::from(has_ended), Relaxed);
        header.lost_waits.fetch_add(totals.lost_waits as u32, Relaxed);
        header.lost_samples.fetch_add(totals.lost_events as u32, Relaxed);
        let mut lines = String::new();
        let mut seen = HashSet::new();
        for mapping in &self.unwinder.mappings {
            let line = mapping.line(&target.public(&mapping.path));
            if lines.len() + line.len() <= self.profile.modules.len() && seen.insert(line.clone()) {
                lines += &line;
            }
        }
        put(&self.profile.modules, lines.as_bytes());
        header.modules_used.store(lines.len() as u32, Relaxed);
        self.profile
    }
}

fn put(to: &[AtomicU8], from: &[u8]) {
    to.iter().zip(from).for_each(|(to, &byte)| to.store(byte, Relaxed));
}

/// Distance of a condition variable's first futex from its start. glibc 2.41 moved it.
fn cond_offset(target: &Target) -> u64 {
    const OLD: u64 = 40;
    const NEW: u64 = 32;
    let is_libc = |name: &str| name.starts_with("libc.so") || name.starts_with("libc-2.");
    let mappings = target.mappings();
    let libc = mappings.iter().find(|one| is_libc(one.path.rsplit('/').next().unwrap_or_default()));
    let Some(mut file) = libc.and_then(|one| target.open_mapped(one)) else { return OLD };
    let mut bytes = Vec::new();
    let _ = std::io::Read::read_to_end(&mut file, &mut bytes);
    const BEFORE: &[u8] = b"release version 2.";
    let found = bytes.windows(BEFORE.len()).position(|window| window == BEFORE);
    let minor = found.map(|at| {
        let digits = bytes[at + BEFORE.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |number, digit| 10 * number + u32::from(digit - b'0'))
    });
    if minor.is_some_and(|minor| minor >= 41) { NEW } else { OLD }
}
