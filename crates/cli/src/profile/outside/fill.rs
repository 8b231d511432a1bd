//! Fills a profile with a recording: recognises what the threads waited for, and adds the counts.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use unconvoy_profile::layout::{MAGIC, VERSION};
use unconvoy_profile::{Kind, Profile, Source, layout};

use super::collector::Collected;
use super::event::Lock;
use super::record::Recorder;
use super::target::Target;
use super::unwind::is_libc;
use crate::images::{Images, Mapping};
use crate::kinds;
use crate::profile::remarks::OWN;

/// The futex operation with which glibc waits for mutexes, and for nothing else.
pub const PLAIN_WAIT: u32 = 0;

/// When a recording took place.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub begin_ns: u64,
    pub begin_unix_ns: u64,
    pub end_ns: u64,
    /// Whether the process has ended.
    pub has_ended: bool,
}

/// What the threads that wait at a futex wait for.
#[derive(Debug, Clone, Copy)]
struct Object {
    kind: Kind,
    address: u64,
}

/// Returns the profile of a recording.
pub fn fill(
    target: &Target,
    recorder: &Recorder,
    collected: &Collected,
    span: Span,
) -> Box<Profile> {
    let profile = layout::zeroed();
    fill_header(&profile, target, recorder, span);
    let header = &profile.header;
    header.lost_waits.store(collected.totals.lost_waits as u32, Relaxed);
    header.lost_samples.store(collected.totals.lost_events as u32, Relaxed);
    let objects = Objects::recognise(target, recorder);
    // A pthread object's stacks begin with the caller of libc, as the interposer records them.
    let stack_of = |kind: Kind, number: u32| {
        let frames = recorder.stacks.frames(number);
        let is_other = matches!(kind, Kind::Futex | Kind::Event);
        profile.stack(if is_other { frames } else { recorder.unwinder.without_libc(frames) }, 0)
    };
    // The first locks get histograms.
    let mut locks: Vec<&(u64, Lock)> = collected.locks.iter().collect();
    locks.sort_by_key(|(_, counts)| Reverse(counts.wait_ns));
    for (address, counts) in locks {
        if counts.waits > 0 {
            for (object, shares) in objects.parts(*address) {
                add_counts(&profile, object, counts, shares);
            }
        }
    }
    for (wait, stack) in &recorder.unfinished {
        let Object { kind, address } = objects.at(wait.address, *stack);
        if let Some((_, lock)) = profile.lock(kind, address as usize) {
            profile.record_wait(lock, wait.end - wait.begin, wait.end, false);
        }
    }
    for (&address, &(_, stack)) in &recorder.firsts {
        let Object { kind, address } = objects.at(address, stack);
        if let Some((_, lock)) = profile.find_lock(kind, address as usize) {
            lock.first_stack.store(stack_of(kind, stack), Relaxed);
        }
    }
    for (&(address, waiter, holder), sum) in &recorder.sums {
        let Object { kind, address } = objects.at(address, waiter);
        let Some((index, lock)) = profile.find_lock(kind, address as usize) else { continue };
        if lock.first_stack.load(Relaxed) == 0 {
            lock.first_stack.store(stack_of(kind, waiter), Relaxed);
        }
        let holder =
            profile.stack(recorder.unwinder.without_libc(recorder.stacks.frames(holder)), 0);
        let stacks = (stack_of(kind, waiter), holder);
        profile.add_samples(index, stacks, (sum.ns, sum.count), sum.samples);
    }
    for (wait, stack) in &recorder.longest {
        let Object { kind, address } = objects.at(wait.address, *stack);
        let Some((index, _)) = profile.find_lock(kind, address as usize) else { continue };
        let (ns, stack) = (wait.end - wait.begin, stack_of(kind, *stack));
        profile.record_long_wait(ns, wait.end, index, stack, wait.thread);
    }
    // The times of the records above are those of single waits.
    header.last_ns.store(span.end_ns, Relaxed);
    profile
}

