//! Reads what the library keeps in the subject's memory ([`unconvoy_profile::live`]).

use std::mem::{MaybeUninit, offset_of};
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context as _, bail};
use unconvoy_profile::live::{
    Descriptor, HELD, HOLDERS, Held, HeldLock, MAGIC, NAME, SHARED, VERSION, WAITS, Wait,
};

use super::subject::Subject;
use crate::messages::inspect as messages;

/// Most sleep slots that are read.
const MOST_SLOTS: u64 = 1 << 16;

/// The library's tables at one time.
pub struct Tables {
    pub lock: String,
    pub load: String,
    pub is_libcs: bool,
    pub waits: Vec<Waiting>,
    /// Whether the dump has the whole table of waits.
    pub has_all_waits: bool,
    pub held: Vec<Holding>,
    /// Whether the library keeps held locks, and so the places that took them.
    pub keeps_held: bool,
    pub control: Control,
}

/// An entry of the table of waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub thread: u32,
    /// Number of the kind of lock.
    pub kind: u32,
    pub is_shared: bool,
    pub lock: u64,
    pub begin: u64,
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// Address of the entry.
    pub entry: u64,
}

/// A lock that a thread holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub thread: u32,
    pub kind: u32,
    pub lock: u64,
    /// Return address of the call that took it; 0 if unknown.
    pub place: u64,
}

/// Load control.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Control {
    pub target: u32,
    /// Threads that sleep for load, with the keys of their locks.
    pub sleepers: Vec<(u32, u32)>,
    /// Address of the slots, and of the byte after them.
    pub slots: (u64, u64),
    /// Id of the controller's thread, if one runs.
    pub controller: Option<u32>,
    /// Runnable threads, and processors, in the last reading.
    pub reading: Option<(f64, f64)>,
}

/// Finds the library's descriptor in the writable memory of mapped files.
///
/// # Errors
///
/// The library is not there, not in the dump, or of another version.
pub fn find(subject: &dyn Subject) -> anyhow::Result<u64> {
    for region in subject.regions().iter().filter(|it| it.is_writable && !it.is_code) {
        let Ok(length) = usize::try_from(region.end - region.start) else { continue };
        // The library's data is smaller; larger mappings are data files.
        if length > 64 << 20 {
            continue;
        }
        let mut memory = vec![0; length];
        let read = subject.read(region.start, &mut memory);
        let step = align_of::<Descriptor>();
        let first = region.start.next_multiple_of(step as u64) - region.start;
        let (first, start) = (first as usize, region.start);
        for at in (first..read.saturating_sub(size_of::<Descriptor>())).step_by(step) {
            if let Some(version) = recognise(&memory[at..], start + at as u64) {
                if version != VERSION {
                    bail!(messages::other_version(&subject.title(), version, VERSION));
                }
                return Ok(start + at as u64);
            }
        }
    }
    if subject.is_cut_off() {
        bail!(messages::unreadable_tables(&subject.title()));
    }
    bail!(messages::no_library(&subject.title()))
}

/// The version of the descriptor with these first bytes, if it is one and is at `address`.
fn recognise(bytes: &[u8], address: u64) -> Option<u32> {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let is_magic = word(0)? == MAGIC[0] && word(8)? == MAGIC[1];
    let own = word(offset_of!(Descriptor, address))?;
    (is_magic && own == address).then_some(word(16)? as u32)
}

/// Reads an object that consists of numbers.
fn read<T>(subject: &dyn Subject, address: u64) -> Option<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: the bytes of `value`, which are initialised.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(value.as_mut_ptr().cast::<u8>(), size_of::<T>()) };
    let is_read = subject.read(address, bytes) == size_of::<T>();
    // SAFETY: callers read types of numbers and atomics only, valid for all bits.
    is_read.then(|| unsafe { value.assume_init() })
}

/// Reads a table of `count` objects that consist of numbers. Returns also whether all of it could
/// be read.
fn read_table<T>(subject: &dyn Subject, address: u64, count: usize) -> (Vec<T>, bool) {
    let mut table: Vec<T> = Vec::with_capacity(count);
    // SAFETY: the vector's own memory, zeroed first.
    let bytes = unsafe {
        table.as_mut_ptr().write_bytes(0, count);
        std::slice::from_raw_parts_mut(table.as_mut_ptr().cast::<u8>(), count * size_of::<T>())
    };
    let (mut done, mut is_whole) = (0, true);
    while done < bytes.len() {
        // Reads end at gaps of a dump; what is not there stays 0.
        let read = subject.read(address + done as u64, &mut bytes[done..]);
        let next = (address + done as u64 + read as u64 + 1).next_multiple_of(4096) - address;
        is_whole &= read != 0;
        done = if read == 0 { next as usize } else { done + read };
    }
    // SAFETY: initialised above; callers read types of numbers and atomics only.
    unsafe { table.set_len(count) };
    (table, is_whole)
}

