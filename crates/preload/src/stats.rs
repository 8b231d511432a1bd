//! What each lock did, for `UNCONVOY_STATS=FILE`: one JSON object, written when the process exits.
//!
//! Counting needs a place beside the lock, so that only a process that asked for it pays: a fixed
//! hash table by address in a mapping of its own, filled without allocation. A lock that finds no
//! place is counted as dropped, never silently.
//!
//! The file is that of the program that `unconvoy run` started; processes that it starts in turn
//! write `FILE.PID`.
//!
//! **Memory orderings.** None: counters are relaxed, and those of one lock are mostly changed by
//! its holder.

use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::atomic::AtomicBool;

use serde_json::json;
use unconvoy_locks::catalogue::environment;
use unconvoy_locks::primitive::{Clock as _, Native};
use unconvoy_locks::runtime;
use unconvoy_locks::runtime::load_control;

use crate::caller;
use crate::dispatch::Pair;
use crate::message::say;
use crate::variables::variable;

/// What a record is of.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(crate) enum Kind {
    Mutex = 0,
    RwLock = 1,
    Spin = 2,
}

const KIND_NAMES: [&str; 3] = ["mutex", "rwlock", "spin"];

/// Locks that are told apart; a power of two.
const RECORDS: usize = 1 << 16;
/// Places looked at before a lock is dropped.
const PROBES: usize = 64;

/// One lock.
#[derive(Default)]
#[repr(align(64))]
struct Record {
    address: AtomicUsize,
    kind: AtomicU32,
    slept: AtomicU32,
    acquisitions: AtomicU64,
    contended: AtomicU64,
    wait_ns: AtomicU64,
    max_wait_ns: AtomicU64,
    hold_ns: AtomicU64,
    /// When the present holder came by it; of several readers, the last.
    held_since: AtomicU64,
    /// Where the caller of its first acquisition goes on; 0 if unknown.
    first_caller: AtomicUsize,
}

static RECORDS_AT: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());
static DROPPED: AtomicU64 = AtomicU64::new(0);
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// Whether this process's file is `FILE.PID`.
static IS_DESCENDANT: AtomicBool = AtomicBool::new(false);

/// The clock of the records; 0 when nothing is recorded, so that nobody pays for reading it.
#[inline]
pub(crate) fn now() -> u64 {
    if RECORDS_AT.load(Relaxed).is_null() { 0 } else { Native::now() }
}

/// A lock was acquired; `waited` says since when and with how many sleeps, if it was taken at
/// first.
#[inline(never)]
pub(crate) fn acquired(kind: Kind, address: usize, waited: Option<(u64, u32)>) {
    let Some(record) = record(kind, address) else { return };
    record.acquisitions.fetch_add(1, Relaxed);
    let now = Native::now();
    record.held_since.store(now, Relaxed);
    if let Some((since, sleeps)) = waited {
        let wait = now.saturating_sub(since);
        record.contended.fetch_add(1, Relaxed);
        record.wait_ns.fetch_add(wait, Relaxed);
        record.max_wait_ns.fetch_max(wait, Relaxed);
        record.slept.fetch_add(sleeps, Relaxed);
    }
}

/// A lock is about to be released.
#[inline(never)]
pub(crate) fn released(address: usize) {
    if let Some(record) = find(address, None) {
        let since = record.held_since.load(Relaxed);
        record.hold_ns.fetch_add(Native::now().saturating_sub(since), Relaxed);
    }
}

fn record(kind: Kind, address: usize) -> Option<&'static Record> {
    find(address, Some(kind))
}

