//! `monitor` and `mwait` of the simulated machine, and the lock that waits by them.

use std::cell::RefCell;
use std::rc::Rc;

use unconvoy_sim::machine::{self, Word};
use unconvoy_sim::outcome::{self, Point, Stop};
use unconvoy_sim::parameters::{Count, Parameters};
use unconvoy_sim::presets;
use unconvoy_sim::simulation::Simulation;
use unconvoy_sim::workload;

const EXIT_NS: u64 = 700;
const TICK_NS: u64 = 1_000_000;
const A_SECOND: u64 = 1_000_000_000;

/// Two cores behind one cache, and costs in round numbers.
fn plain(contexts_per_core: u32) -> Parameters {
    let mut parameters = presets::named("server").expect("a preset");
    let topology = &mut parameters.topology;
    (topology.sockets, topology.caches_per_socket) = (Count::new(1), Count::new(1));
    topology.cores_per_cache = Count::new(2);
    topology.contexts_per_core = Count::new(contexts_per_core);
    let memory = &mut parameters.memory;
    (memory.hit_ns, memory.same_cache_ns, memory.memory_ns) = (1, 20, 80);
    (memory.clock_ns, memory.shared_core_slowdown) = (0, 500);
    memory.mwait_exit_ns = Some(EXIT_NS);
    memory.store_buffer = false;
    parameters.scheduler.tick_ns = TICK_NS;
    parameters
}

/// Runs `waiter` on one core, 1 ms and 300 us after the start, and `other` on the next core 10 us
/// later. Returns how long `waiter` took.
fn time_waiter(
    parameters: &Parameters,
    waiter: impl FnOnce(&Word) + 'static,
    other: impl FnOnce(&Word) + 'static,
) -> u64 {
    let mut simulation = Simulation::new(parameters, 1).expect("memory");
    let process = simulation.process();
    let word = simulation.word();
    let took = Rc::new(RefCell::new(None));
    let result = took.clone();
    simulation.spawn(process, "waiter", move || {
        machine::work(1_300_000 - machine::now());
        let begin = machine::now();
        waiter(&word);
        *result.borrow_mut() = Some(machine::now() - begin);
    });
    simulation.spawn(process, "other", move || {
        machine::work(1_310_000 - machine::now());
        other(&word);
    });
    simulation.run(A_SECOND).unwrap_or_else(|hang| panic!("{hang}"));
    took.take().expect("the waiter has ended")
}

#[test]
fn write_ends_the_wait_after_the_exit_latency() {
    let took = time_waiter(&plain(1), |word| word.mwait(0, A_SECOND), |word| word.set(1));
    assert_eq!(took, 10_000 + 20 + EXIT_NS, "the write's transfer, then the exit");
}

#[test]
fn woken_waiter_pays_for_the_transfer() {
    let look = |word: &Word| {
        word.mwait(0, A_SECOND);
        assert_eq!(word.get(), 1);
    };
    let took = time_waiter(&plain(1), look, |word| word.set(1));
    assert_eq!(took, 10_000 + 20 + EXIT_NS + 20);
}

#[test]
fn changed_word_is_not_waited_for() {
    let took = time_waiter(&plain(1), |word| word.mwait(7, A_SECOND), |_| {});
    assert_eq!(took, 80, "the line from memory");
}

#[test]
fn wait_ends_at_its_limit() {
    let took = time_waiter(&plain(1), |word| word.mwait(0, 2_000), |_| {});
    assert_eq!(took, 80 + 2_000 + EXIT_NS);
}

#[test]
fn timer_interrupt_ends_the_wait() {
    let took = time_waiter(&plain(1), |word| word.mwait(0, A_SECOND), |_| {});
    assert_eq!(took, TICK_NS - 300_000 + EXIT_NS, "the first context ticks at whole milliseconds");
}

#[test]
fn machine_without_mwait_does_not_wait() {
    let mut parameters = plain(1);
    parameters.memory.mwait_exit_ns = None;
    let took = time_waiter(&parameters, |word| word.mwait(0, A_SECOND), |_| {});
    assert_eq!(took, 80);
}

#[test]
fn context_in_mwait_leaves_its_core_to_the_other() {
    let time_work = |waits: bool| {
        let mut simulation = Simulation::new(&plain(2), 1).expect("memory");
        let process = simulation.process();
        let word = simulation.word();
        let took = Rc::new(RefCell::new(None));
        let result = took.clone();
        // The first two threads get a core each, the third shares the first one's.
        simulation.spawn(process, "worker", move || {
            machine::work(1_300_000 - machine::now());
            let begin = machine::now();
            machine::work(1_000);
            *result.borrow_mut() = Some(machine::now() - begin);
        });
        simulation.spawn(process, "apart", || {});
        simulation.spawn(process, "sibling", move || {
            machine::work(1_100_000 - machine::now());
            if waits {
                word.mwait(0, A_SECOND)
            } else {
                machine::work(2_000_000)
            }
            machine::now(); // The thread ends when the machine's time has reached its own.
        });
        simulation.run(A_SECOND).unwrap_or_else(|hang| panic!("{hang}"));
        took.take().expect("the worker has ended")
    };
    assert_eq!([false, true].map(time_work), [1_500, 1_000]);
}

/// The share of eight threads' time that they wait in `mwait` for a requester-based lock.
fn share_in_mwait(exit_ns: Option<u64>, program: &str) -> f64 {
    let mut machine = presets::named("opteron-32").expect("a preset");
    machine.memory.mwait_exit_ns = exit_ns;
    let point = Point {
        machine,
        workload: workload::named(program).expect("a workload"),
        lock: "requester+none".to_string(),
        threads: 8,
        seconds: 0.002,
        warm_up: None,
        seed: 1,
        interval_ns: None,
    };
    let outcome = outcome::simulate(&point, &Stop::new(false)).expect("no hang");
    assert!(outcome.per_s > 0.0 && outcome.fairness > 0.9, "{outcome:?}");
    let parts = outcome.split;
    let sum = parts.working + parts.spinning + parts.inverted + parts.mwait;
    assert!((sum - 1.0).abs() < 0.001, "nothing is counted twice: {parts:?}");
    parts.mwait
}

#[test]
fn requesters_beyond_the_first_wait_in_mwait_where_there_is_one() {
    for program in ["sockbench", "counter"] {
        assert!(share_in_mwait(Some(1_000), program) > 0.05, "{program}");
        assert_eq!(share_in_mwait(None, program), 0.0, "{program}");
    }
}
