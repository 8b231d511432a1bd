//! Costs of the machine's operations, one by one, and reproducibility by seed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use unconvoy_sim::machine::{self, Activity, Counts, Word};
use unconvoy_sim::pair;
use unconvoy_sim::parameters::{Count, Parameters};
use unconvoy_sim::presets;
use unconvoy_sim::simulation::Simulation;
use unconvoy_sim::workload;

/// Two sockets with two caches of two cores of one context, and costs in round numbers.
fn plain() -> Parameters {
    let mut parameters = presets::named("server").expect("a preset");
    let topology = &mut parameters.topology;
    topology.sockets = Count::new(2);
    topology.caches_per_socket = Count::new(2);
    topology.cores_per_cache = Count::new(2);
    topology.contexts_per_core = Count::new(1);
    let memory = &mut parameters.memory;
    (memory.hit_ns, memory.same_cache_ns, memory.same_socket_ns) = (1, 20, 50);
    (memory.other_socket_ns, memory.memory_ns, memory.rmw_ns) = (100, 80, 5);
    (memory.read_occupancy_ns, memory.clock_ns, memory.shared_core_slowdown) = (10, 0, 0);
    memory.store_buffer = false; // The tests measure the cost of stores.
    parameters
}

fn simulation(parameters: &Parameters) -> Simulation {
    Simulation::new(parameters, 1).expect("memory")
}

/// Runs until all threads have ended.
fn finish(simulation: &mut Simulation) {
    simulation.run(u64::MAX - 1).unwrap_or_else(|hang| panic!("{hang}"));
}

type Times = Rc<RefCell<Vec<(u32, u64)>>>;

/// Starts thread `n` on context `n`. It runs `work` at `begin` ns after the start and records its
/// duration.
fn timed(
    simulation: &mut Simulation,
    process: usize,
    begin: u64,
    times: &Times,
    work: impl FnOnce() + 'static,
) {
    let times = times.clone();
    simulation.spawn(process, "timed", move || {
        let now = machine::now();
        machine::work((1_000_000 + begin).saturating_sub(now));
        let before = machine::now();
        work();
        let after = machine::now();
        times.borrow_mut().push((machine::current(), after - before));
    });
}

fn took(times: &Times, thread: u32) -> u64 {
    times.borrow().iter().find(|(who, _)| *who == thread).expect("it has ended").1
}

#[test]
fn access_cost_depends_on_line_location() {
    let mut simulation = simulation(&plain());
    let process = simulation.process();
    let word = simulation.word();
    let times = Times::default();
    // Context 0 gets the line from memory, the others from each other.
    let steps =
        [(0, 80 + 1), (10_000, 20 + 20), (20_000, 50 + 50), (30_000, 100), (40_000, 100 + 100)];
    for (begin, _) in steps {
        timed(&mut simulation, process, begin, &times, move || word.increment());
    }
    finish(&mut simulation);
    assert_eq!(took(&times, 0), 81, "from memory, then a hit on the only copy");
    assert_eq!(took(&times, 1), 40, "from the neighbour, whose copy is then invalidated");
    assert_eq!(took(&times, 2), 100, "from another cache of the socket");
    assert_eq!(took(&times, 3), 40, "from the neighbour again");
    assert_eq!(took(&times, 4), 200, "from the other socket");
}

#[test]
fn concurrent_transfers_of_one_line_are_serialised() {
    let mut simulation = simulation(&plain());
    let process = simulation.process();
    let (word, others) =
        (simulation.word(), [simulation.word(), simulation.word(), simulation.word()]);
    let times = Times::default();
    timed(&mut simulation, process, 0, &times, move || word.increment());
    // Three contexts access the same line at the same time, and then a line each.
    for _ in 0..3 {
        timed(&mut simulation, process, 10_000, &times, move || word.increment());
    }
    finish(&mut simulation);
    let mut one: Vec<u64> = (1..4).map(|thread| took(&times, thread)).collect();
    one.sort_unstable();
    assert!(one[2] > one[0] + 50, "{one:?}");

    let mut simulation = self::simulation(&plain());
    let process = simulation.process();
    let others = others.map(|_| simulation.word());
    let times = Times::default();
    for other in others {
        timed(&mut simulation, process, 10_000, &times, move || other.increment());
    }
    finish(&mut simulation);
    let apart: Vec<u64> = (0..3).map(|thread| took(&times, thread)).collect();
    assert_eq!(apart, [81, 81, 81]);
}