/// The record of the lock at `address`; made if `kind` says of what.
fn find(address: usize, kind: Option<Kind>) -> Option<&'static Record> {
    let table = RECORDS_AT.load(Acquire);
    if table.is_null() {
        return None;
    }
    let hash = (address >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    for probe in 0..PROBES {
        // SAFETY: within the mapping of `RECORDS` records, which is never unmapped and starts as zeroes.
        let record = unsafe { &*table.add((hash + probe) % RECORDS) };
        let owner = record.address.load(Acquire);
        if owner == address {
            return Some(record);
        }
        if owner == 0 {
            let kind = kind?;
            match record.address.compare_exchange(0, address, AcqRel, Acquire) {
                Ok(_) => {
                    record.kind.store(kind as u32, Relaxed);
                    record.first_caller.store(caller::of_this_library(), Relaxed);
                    return Some(record);
                }
                Err(other) if other == address => return Some(record),
                Err(_) => {}
            }
        }
    }
    if kind.is_some() {
        DROPPED.fetch_add(1, Relaxed);
    }
    None
}

/// Begins to record, if the environment asks for it.
pub(crate) fn begin() {
    let Some(path) = variable(&environment::STATS) else { return };
    let pid = std::process::id();
    match variable(&environment::STATS_OWNER).and_then(|owner| owner.parse::<u32>().ok()) {
        Some(owner) => IS_DESCENDANT.store(owner != pid, Relaxed),
        // SAFETY: called from the constructor, before the program's threads.
        None => unsafe { std::env::set_var(environment::STATS_OWNER.name, pid.to_string()) },
    }
    if let Err(error) = std::fs::OpenOptions::new().create(true).append(true).open(file_name(path)) {
        say(&["cannot write ", path, ": ", &error.to_string(), "; no statistics"]);
        return;
    }
    // SAFETY: a fresh anonymous mapping.
    let table = unsafe {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        mmap_anonymous(ptr::null_mut(), RECORDS * size_of::<Record>(), ProtFlags::READ | ProtFlags::WRITE, flags)
    };
    match table {
        Ok(table) => RECORDS_AT.store(table.cast(), Release),
        Err(_) => say(&["no memory for statistics"]),
    }
    BEGAN.store(Native::now(), Relaxed);
}

/// In the child of a `fork`: what it does from here on is its own.
pub(crate) fn after_fork() {
    IS_DESCENDANT.store(true, Relaxed);
}

fn file_name(path: &str) -> String {
    if IS_DESCENDANT.load(Relaxed) { format!("{path}.{}", std::process::id()) } else { path.to_owned() }
}

/// Writes the file, once. `special` has what the special set was since a point in time, if there was
/// to be one.
pub(crate) fn write(pair: &Pair, special: impl FnOnce(u64) -> Option<serde_json::Value>) {
    static WRITTEN: AtomicBool = AtomicBool::new(false);
    let Some(path) = variable(&environment::STATS) else { return };
    let table = RECORDS_AT.load(Acquire);
    if table.is_null() || WRITTEN.swap(true, Relaxed) {
        return;
    }
    // SAFETY: the mapping of `begin`, of which every page reads as records of atomics.
    let records = unsafe { core::slice::from_raw_parts(table, RECORDS) };
    let mut used: Vec<&Record> = records.iter().filter(|record| record.acquisitions.load(Relaxed) > 0).collect();
    used.sort_by_key(|record| core::cmp::Reverse((record.wait_ns.load(Relaxed), record.acquisitions.load(Relaxed))));
    let locks: Vec<_> = used.iter().map(|record| as_json(record)).collect();
    let controller = runtime::controller_report();
    let slots = load_control().slots.totals();
    let pauses: Vec<_> = load_control().pinned.pauses().into_iter().enumerate().collect();
    let pauses: Vec<_> =
        pauses.iter().filter(|pause| pause.1 > 0).map(|&(bits, count)| (1_u64 << bits, count)).collect();
    let document = json!({
        "schema": "unconvoy-stats-1",
        "program": std::env::current_exe().unwrap_or_default(),
        "pid": std::process::id(),
        "lock": pair.lock,
        "load": pair.load,
        "wall_ns": Native::now().saturating_sub(BEGAN.load(Relaxed)),
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "controller": {
            "starts": controller.starts,
            "ticks": controller.ticks,
            "cpu_ns": controller.busy_ns,
            "sensor": controller.sensor,
            "runnable": f64::from(controller.runnable) / 1e3,
            "capacity": f64::from(controller.capacity) / 1e3,
        },
        "slots": {
            "slept": slots.slept,
            "left": slots.left,
            "woken": slots.woken,
            "timed_out": slots.timed_out,
            "given_back": slots.given_back,
        },
        // Of waiters whose lock's holder slept for load until they woke it, in nested sections: upper end in
        // nanoseconds, number.
        "pauses": pauses,
        // Null unless the program was to have a special set of cores.
        "special": special(BEGAN.load(Relaxed)),
        "dropped_locks": DROPPED.load(Relaxed),
        "locks": locks,
    });
    let name = file_name(path);
    if let Err(error) = std::fs::write(&name, format!("{document:#}\n")) {
        say(&["cannot write ", &name, ": ", &error.to_string()]);
    }
}

