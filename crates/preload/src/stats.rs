//! Statistics for `UNCONVOY_STATS=FILE`: what each lock did, as one JSON object, written when the
//! process exits.
//!
//! Counters need memory beside the lock, so only a process that asks for statistics pays for them.
//! The counters are in a fixed hash table, keyed by address, which has its own mapping and is
//! filled without allocation. A lock that finds no free entry is counted as dropped, never silently
//! ignored. The child of a `fork` counts from the `fork` on: the kernel clears the table there, or,
//! before Linux 4.14, the child begins with its parent's counts.
//!
//! **Memory orderings.** The table's address is stored with release and loaded with acquire; an
//! entry is claimed with acquire and release. Counters are relaxed, and mostly the lock's holder
//! changes them.

use core::cmp::Reverse;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::OnceLock;

use serde_json::json;
use unconvoy_locks::catalogue::environment;
use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_locks::runtime;
use unconvoy_locks::runtime::load_control;

use crate::dispatch::Pair;
use crate::held;
use crate::identity;
use crate::message;
use crate::object_file::{Place, program};
use crate::output;
use crate::profile;
use crate::strategy;
use crate::variables::{absolute, variable};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Mutex = 1,
    RwLock = 2,
    Spin = 3,
}

impl Kind {
    fn in_profile(self) -> unconvoy_profile::Kind {
        match self {
            Kind::Mutex => unconvoy_profile::Kind::Mutex,
            Kind::RwLock => unconvoy_profile::Kind::RwLock,
            Kind::Spin => unconvoy_profile::Kind::Spin,
        }
    }
}

const KIND_NAMES: [&str; 4] = ["", "mutex", "rwlock", "spin"];

/// Capacity of the table; a power of two.
const RECORDS: usize = 1 << 16;
/// Entries probed before a lock is dropped.
const PROBES: usize = 64;

/// One lock.
#[derive(Default)]
#[repr(align(64))]
struct Record {
    address: AtomicUsize,
    /// [`Kind`]; 0 until it is known. Reused memory may have a lock of each kind at one address.
    kind: AtomicU32,
    slept: AtomicU32,
    acquisitions: AtomicU64,
    contended: AtomicU64,
    wait_ns: AtomicU64,
    max_wait_ns: AtomicU64,
    hold_ns: AtomicU64,
    /// When the present holder acquired the lock; with several readers, the first of them.
    held_since: AtomicU64,
    /// Number of holders of a reader-writer lock.
    holders: AtomicU32,
    /// Return address of the first acquisition; 0 if unknown.
    first_caller: AtomicUsize,
}

/// The file's path. The program may have changed its environment when the file is written.
static PATH: OnceLock<String> = OnceLock::new();

/// The process that the table counts for; 0 if there is none, and once its file is written.
static PROCESS: AtomicU32 = AtomicU32::new(0);

static RECORDS_AT: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// A bit for each hash of a dropped lock.
static IS_DROPPED: [AtomicU64; 1 << 14] = [const { AtomicU64::new(0) }; 1 << 14];
static BEGAN: AtomicU64 = AtomicU64::new(0);

/// The clock of the records; 0 when statistics are off, to save the read.
#[inline]
pub(crate) fn now() -> u64 {
    if RECORDS_AT.load(Relaxed).is_null() { 0 } else { Native::now() }
}

/// Records an acquisition, also in the count of the locks that the calling thread holds. `waited`
/// has the start of the wait and the number of sleeps; `None` if the first attempt succeeded.
#[inline(never)]
pub(crate) fn acquired(kind: Kind, address: usize, waited: Option<(u64, u32)>) {
    runtime::count_acquired();
    if held::is_kept() || !RECORDS_AT.load(Relaxed).is_null() {
        record_acquired(kind, address, waited);
    }
}

#[inline(never)]
fn record_acquired(kind: Kind, address: usize, waited: Option<(u64, u32)>) {
    if held::is_kept() {
        held::acquired(kind.in_profile(), address, false);
    }
    let Some(record) = record(kind, address) else { return };
    record.acquisitions.fetch_add(1, Relaxed);
    let now = Native::now();
    if kind != Kind::RwLock || record.holders.fetch_add(1, Relaxed) == 0 {
        record.held_since.store(now, Relaxed);
    }
    if let Some((since, sleeps)) = waited {
        let wait = now.saturating_sub(since);
        record.contended.fetch_add(1, Relaxed);
        record.wait_ns.fetch_add(wait, Relaxed);
        record.max_wait_ns.fetch_max(wait, Relaxed);
        record.slept.fetch_add(sleeps, Relaxed);
    }
}

/// Records that the calling thread is about to release a lock.
#[inline(never)]
pub(crate) fn released(kind: Kind, address: usize) {
    runtime::count_released();
    if held::is_kept() || !RECORDS_AT.load(Relaxed).is_null() {
        record_released(kind, address);
    }
}

