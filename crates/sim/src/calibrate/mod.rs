//! Calibration: measures this machine and writes it as a machine file. A calibration takes half a
//! minute and needs neither privilege nor hardware counters. Other parameters come from the `host`
//! preset.
//!
//! | measured | method |
//! | --- | --- |
//! | caches and atomics | [`memory`]: chains of dependent loads; a line that moves between two contexts |
//! | futexes, switches, timers, the sensor | [`threads`]: threads confined to one context or two |
//! | time slices, preemption at wake-up | [`turns`]: threads that share one context |
//! | ticks | [`ticks`]: gaps in the time of threads that read the clock |
//! | the benchmark's programs on one thread | [`programs`]: their loops, without contention |
//! | grouping of contexts | [`topology`]: files below `/sys/devices/system/cpu` |
//!
//! Every round measures all quantities. A disturbance that lasts a second therefore affects one
//! round of many quantities instead of all rounds of one quantity. A round's value is the median of
//! several tries. The final value is the lower quartile of the rounds, or the median if the
//! quantity is a difference of two times. The spread reaches from the smallest round to the
//! largest. For the times of ticks, the file has the distribution over all rounds, because the
//! tail decides whether a preempted thread looks preempted to others. Parameters that are *not*
//! measured appear in the file with the reason. Virtual machines report the cache topology that
//! their hypervisor invents.

mod file;
mod memory;
mod programs;
mod quantity;
mod threads;
mod ticks;
mod topology;
mod turns;

use std::time::Duration;

use crate::outcome::{self, Point, Stop};
use crate::parameters::{Calibrated, Parameters, Programs};
use crate::presets;
use crate::quantiles::Quantiles;
use crate::workload::{Workload, bench_counter, hashtable};

pub use crate::presets::default_path;
pub use file::to_toml;
use programs::Loops;
use quantity::Outcome;
pub use quantity::{Calibration, Quantity};
use topology::{Processors, Two};

/// Default number of rounds.
pub const ROUNDS: u32 = 11;

/// Fraction of the processors' time used by other programs above which the machine is busy.
const BUSY: f64 = 0.05;

/// The times of ticks in all rounds, in nanoseconds.
#[derive(Default)]
struct Samples {
    tick_work: Vec<u64>,
    tick_switch: Vec<u64>,
}

/// Results of a round so far, and the callback for each quantity.
struct Round<'a> {
    samples: &'a mut Samples,
    found: Vec<(&'static str, &'static str, Outcome)>,
    step: &'a mut dyn FnMut(&'static str) -> anyhow::Result<()>,
}

impl Round<'_> {
    fn record(
        &mut self,
        key: &'static str,
        what: &'static str,
        measure: impl FnOnce() -> Outcome,
    ) -> anyhow::Result<()> {
        (self.step)(key)?;
        self.found.push((key, what, measure()));
        Ok(())
    }
}

