//! The machine that the shipped locks run on here: [`Platform`] over [`machine`](crate::machine).
//!
//! A cell has the size and the place of the real one, so that what shares a cache line there does so here.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::Ordering;

use unconvoy::contention::queue::Node;
use unconvoy::load::control::LoadControl;
use unconvoy::platform::{Atomic, AtomicInt, Begun, Platform, ThreadNote};

use crate::{machine, process};

/// The simulated machine.
#[derive(Debug, Clone, Copy)]
pub struct Simulated;

/// An atomic cell of the simulated machine.
#[repr(transparent)]
pub struct SimulatedCell<T>(UnsafeCell<T>);

// SAFETY: all threads of a machine are coroutines on one thread of the host, and none is suspended between the look at
// a cell and its change.
unsafe impl<T> Sync for SimulatedCell<T> {}
// SAFETY: as above.
unsafe impl<T> Send for SimulatedCell<T> {}

impl<T: Copy + PartialEq> SimulatedCell<T> {
    #[inline(always)]
    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    #[inline(always)]
    fn get(&self) -> T {
        // SAFETY: as for `Sync`.
        unsafe { *self.0.get() }
    }

    #[inline(always)]
    fn set(&self, value: T) {
        if self.get() != value {
            // SAFETY: as for `Sync`.
            unsafe {
                machine::will_change(self.0.get());
                *self.0.get() = value;
            }
            machine::changed(self.address());
        }
    }

    #[inline(always)]
    fn update(&self, change: impl FnOnce(T) -> T) -> T {
        machine::read_modify_write(self.address());
        let before = self.get();
        self.set(change(before));
        before
    }
}

impl<T: Copy + PartialEq> Atomic<T> for SimulatedCell<T> {
    #[inline(always)]
    fn new(value: T) -> Self {
        SimulatedCell(UnsafeCell::new(value))
    }

    #[inline(always)]
    fn load(&self, _: Ordering) -> T {
        machine::load(self.address());
        self.get()
    }

    #[inline(always)]
    fn store(&self, value: T, _: Ordering) {
        machine::store(self.address());
        self.set(value);
    }

    #[inline(always)]
    fn swap(&self, value: T, _: Ordering) -> T {
        self.update(|_| value)
    }

    #[inline(always)]
    fn compare_exchange(&self, current: T, new: T, _: Ordering, _: Ordering) -> Result<T, T> {
        let before = self.update(|before| if before == current { new } else { before });
        if before == current { Ok(before) } else { Err(before) }
    }
}

macro_rules! arithmetic {
    ($value:ty) => {
        impl AtomicInt<$value> for SimulatedCell<$value> {
            fn fetch_add(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| before.wrapping_add(value))
            }
            fn fetch_sub(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| before.wrapping_sub(value))
            }
            fn fetch_or(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| before | value)
            }
            fn fetch_and(&self, value: $value, _: Ordering) -> $value {
                self.update(|before| before & value)
            }
        }
    };
}

arithmetic!(u32);
arithmetic!(u64);

/// A system call that does next to nothing, as `gettid` (some 100 cycles on current processors).
const SYSTEM_CALL_NS: u64 = 50;

/// As the native platform's (`doze.rs`): 10,000 cycles.
const DOZE_NS: u64 = 4_000;

impl Platform for Simulated {
    type U32 = SimulatedCell<u32>;
    type U64 = SimulatedCell<u64>;
    type NodePtr = SimulatedCell<*mut Node<Simulated>>;

    fn fence(_: Ordering) {
        machine::with(|machine| machine.fence());
    }

    fn now() -> u64 {
        machine::now()
    }

    fn pause() {
        machine::pause();
    }

    fn pause_counted() {
        machine::pause_counted();
    }

    fn delay(ns: u64) {
        machine::delay(ns);
    }

    fn place<T>(of: &T) -> u64 {
        machine::number_of(ptr::from_ref(of).addr())
    }

    fn doze(word: &SimulatedCell<u64>, seen: u64) {
        if word.load(Ordering::Acquire) == seen {
            machine::doze(word.address(), DOZE_NS);
        }
    }

    fn yield_now() {
        machine::yield_now();
    }

    fn begin_transaction() -> Begun {
        machine::begin_transaction()
    }

    fn in_transaction() -> bool {
        machine::in_transaction()
    }

    fn end_transaction() {
        machine::end_transaction();
    }

    fn abort_transaction() {
        machine::abort_transaction();
    }

    fn begin_slice_extension() {
        machine::ask_for_extension(true);
    }

    fn end_slice_extension() {
        machine::ask_for_extension(false);
    }

    fn park(word: &SimulatedCell<u32>, expected: u32, deadline: Option<u64>) {
        machine::park(word.address(), || word.get() != expected, deadline);
    }

    fn unpark(word: *const SimulatedCell<u32>, count: u32) {
        machine::unpark(word.addr(), count);
    }

    fn thread_id() -> u32 {
        machine::leave_transaction();
        machine::spend(SYSTEM_CALL_NS);
        machine::thread() + 1
    }

    fn thread_note() -> ThreadNote {
        machine::note()
    }

    fn is_real_time() -> bool {
        machine::leave_transaction();
        machine::spend(SYSTEM_CALL_NS);
        false
    }

    fn set_thread_note(note: ThreadNote) {
        machine::set_note(note);
    }

    fn generation() -> u32 {
        1
    }

    fn take_node() -> *mut Node<Simulated> {
        process::take_node()
    }

    unsafe fn give_node(node: *mut Node<Simulated>) {
        // SAFETY: passed on from the caller.
        unsafe { process::give_node(node) };
    }

    fn load_control() -> &'static LoadControl<Simulated> {
        process::load_control()
    }

    fn ensure_controller() {
        process::ensure_controller();
    }
}