#[inline(never)]
fn record_released(kind: Kind, address: usize) {
    if held::is_kept() {
        held::released(address);
    }
    if let Some(record) = find(kind, address, false) {
        // Before the holders become none: the next one sets its own time.
        let since = record.held_since.load(Relaxed);
        let leave = |holders: u32| holders.checked_sub(1);
        if kind == Kind::RwLock && record.holders.fetch_update(Relaxed, Relaxed, leave) != Ok(1) {
            return; // other readers hold it
        }
        record.hold_ns.fetch_add(Native::now().saturating_sub(since), Relaxed);
    }
}

fn record(kind: Kind, address: usize) -> Option<&'static Record> {
    find(kind, address, true)
}

/// The record of the lock of this kind at `address`, which `creates` may create.
fn find(kind: Kind, address: usize, creates: bool) -> Option<&'static Record> {
    let table = RECORDS_AT.load(Acquire);
    if table.is_null() {
        return None;
    }
    let hash = (address >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    for probe in 0..PROBES {
        // SAFETY: within the mapping of `RECORDS` records, which starts as zeroes and is never
        // unmapped.
        let record = unsafe { &*table.add((hash + probe) % RECORDS) };
        let mut owner = record.address.load(Acquire);
        if owner == 0 {
            if !creates {
                return None;
            }
            owner = match record.address.compare_exchange(0, address, AcqRel, Acquire) {
                Ok(_) => address,
                Err(other) => other,
            };
        }
        if owner == address && record.is_of(kind, creates) {
            return Some(record);
        }
    }
    if creates {
        count_dropped(kind, address);
    }
    None
}

impl Record {
    /// Whether the record, which has an address, is of this kind. `creates` may make it so, if its
    /// kind is not yet known.
    fn is_of(&self, kind: Kind, creates: bool) -> bool {
        let kind = kind as u32;
        let found = self.kind.load(Relaxed);
        if found != 0 || !creates {
            return found == kind;
        }
        match self.kind.compare_exchange(0, kind, Relaxed, Relaxed) {
            Ok(_) => {
                let mut caller = [0];
                profile::unwind(&mut caller);
                self.first_caller.store(caller[0] as usize, Relaxed);
                true
            }
            Err(other) => other == kind,
        }
    }
}

/// Counts a lock without a record, unless it or a lock with the same hash is counted already.
#[cold]
fn count_dropped(kind: Kind, address: usize) {
    let hash = unconvoy_profile::mix(address as u64 ^ (kind as u64) << 60) as usize;
    let (word, bit) = (hash / 64 % IS_DROPPED.len(), 1 << (hash % 64));
    if IS_DROPPED[word].fetch_or(bit, Relaxed) & bit == 0 {
        DROPPED.fetch_add(1, Relaxed);
    }
}

/// Starts recording, if the environment asks for it. Called from the constructor.
pub(crate) fn begin() {
    let Some(path) = variable(&environment::STATS) else { return };
    let path = PATH.get_or_init(|| absolute(path));
    if let Err(error) = std::fs::OpenOptions::new().create(true).append(true).open(file_name(path))
    {
        message::unwritable_statistics(path, &error).print();
        return;
    }
    const SIZE: usize = RECORDS * size_of::<Record>();
    // SAFETY: a fresh anonymous mapping. The advice only affects children.
    let table = unsafe {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        mmap_anonymous(ptr::null_mut(), SIZE, access, flags).inspect(|&table| {
            let _ = madvise(table, SIZE, Advice::LinuxWipeOnFork);
        })
    };
    match table {
        Ok(table) => RECORDS_AT.store(table.cast(), Release),
        Err(_) => message::no_memory_for_statistics().print(),
    }
    profile::prepare_unwinding();
    BEGAN.store(Native::now(), Relaxed);
    PROCESS.store(identity::process(), Relaxed);
}

/// Starts over in the child of a `fork`, where the kernel has cleared the table. Allocates nothing.
pub(crate) fn after_fork() {
    if RECORDS_AT.load(Relaxed).is_null() {
        return;
    }
    if DROPPED.swap(0, Relaxed) > 0 {
        IS_DROPPED.iter().for_each(|word| word.store(0, Relaxed));
    }
    BEGAN.store(Native::now(), Relaxed);
    PROCESS.store(identity::process(), Relaxed);
}

fn file_name(path: &str) -> String {
    if output::is_descendant() {
        format!("{path}.{}", identity::process())
    } else {
        path.to_owned()
    }
}

/// The used records, those with the longest waits first. Other threads may still be counting, so
/// each key is read once.
fn by_wait(records: &[Record]) -> Vec<&Record> {
    let mut used: Vec<&Record> =
        records.iter().filter(|record| record.acquisitions.load(Relaxed) > 0).collect();
    used.sort_by_cached_key(|record| {
        Reverse((record.wait_ns.load(Relaxed), record.acquisitions.load(Relaxed)))
    });
    used
}