fn fill_header(profile: &Profile, target: &Target, recorder: &Recorder, span: Span) {
    let header = &profile.header;
    header.version.store(VERSION, Relaxed);
    header.pid.store(target.pid, Relaxed);
    header.size.store(size_of::<Profile>() as u64, Relaxed);
    header.period_ns.store(recorder.period_ns, Relaxed);
    header.begin_ns.store(span.begin_ns, Relaxed);
    header.begin_unix_ns.store(span.begin_unix_ns, Relaxed);
    header.ended.store(u32::from(span.has_ended), Relaxed);
    header.unwinds.store(1, Relaxed);
    header.source.store(Source::Outside as u64, Relaxed);
    put(&header.lock, OWN.as_bytes());
    put(&header.program, target.program.as_os_str().as_bytes());
    let mut lines = Vec::new();
    let mut seen = HashSet::new();
    for mapping in &recorder.unwinder.mappings {
        let line = mapping.line(&target.public(&mapping.path));
        if lines.len() + line.len() <= profile.modules.len() && seen.insert(line.clone()) {
            lines.extend_from_slice(&line);
        }
    }
    put(&profile.modules, &lines);
    header.modules_used.store(lines.len() as u32, Relaxed);
    header.magic.store(MAGIC, Relaxed);
}

fn put(to: &[AtomicU8], from: &[u8]) {
    to.iter().zip(from).for_each(|(to, &byte)| to.store(byte, Relaxed));
}

/// What the threads wait for at each futex.
struct Objects {
    known: HashMap<u64, Object>,
    /// Objects at futexes that belong to threads, by the futex.
    sampled: HashMap<u64, Vec<Sampled>>,
}

/// The stack of a wait, its object, and the time and the number of waits that its samples stand
/// for.
type Sampled = (u32, Object, (f64, f64));

/// Bit of the addresses that stand for locks whose own address is unknown. No process has it.
const BY_PLACE: u64 = 1 << 62;

impl Objects {
    /// Decides by the stack of a wait. Locks whose waiters wait at futexes of their own threads are
    /// told apart by the place that waits.
    fn recognise(target: &Target, recorder: &Recorder) -> Self {
        let mapping = |one: &super::target::Mapping| Mapping {
            base: one.start,
            end: one.end,
            offset: one.offset,
            path: target.readable(&one.path),
        };
        let mappings: Vec<_> = recorder.unwinder.mappings.iter().map(mapping).collect();
        let place = |index: usize| target.lasting(&recorder.unwinder.mappings[index]);
        let images = Images::located(&mappings, place);
        let cond_offset = cond_offset(target);
        let names = |pc: u64| images.calls(pc).into_iter().map(|(name, _)| name);
        let is_in_library = |pc: u64| {
            let of_pc = |one: &&Mapping| (one.base..one.end).contains(&pc);
            let file = mappings.iter().find(of_pc).and_then(|one| one.path.file_name());
            file.is_some_and(|name| name.as_encoded_bytes().starts_with(b"lib"))
        };
        let mut found: HashMap<u32, (kinds::Object, u64)> = HashMap::new();
        let mut recognised = |stack: u32| {
            let object = found.entry(stack).or_insert_with(|| {
                let frames = recorder.stacks.frames(stack);
                let all: Vec<String> = frames.iter().flat_map(|&pc| names(pc)).collect();
                let is_own = |&&pc: &&u64| {
                    !is_in_library(pc) && names(pc).any(|name| !kinds::is_runtime(&name))
                };
                (kinds::object(&all), frames.iter().find(is_own).copied().unwrap_or(0))
            });
            object.clone()
        };
        let mut objects = Objects { known: HashMap::new(), sampled: HashMap::new() };
        for (&address, &(command, stack)) in &recorder.firsts {
            let (object, place) = recognised(stack);
            let known = if kinds::is_of_thread(&object) {
                let first = Object { kind: object.kind, address: BY_PLACE | place };
                objects.sampled.insert(address, vec![(stack, first, (0.0, 0.0))]);
                first
            } else {
                object_of(&object, address, command, cond_offset)
            };
            objects.known.insert(address, known);
        }
        // The counts at a futex are of waits that have ended, so the others have no share.
        let mut unfinished: HashMap<(u64, u32), (u64, u64)> = HashMap::new();
        for (wait, stack) in &recorder.unfinished {
            let (ns, count) = unfinished.entry((wait.address, *stack)).or_default();
            *ns += wait.end - wait.begin;
            *count += 1;
        }
        for (&(address, stack, _), sum) in &recorder.sums {
            let Some(sampled) = objects.sampled.get_mut(&address) else { continue };
            let (object, place) = recognised(stack);
            let object = Object { kind: object.kind, address: BY_PLACE | place };
            let (ns, count) = unfinished.remove(&(address, stack)).unwrap_or_default();
            let ended = (sum.ns.saturating_sub(ns), sum.count.saturating_sub(count));
            sampled.push((stack, object, (ended.0 as f64, ended.1 as f64)));
        }
        objects
    }

