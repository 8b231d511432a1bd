//! The primitives of the shipped locks, implemented on the simulated [`machine`](crate::machine),
//! and the [process](crate::process) of its threads.

use core::ptr;
use core::sync::atomic::Ordering;

use unconvoy::contention::visible::{Row, VisibleReaders};
use unconvoy::load::{Context, LoadControl, ThreadState};
use unconvoy::lock::Process;
use unconvoy::primitive::{
    Abort, Atomics, Begun, Clock, Generation, Kind, Monitor, Parking, SAMPLED, SliceExtension,
    Spin, Threads, Transactions, poll_for_change,
};
use unconvoy::queue::{Node, NodeMemory};

use crate::{machine, process};

pub use crate::machine::{Simulated, SimulatedCell};

/// Cost of a trivial system call such as `gettid`: about 100 cycles on current processors.
const SYSTEM_CALL_NS: u64 = 50;

/// The native limit of one `umwait` (`umwait.rs`): 10,000 cycles.
const UMWAIT_NS: u64 = 4_000;

// SAFETY: one thread runs at a time, and each access takes effect at once.
unsafe impl Atomics for Simulated {
    type U32 = SimulatedCell<u32>;
    type U64 = SimulatedCell<u64>;
    type Ptr<T> = SimulatedCell<*mut T>;

    fn fence(_: Ordering) {
        machine::fence();
    }

    fn address<T>(object: &T) -> u64 {
        machine::number_of(ptr::from_ref(object).addr())
    }
}

impl Clock for Simulated {
    fn now() -> u64 {
        machine::now()
    }
}

impl Spin for Simulated {
    fn pause() {
        machine::pause();
    }

    fn pause_counted() {
        machine::pause_counted();
    }

    fn delay(ns: u64) {
        machine::delay(ns);
    }
}

impl Monitor for Simulated {
    fn wait_for_change(word: &SimulatedCell<u64>, seen: u64) {
        if machine::has_mwait() {
            machine::mwait(word.address(), || word.get() != seen, UMWAIT_NS);
        } else {
            poll_for_change::<Self>(word, seen);
        }
    }
}

impl Parking for Simulated {
    fn park(word: &SimulatedCell<u32>, expected: u32, deadline: Option<u64>) {
        machine::park(word.address(), None, || word.get() != expected, deadline);
    }

    fn unpark(word: *const SimulatedCell<u32>, count: u32) {
        machine::unpark(word.addr(), None, count);
    }

    fn park_as(kind: Kind, word: &SimulatedCell<u32>, expected: u32, deadline: Option<u64>) {
        machine::park(word.address(), Some(kind), || word.get() != expected, deadline);
    }

    fn unpark_kind(kind: Kind, word: *const SimulatedCell<u32>, count: u32) {
        machine::unpark(word.addr(), Some(kind), count);
    }
}

impl Threads for Simulated {
    fn thread_id() -> u32 {
        machine::leave_transaction();
        machine::spend(SYSTEM_CALL_NS);
        machine::thread() + 1
    }

    fn is_real_time() -> bool {
        machine::leave_transaction();
        machine::spend(SYSTEM_CALL_NS);
        false
    }

    fn yield_now() {
        machine::yield_now();
    }
}

impl Generation for Simulated {}

impl Transactions for Simulated {
    fn begin_transaction() -> Begun {
        machine::begin_transaction()
    }

    fn in_transaction() -> bool {
        machine::in_transaction()
    }

    fn elided_lock() -> usize {
        machine::elided_lock()
    }

    fn set_elided_lock(address: usize) {
        machine::set_elided_lock(address);
    }

    fn is_sampled() -> bool {
        machine::random(u64::from(SAMPLED)) == 0
    }

    fn end_transaction() {
        machine::end_transaction();
    }

    fn abort_transaction(because: Abort) {
        machine::abort_transaction(because);
    }
}

impl SliceExtension for Simulated {
    fn begin_slice_extension() {
        machine::ask_for_extension(true);
    }

    fn end_slice_extension() {
        machine::ask_for_extension(false);
    }
}

impl NodeMemory for Simulated {
    fn take_node() -> *mut Node<Simulated> {
        process::take_node()
    }

    unsafe fn give_node(node: *mut Node<Simulated>) {
        // SAFETY: the caller passes a node that `take_node` returned and that no thread uses.
        unsafe { process::give_node(node) };
    }
}

/// The process of the calling thread, identified by its load control.
#[derive(Clone, Copy)]
pub struct OwnProcess(&'static LoadControl<Simulated>);

impl Context for OwnProcess {
    type Machine = Simulated;

    fn control(self) -> &'static LoadControl<Simulated> {
        self.0
    }

    fn thread_state(self) -> ThreadState {
        machine::thread_state()
    }

    fn set_thread_state(self, state: ThreadState) {
        machine::set_thread_state(state);
    }

    fn ensure_controller(self) {
        process::ensure_controller();
    }
}

impl VisibleReaders for Simulated {
    fn own_row() -> Option<&'static Row<Simulated>> {
        process::own_row()
    }

    fn rows() -> &'static [Row<Simulated>] {
        process::rows()
    }

    fn runs_in_parallel() -> bool {
        machine::capacity() > 1.0
    }

    fn is_crowded() -> bool {
        process::rows().len() as f64 > machine::capacity()
    }
}

impl Process for Simulated {
    type Context = OwnProcess;

    fn context() -> OwnProcess {
        OwnProcess(process::load_control())
    }
}