/// Measures this machine in `rounds` rounds. Calls `step` before each quantity; an error from it
/// ends the calibration.
///
/// # Errors
///
/// Returns the error of `step`.
pub fn calibrate(
    rounds: usize,
    step: &mut dyn FnMut(&'static str) -> anyhow::Result<()>,
) -> anyhow::Result<Calibration> {
    let others = load_of_others(Duration::from_millis(300));
    let processors = Processors::of_this_machine();
    let mut quantities: Vec<Quantity> = Vec::new();
    let mut samples = Samples::default();
    for _ in 0..rounds.max(1) {
        let mut round = Round { samples: &mut samples, found: Vec::new(), step };
        measure(&processors, &mut round)?;
        for (key, what, outcome) in round.found {
            let known = quantities.iter_mut().find(|quantity| quantity.key == key);
            match (known, outcome) {
                (None, outcome) => quantities.push(Quantity {
                    key,
                    what,
                    rounds: outcome.map(|value| vec![value]),
                }),
                (Some(Quantity { rounds: Ok(values), .. }), Ok(value)) => values.push(value),
                (Some(known), Ok(value)) => known.rounds = Ok(vec![value]),
                (Some(_), Err(_)) => {} // Keep the values of other rounds.
            }
        }
    }
    for quantity in &mut quantities {
        if let Ok(values) = &mut quantity.rounds {
            values.sort_by(f64::total_cmp);
        }
    }
    let machine = machine(&processors, &quantities, samples, others);
    Ok(Calibration { machine, quantities, others })
}

/// Number of quantities per round.
pub fn steps() -> usize {
    34
}

fn measure(processors: &Processors, round: &mut Round) -> anyhow::Result<()> {
    let (one, two) = (processors.first(), processors.any_two());
    round.record("hit_ns", "a step along a chain of dependent loads in 2 KiB", || {
        Ok(memory::hit())
    })?;
    round.record("memory_ns", "a step along a random chain of such loads in 64 MiB", || {
        Ok(memory::miss())
    })?;
    round.record("rmw_ns", "an atomic addition in a dependent chain, beyond a load", || {
        Ok(memory::read_modify_write())
    })?;
    round.record("fence_ns", "a full fence after a store", || Ok(memory::fence()))?;
    round.record("pause_ns", "the instruction of a waiting loop", || Ok(memory::pause()))?;
    round.record("clock_ns", "a read of the monotonic clock", || Ok(memory::clock()))?;
    round.record(
        "same_cache_ns",
        "a quarter of a round trip of one line between two cores of one cache",
        || processors.same_cache().map(memory::transfer),
    )?;
    round.record("same_socket_ns", "a quarter of such a round trip between two caches", || {
        processors.same_socket().map(memory::transfer)
    })?;
    round.record("other_socket_ns", "a quarter of such a round trip across sockets", || {
        processors.other_socket().map(memory::transfer)
    })?;
    round.record(
        "shared_core_slowdown",
        "slowdown of computation beside the core's other context, in thousandths",
        || processors.perhaps_same_core().map(memory::slowdown),
    )?;

    round.record("tick_ns", "resolution of the coarse clock", || Ok(threads::tick()))?;
    measure_ticks((one, two), threads::tick() as u64, round)?;
    round.record("slice_ns", "the shortest turn of a thread that a tick preempts", || {
        turns::slice(one)
    })?;
    round.record(
        "wake_preempt_ns",
        "run time after which a woken thread preempts a thread",
        || turns::wake_preemption(one),
    )?;
    round.record(
        "park_ns",
        "futex wait on a word that has changed",
        || Ok(threads::park_call()),
    )?;
    round.record("wake_call_ns", "futex wake without a sleeper", || Ok(threads::wake_call()))?;
    let call = threads::wake_call();
    round.record(
        "wake_thread_ns",
        "extra cost of waking a thread on the waker's processor",
        || Ok(threads::wake_behind(one) - call),
    )?;
    let behind = threads::wake_behind(one);
    let wake = two.map(threads::wake);
    let switch = || threads::yield_switch(one) - threads::yield_call(one);
    round.record("wake_idle_ns", "extra cost of waking a thread on an idle processor", || {
        wake.map(|wake| wake.call - behind)
    })?;
    round.record(
        "idle_exit_ns",
        "from the end of the waking call until the thread runs, without the switch",
        || wake.map(|wake| wake.latency - wake.call - switch()),
    )?;
    round.record(
        "switch_ns",
        "sched_yield between two threads of one processor, without the call",
        || Ok(switch()),
    )?;
    round.record("yield_ns", "sched_yield without another thread", || {
        Ok(threads::yield_call(one))
    })?;
    round.record(
        "timer_slack_ns",
        "excess length of a sleep of 1 ms, without the exit from idle",
        || Ok(threads::lateness() - wake.map_or(0.0, |wake| wake.latency - wake.call)),
    )?;
    round.record("spawn_ns", "starting a thread", threads::spawn)?;
    let few = threads::reading(0);
    round.record("sensor_ns", "a reading of the default sensor with one thread", || few)?;
    round.record("sensor_thread_ns", "extra cost for each of 64 more threads", || {
        Ok((threads::reading(threads::MANY)? - few?) / threads::MANY as f64)
    })?;

    let loops = Loops::new();
    round.record(
        "counter_turn_ps",
        "picoseconds: a turn of `counter` beyond its section, with a mutex of libc",
        || Ok(1e3 * loops.counter_turn()),
    )?;
    round.record(
        "counter_dispatch_ps",
        "picoseconds: two calls through a table of functions, in the loop of `counter`",
        || Ok(1e3 * loops.counter_dispatch()),
    )?;
    round.record(
        "table_outside_ps",
        "picoseconds: choosing key and operation of `hashtable`",
        || Ok(1e3 * loops.table_outside()),
    )?;
    let (section, visit) = loops.table_section();
    round.record(
        "table_section_ps",
        "picoseconds: an operation on the lists of `hashtable`, without the walk",
        || Ok(1e3 * section),
    )?;
    round.record("table_visit_ps", "picoseconds: a step of that walk", || Ok(1e3 * visit))?;
    round.record(
        "table_call_ps",
        "picoseconds: locking and unlocking a mutex of libc, in the loop of `hashtable`",
        || Ok(1e3 * loops.table_call()),
    )?;
    round.record(
        "table_dispatch_ps",
        "picoseconds: two calls through a table of functions, in the loop of `hashtable`",
        || Ok(1e3 * loops.table_dispatch()),
    )?;
    Ok(())
}

/// Measures what ticks of `period` nanoseconds cost, and when the processors tick.
fn measure_ticks(
    (one, two): (usize, Result<Two, &'static str>),
    period: u64,
    round: &mut Round,
) -> anyhow::Result<()> {
    const UNNOTICED: &str = "no interruption was noticed";
    let switches = ticks::switches(one);
    round.record(
        "tick_switch_ns",
        "from a thread that a tick preempts to the next one: medians of the rounds",
        || ticks::median(&switches).ok_or(UNNOTICED),
    )?;
    round.samples.tick_switch.extend(switches);
    let work = two.map(|two| ticks::work(two, period));
    let (takes, skew) = match work {
        Ok(Some((takes, skew))) => (takes, Ok(skew as f64)),
        Ok(None) => (Vec::new(), Err(UNNOTICED)),
        Err(why) => (ticks::work_of_one(one, period).unwrap_or_default(), Err(why)),
    };
    round.record(
        "tick_work_ns",
        "how long a tick interrupts a thread that goes on: medians of the rounds",
        || ticks::median(&takes).ok_or(UNNOTICED),
    )?;
    round.samples.tick_work.extend(takes);
    round.record("tick_skew_ns", "how much later the second processor ticks", || skew)
}

/// The `host` preset with the measured values.
fn machine(
    processors: &Processors,
    quantities: &[Quantity],
    samples: Samples,
    others: f64,
) -> Parameters {
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
            "tick_skew_ns" => scheduler.tick_skew_ns.insert(0),
            "tick_work_ns" | "tick_switch_ns" => continue, // The distributions follow.
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
            key => unreachable!("{key} has no parameter"),
        };
        *place = value;
    }
    machine.memory.hit_ns = machine.memory.hit_ns.max(1);
    let scheduler = &mut machine.scheduler;
    scheduler.tick_ns = scheduler.tick_ns.max(1);
    scheduler.slice_ns = scheduler.slice_ns.max(1);
    // In Linux, a sleeper's lag is at most a slice (`place_entity` in kernel/sched/fair.c). Here it
    // must also suffice to preempt.
    scheduler.sleeper_credit_ns = scheduler.slice_ns.max(scheduler.wake_preempt_ns + 1);
    scheduler.tick_work_ns = Quantiles::of(samples.tick_work);
    scheduler.tick_switch_ns = Quantiles::of(samples.tick_switch);
    let context = unconvoy_measure::context::Context::capture(0);
    machine.calibrated = Some(Calibrated {
        date: context.date,
        processor: context.machine.cpu,
        kernel: context.machine.kernel,
        busy: others > BUSY,
        programs,
    });
    subtract_simulated_costs(&mut machine);
    machine
}