/// Reads the tables of the library whose descriptor is at `descriptor`.
///
/// # Errors
///
/// The memory cannot be read, or has changed.
pub fn tables(subject: &dyn Subject, descriptor: u64) -> anyhow::Result<Tables> {
    let unreadable = || messages::unreadable_tables(&subject.title());
    let found: Descriptor = read(subject, descriptor).with_context(unreadable)?;
    if found.magic != MAGIC || found.address.load(Relaxed) != descriptor {
        bail!(unreadable());
    }
    let name = |name: &[std::sync::atomic::AtomicU8; NAME]| {
        let bytes = name.iter().map(|byte| byte.load(Relaxed)).take_while(|&byte| byte != 0);
        String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned()
    };
    let held = found.held.load(Relaxed);
    let (waits, has_all_waits) = waits(subject, &found);
    Ok(Tables {
        lock: name(&found.lock),
        load: name(&found.load),
        is_libcs: found.is_libcs.load(Relaxed) != 0,
        waits,
        has_all_waits: has_all_waits || !subject.is_cut_off(),
        held: if held == 0 { Vec::new() } else { holdings(subject, held) },
        keeps_held: held != 0,
        control: control(subject, &found),
    })
}

/// The waits that go on, in the order in which they began, and whether these are all.
fn waits(subject: &dyn Subject, descriptor: &Descriptor) -> (Vec<Waiting>, bool) {
    let start = descriptor.waits.load(Relaxed);
    let (table, is_whole): (Vec<Wait>, bool) = read_table(subject, start, WAITS);
    let address = |index: usize| start.wrapping_add((index * size_of::<Wait>()) as u64);
    let waiting = table.iter().enumerate();
    let waiting = waiting.filter_map(|(index, entry)| self::waiting(entry, address(index)));
    // A child of a `fork` still has the entries of its parent's threads.
    let threads = subject.threads();
    let exists = |id: u32| threads.is_empty() || threads.iter().any(|thread| thread.id == id);
    let mut waits: Vec<_> = waiting.filter(|it| it.thread != 0 && exists(it.thread)).collect();
    waits.sort_by_key(|wait| wait.begin);
    (waits, is_whole)
}

/// The wait in an entry; `None` while the entry is incomplete.
fn waiting(entry: &Wait, at: u64) -> Option<Waiting> {
    let what = Some(entry.what.load(Relaxed)).filter(|&what| what != 0)?;
    Some(Waiting {
        thread: entry.thread.load(Relaxed),
        kind: what & !SHARED,
        is_shared: what & SHARED != 0,
        lock: entry.lock.load(Relaxed),
        begin: entry.begin.load(Relaxed),
        ip: entry.ip.load(Relaxed),
        sp: entry.sp.load(Relaxed),
        bp: entry.bp.load(Relaxed),
        entry: at,
    })
}

/// Whether a wait goes on: its entry is as it was. Time stands still in a core dump.
pub fn lasts(subject: &dyn Subject, wait: &Waiting) -> bool {
    let entry = || read::<Wait>(subject, wait.entry);
    subject.now().is_none()
        || entry().and_then(|it| waiting(&it, wait.entry)).as_ref() == Some(wait)
}

fn holdings(subject: &dyn Subject, address: u64) -> Vec<Holding> {
    let (table, _): (Vec<Held>, bool) = read_table(subject, address, HOLDERS);
    let threads = subject.threads();
    let exists = |entry: &&Held| {
        let id = entry.thread.load(Relaxed);
        id != 0 && threads.iter().any(|thread| thread.id == id)
    };
    let holding = |entry: &Held, lock: &HeldLock| Holding {
        thread: entry.thread.load(Relaxed),
        kind: lock.what.load(Relaxed) & !SHARED,
        lock: lock.lock.load(Relaxed),
        place: lock.place.load(Relaxed),
    };
    let mut found = Vec::new();
    for entry in table.iter().filter(exists) {
        let locks = entry.locks[..HELD].iter().filter(|lock| lock.what.load(Relaxed) != 0);
        found.extend(locks.map(|lock| holding(entry, lock)));
    }
    found
}

fn control(subject: &dyn Subject, descriptor: &Descriptor) -> Control {
    let word = |address: &std::sync::atomic::AtomicU64| subject.read_u32(address.load(Relaxed));
    let count = descriptor.slot_count.load(Relaxed).min(MOST_SLOTS) as usize;
    let (slots, keys) = (descriptor.slots.load(Relaxed), descriptor.keys.load(Relaxed));
    let (threads, _): (Vec<u32>, bool) = read_table(subject, slots, count);
    let sleepers = threads.iter().enumerate().filter(|(_, slot)| !matches!(**slot, 0 | u32::MAX));
    let key = |index: usize| read(subject, keys + 4 * index as u64).unwrap_or(0_u32);
    let thousandths = |address| word(address).map(|value| f64::from(value) / 1e3);
    let capacity = thousandths(&descriptor.capacity).filter(|capacity| *capacity > 0.0);
    Control {
        target: word(&descriptor.target).unwrap_or(0),
        sleepers: sleepers.map(|(index, &thread)| (thread, key(index))).collect(),
        slots: (slots, slots + 4 * count as u64),
        controller: word(&descriptor.controller).filter(|&id| id != 0),
        reading: thousandths(&descriptor.runnable).zip(capacity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_is_recognised_only_at_its_own_address() {
        let mut bytes = vec![0; 64];
        bytes[..8].copy_from_slice(&MAGIC[0].to_ne_bytes());
        bytes[8..16].copy_from_slice(&MAGIC[1].to_ne_bytes());
        bytes[16] = 7;
        let at = offset_of!(Descriptor, address);
        bytes[at..at + 8].copy_from_slice(&0x1000_u64.to_ne_bytes());
        assert_eq!(recognise(&bytes, 0x1000), Some(7));
        assert_eq!(recognise(&bytes, 0x2000), None);
        assert_eq!(recognise(&bytes[1..], 0x1000), None);
        assert_eq!(recognise(&bytes[..20], 0x1000), None);
    }
}