/// Writes the file, once. `special` reports on the special set since a point in time; `None` if the
/// process has no special set.
pub(crate) fn write(pair: &Pair, special: impl FnOnce(u64) -> Option<serde_json::Value>) {
    let table = RECORDS_AT.load(Acquire);
    let Some(path) = PATH.get().filter(|_| !table.is_null()) else { return };
    if PROCESS.compare_exchange(identity::process(), 0, Relaxed, Relaxed).is_err() {
        return; // written, or the child of a system call that `after_fork` does not learn of
    }
    // SAFETY: the mapping from `begin`; all of it reads as records of atomics.
    let records = unsafe { core::slice::from_raw_parts(table, RECORDS) };
    let locks: Vec<_> = by_wait(records).into_iter().map(as_json).collect();
    let controller = runtime::controller_report();
    let slots = load_control().slots.totals();
    let pauses: Vec<_> = load_control().pinned.pauses().into_iter().enumerate().collect();
    let pauses: Vec<_> = pauses
        .iter()
        .filter(|pause| pause.1 > 0)
        .map(|&(bits, count)| (1_u64 << bits, count))
        .collect();
    let (lock, load) = match strategy::leaves_the_others_to_libc() {
        true => ("libc", "none"),
        false => (pair.lock, pair.load),
    };
    let document = json!({
        "schema": "unconvoy-stats-1",
        "program": program().unwrap_or_default(),
        "pid": identity::process(),
        "lock": lock,
        "load": load,
        "wall_ns": Native::now().saturating_sub(BEGAN.load(Relaxed)),
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "controller": {
            "starts": controller.starts,
            "ticks": controller.ticks,
            "cpu_ns": controller.busy_ns,
            "sensor": controller.sensor,
            "runnable": f64::from(controller.runnable) / 1e3,
            "most_runnable": f64::from(controller.most_runnable) / 1e3,
            "capacity": f64::from(controller.capacity) / 1e3,
        },
        "slots": {
            "slept": slots.slept,
            "left": slots.left,
            "woken": slots.woken,
            "timed_out": slots.timed_out,
            "given_back": slots.given_back,
        },
        // How long waiters paused for a holder that slept for load, until a waiter woke it (nested
        // sections): upper bound in nanoseconds, and number of pauses.
        "pauses": pauses,
        // Null unless the program asked for a special set of cores.
        "special": special(BEGAN.load(Relaxed)),
        "dropped_locks": DROPPED.load(Relaxed),
        "locks": locks,
    });
    let name = file_name(path);
    if let Err(error) =
        runtime::without_signals(|| std::fs::write(&name, format!("{document:#}\n")))
    {
        message::lost_statistics(&name, &error).print();
    }
}

fn as_json(record: &Record) -> serde_json::Value {
    let address = record.address.load(Relaxed);
    let lives = Place::of(address);
    // Look up the last byte of the call: the call may be the last instruction of its function, and
    // the return address then belongs to the next function.
    let called = Place::of(record.first_caller.load(Relaxed).wrapping_sub(1));
    json!({
        "address": format!("{address:#x}"),
        "kind": KIND_NAMES[record.kind.load(Relaxed) as usize],
        "where": lives.as_ref().map(Place::name).unwrap_or_default(),
        // Stable from run to run: a static lock's offset in its file, and the code that first took
        // the lock.
        "at": lives.as_ref().map(Place::as_json),
        "first_taken": called.map(|mut place| {
            place.offset += 1;
            place.as_json()
        }),
        "acquisitions": record.acquisitions.load(Relaxed),
        "contended": record.contended.load(Relaxed),
        "wait_ns": record.wait_ns.load(Relaxed),
        "max_wait_ns": record.max_wait_ns.load(Relaxed),
        "hold_ns": record.hold_ns.load(Relaxed),
        "slept": record.slept.load(Relaxed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_of_another_kind_at_same_address_is_another() {
        let [mutex, spin] = [Kind::Mutex, Kind::Spin];
        let record = Record::default();
        assert!(!record.is_of(mutex, false));
        assert!(record.is_of(mutex, true) && record.is_of(mutex, false));
        assert!(!record.is_of(spin, true) && !record.is_of(spin, false));
    }

    #[test]
    fn dropped_lock_counts_once() {
        for _ in 0..3 {
            count_dropped(Kind::Mutex, 0x1000);
            count_dropped(Kind::Mutex, 0x2000);
            count_dropped(Kind::Spin, 0x1000);
        }
        assert_eq!(DROPPED.load(Relaxed), 3);
    }

    /// The standard library's sort may panic if keys change meanwhile.
    #[test]
    fn records_that_still_change_are_sorted() {
        let used = || Record { acquisitions: AtomicU64::new(1), ..Record::default() };
        let records: Vec<Record> = (0..4000).map(|_| used()).collect();
        std::thread::scope(|scope| {
            let sorter = scope.spawn(|| (0..50).map(|_| by_wait(&records).len()).min());
            let mut random = fastrand::Rng::with_seed(1);
            while !sorter.is_finished() {
                let record = &records[random.usize(..records.len())];
                record.wait_ns.store(random.u64(..1000), Relaxed);
            }
            assert_eq!(sorter.join().expect("the sort does not panic"), Some(4000));
        });
    }
}