    /// The object of a wait at a futex with this stack.
    fn at(&self, address: u64, stack: u32) -> Object {
        let sampled = self.sampled.get(&address).into_iter().flatten();
        let by_stack = sampled.clone().find(|(other, ..)| *other == stack);
        let unknown = Object { kind: Kind::Futex, address };
        let known = || self.known.get(&address).copied().unwrap_or(unknown);
        by_stack.map_or_else(known, |(_, object, _)| *object)
    }

    /// The objects at a futex, with their shares of its time waited and of its waits.
    fn parts(&self, address: u64) -> Vec<(Object, (f64, f64))> {
        let sampled = self.sampled.get(&address).map_or(&[][..], Vec::as_slice);
        let sum = |of: fn(&(f64, f64)) -> f64| sampled.iter().map(|one| of(&one.2)).sum::<f64>();
        let (ns, count) = (sum(|one| one.0), sum(|one| one.1));
        if ns <= 0.0 || count <= 0.0 {
            return vec![(self.at(address, 0), (1.0, 1.0))];
        }
        let weighted = sampled.iter().filter(|one| one.2.0 > 0.0);
        weighted.map(|one| (one.1, (one.2.0 / ns, one.2.1 / count))).collect()
    }
}

/// The object that has its futex at an address.
fn object_of(found: &kinds::Object, address: u64, command: u32, cond_offset: u64) -> Object {
    let kind = found.kind;
    let object = |distance: u64| Object { kind, address: address.wrapping_sub(distance) };
    match kind {
        // The mutex of a wait for a signal, which the thread takes again.
        Kind::Cond if command == PLAIN_WAIT => Object { kind: Kind::Mutex, address },
        // The two groups of waiters have a futex each.
        Kind::Cond => object((address & 7) + cond_offset),
        // The futexes of a phase and of writers are at 8 and 12.
        Kind::RwLock => object((address & 7) + 8),
        // A barrier's futex counts its rounds, after the number of threads that came.
        Kind::Event if found.label == kinds::BARRIER => object(4),
        _ => object(0),
    }
}

