//! The machine that loom explores: every access is a choice, and every park really blocks, so a
//! lost wake-up shows as a deadlock.
//!
//! Time either stands still or advances by a second with every look at the clock ([`set_hurried`]).
//! So either no thread is ever stale or late, or every thread is.

use core::sync::atomic::Ordering;
use std::sync::atomic::{AtomicBool, AtomicU64 as PlainU64};

use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};
use loom::sync::{Condvar, Mutex};

use super::{
    Atomics, Clock, Generation, Kind, Monitor, Parking, SliceExtension, Spin, Threads, Transactions,
};

/// The model-checked machine.
#[derive(Debug, Clone, Copy)]
pub struct Checked;

static HURRIED: AtomicBool = AtomicBool::new(false);
static TIME: PlainU64 = PlainU64::new(1);

/// Sets whether every look at the clock advances it by a second.
pub fn set_hurried(hurried: bool) {
    HURRIED.store(hurried, Ordering::Relaxed);
}

struct Parked {
    address: usize,
    thread: u32,
    /// `None` if only a wake-up of every kind ends the sleep.
    kind: Option<Kind>,
    woken: bool,
}

/// All parked threads of the model, the longest parked first; loom has no futex.
struct Lot {
    parked: Mutex<Vec<Parked>>,
    woken: Condvar,
}

impl Lot {
    /// Parks the calling thread while `word` holds `expected`, as [`Checked::park`] says.
    fn park(kind: Option<Kind>, word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        let thread = Checked::thread_id();
        let mut parked = LOT.parked.lock().expect("no panics");
        if word.load(Ordering::SeqCst) != expected {
            return;
        }
        let address = core::ptr::from_ref(word).addr();
        parked.push(Parked { address, thread, kind, woken: false });
        if deadline.is_some_and(|end| end != u64::MAX) {
            drop(parked);
            loom::thread::yield_now();
            Lot::remove(&mut LOT.parked.lock().expect("no panics"), thread);
            return;
        }
        while !parked.iter().any(|entry| entry.thread == thread && entry.woken) {
            parked = LOT.woken.wait(parked).expect("no panics");
        }
        Lot::remove(&mut parked, thread);
    }

    /// Wakes up to `count` threads parked on `word`: those of one kind, or of every kind.
    fn unpark(kind: Option<Kind>, word: *const AtomicU32, count: u32) {
        let mut parked = LOT.parked.lock().expect("no panics");
        let is_meant = |entry: &&mut Parked| {
            entry.address == word.addr() && !entry.woken && (kind.is_none() || entry.kind == kind)
        };
        let waiters = parked.iter_mut().filter(is_meant);
        waiters.take(count as usize).for_each(|entry| entry.woken = true);
        LOT.woken.notify_all();
    }

    /// Wakes the threads parked on `word` that [`Checked::unpark_shared`] wakes, in one step:
    /// models would otherwise explore what happens between two.
    fn unpark_shared(word: *const AtomicU32) {
        let mut parked = LOT.parked.lock().expect("no panics");
        let mut has_woken = false;
        for entry in parked.iter_mut().filter(|it| it.address == word.addr() && !it.woken) {
            let is_exclusive = entry.kind == Some(Kind::Exclusive);
            entry.woken = !(is_exclusive && has_woken);
            has_woken |= is_exclusive;
        }
        LOT.woken.notify_all();
    }

    /// Removes the calling thread from the list; returns whether it was woken.
    fn remove(parked: &mut Vec<Parked>, thread: u32) -> bool {
        let index =
            parked.iter().position(|entry| entry.thread == thread).expect("the thread is parked");
        parked.remove(index).woken
    }
}

loom::lazy_static! {
    static ref LOT: Lot = Lot { parked: Mutex::new(Vec::new()), woken: Condvar::new() };
    static ref THREADS: AtomicU32 = AtomicU32::new(1);
}

loom::thread_local! {
    static THREAD: u32 = THREADS.fetch_add(1, Ordering::Relaxed);
}

// SAFETY: the model checker's.
unsafe impl Atomics for Checked {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Ptr<T> = AtomicPtr<T>;

    fn fence(order: Ordering) {
        fence(order);
    }

    fn order_seq_cst() {
        fence(Ordering::SeqCst);
    }
}

impl Clock for Checked {
    fn now() -> u64 {
        let step = if HURRIED.load(Ordering::Relaxed) { 1_000_000_000 } else { 0 };
        TIME.fetch_add(step, Ordering::Relaxed)
    }
}

impl Spin for Checked {
    fn pause() {
        loom::thread::yield_now();
    }
}

impl Monitor for Checked {
    /// Returns only when the word has changed, so a lock that needs the wait's time-out makes no
    /// progress, which loom reports.
    fn wait_for_change(word: &AtomicU64, seen: u64) {
        while word.load(Ordering::Acquire) == seen {
            loom::thread::yield_now();
        }
    }
}

impl Parking for Checked {
    /// Without a deadline only a wake-up ends the sleep, so a lost one is a deadlock. With a
    /// deadline, time runs out at once; a wake-up that arrives while the thread is still on the
    /// list is consumed, as in the kernel. A deadline of `u64::MAX` never passes.
    fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        Lot::park(None, word, expected, deadline);
    }

    fn unpark(word: *const AtomicU32, count: u32) {
        Lot::unpark(None, word, count);
    }

    fn park_as(kind: Kind, word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        Lot::park(Some(kind), word, expected, deadline);
    }

    fn unpark_kind(kind: Kind, word: *const AtomicU32, count: u32) {
        Lot::unpark(Some(kind), word, count);
    }

    fn unpark_shared(word: *const AtomicU32) {
        Lot::unpark_shared(word);
    }
}

impl Threads for Checked {
    fn thread_id() -> u32 {
        THREAD.with(|id| *id)
    }

    fn yield_now() {
        loom::thread::yield_now();
    }
}

impl Generation for Checked {}
impl Transactions for Checked {}
impl SliceExtension for Checked {}
