//! What the threads of one simulated process share beside their locks: load control, its controller, queue nodes.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use unconvoy::load::LoadControl;
use unconvoy::load::controller::{Counters, serve};
use unconvoy::load::sensor::{Reading, Sensor};
use unconvoy::primitive::Atomic as _;
use unconvoy::queue::Node;

use crate::machine::{self, Machine, Simulated, SimulatedCell};

/// A simulated process.
pub struct Process {
    control: &'static LoadControl<Simulated>,
    counters: &'static Counters<Simulated>,
    stop: &'static SimulatedCell<u32>,
    nodes: Nodes,
    tags: &'static [Tag; STRIPES],
    has_controller: bool,
    /// Whether a controller may be started: experiments that set the target themselves have none.
    controlled: bool,
    /// Contexts aimed at, if not all that there are.
    aim: Option<f64>,
    /// Whether the sensor sees the load of the whole machine.
    sees_all: bool,
}

/// Moves `value` to the machine's memory, where it stays as long as the machine.
fn settle<T>(machine: &mut Machine, value: T) -> &'static T {
    // SAFETY: nothing that the machine's threads do outlives it, and nobody else is given such references.
    unsafe { &*machine.place(value) }
}

impl Process {
    /// A process without threads.
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
            control: settle(machine, control),
            counters: settle(machine, counters),
            stop: settle(machine, zero()),
            nodes: Nodes::default(),
            tags: settle(machine, core::array::from_fn(|_| Tag(SimulatedCell::new(0)))),
            has_controller: false,
            controlled: true,
            aim: None,
            sees_all: false,
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

    pub(crate) fn see_all(&mut self) {
        self.sees_all = true;
    }

    /// Intervals that controllers served.
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
    machine::leave_transaction(); // for a call, and before what would not be taken back
    let number = machine::process();
    if own(|process| process.controlled && !core::mem::replace(&mut process.has_controller, true)) {
        machine::start_controller(number, "controller", move || {
            let (control, counters, stop) = own(|process| (process.control, process.counters, process.stop));
            let mut sensor = Accounting { process: number, last: 0, before: (0, 0) };
            serve(control, &mut sensor, counters, stop);
            own(|process| process.has_controller = false);
        });
    }
}

/// The sensor: what the simulated scheduler knows of the process's threads, as Solaris' microstate accounting did
/// (ASPLOS 2010, section 3.2.1). Its cost grows with their number.
struct Accounting {
    process: usize,
    last: u64,
    before: (u64, u64),
}

impl Accounting {
    fn times(&self) -> (u64, u64) {
        let process = own(|process| (!process.sees_all).then_some(self.process));
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
        let runnable = (times.0 + times.1).saturating_sub(self.before.0 + self.before.1) as f64 / span;
        let waiting = times.1.saturating_sub(self.before.1) as f64 / span;
        (self.last, self.before) = (now, times);
        let reading = match own(|process| process.aim) {
            // Threads beyond the aim count as waiting, although there are contexts for them.
            Some(aim) => Reading::of_runnable(runnable, aim),
            None => Reading { runnable, waiting, capacity: machine::capacity() },
        };
        Some(reading)
    }
}

/// Stacks of free queue nodes, as many as the native machine has (`queue/pool.rs`), and with its accesses: one
/// compare-and-swap to take a node and one to give it back.
#[derive(Default)]
struct Nodes {
    stripes: [Vec<*mut Node<Simulated>>; STRIPES],
}

const STRIPES: usize = 16;

/// Moves on with every change of a stripe.
#[repr(align(128))]
struct Tag(SimulatedCell<u64>);

/// Changes the caller's stripe of nodes, after the access that this takes. In no transaction: it would not be taken back.
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
    known.unwrap_or_else(|| machine::with(|machine| machine.place(Node::detached(0, 0))))
}

/// # Safety
///
/// `node` came from [`take_node`], and nobody uses it any more.
pub(crate) unsafe fn give_node(node: *mut Node<Simulated>) {
    with_stripe(|free| free.push(node));
}
