//! The machine that the shipped locks run on here: [`Platform`] over [`machine`](crate::machine).

use core::ptr;
use core::sync::atomic::Ordering;

use unconvoy::contention::queue::Node;
use unconvoy::load::control::LoadControl;
use unconvoy::platform::{Atomic as _, Begun, Platform, ThreadNote};

use crate::{machine, process};

pub use crate::machine::{Simulated, SimulatedCell};

/// A system call that does next to nothing, as `gettid` (some 100 cycles on current processors).
const SYSTEM_CALL_NS: u64 = 50;

/// As the native platform's (`doze.rs`): 10,000 cycles.
const DOZE_NS: u64 = 4_000;

impl Platform for Simulated {
    type U32 = SimulatedCell<u32>;
    type U64 = SimulatedCell<u64>;
    type NodePtr = SimulatedCell<*mut Node<Simulated>>;

    fn fence(_: Ordering) {
        machine::fence();
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