fn as_json(record: &Record) -> serde_json::Value {
    let address = record.address.load(Relaxed);
    let lives = Place::of(address);
    // By its own last byte: it may be the last instruction of a function, and the return address belongs to the next.
    let called = Place::of(record.first_caller.load(Relaxed).wrapping_sub(1));
    json!({
        "address": format!("{address:#x}"),
        "kind": KIND_NAMES[record.kind.load(Relaxed) as usize],
        "where": lives.as_ref().map(Place::name).unwrap_or_default(),
        // What stays the same from run to run: where a static lock lies in its file, and where any lock was first taken.
        "at": lives.as_ref().map(Place::as_json),
        "first_taken": called.map(|place| Place { offset: place.offset + 1, ..place }.as_json()),
        "acquisitions": record.acquisitions.load(Relaxed),
        "contended": record.contended.load(Relaxed),
        "wait_ns": record.wait_ns.load(Relaxed),
        "max_wait_ns": record.max_wait_ns.load(Relaxed),
        "hold_ns": record.hold_ns.load(Relaxed),
        "slept": record.slept.load(Relaxed),
    })
}

/// A place in a loaded file.
struct Place {
    /// The file as the dynamic linker has it; the program's own by its absolute path.
    object: String,
    /// From the lowest address at which the file is mapped, in bytes.
    offset: usize,
    symbol: Option<String>,
}

impl Place {
    /// Where the address is; nothing if in no file: on the heap, on a stack.
    fn of(address: usize) -> Option<Self> {
        let info = object_at(address)?;
        // SAFETY: strings that live as long as the object is loaded.
        let name = |text: *const core::ffi::c_char| unsafe {
            (!text.is_null()).then(|| core::ffi::CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        // Of the program itself, the linker knows what its caller chose to say.
        // SAFETY: no preconditions.
        let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
        let is_program = object_at(entry).is_some_and(|program| program.dli_fbase == info.dli_fbase);
        let own = || std::env::current_exe().ok().map(|path| path.to_string_lossy().into_owned());
        Some(Self {
            object: is_program.then(own).flatten().or_else(|| name(info.dli_fname)).unwrap_or_default(),
            offset: address - info.dli_fbase.addr(),
            symbol: name(info.dli_sname),
        })
    }

    /// For people: the variable, if its name is known, and the file.
    fn name(&self) -> String {
        let object = self.object.rsplit('/').next().unwrap_or_default();
        match &self.symbol {
            Some(symbol) => format!("{symbol} in {object}"),
            None => object.to_owned(),
        }
    }

    fn as_json(&self) -> serde_json::Value {
        json!({ "object": self.object, "offset": format!("{:#x}", self.offset) })
    }
}

/// What the dynamic linker knows of an address.
fn object_at(address: usize) -> Option<libc::Dl_info> {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: fills `info` if the address is in a loaded object; zeroes are a valid one.
    unsafe { (libc::dladdr(ptr::without_provenance(address), info.as_mut_ptr()) != 0).then(|| info.assume_init()) }
}