/// Adds these shares of the time and the number of the waits and holds at a futex.
fn add_counts(profile: &Profile, object: Object, counts: &Lock, shares: (f64, f64)) {
    let time = |ns: u64| (ns as f64 * shares.0).round() as u64;
    let number = |count: u64| (count as f64 * shares.1).round() as u64;
    let Some((_, lock)) = profile.lock(object.kind, object.address as usize) else {
        profile.header.lost_waits.fetch_add(counts.waits as u32, Relaxed);
        return;
    };
    lock.waits.fetch_add(number(counts.waits), Relaxed);
    lock.wait_ns.fetch_add(time(counts.wait_ns), Relaxed);
    lock.slept.fetch_add(number(counts.waits) as u32, Relaxed);
    lock.timed_out.fetch_add(number(counts.timed_out) as u32, Relaxed);
    if lock.longest_ns.fetch_max(counts.longest_ns, Relaxed) < counts.longest_ns {
        lock.longest_at.store(counts.longest_at, Relaxed);
    }
    let has_holder = matches!(object.kind, Kind::Mutex | Kind::Futex);
    if has_holder {
        lock.holds.fetch_add(number(counts.holds), Relaxed);
        lock.hold_ns.fetch_add(time(counts.hold_ns), Relaxed);
        lock.longest_hold_ns.fetch_max(counts.longest_hold_ns, Relaxed);
    }
    let Some(histograms) = profile.histograms_of(lock) else { return };
    for (to, count) in histograms.waits.iter().zip(counts.wait_counts) {
        to.fetch_add(number(count.into()) as u32, Relaxed);
    }
    for (to, count) in histograms.holds.iter().zip(counts.hold_counts) {
        to.fetch_add(if has_holder { number(count.into()) as u32 } else { 0 }, Relaxed);
    }
}

/// Distance of a condition variable's first futex from its start. glibc 2.41 moved it.
fn cond_offset(target: &Target) -> u64 {
    const OLD: u64 = 40;
    const NEW: u64 = 32;
    const MOST: u64 = 64 << 20;
    let mappings = target.mappings();
    let is_libpthread = |path: &Path| path.to_string_lossy().contains("libpthread");
    let libc = mappings.iter().find(|one| is_libc(&one.path) && !is_libpthread(&one.path));
    let Some(file) = libc.and_then(|one| target.open_mapped(one)) else { return OLD };
    let mut bytes = Vec::new();
    // Bounded, because the file belongs to a process that may not be trusted.
    let _ = file.take(MOST).read_to_end(&mut bytes);
    if glibc_minor(&bytes).is_some_and(|minor| minor >= 41) { NEW } else { OLD }
}

/// The second part of the version in glibc's banner.
fn glibc_minor(libc: &[u8]) -> Option<u32> {
    const BEFORE: &[u8] = b"release version 2.";
    let at = libc.windows(BEFORE.len()).position(|window| window == BEFORE)? + BEFORE.len();
    let digits = libc[at..].iter().take_while(|byte| byte.is_ascii_digit()).copied();
    String::from_utf8(digits.collect()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn futexes_of_one_object_have_its_address() {
        let of = |kind, label: &str, address, command| {
            let found = kinds::Object { kind, label: label.to_string() };
            let object = object_of(&found, address, command, 40);
            (object.kind, object.address)
        };
        assert_eq!(of(Kind::Cond, "cond", 0x1028, 9), (Kind::Cond, 0x1000));
        assert_eq!(of(Kind::Cond, "cond", 0x102c, 9), (Kind::Cond, 0x1000));
        assert_eq!(of(Kind::Cond, "cond", 0x1100, PLAIN_WAIT), (Kind::Mutex, 0x1100));
        assert_eq!(of(Kind::RwLock, "rwlock", 0x1008, 9), (Kind::RwLock, 0x1000));
        assert_eq!(of(Kind::RwLock, "rwlock", 0x100c, 9), (Kind::RwLock, 0x1000));
        assert_eq!(of(Kind::Event, kinds::BARRIER, 0x1004, 0), (Kind::Event, 0x1000));
        assert_eq!(of(Kind::Event, "semaphore", 0x1004, 0), (Kind::Event, 0x1004));
    }

    #[test]
    fn version_of_glibc_is_read_from_its_banner() {
        let banner = b"\0GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\nCopy";
        assert_eq!((glibc_minor(banner), glibc_minor(b"musl libc")), (Some(36), None));
    }
}