#[test]
fn threads_on_one_context_alternate_by_slices() {
    let mut parameters = plain();
    parameters.topology.sockets = Count::new(1);
    parameters.topology.caches_per_socket = Count::new(1);
    parameters.topology.cores_per_cache = Count::new(1);
    let mut simulation = simulation(&parameters);
    let process = simulation.process();
    let ends: Times = Rc::default();
    for _ in 0..3 {
        let ends = ends.clone();
        simulation.spawn(process, "burner", move || {
            machine::set_activity(Activity::Work);
            (0..100).for_each(|_| machine::work(1_000_000));
            let end = machine::now();
            ends.borrow_mut().push((machine::current(), end));
        });
    }
    finish(&mut simulation);
    let slice = parameters.scheduler.slice_ns + parameters.scheduler.tick_ns;
    for &(_, end) in ends.borrow().iter() {
        assert!(end > 300_000_000 - 3 * slice && end < 310_000_000, "{end}");
    }
    for thread in 0..3 {
        let split = simulation.split(thread);
        assert!(split.working_ns.abs_diff(100_000_000) < 1_000_000, "{split:?}");
        assert!(split.ready_ns > 100_000_000, "{split:?}");
    }
    let counts = simulation.counts();
    assert!(counts.preemptions > 40 && counts.preemptions < 110, "{counts:?}");
}

#[test]
fn idle_context_steals_waiting_thread() {
    let mut simulation = simulation(&plain());
    let process = simulation.process();
    let end = Rc::new(Cell::new(0));
    for _ in 0..16 {
        let end = end.clone();
        simulation.spawn(process, "burner", move || {
            (0..50).for_each(|_| machine::work(1_000_000));
            end.set(machine::now());
        });
    }
    finish(&mut simulation);
    // Twice as many threads as contexts: slightly more than 100 ms.
    assert!((99_000_000..115_000_000).contains(&end.get()), "{}", end.get());
}

#[test]
fn parked_threads_wake_in_order() {
    let parameters = plain();
    let mut simulation = simulation(&parameters);
    let process = simulation.process();
    let word = simulation.word();
    let woken: Times = Rc::default();
    for thread in 0..3_u64 {
        let woken = woken.clone();
        simulation.spawn(process, "sleeper", move || {
            machine::work(thread * 100_000);
            // Three calls: before parking, while parking, and after the wake-up.
            let asked = Cell::new(0);
            machine::wait_for_word(&word, || asked.replace(asked.get() + 1) < 2);
            let at = machine::now();
            woken.borrow_mut().push((machine::current(), at));
        });
    }
    simulation.spawn(process, "waker", move || {
        machine::work(10_000_000);
        for _ in 0..3 {
            word.wake_one();
            machine::work(1_000_000);
        }
    });
    finish(&mut simulation);
    let woken = woken.borrow();
    assert_eq!(woken.iter().map(|(thread, _)| *thread).collect::<Vec<_>>(), [0, 1, 2]);
    let scheduler = &parameters.scheduler;
    let least = scheduler.switch_ns + scheduler.idle_exit_ns;
    for (number, (_, at)) in woken.iter().enumerate() {
        let after = at - 10_000_000 - 1_000_000 * number as u64;
        assert!((least..least + 10_000).contains(&after), "{after} ns after the wake-up");
    }
}

#[test]
fn switch_cap_limits_switches() {
    let switches = |cap: u64| -> Counts {
        let mut parameters = plain();
        parameters.scheduler.switches_per_s = cap;
        let mut simulation = simulation(&parameters);
        let process = simulation.process();
        for _ in 0..8 {
            simulation.spawn(process, "napper", || {
                loop {
                    machine::wait_for_io(1_000);
                    machine::now();
                }
            });
        }
        simulation.run(100_000_000).unwrap_or_else(|hang| panic!("{hang}"));
        simulation.counts()
    };
    // Each of the 8 threads runs again after 1 us of sleep and a few us of overhead.
    assert!(switches(0).switches > 80_000, "{:?}", switches(0));
    let capped = switches(10_000).switches;
    assert!((900..=1_020).contains(&capped), "{capped} in a tenth of a second");
}

