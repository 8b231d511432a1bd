//! What this process keeps for `unconvoy inspect`: the threads that wait for locks, and, if the
//! user wants a watchdog, the locks that threads hold.
//!
//! A thread enters the table of waits when it begins to wait, and nothing is written on an
//! uncontended path. Its entry is found by its id, so a thread that waits often uses the same cache
//! line again. Threads that started one after another have neighbouring ids, and their entries are
//! neighbours, too: so a process writes to few pages. The layout is in [`unconvoy_profile::live`].
//!
//! **Invariant 1.** Only the thread that claimed an entry writes to it. The claim is a
//! compare-and-swap of the entry's thread id.
//!
//! *Not guaranteed*: that a reader in another process sees a consistent table. It reads the table
//! twice, and believes what has not changed.
//!
//! **Memory orderings.** An entry's fields are stored before `what`, with release; a reader outside
//! has no orderings of its own.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use unconvoy_locks::catalogue::environment;
use unconvoy_locks::parking::slots::SLOTS;
use unconvoy_locks::primitive::{Clock as _, Generation as _, Native};
use unconvoy_locks::runtime::{controller_addresses, load_control};
use unconvoy_profile::live::{Descriptor, MAGIC, NAME, SHARED, VERSION, WAITS, Wait};
use unconvoy_profile::{Kind, mix};

use crate::held;
use crate::identity::{self, me};
use crate::variables::variable;

/// Number of entries in which a thread may be. A thread needs more than one only while a signal
/// handler waits inside another wait, or while threads wait whose ids are equal modulo [`WAITS`].
const PROBES: usize = 16;

/// Distance between the entries after the first one: odd, and together they go around the table.
const STEP: usize = 257;

/// The entries in which a thread may be. All but the first are away from those of threads with
/// neighbouring ids, which may all wait.
fn places(thread: u32) -> impl Iterator<Item = usize> {
    let others = mix(u64::from(thread)) as usize;
    core::iter::once(thread as usize)
        .chain((1..PROBES).map(move |probe| others.wrapping_add(probe * STEP)))
        .map(|place| place % WAITS)
}

static TABLE: [Wait; WAITS] = [const { Wait::free() }; WAITS];

/// The descriptor, which other processes find by its first bytes or by this name.
#[unsafe(export_name = "unconvoy_inspect")]
static DESCRIPTOR: Descriptor = Descriptor {
    magic: MAGIC,
    version: VERSION,
    size: size_of::<Descriptor>() as u32,
    address: AtomicU64::new(0),
    waits: AtomicU64::new(0),
    held: AtomicU64::new(0),
    slots: AtomicU64::new(0),
    keys: AtomicU64::new(0),
    slot_count: AtomicU64::new(SLOTS as u64),
    target: AtomicU64::new(0),
    controller: AtomicU64::new(0),
    runnable: AtomicU64::new(0),
    capacity: AtomicU64::new(0),
    is_libcs: AtomicU32::new(0),
    lock: [const { core::sync::atomic::AtomicU8::new(0) }; NAME],
    load: [const { core::sync::atomic::AtomicU8::new(0) }; NAME],
};

/// Completes the descriptor. Called from the constructor.
pub(crate) fn publish(lock: &str, load: &str, is_libcs: bool) {
    let descriptor = &DESCRIPTOR;
    let put = |to: &AtomicU64, address: usize| to.store(address as u64, Relaxed);
    let [slots, keys, target] = load_control().slots.addresses();
    let controller = controller_addresses();
    put(&descriptor.waits, TABLE.as_ptr().addr());
    put(&descriptor.slots, slots);
    put(&descriptor.keys, keys);
    put(&descriptor.target, target);
    put(&descriptor.controller, controller.thread);
    put(&descriptor.runnable, controller.runnable);
    put(&descriptor.capacity, controller.capacity);
    descriptor.is_libcs.store(is_libcs.into(), Relaxed);
    for (name, to) in [(lock, &descriptor.lock), (load, &descriptor.load)] {
        // The last byte stays 0.
        to[..NAME - 1].iter().zip(name.bytes()).for_each(|(to, byte)| to.store(byte, Relaxed));
    }
    if is_wanted() {
        put(&descriptor.held, held::begin());
    }
    descriptor.address.store(core::ptr::from_ref(descriptor).addr() as u64, Release);
}

