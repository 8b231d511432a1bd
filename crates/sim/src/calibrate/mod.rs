//! The machine that this runs on, as a machine to simulate: measured where that can be done in some seconds, without
//! privilege and without hardware counters; taken from the `host` preset elsewhere.
//!
//! | measured | how |
//! | --- | --- |
//! | caches and atomics | [`memory`]: chains of dependent loads; a line that goes back and forth between two contexts |
//! | futexes, switches, timers, the sensor | [`threads`]: threads that are confined to one context or two |
//! | time slices, preemption at wake-up | [`turns`]: threads that share one context |
//! | the benchmark's programs on one thread | [`programs`]: their loops, without contention |
//! | how contexts are grouped | [`topology`]: what the kernel says below `/sys/devices/system/cpu` |
//!
//! Everything is measured in some rounds, one after the other, so that a disturbance of a second falls on one round of many
//! quantities and not on all of one. A round is a median of tries; a number is the lower quartile of the rounds, or of
//! differences the median; the spread is the least and the greatest round. What is *not* measured is in the file as well, with the reason. Virtual
//! machines report the caches that their hypervisor makes up.

mod file;
mod memory;
mod programs;
mod quantity;
mod threads;
mod topology;
mod tries;
mod turns;

use std::time::Duration;

use crate::outcome::{self, Point, Stop};
use crate::parameters::{Calibrated, Parameters, Programs};
use crate::presets;
use crate::workload::{Workload, bench_counter, hashtable};

pub use crate::presets::default_path;
pub use file::to_toml;
use programs::Loops;
pub use quantity::{Calibration, Quantity};
use topology::Processors;
use tries::Outcome;

/// The usual rounds of a calibration.
pub const ROUNDS: u32 = 11;

/// Above this part of the processors' time, others keep the machine busy.
const BUSY: f64 = 0.05;

/// What has been found in a round, and who is told of each quantity.
struct Round<'a> {
    found: Vec<(&'static str, &'static str, Outcome)>,
    step: &'a mut dyn FnMut(&'static str) -> anyhow::Result<()>,
}

impl Round<'_> {
    fn note(&mut self, key: &'static str, what: &'static str, measure: impl FnOnce() -> Outcome) -> anyhow::Result<()> {
        (self.step)(key)?;
        self.found.push((key, what, measure()));
        Ok(())
    }
}

