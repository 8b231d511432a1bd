//! A machine with costs in round numbers, and threads that meet on it.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::rc::Rc;

use unconvoy_sim::machine::{self, TransactionCounts, Word};
use unconvoy_sim::parameters::{Count, Parameters, Policy, Transactions};
use unconvoy_sim::presets;
use unconvoy_sim::simulation::Simulation;

pub(crate) const POLICIES: [Policy; 2] = [Policy::Requester, Policy::Timestamp];

pub(crate) fn lines(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).expect("not 0")
}

/// Cores of one context behind one cache, with costs in round numbers and without backoff.
pub(crate) fn plain(policy: Policy, cores: u32) -> Parameters {
    let mut parameters = presets::named("server").expect("a preset");
    let topology = &mut parameters.topology;
    (topology.sockets, topology.caches_per_socket) = (Count::new(1), Count::new(1));
    (topology.cores_per_cache, topology.contexts_per_core) = (Count::new(cores), Count::new(1));
    let memory = &mut parameters.memory;
    (memory.hit_ns, memory.same_cache_ns, memory.memory_ns, memory.rmw_ns) = (1, 20, 80, 5);
    (memory.read_occupancy_ns, memory.clock_ns, memory.shared_core_slowdown) = (10, 0, 0);
    memory.store_buffer = false; // The tests measure the cost of stores.
    parameters.transactions = Some(Transactions {
        policy,
        read_lines: lines(1024),
        write_lines: lines(512),
        write_ways: lines(8),
        begin_ns: 10,
        commit_ns: 20,
        abort_ns: 30,
        backoff_first_ns: 0,
        backoff_limit_ns: 0,
    });
    parameters
}

pub(crate) fn with_backoff(mut parameters: Parameters) -> Parameters {
    if let Some(transactions) = &mut parameters.transactions {
        (transactions.backoff_first_ns, transactions.backoff_limit_ns) = (100, 10_000);
    }
    parameters
}

/// Start of the scenarios; all threads run by then.
pub(crate) const START: u64 = 1_000_000;

/// A machine with threads that each run on a context from [`START`].
pub(crate) struct Scenario {
    pub(crate) simulation: Simulation,
    pub(crate) process: usize,
}

impl Scenario {
    pub(crate) fn new(parameters: &Parameters) -> Self {
        let mut simulation = Simulation::new(parameters, 1).expect("memory");
        let process = simulation.process();
        Scenario { simulation, process }
    }

    pub(crate) fn words<const N: usize>(&mut self) -> [Word; N] {
        core::array::from_fn(|_| self.simulation.word())
    }

    /// Adds a thread that runs `work` at `after` nanoseconds after the start.
    pub(crate) fn thread(&mut self, after: u64, work: impl FnOnce() + 'static) {
        self.simulation.spawn(self.process, "thread", move || {
            let now = machine::now();
            machine::work((START + after).saturating_sub(now));
            machine::now();
            work();
        });
    }

    /// Runs until all threads have ended.
    pub(crate) fn finish(&mut self) -> TransactionCounts {
        self.simulation.run(u64::MAX - 1).unwrap_or_else(|hang| panic!("{hang}"));
        self.simulation.transactions()
    }
}

pub(crate) type Times = Rc<RefCell<Vec<u64>>>;

/// Nanoseconds since the start.
fn clock() -> u64 {
    machine::now() - START
}

/// Runs a transaction whose first attempt does `first` and whose second does nothing. Records the
/// beginnings of the attempts and the end.
pub(crate) fn once(times: &Times, first: impl Fn()) {
    let tries = Cell::new(0);
    let result = machine::transaction(|| {
        times.borrow_mut().push(clock());
        if tries.replace(tries.get() + 1) == 0 {
            first();
        }
    });
    assert_eq!(result, Ok(()));
    times.borrow_mut().push(clock());
}