#[test]
fn deadlock_lists_blocked_threads() {
    let mut simulation = simulation(&plain());
    let process = simulation.process();
    let word = simulation.word();
    simulation.spawn(process, "forgotten", move || machine::wait_for_word(&word, || true));
    let hang = simulation.run(1_000_000_000).expect_err("no thread wakes it");
    assert!(
        hang.to_string().contains("forgotten") && hang.to_string().contains("Blocked"),
        "{hang}"
    );
}

/// The outcome of a run, for comparison.
fn fingerprint(lock: &str, seed: u64) -> (Vec<u64>, Counts) {
    let mut simulation =
        Simulation::new(&presets::named("niagara2-16").expect("a preset"), seed).expect("memory");
    let process = simulation.process();
    let mix = workload::named("tm1").expect("a workload");
    let pair = pair::named(lock).expect("a pair");
    let running = workload::start(&mut simulation, process, &mix, pair, 40);
    simulation.run(60_000_000).unwrap_or_else(|hang| panic!("{lock}: {hang}"));
    (running.finished(), simulation.counts())
}

#[test]
fn equal_seeds_on_any_host_thread_give_equal_results() {
    for lock in [
        "loiter+control",
        "tpmcs+control",
        "ttas+backoff",
        "futex+none",
        "ticket+yield",
        "mcs+gcr",
        "clh+malthus",
    ] {
        let first = fingerprint(lock, 7);
        assert_eq!(first, fingerprint(lock, 7), "{lock}");
        let elsewhere = std::thread::scope(|scope| {
            let others: Vec<_> = (0..2).map(|_| scope.spawn(|| fingerprint(lock, 7))).collect();
            others.into_iter().map(|other| other.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(elsewhere.iter().all(|other| *other == first), "{lock}");
        assert_ne!(first, fingerprint(lock, 8), "{lock}: the seed has no effect");
    }
}

/// This machine has no sensor for the rule `notice`.
#[test]
fn ablated_load_control_runs_under_every_set_of_rules() {
    for (rules, _) in unconvoy::load::rules::ABLATIONS {
        for lock in ["loiter", "tpmcs"] {
            fingerprint(&format!("{lock}+control@{rules}"), 7);
        }
    }
    let shipped = fingerprint("tpmcs+control", 7);
    assert_eq!(shipped, fingerprint("tpmcs+control@without-notice", 7));
    assert_ne!(shipped, fingerprint("tpmcs+control@no-rules", 7), "no rule changes the run");
}

#[test]
fn polling_unchanged_line_is_not_simulated() {
    let mut simulation = simulation(&plain());
    let process = simulation.process();
    let lock = simulation.lock(process, pair::named("ticket+none").expect("a pair"));
    let seen = Rc::new(Cell::new(0));
    simulation.spawn(process, "holder", move || {
        lock.lock();
        machine::work(50_000_000);
        lock.unlock();
    });
    for _ in 0..7 {
        let seen = seen.clone();
        simulation.spawn(process, "waiter", move || {
            machine::work(1_000_000);
            lock.lock();
            seen.set(seen.get() + machine::now() / 7);
            lock.unlock();
        });
    }
    finish(&mut simulation);
    assert!(
        (50_000_000..50_100_000).contains(&seen.get()),
        "all acquired it right after the holder: {}",
        seen.get()
    );
    // Simulated turn by turn, at 45 ns each, the wait would take 7 million turns.
    assert!(simulation.counts().accesses < 700_000, "{:?}", simulation.counts());
}

#[test]
fn simulated_accesses_per_second() {
    let parameters = presets::named("niagara2-64").expect("a preset");
    let mut simulation = simulation(&parameters);
    let process = simulation.process();
    for _ in 0..64 {
        let word: Word = simulation.word();
        simulation.spawn(process, "worker", move || {
            loop {
                for _ in 0..20 {
                    word.increment();
                }
                machine::work(500);
            }
        });
    }
    let begin = std::time::Instant::now();
    simulation.run(20_000_000).unwrap_or_else(|hang| panic!("{hang}"));
    let elapsed = begin.elapsed().as_secs_f64();
    let counts = simulation.counts();
    println!(
        "{:.1} million accesses per second, {counts:?}",
        counts.accesses as f64 / elapsed / 1e6
    );
}
