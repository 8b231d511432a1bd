//! Solaris' time-sharing class on whole machines, and its keys in a machine file. The schedules by
//! the dispatch table are in `machine/scheduler/tests/dispatcher.rs`.

use std::cell::Cell;
use std::rc::Rc;

use unconvoy_sim::dispatch::{Dispatch, Level};
use unconvoy_sim::machine::{self, Counts};
use unconvoy_sim::machine_file::parse;
use unconvoy_sim::pair;
use unconvoy_sim::parameters::{Order, Parameters};
use unconvoy_sim::presets;
use unconvoy_sim::simulation::Simulation;
use unconvoy_sim::workload;

/// The papers' machine with 16 contexts, under Solaris' time-sharing class.
fn solaris() -> Parameters {
    let mut machine = presets::named("niagara2-16").expect("a preset");
    machine.scheduler.order = Order::TimeSharing;
    machine
}

fn text(machine: &Parameters) -> String {
    toml::to_string(machine).expect("a machine file")
}

#[test]
fn machine_file_keeps_order_and_table() {
    let mut machine = solaris();
    assert_eq!(parse(&text(&machine)), Ok(machine.clone()));
    let levels: Vec<Level> = Dispatch::SOLARIS.into();
    let doubled = |level: Level| Level { quantum_ms: 2 * level.quantum_ms, ..level };
    let levels: Vec<Level> = levels.into_iter().map(doubled).collect();
    machine.scheduler.dispatch = Some(Dispatch::try_from(levels).expect("60 levels"));
    assert_eq!(parse(&text(&machine)), Ok(machine));
}

#[test]
fn invalid_table_is_rejected_with_key_line_and_range() {
    let mut machine = solaris();
    machine.scheduler.dispatch = Some(Dispatch::SOLARIS);
    let valid = text(&machine);
    let line = valid.lines().position(|line| line.starts_with("dispatch")).expect("the key") + 1;
    // One row a line, as a user would write the table.
    let valid = valid.replace("], [", "],\n[");
    let row = |number: usize| format!("line {}", line + number);
    for (text, place, why) in [
        (
            valid.replacen("[200, 0, 50, 0, 50]", "[0, 0, 50, 0, 50]", 1),
            0,
            "quantum is 0; use 1 to",
        ),
        (valid.replace("[20, 49, 59, 32000, 59]", "[20, 49, 59, 32000, 60]"), 59, "use 0 to 59"),
        (valid.replace("[40, 40, 58, 0, 59],\n", ""), 0, "has 59 rows; use 60"),
        (valid.replace("time-sharing", "deadline"), 0, "needs scheduler.order = \"time-sharing\""),
    ] {
        let error = parse(&text).expect_err("refused");
        assert!(error.contains(&row(place)) && error.contains(why), "{error}");
        assert!(error.contains("scheduler.dispatch"), "{error}");
    }
}

/// Threads' transactions and the machine's totals after some simulated seconds of TM-1.
fn tm1(machine: &Parameters, lock: &str, threads: u32, seconds: f64) -> (Vec<u64>, Counts) {
    let mut simulation = Simulation::new(machine, 1).expect("memory");
    let process = simulation.process();
    let mix = workload::named("tm1").expect("a workload");
    let pair = pair::named(lock).expect("a pair");
    let running = workload::start(&mut simulation, process, &mix, pair, threads);
    simulation.run((seconds * 1e9) as u64).unwrap_or_else(|hang| panic!("{lock}: {hang}"));
    (running.finished(), simulation.counts())
}

#[test]
fn every_kind_of_lock_runs_and_repeats() {
    let pairs = ["tpmcs-yield+none", "tpmcs-slice+none", "tpmcs+control", "ttas+park"];
    for lock in pairs.into_iter().chain(["solaris", "pipelined"]) {
        let first = tm1(&solaris(), lock, 40, 0.1);
        assert!(first.0.iter().sum::<u64>() > 0, "{lock}");
        assert_eq!(first, tm1(&solaris(), lock, 40, 0.1), "{lock}");
    }
}

#[test]
fn quanta_of_the_table_decide_how_often_threads_are_preempted() {
    let preemptions = |factor: u32| {
        let mut machine = solaris();
        let levels: Vec<Level> = Dispatch::SOLARIS.into();
        let scaled = |level: Level| Level { quantum_ms: factor * level.quantum_ms, ..level };
        let levels: Vec<Level> = levels.into_iter().map(scaled).collect();
        machine.scheduler.dispatch = Some(Dispatch::try_from(levels).expect("60 levels"));
        burn(&machine, 32, 900_000_000).1
    };
    let (once, tenfold) = (preemptions(1), preemptions(10));
    assert!(once > 5 * tenfold, "{once} and {tenfold}");
}

/// Nanoseconds that each computing thread has run until `end`, and the number of preemptions.
fn burn(machine: &Parameters, threads: u32, end: u64) -> (Vec<u64>, u64) {
    let mut simulation = Simulation::new(machine, 1).expect("memory");
    let process = simulation.process();
    let burners: Vec<u32> = (0..threads)
        .map(|_| {
            simulation.spawn(process, "burner", || {
                loop {
                    machine::work(100_000);
                    machine::now();
                }
            })
        })
        .collect();
    simulation.run(end).unwrap_or_else(|hang| panic!("{hang}"));
    let ran = burners.iter().map(|&burner| simulation.split(burner).on_processor_ns()).collect();
    (ran, simulation.counts().preemptions)
}

#[test]
fn waiting_threads_get_a_context_after_a_second_at_most() {
    // Without the rise once a second, threads at low levels would wait for those that sleep often.
    let mut simulation = Simulation::new(&solaris(), 1).expect("memory");
    let process = simulation.process();
    for _ in 0..64 {
        simulation.spawn(process, "sleeper", || {
            loop {
                machine::work(1_000_000);
                machine::wait_for_io(10_000);
            }
        });
    }
    let longest = Rc::new(Cell::new(0));
    let seen = longest.clone();
    simulation.spawn(process, "burner", move || {
        let mut before = machine::now();
        loop {
            machine::work(100_000);
            let now = machine::now();
            seen.set(seen.get().max(now - before));
            before = now;
        }
    });
    simulation.run(5_000_000_000).unwrap_or_else(|hang| panic!("{hang}"));
    assert!((300_000_000..1_300_000_000).contains(&longest.get()), "{}", longest.get());
}
