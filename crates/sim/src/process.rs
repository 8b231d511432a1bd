//! Data that the threads of a simulated process share beside their locks: load control, its
//! controller, queue nodes, and visible readers.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use unconvoy::contention::visible::Row;
use unconvoy::load::LoadControl;
use unconvoy::load::controller::{Counters, serve};
use unconvoy::load::sensor::{Reading, Sensor};
use unconvoy::primitive::{Atomic as _, AtomicInt as _};
use unconvoy::queue::Node;

use crate::machine::{self, Machine, Simulated, SimulatedCell};

/// A simulated process.
pub struct Process {
    control: &'static LoadControl<Simulated>,
    counters: &'static Counters<Simulated>,
    stop: &'static SimulatedCell<u32>,
    nodes: Nodes,
    tags: &'static [Tag; STRIPES],
    /// Once the process has a reader-writer lock.
    readers: Option<&'static Readers>,
    has_controller: bool,
    /// Whether a controller may start. Experiments that set the sleep target themselves have none.
    controlled: bool,
    /// Number of contexts the controller aims at, if not the whole machine.
    aim: Option<f64>,
    reads_machine_load: bool,
}

/// Moves `value` to the machine's memory, which lives as long as the machine.
fn allocate<T>(machine: &mut Machine, value: T) -> &'static T {
    // SAFETY: the reference goes only to the machine's threads, and none of them outlives the
    // machine.
    unsafe { &*machine.allocate(value) }
}

impl Process {
    pub(crate) fn new(machine: &mut Machine) -> Self {
        let control = LoadControl::<Simulated>::new();
        let zero = || SimulatedCell::new(0_u32);
        let counters = Counters {
            starts: zero(),
            ticks: zero(),
            busy_ns: SimulatedCell::new(0),
            runnable: zero(),
            capacity: zero(),
        };
        Process {
            control: allocate(machine, control),
            counters: allocate(machine, counters),
            stop: allocate(machine, zero()),
            nodes: Nodes::default(),
            tags: allocate(machine, core::array::from_fn(|_| Tag(SimulatedCell::new(0)))),
            readers: None,
            has_controller: false,
            controlled: true,
            aim: None,
            reads_machine_load: false,
        }
    }

    pub(crate) fn control(&self) -> &'static LoadControl<Simulated> {
        self.control
    }

    pub(crate) fn set_controlled(&mut self, controlled: bool) {
        self.controlled = controlled;
    }

    pub(crate) fn aim_at(&mut self, contexts: f64) {
        self.aim = Some(contexts);
    }

    pub(crate) fn read_machine_load(&mut self) {
        self.reads_machine_load = true;
    }

    pub(crate) fn has_readers(&self) -> bool {
        self.readers.is_some()
    }

    pub(crate) fn set_readers(&mut self, readers: &'static Readers) {
        self.readers = Some(readers);
    }

    /// Number of controller intervals of the process so far.
    pub(crate) fn intervals(&self) -> u32 {
        self.counters.ticks.load(Relaxed)
    }
}

fn own<R>(work: impl FnOnce(&mut Process) -> R) -> R {
    let number = machine::process();
    machine::with(|machine| work(machine.process(number)))
}

pub(crate) fn load_control() -> &'static LoadControl<Simulated> {
    own(|process| process.control)
}

pub(crate) fn ensure_controller() {
    // A transaction cannot contain a system call, and could not undo the start.
    machine::leave_transaction();
    let number = machine::process();
    if own(|process| process.controlled && !core::mem::replace(&mut process.has_controller, true)) {
        machine::start_controller(number, "controller", move || {
            let (control, counters, stop) =
                own(|process| (process.control, process.counters, process.stop));
            let mut sensor = Accounting { process: number, last: 0, before: (0, 0) };
            serve(control, &mut sensor, counters, stop);
            own(|process| process.has_controller = false);
        });
    }
}