/// Measures this machine in so many rounds, of some three seconds each. `step` is told of each quantity, and may end it.
///
/// # Errors
///
/// `step`'s.
pub fn calibrate(
    rounds: usize,
    step: &mut dyn FnMut(&'static str) -> anyhow::Result<()>,
) -> anyhow::Result<Calibration> {
    let others = load_of_others(Duration::from_millis(300));
    let processors = Processors::of_this_machine();
    let mut quantities: Vec<Quantity> = Vec::new();
    for _ in 0..rounds.max(1) {
        let mut round = Round { found: Vec::new(), step };
        measure(&processors, &mut round)?;
        for (key, what, outcome) in round.found {
            let known = quantities.iter_mut().find(|quantity| quantity.key == key);
            match (known, outcome) {
                (None, outcome) => quantities.push(Quantity { key, what, rounds: outcome.map(|value| vec![value]) }),
                (Some(Quantity { rounds: Ok(values), .. }), Ok(value)) => values.push(value),
                (Some(known), Ok(value)) => known.rounds = Ok(vec![value]),
                (Some(_), Err(_)) => {} // what another round found out is better than nothing
            }
        }
    }
    for quantity in &mut quantities {
        if let Ok(values) = &mut quantity.rounds {
            values.sort_by(f64::total_cmp);
        }
    }
    let machine = machine(&processors, &quantities, others);
    Ok(Calibration { machine, quantities, others })
}

/// Quantities of a round.
pub fn steps() -> usize {
    31
}

fn measure(processors: &Processors, round: &mut Round) -> anyhow::Result<()> {
    let (one, two) = (processors.first(), processors.any_two());
    round.note("hit_ns", "a step along a chain of dependent loads in 2 KiB", || Ok(memory::hit()))?;
    round.note("memory_ns", "a step along such a chain in 64 MiB, in no order", || Ok(memory::miss()))?;
    round.note("rmw_ns", "an atomic addition that depends on the one before, beyond a load", || {
        Ok(memory::read_modify_write())
    })?;
    round.note("fence_ns", "a full fence after a store", || Ok(memory::fence()))?;
    round.note("pause_ns", "the instruction of a waiting loop", || Ok(memory::pause()))?;
    round.note("clock_ns", "a look at the monotonic clock", || Ok(memory::clock()))?;
    round.note("same_cache_ns", "a quarter of a round of one line between two cores of one cache", || {
        processors.same_cache().map(memory::transfer)
    })?;
    round.note("same_socket_ns", "the same between two caches", || processors.same_socket().map(memory::transfer))?;
    round
        .note("other_socket_ns", "the same between two sockets", || processors.other_socket().map(memory::transfer))?;
    round.note(
        "shared_core_slowdown",
        "thousandths by which computation slows down beside the core's other context",
        || processors.perhaps_same_core().map(memory::slowdown),
    )?;

    round.note("tick_ns", "what the coarse clock moves by", || Ok(threads::tick()))?;
    round.note("slice_ns", "the shortest turn of a thread that is preempted by a tick for another one", || {
        turns::slice(one)
    })?;
    round.note("wake_preempt_ns", "how long a thread has to run for a woken one to preempt it", || {
        turns::wake_preemption(one)
    })?;
    round.note("park_ns", "futex wait on a word that has changed", || Ok(threads::park_call()))?;
    round.note("wake_call_ns", "futex wake of nobody", || Ok(threads::wake_call()))?;
    let call = threads::wake_call();
    round.note("wake_thread_ns", "beyond that, a wake of a thread that is queued on the waker's processor", || {
        Ok(threads::wake_behind(one) - call)
    })?;
    let behind = threads::wake_behind(one);
    let wake = two.map(threads::wake);
    round.note("wake_idle_ns", "beyond that, a wake of a thread whose processor is idle", || {
        wake.map(|wake| wake.call - behind)
    })?;
    round.note("idle_exit_ns", "from the end of that call until the thread runs, without the switch", || {
        wake.map(|wake| wake.latency - wake.call - threads::yield_switch(one))
    })?;
    round.note("switch_ns", "sched_yield between two threads of one processor, without the call", || {
        Ok(threads::yield_switch(one) - threads::yield_call(one))
    })?;
    round.note("yield_ns", "sched_yield to nobody", || Ok(threads::yield_call(one)))?;
    round.note("timer_slack_ns", "by how much a sleep of 1 ms is too long, beyond the way out of idleness", || {
        Ok(threads::lateness() - wake.map_or(0.0, |wake| wake.latency - wake.call))
    })?;
    round.note("spawn_ns", "starting a thread", threads::spawn)?;
    let few = threads::reading(0);
    round.note("sensor_ns", "a reading of the default sensor with one thread", || few)?;
    round.note("sensor_thread_ns", "the same for each of 64 threads more", || {
        Ok((threads::reading(threads::MANY)? - few?) / threads::MANY as f64)
    })?;

    let loops = Loops::new();
    round.note(
        "counter_turn_ps",
        "picoseconds: a turn of `counter` beyond its section, with a mutex of libc",
        || Ok(1e3 * loops.counter_turn()),
    )?;
    round.note("counter_dispatch_ps", "picoseconds: two calls through a table of functions, in that loop", || {
        Ok(1e3 * loops.counter_dispatch())
    })?;
    round.note("table_outside_ps", "picoseconds: choosing key and operation of `hashtable`", || {
        Ok(1e3 * loops.table_outside())
    })?;
    let (section, visit) = loops.table_section();
    round.note("table_section_ps", "picoseconds: an operation on its lists, for no step along them", || {
        Ok(1e3 * section)
    })?;
    round.note("table_visit_ps", "picoseconds: a step along them", || Ok(1e3 * visit))?;
    round.note("table_call_ps", "picoseconds: locking and unlocking a mutex of libc, in that loop", || {
        Ok(1e3 * loops.table_call())
    })?;
    round.note("table_dispatch_ps", "picoseconds: two calls through a table of functions, in that loop", || {
        Ok(1e3 * loops.table_dispatch())
    })?;
    Ok(())
}

/// The preset with what was measured in its place.
fn machine(processors: &Processors, quantities: &[Quantity], others: f64) -> Parameters {
    let mut machine = presets::usual_host();
    machine.name = "host".to_string();
    if let Some(topology) = processors.topology() {
        machine.topology = topology;
    }
    let mut programs = crate::workload::USUAL;
    for quantity in quantities {
        let Some(value) = quantity.value() else { continue };
        let value = value.round().max(0.0) as u64;
        let (memory, scheduler) = (&mut machine.memory, &mut machine.scheduler);
        let place = match quantity.key {
            "hit_ns" => &mut memory.hit_ns,
            "memory_ns" => &mut memory.memory_ns,
            "rmw_ns" => &mut memory.rmw_ns,
            "fence_ns" => &mut memory.fence_ns,
            "pause_ns" => &mut memory.pause_ns,
            "clock_ns" => &mut memory.clock_ns,
            "same_cache_ns" => &mut memory.same_cache_ns,
            "same_socket_ns" => &mut memory.same_socket_ns,
            "other_socket_ns" => &mut memory.other_socket_ns,
            "shared_core_slowdown" => {
                memory.shared_core_slowdown = value as u32;
                continue;
            }
            "tick_ns" => &mut scheduler.tick_ns,
            "slice_ns" => &mut scheduler.slice_ns,
            "wake_preempt_ns" => &mut scheduler.wake_preempt_ns,
            "park_ns" => &mut scheduler.park_ns,
            "wake_call_ns" => &mut scheduler.wake_call_ns,
            "wake_thread_ns" => &mut scheduler.wake_thread_ns,
            "wake_idle_ns" => &mut scheduler.wake_idle_ns,
            "idle_exit_ns" => &mut scheduler.idle_exit_ns,
            "switch_ns" => &mut scheduler.switch_ns,
            "yield_ns" => &mut scheduler.yield_ns,
            "timer_slack_ns" => &mut scheduler.timer_slack_ns,
            "spawn_ns" => &mut scheduler.spawn_ns,
            "sensor_ns" => &mut scheduler.sensor_ns,
            "sensor_thread_ns" => &mut scheduler.sensor_thread_ns,
            "counter_dispatch_ps" => &mut programs.counter_dispatch_ps,
            "table_call_ps" => &mut programs.table_call_ps,
            "table_dispatch_ps" => &mut programs.table_dispatch_ps,
            "counter_turn_ps" => &mut programs.counter_turn_ps,
            "table_outside_ps" => &mut programs.table_outside_ps,
            "table_section_ps" => &mut programs.table_section_ps,
            "table_visit_ps" => &mut programs.table_visit_ps,
            key => unreachable!("{key} has no place"),
        };
        *place = value;
    }
    let scheduler = &mut machine.scheduler;
    scheduler.tick_ns = scheduler.tick_ns.max(1);
    scheduler.slice_ns = scheduler.slice_ns.max(1);
    // A sleeper keeps a lag of a slice at most (`place_entity` in kernel/sched/fair.c), and here has to be able to
    // preempt.
    scheduler.sleeper_credit_ns = scheduler.slice_ns.max(scheduler.wake_preempt_ns + 1);
    scheduler.balance_ns = scheduler.tick_ns;
    let context = unconvoy_measure::context::Context::capture(0);
    machine.calibrated = Some(Calibrated {
        date: context.date,
        processor: context.machine.cpu,
        kernel: context.machine.kernel,
        busy: others > BUSY,
        programs,
    });
    leave_to_simulation(&mut machine);
    machine
}

/// Takes from what the programs' turns were measured with what the simulation adds to them: the accesses of an
/// uncontended default lock, and of the data that it guards.
fn leave_to_simulation(machine: &mut Parameters) {
    let nothing = |machine: &Parameters| {
        let mut machine = machine.clone();
        if let Some(calibrated) = &mut machine.calibrated {
            calibrated.programs = Programs::default();
        }
        machine
    };
    let bare = nothing(machine);
    let of_turn = |workload: Workload| {
        let (machine, lock) = (bare.clone(), "default".to_string());
        let point =
            Point { machine, workload, lock, threads: 1, seconds: 0.001, warm_up: None, seed: 1, interval_ns: None };
        outcome::simulate(&point, &Stop::new(false)).map_or(0.0, |outcome| 1e12 / outcome.per_s)
    };
    const SECTION_NS: u64 = 100;
    let counter = of_turn(bench_counter(&bare, SECTION_NS, 0)) - 1e3 * SECTION_NS as f64;
    let table = of_turn(hashtable(&bare));
    if let Some(Calibrated { programs, .. }) = &mut machine.calibrated {
        programs.counter_turn_ps = programs.counter_turn_ps.saturating_sub(counter as u64);
        programs.table_call_ps = programs.table_call_ps.saturating_sub(table as u64);
    }
}

/// Part of the processors' time that is used while the caller sleeps for `length`; 0 if the system does not tell.
fn load_of_others(length: Duration) -> f64 {
    let read = || -> Option<(f64, f64)> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let times: Vec<f64> =
            text.lines().next()?.split_whitespace().skip(1).take(8).filter_map(|time| time.parse().ok()).collect();
        // user, nice, system, idle, waiting for input or output, interrupts (2), stolen by the hypervisor
        Some((times.iter().sum(), times.get(3)? + times.get(4)?))
    };
    let before = read();
    std::thread::sleep(length);
    match (before, read()) {
        (Some(before), Some(after)) if after.0 > before.0 => 1.0 - (after.1 - before.1) / (after.0 - before.0),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters;

    #[test]
    fn this_machine_is_a_machine() {
        let mut seen = 0;
        let calibration = calibrate(1, &mut |_| {
            seen += 1;
            Ok(())
        })
        .expect("nobody ends it");
        let text = to_toml(&calibration, "Some machine.");
        println!("{text}");
        let again = parameters::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(again, calibration.machine);
        assert_eq!((seen, calibration.quantities.len()), (steps(), steps()), "{text}");
        let (memory, scheduler) = (again.memory, again.scheduler);
        assert!(memory.memory_ns > memory.hit_ns && scheduler.slice_ns > 10 * scheduler.switch_ns, "{text}");
    }

    #[test]
    fn who_ends_it_ends_it_before_the_next_quantity() {
        let mut seen = 0;
        let ended = calibrate(1, &mut |_| {
            seen += 1;
            if seen == 2 { Err(anyhow::anyhow!("enough")) } else { Ok(()) }
        });
        assert_eq!((seen, ended.expect_err("ended").to_string().as_str()), (2, "enough"));
    }
}