/// Whether the user wants a watchdog for this process. Programs that it starts inherit the variable
/// but are not watched.
pub(crate) fn is_wanted() -> bool {
    let watched = variable(&environment::WATCHDOG).and_then(|watched| watched.parse().ok());
    watched == Some(identity::process())
}

/// The entry of a wait that goes on.
#[must_use = "ended by `end`"]
pub(crate) struct Waiting(Option<&'static Wait>);

/// Instruction pointer, stack pointer and frame pointer, in the function that this is inlined into.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn registers() -> [u64; 3] {
    let (ip, sp, bp);
    // SAFETY: only reads registers.
    unsafe {
        core::arch::asm!(
            "lea {}, [rip]",
            "mov {}, rsp",
            "mov {}, rbp",
            out(reg) ip,
            out(reg) sp,
            out(reg) bp,
            options(nomem, nostack, preserves_flags)
        );
    }
    [ip, sp, bp]
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn registers() -> [u64; 3] {
    [0; 3]
}

/// Enters the calling thread, which is about to wait. The caller's frame lasts as long as the wait.
#[inline(always)]
pub(crate) fn begin(kind: Kind, lock: usize, is_shared: bool) -> Waiting {
    let registers = registers();
    enter(kind as u32 | if is_shared { SHARED } else { 0 }, lock, registers)
}

#[inline(never)]
fn enter(what: u32, lock: usize, [ip, sp, bp]: [u64; 3]) -> Waiting {
    let (me, generation) = (me(), Native::generation());
    let claimed = places(me).map(|place| &TABLE[place]).find(|entry| {
        let owner = entry.thread.load(Acquire);
        let is_of_another_process = || entry.generation.load(Relaxed) != generation;
        // The frame of a wait that goes on is above. This one was left by a `longjmp`.
        let was_left = || owner == me && entry.sp.load(Relaxed) <= sp;
        (owner == 0 || is_of_another_process() || was_left()) && {
            // Before the claim, so that no other thread takes the entry for another process's.
            entry.generation.store(generation, Relaxed);
            entry.thread.compare_exchange(owner, me, AcqRel, Relaxed).is_ok()
        }
    });
    if let Some(entry) = claimed {
        entry.what.store(0, Relaxed);
        entry.lock.store(lock as u64, Relaxed);
        entry.begin.store(Native::now(), Relaxed);
        entry.ip.store(ip, Relaxed);
        entry.sp.store(sp, Relaxed);
        entry.bp.store(bp, Relaxed);
        entry.what.store(what, Release);
    }
    Waiting(claimed)
}

impl Waiting {
    /// Ends the wait.
    #[inline]
    pub(crate) fn end(self) {
        // A wait in a signal handler, on another stack, may have taken the entry over.
        if let Some(entry) = self.0
            && entry.thread.load(Relaxed) == me()
        {
            entry.what.store(0, Relaxed);
            entry.thread.store(0, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn first_entries_of_neighbours_are_on_few_pages_and_the_others_are_apart() {
        let first = |thread: u32| places(thread).next().unwrap() * size_of::<Wait>() / 4096;
        assert!((5_000..5_064).map(first).collect::<HashSet<_>>().len() <= 2);
        // 16 threads whose ids differ by a multiple of the table's size all find an entry.
        let mut taken: HashSet<usize> = (0..1_000).filter_map(|me| places(me).next()).collect();
        for round in 1..=16 {
            let found = places(round * WAITS as u32 + 5).find(|place| !taken.contains(place));
            assert!(taken.insert(found.expect("a free entry")));
        }
    }
}
