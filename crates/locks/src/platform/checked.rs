//! The machine that loom explores: every access a choice, every park a real block, so that a
//! wake-up which is lost shows as a deadlock.
//!
//! Time stands still, or passes a second with every look at it ([`set_hurried`]): either nobody is
//! ever stale or late, or everybody is.

use core::sync::atomic::Ordering;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64 as PlainU64};

use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};
use loom::sync::{Condvar, Mutex};

use super::{Atomic, AtomicInt, Begun, Platform, ThreadNote};
use crate::contention::queue::Node;
use crate::load::control::LoadControl;

/// The checked machine.
#[derive(Debug, Clone, Copy)]
pub struct Checked;

static HURRIED: AtomicBool = AtomicBool::new(false);
static TIME: PlainU64 = PlainU64::new(1);

/// Whether a second passes with every look at the clock.
pub fn set_hurried(hurried: bool) {
    HURRIED.store(hurried, Ordering::Relaxed);
}

/// The addresses of the nodes that were taken and not given back.
static OUT: std::sync::Mutex<BTreeSet<usize>> = std::sync::Mutex::new(BTreeSet::new());

/// How many nodes were taken and not given back.
pub fn nodes_out() -> usize {
    OUT.lock().expect("no panics").len()
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
    fn leave(parked: &mut Vec<Parked>, thread: u32) -> bool {
        let place = parked.iter().position(|entry| entry.thread == thread).expect("it is parked");
        parked.remove(place).woken
    }
}

loom::lazy_static! {
    static ref LOT: Lot = Lot { parked: Mutex::new(Vec::new()), woken: Condvar::new() };
    static ref LOAD_CONTROL: LoadControl<Checked> = LoadControl::new();
    static ref THREADS: AtomicU32 = AtomicU32::new(1);
}

loom::thread_local! {
    static THREAD: u32 = THREADS.fetch_add(1, Ordering::Relaxed);
    static NOTE: std::cell::Cell<ThreadNote> = std::cell::Cell::new(ThreadNote::default());
}

macro_rules! atomic {
    ($cell:ty, $value:ty) => {
        impl Atomic<$value> for $cell {
            fn new(value: $value) -> Self {
                <$cell>::new(value)
            }
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! atomic_int {
    ($cell:ty, $value:ty) => {
        atomic!($cell, $value);
        impl AtomicInt<$value> for $cell {
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, order)
            }
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.fetch_sub(value, order)
            }
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.fetch_or(value, order)
            }
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.fetch_and(value, order)
            }
        }
    };
}

atomic_int!(AtomicU32, u32);
atomic_int!(AtomicU64, u64);
atomic!(AtomicPtr<Node<Checked>>, *mut Node<Checked>);

impl Platform for Checked {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type NodePtr = AtomicPtr<Node<Checked>>;

    fn fence(order: Ordering) {
        fence(order);
    }

    fn now() -> u64 {
        let step = if HURRIED.load(Ordering::Relaxed) { 1_000_000_000 } else { 0 };
        TIME.fetch_add(step, Ordering::Relaxed)
    }

    fn pause() {
        loom::thread::yield_now();
    }

    fn doze(_word: &AtomicU64, _seen: u64) {
        loom::thread::yield_now();
    }

    fn yield_now() {
        loom::thread::yield_now();
    }

    fn begin_transaction() -> Begun {
        Begun::Unavailable
    }

    fn in_transaction() -> bool {
        false
    }

    fn end_transaction() {}

    fn abort_transaction() {}

    fn begin_slice_extension() {}

    fn end_slice_extension() {}

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
            Lot::leave(&mut LOT.parked.lock().expect("no panics"), thread);
            return;
        }
        while !parked.iter().any(|entry| entry.thread == thread && entry.woken) {
            parked = LOT.woken.wait(parked).expect("no panics");
        }
        Lot::leave(&mut parked, thread);
    }

    fn unpark(word: *const AtomicU32, count: u32) {
        let mut parked = LOT.parked.lock().expect("no panics");
        let waiters = parked.iter_mut().filter(|entry| entry.address == word.addr() && !entry.woken);
        waiters.take(count as usize).for_each(|entry| entry.woken = true);
        LOT.woken.notify_all();
    }

    fn thread_id() -> u32 {
        THREAD.with(|id| *id)
    }

    fn is_real_time() -> bool {
        false
    }

    fn thread_note() -> ThreadNote {
        NOTE.with(std::cell::Cell::get)
    }

    fn set_thread_note(note: ThreadNote) {
        NOTE.with(|cell| cell.set(note));
    }

    /// As on the native platform, another one than in a lock that is all zeroes.
    fn generation() -> u32 {
        1
    }

    fn take_node() -> *mut Node<Checked> {
        let node = Box::into_raw(Box::new(Node::detached(0, 0)));
        OUT.lock().expect("no panics").insert(node.addr());
        node
    }

    unsafe fn give_node(node: *mut Node<Checked>) {
        assert!(OUT.lock().expect("no panics").remove(&node.addr()), "a node is given back once");
        // Freed for good, so that a use after it was given back is caught.
        // SAFETY: from `take_node`, and given back once.
        drop(unsafe { Box::from_raw(node) });
    }

    fn load_control() -> &'static LoadControl<Checked> {
        // SAFETY: loom drops statics between executions, none of which outlives its model's closure.
        unsafe { &*core::ptr::from_ref::<LoadControl<Checked>>(&*LOAD_CONTROL) }
    }

    fn ensure_controller() {}
}
