//! The machine that this runs on, as a machine to simulate: measured where that can be done in some seconds, without
//! privilege and without hardware counters; taken from the `host` preset elsewhere.
//!
//! | measured | how |
//! | --- | --- |
//! | caches and atomics | [`memory`]: chains of dependent loads; a line that goes back and forth between two contexts |
//! | threads, futexes, time slices | [`threads`]: threads that are confined to one context or two |
//! | how contexts are grouped | [`topology`]: what the kernel says below `/sys/devices/system/cpu` |
//!
//! A number here is the median of some tries, since a machine that is not idle only ever makes them longer. What is
//! *not* measured: how many accesses a line serves at a time, what a sleeper is credited with, and how often the
//! scheduler balances. Virtual machines report the caches that their hypervisor makes up.

mod memory;
mod threads;
mod topology;

use std::fmt::Write as _;
use std::time::Instant;

use crate::parameters::Parameters;
use crate::presets;
use topology::Processors;

/// A machine, and where its numbers are from.
#[derive(Debug)]
pub struct Calibration {
    /// The machine.
    pub machine: Parameters,
    /// Keys that were measured.
    pub measured: Vec<&'static str>,
    /// Keys that could not be, and why.
    pub unmeasured: Vec<(&'static str, &'static str)>,
}

/// What a quantity's measurement came to: nanoseconds, or why there are none.
type Outcome = Result<f64, &'static str>;

/// Measures this machine, some five seconds long; `begin` is told of each quantity.
pub fn calibrate(mut begin: impl FnMut(&'static str)) -> Calibration {
    let processors = Processors::of_this_machine();
    let mut machine = presets::host();
    let mut calibration = Calibration { machine: machine.clone(), measured: Vec::new(), unmeasured: Vec::new() };
    match processors.topology() {
        Some(topology) => {
            machine.topology = topology;
            calibration.measured.push("topology");
        }
        None => calibration.unmeasured.push(("topology", "processors are not grouped evenly, or /sys does not tell")),
    }
    let mut note = |key: &'static str, place: &mut u64, measure: &dyn Fn() -> Outcome| {
        begin(key);
        match measure() {
            Ok(ns) => {
                *place = ns.round().max(0.0) as u64;
                calibration.measured.push(key);
            }
            Err(why) => calibration.unmeasured.push((key, why)),
        }
    };

    let to = &mut machine.memory;
    note("hit_ns", &mut to.hit_ns, &|| Ok(memory::hit()));
    note("memory_ns", &mut to.memory_ns, &|| Ok(memory::miss()));
    note("rmw_ns", &mut to.rmw_ns, &|| Ok(memory::read_modify_write()));
    note("fence_ns", &mut to.fence_ns, &|| Ok(memory::fence()));
    note("pause_ns", &mut to.pause_ns, &|| Ok(memory::pause()));
    note("clock_ns", &mut to.clock_ns, &|| Ok(memory::clock()));
    note("same_cache_ns", &mut to.same_cache_ns, &|| processors.same_cache().map(memory::transfer));
    note("same_socket_ns", &mut to.same_socket_ns, &|| processors.same_socket().map(memory::transfer));
    note("other_socket_ns", &mut to.other_socket_ns, &|| processors.other_socket().map(memory::transfer));
    let mut slowdown = u64::from(to.shared_core_slowdown);
    note("shared_core_slowdown", &mut slowdown, &|| processors.same_core().map(memory::slowdown));
    to.shared_core_slowdown = slowdown as u32;

    let to = &mut machine.scheduler;
    let one = processors.first();
    let two = processors.any_two();
    note("slice_ns", &mut to.slice_ns, &|| threads::slice(one));
    note("tick_ns", &mut to.tick_ns, &|| Ok(threads::tick()));
    note("park_ns", &mut to.park_ns, &|| Ok(threads::park_call()));
    note("wake_call_ns", &mut to.wake_call_ns, &|| Ok(threads::wake_call()));
    let wake = two.map(threads::wake);
    let wake_call = to.wake_call_ns as f64;
    note("wake_thread_ns", &mut to.wake_thread_ns, &|| wake.map(|wake| wake.call - wake_call));
    let calls = (to.park_ns + to.wake_call_ns + to.wake_thread_ns) as f64;
    note("switch_ns", &mut to.switch_ns, &|| Ok(threads::hand_over(one) - calls));
    let before_it_runs = (to.wake_call_ns + to.wake_thread_ns + to.switch_ns) as f64;
    note("idle_exit_ns", &mut to.idle_exit_ns, &|| wake.map(|wake| wake.latency - before_it_runs));
    note("yield_ns", &mut to.yield_ns, &|| Ok(threads::yield_call(one)));
    let late = (to.idle_exit_ns + to.switch_ns) as f64;
    note("timer_slack_ns", &mut to.timer_slack_ns, &|| Ok(threads::lateness() - late));
    note("spawn_ns", &mut to.spawn_ns, &|| threads::spawn());
    let (few, many) = (threads::reading(0), threads::reading(threads::MANY));
    let of_each = few.and_then(|few| Ok((many? - few) / threads::MANY as f64));
    note("sensor_thread_ns", &mut to.sensor_thread_ns, &|| of_each);
    note("sensor_ns", &mut to.sensor_ns, &|| few);

    calibration.machine = machine;
    calibration
}

impl Calibration {
    /// As a machine file, with `heading` and what was measured in comments.
    pub fn to_toml(&self, heading: &str) -> String {
        let mut text = String::new();
        let mut comment = |line: &str| _ = writeln!(text, "# {line}").is_ok();
        comment(heading);
        comment(&format!("Measured: {}.", self.measured.join(", ")));
        for (key, why) in &self.unmeasured {
            comment(&format!("{key} is the preset's: {why}."));
        }
        text.push('\n');
        text + &toml::to_string_pretty(&self.machine).expect("numbers and a name")
    }
}

/// Tries of which the median counts.
const TRIES: usize = 15;

/// The median of some tries.
fn median(mut measure: impl FnMut() -> f64) -> f64 {
    let mut tries: Vec<f64> = (0..TRIES).map(|_| measure()).collect();
    tries.sort_by(f64::total_cmp);
    tries[TRIES / 2]
}

/// Nanoseconds that one call of `call` takes.
fn per_call(mut call: impl FnMut()) -> f64 {
    const CALLS: u32 = 5_000;
    median(|| {
        let begin = Instant::now();
        (0..CALLS).for_each(|_| call());
        begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters;

    #[test]
    fn this_machine_is_a_machine() {
        let calibration = calibrate(|_| {});
        let text = calibration.to_toml("Some machine.");
        println!("{text}");
        let again = parameters::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(again, calibration.machine);
        let (memory, scheduler) = (again.memory, again.scheduler);
        assert!(memory.memory_ns > memory.hit_ns && scheduler.slice_ns > 10 * scheduler.switch_ns, "{text}");
        let keys = calibration.measured.len() + calibration.unmeasured.len();
        assert_eq!(keys, 23, "{text}");
    }
}