/// Subtracts from the programs' measured turns the costs that the simulation adds: the accesses of
/// an uncontended default lock and of the data that it guards.
fn subtract_simulated_costs(machine: &mut Parameters) {
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
        let point = Point {
            machine,
            workload,
            lock,
            threads: 1,
            seconds: 0.001,
            warm_up: None,
            seed: 1,
            interval_ns: None,
        };
        outcome::simulate(&point, &Stop::new(false))
            .ok()
            .filter(|outcome| outcome.per_s > 0.0)
            .map_or(0.0, |outcome| 1e12 / outcome.per_s)
    };
    const SECTION_NS: u64 = 100;
    let counter = of_turn(bench_counter(&bare, SECTION_NS, 0)) - 1e3 * SECTION_NS as f64;
    let table = of_turn(hashtable(&bare));
    if let Some(Calibrated { programs, .. }) = &mut machine.calibrated {
        programs.counter_turn_ps = programs.counter_turn_ps.saturating_sub(counter as u64);
        programs.table_call_ps = programs.table_call_ps.saturating_sub(table as u64);
    }
}

/// Fraction of the processors' time used while the caller sleeps for `length`; 0 if the system does
/// not report it.
fn load_of_others(length: Duration) -> f64 {
    let read = || -> Option<(f64, f64)> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let times: Vec<f64> = text
            .lines()
            .next()?
            .split_whitespace()
            .skip(1)
            .take(8)
            .filter_map(|time| time.parse().ok())
            .collect();
        // user, nice, system, idle, iowait, irq, softirq, steal
        Some((times.iter().sum(), times.get(3)? + times.get(4)?))
    };
    let before = read();
    std::thread::sleep(length);
    match (before, read()) {
        (Some(before), Some(after)) if after.0 > before.0 => {
            1.0 - (after.1 - before.1) / (after.0 - before.0)
        }
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_file;

    #[test]
    fn calibration_of_host_is_valid_machine_file() {
        let mut seen = 0;
        let calibration = calibrate(1, &mut |_| {
            seen += 1;
            Ok(())
        })
        .expect("the step never fails");
        let text = to_toml(&calibration, "Some machine.");
        println!("{text}");
        let again = machine_file::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(again, calibration.machine);
        assert_eq!((seen, calibration.quantities.len()), (steps(), steps()), "{text}");
        let (memory, scheduler) = (again.memory, again.scheduler);
        assert!(
            memory.memory_ns > memory.hit_ns && scheduler.slice_ns > 10 * scheduler.switch_ns,
            "{text}"
        );
    }

    #[test]
    fn error_of_step_ends_calibration() {
        let mut seen = 0;
        let ended = calibrate(1, &mut |_| {
            seen += 1;
            if seen == 2 { Err(anyhow::anyhow!("enough")) } else { Ok(()) }
        });
        assert_eq!((seen, ended.expect_err("ended").to_string().as_str()), (2, "enough"));
    }
}
