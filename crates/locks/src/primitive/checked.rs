//! The machine that loom explores: every access a choice, every park a real block, so that a
//! wake-up which is lost shows as a deadlock.
//!
//! Time stops, or passes a second with every look at it ([`set_hurried`]): either nobody is
//! ever stale or late, or everybody is.

use core::sync::atomic::Ordering;
use std::sync::atomic::{AtomicBool, AtomicU64 as PlainU64};

use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};
use loom::sync::{Condvar, Mutex};

use super::{Atomics, Clock, Generation, Parking, SliceExtension, Spin, Threads, Transactions};

/// The checked machine.
#[derive(Debug, Clone, Copy)]
pub struct Checked;

static HURRIED: AtomicBool = AtomicBool::new(false);
static TIME: PlainU64 = PlainU64::new(1);

/// Whether a second passes with every look at the clock.
pub fn set_hurried(hurried: bool) {
    HURRIED.store(hurried, Ordering::Relaxed);
}

/// A thread that parks at an address, and whether it was woken.
struct Parked {
    address: usize,
    thread: u32,
    woken: bool,
}

/// All parked threads of the model, the longest parked first: loom has no futex.
struct Lot {
    parked: Mutex<Vec<Parked>>,
    woken: Condvar,
}

impl Lot {
    /// Takes the calling thread off the list; whether it was woken.
    fn remove(parked: &mut Vec<Parked>, thread: u32) -> bool {
        let place = parked.iter().position(|entry| entry.thread == thread).expect("it is parked");
        parked.remove(place).woken
    }
}

loom::lazy_static! {
    static ref LOT: Lot = Lot { parked: Mutex::new(Vec::new()), woken: Condvar::new() };
    static ref THREADS: AtomicU32 = AtomicU32::new(1);
}

loom::thread_local! {
    static THREAD: u32 = THREADS.fetch_add(1, Ordering::Relaxed);
}

impl Atomics for Checked {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Ptr<T> = AtomicPtr<T>;

    fn fence(order: Ordering) {
        fence(order);
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

impl Parking for Checked {
    /// Without a deadline only a wake-up ends the sleep, so that a lost one is a deadlock. With a
    /// deadline time runs out at once; a wake-up that comes before the thread is off the list is
    /// spent on it, as in the kernel. (A deadline of `u64::MAX` never comes.)
    fn park(word: &AtomicU32, expected: u32, deadline: Option<u64>) {
        let thread = Self::thread_id();
        let mut parked = LOT.parked.lock().expect("no panics");
        if word.load(Ordering::SeqCst) != expected {
            return;
        }
        parked.push(Parked { address: core::ptr::from_ref(word).addr(), thread, woken: false });
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

    fn unpark(word: *const AtomicU32, count: u32) {
        let mut parked = LOT.parked.lock().expect("no panics");
        let waiters = parked.iter_mut().filter(|entry| entry.address == word.addr() && !entry.woken);
        waiters.take(count as usize).for_each(|entry| entry.woken = true);
        LOT.woken.notify_all();
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