/// The load sensor: the simulated scheduler's accounts of the process's threads, like Solaris'
/// microstate accounting (ASPLOS 2010, section 3.2.1). A reading costs time for each thread.
struct Accounting {
    process: usize,
    last: u64,
    before: (u64, u64),
}

impl Accounting {
    fn times(&self) -> (u64, u64) {
        let process = own(|process| (!process.reads_machine_load).then_some(self.process));
        machine::run_times(process)
    }
}

impl Sensor for Accounting {
    fn begin(&mut self, now: u64) {
        self.last = now;
        self.before = self.times();
    }

    fn read(&mut self, now: u64) -> Option<Reading> {
        machine::read_load();
        let times = self.times();
        let span = now.saturating_sub(self.last).max(1) as f64;
        let runnable =
            (times.0 + times.1).saturating_sub(self.before.0 + self.before.1) as f64 / span;
        let waiting = times.1.saturating_sub(self.before.1) as f64 / span;
        (self.last, self.before) = (now, times);
        let reading = match own(|process| process.aim) {
            // Threads beyond the number aimed at count as waiting, even if a context is free for
            // them.
            Some(aim) => Reading::of_runnable(runnable, aim),
            None => Reading { runnable, waiting, capacity: machine::capacity() },
        };
        Some(reading)
    }
}

/// Stacks of free queue nodes, as many as on the native machine (`queue/pool.rs`) and with the same
/// accesses: one compare-and-swap to take a node and one to return it.
#[derive(Default)]
struct Nodes {
    stripes: [Vec<*mut Node<Simulated>>; STRIPES],
}

const STRIPES: usize = 16;

/// A version that every change of a stripe increments.
#[repr(align(128))]
struct Tag(SimulatedCell<u64>);

/// Runs `work` on the caller's stripe of nodes, after the compare-and-swap that guards it. Aborts a
/// transaction, which could not undo the change.
fn with_stripe<R>(work: impl FnOnce(&mut Vec<*mut Node<Simulated>>) -> R) -> R {
    machine::leave_transaction();
    let stripe = machine::thread() as usize % STRIPES;
    let Tag(tag) = own(|process| &process.tags[stripe]);
    let mut seen = tag.load(Acquire);
    while let Err(now) = tag.compare_exchange(seen, seen.wrapping_add(1), AcqRel, Acquire) {
        seen = now;
    }
    own(|process| work(&mut process.nodes.stripes[stripe]))
}

pub(crate) fn take_node() -> *mut Node<Simulated> {
    let known = with_stripe(Vec::pop);
    known.unwrap_or_else(|| machine::with(|machine| machine.allocate(Node::detached(0, 0))))
}

/// # Safety
///
/// `node` came from [`take_node`], and no thread uses it any longer.
pub(crate) unsafe fn give_node(node: *mut Node<Simulated>) {
    with_stripe(|free| free.push(node));
}

/// The visible readers of a process, as many rows as on the native machine (`runtime/readers.rs`).
pub(crate) struct Readers {
    rows: [Row<Simulated>; ROWS],
    /// Rows given so far, including those given to a second thread.
    given: SimulatedCell<u64>,
}

const ROWS: usize = 256;

impl Readers {
    pub(crate) fn new() -> Self {
        let rows = core::array::from_fn(|_| Row::empty());
        Readers { rows, given: SimulatedCell::new(0) }
    }
}

/// The calling thread's row; `None` in a process without reader-writer locks.
pub(crate) fn own_row() -> Option<&'static Row<Simulated>> {
    let readers = own(|process| process.readers)?;
    let row = machine::row().unwrap_or_else(|| {
        let row = readers.given.fetch_add(1, SeqCst) as usize % ROWS;
        machine::set_row(row);
        row
    });
    Some(&readers.rows[row])
}

/// Every row that a thread of the process has.
pub(crate) fn rows() -> &'static [Row<Simulated>] {
    let given = |readers: &'static Readers| {
        let given = readers.given.load(SeqCst) as usize;
        &readers.rows[..given.min(ROWS)]
    };
    own(|process| process.readers).map_or(&[], given)
}
