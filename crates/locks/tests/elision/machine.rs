//! A machine with scripted transactions.

use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use unconvoy::primitive::{
    Abort, Atomics, Begun, Clock, Generation, Monitor, Native, Parking, SAMPLED, SliceExtension,
    Spin, Threads, Transactions,
};
use unconvoy::queue::{Node, NodeMemory};

/// A machine with scripted transactions, one script per thread. An abort does not roll back writes,
/// so the tests can inspect them.
pub struct Scripted;

/// What the machine has done, and what it is to do.
#[derive(Clone, Copy, Default)]
pub struct Machine {
    pub depth: u32,
    pub begun: u32,
    pub aborted: u32,
    pub ended: u32,
    pub sections: u32,
    pub elided_lock: usize,
    /// How the next transactions abort; if `None`, they start.
    pub abort_next: Option<Abort>,
}

thread_local! {
    pub static MACHINE: Cell<Machine> = const {
        Cell::new(Machine {
            depth: 0,
            begun: 0,
            aborted: 0,
            ended: 0,
            sections: 0,
            elided_lock: 0,
            abort_next: None,
        })
    };
}

fn change(change: impl FnOnce(&mut Machine)) {
    let mut machine = MACHINE.get();
    change(&mut machine);
    MACHINE.set(machine);
}

// SAFETY: the processor's, and each test uses one thread.
unsafe impl Atomics for Scripted {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Ptr<T> = AtomicPtr<T>;

    fn fence(order: Ordering) {
        Native::fence(order);
    }
}

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(1_000_000_000) };
}

/// Nanoseconds between two readings of the clock. A clock of its own does not advance while the
/// thread is preempted, so that a busy neighbour does not use up a bound on the time of the tries.
const TICK_NS: u64 = 20;

impl Clock for Scripted {
    fn now() -> u64 {
        NOW.replace(NOW.get() + TICK_NS)
    }
}

impl Spin for Scripted {
    fn pause() {}
}

impl Monitor for Scripted {}

impl Parking for Scripted {
    fn park(_: &AtomicU32, _: u32, _: Option<u64>) {
        unreachable!("no test parks");
    }
    fn unpark(_: *const AtomicU32, _: u32) {}
}

impl Threads for Scripted {
    fn thread_id() -> u32 {
        1
    }
    fn yield_now() {}
}

impl Generation for Scripted {}
impl SliceExtension for Scripted {}

impl Transactions for Scripted {
    fn begin_transaction() -> Begun {
        let mut begun = Begun::Started;
        change(|machine| {
            machine.begun += 1;
            match machine.abort_next {
                Some(abort) => begun = Begun::Aborted(abort),
                None => machine.depth += 1,
            }
        });
        begun
    }

    fn in_transaction() -> bool {
        MACHINE.get().depth > 0
    }

    fn elided_lock() -> usize {
        MACHINE.get().elided_lock
    }

    fn set_elided_lock(address: usize) {
        change(|machine| machine.elided_lock = address);
    }

    fn is_sampled() -> bool {
        let mut sections = 0;
        change(|machine| {
            machine.sections += 1;
            sections = machine.sections;
        });
        sections.is_multiple_of(SAMPLED)
    }

    fn end_transaction() {
        change(|machine| {
            machine.depth -= 1;
            machine.ended += 1;
        });
    }

    /// Returns to the caller, which no processor does. The next `begin_transaction` reports the
    /// abort instead.
    fn abort_transaction(because: Abort) {
        change(|machine| {
            machine.depth = 0;
            machine.elided_lock = 0;
            machine.aborted += 1;
            machine.abort_next = Some(because);
        });
    }
}

impl NodeMemory for Scripted {
    fn take_node() -> *mut Node<Scripted> {
        unreachable!("no thread queues here");
    }
    unsafe fn give_node(_: *mut Node<Scripted>) {}
}
