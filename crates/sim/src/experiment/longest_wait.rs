//! The longest wait for a lock while other work interrupts the program's threads at random
//! instructions, compared with the bound of docs/explanation/correctness.md.

use std::fmt;

use anyhow::Context as _;

use crate::machine::{Interruptions, LongWait, Seen, Violation};
use crate::messages;
use crate::outcome::{Point, Stop, advance};
use crate::pair;
use crate::simulation::Simulation;
use crate::workload;

/// Longest time that a thread sleeps for load, once in a wait, in nanoseconds.
const SLEEP_NS: u64 = 100_000_000;

/// How long the first thread of the queue is overtaken, and a hand-over, in nanoseconds.
const TURN_NS: u64 = 110_000;

/// Simulated time between two checks of the threads that wait.
const CHECK_NS: u64 = 1_000_000;

/// The bound on a wait for a mutex that `threads` threads want, with critical sections of up to
/// `section` ns, less than 20 us, in nanoseconds.
pub fn bound_ns(threads: u32, section: u64) -> u64 {
    SLEEP_NS + 2 * u64::from(threads) * (TURN_NS + section)
}

/// A check of the longest wait. The measurement begins with the program's start, without warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitCheck {
    /// The machine, the program, its lock and threads; not its warm-up and interval.
    pub point: Point,
    /// Other work on the machine.
    pub interruptions: Interruptions,
    /// Most nanoseconds of a wait that may count.
    pub bound_ns: u64,
}

/// The waits of a [`WaitCheck`], the unfinished ones included.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitReport {
    /// Random seed.
    pub seed: u64,
    /// Simulated time, in nanoseconds.
    pub length: u64,
    /// The bound.
    pub bound_ns: u64,
    /// Of each thread, the wait of which the most counts, the longest first.
    pub longest: Vec<LongWait>,
    /// Waits that exceed the bound; at most 1,000.
    pub violations: Vec<Violation>,
    /// Number of acquisitions.
    pub acquisitions: u64,
    /// Number of interruptions.
    pub interruptions: u64,
    /// Number of threads that were preempted, by interruptions included.
    pub preemptions: u64,
    /// Time during which a thread without a processor held a lock, in nanoseconds.
    pub stalled: u64,
    /// Activities of the unfinished threads at the end, if the bound is exceeded.
    pub threads: Option<String>,
}

impl WaitCheck {
    /// Simulates the program. Calls `progress` with the simulated time, in nanoseconds, about once
    /// per simulated millisecond; if that returns false, the run ends there.
    ///
    /// # Errors
    ///
    /// The lock is unknown, the program hangs, the host has no memory, or `stop` is set.
    pub fn run(
        &self,
        stop: &Stop,
        mut progress: impl FnMut(u64) -> bool,
    ) -> anyhow::Result<WaitReport> {
        let WaitCheck { point, interruptions, bound_ns } = self;
        let pair = pair::named(&point.lock).map_err(anyhow::Error::msg)?;
        let mut simulation =
            Simulation::new(&point.machine, point.seed).context(messages::no_memory())?;
        simulation.record_waits(*bound_ns);
        simulation.enable_interruptions(*interruptions, point.seed);
        let process = simulation.process();
        workload::start(&mut simulation, process, &point.workload, pair, point.threads);
        let (end, mut time) = ((point.seconds * 1e9) as u64, 0);
        while time < end && progress(time) {
            let next = (time + CHECK_NS).min(end);
            advance(&mut simulation, time, next, stop)?;
            simulation.waits(); // checks them
            time = next;
        }
        Ok(self.report(&mut simulation, time))
    }

    fn report(&self, simulation: &mut Simulation, length: u64) -> WaitReport {
        let (counts, interruptions) = (simulation.counts(), simulation.interruptions());
        let threads = simulation.threads();
        let mut report = WaitReport {
            seed: self.point.seed,
            length,
            bound_ns: self.bound_ns,
            longest: Vec::new(),
            violations: Vec::new(),
            acquisitions: 0,
            interruptions,
            preemptions: counts.preemptions,
            stalled: 0,
            threads: None,
        };
        if let Some(waits) = simulation.waits() {
            report.longest = waits.longest().collect();
            report.longest.sort_by_key(|wait| core::cmp::Reverse(wait.counted));
            report.violations = waits.violations().to_vec();
            report.acquisitions = waits.acquisitions();
            report.stalled = waits.stalled(length);
        }
        report.threads = (!report.violations.is_empty()).then_some(threads);
        report
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl fmt::Display for WaitReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "seed {}: {:.3} simulated seconds, {} acquisitions, {} interruptions, {} preemptions, \
             lock held without a processor for {:.0} ms",
            self.seed,
            self.length as f64 / 1e9,
            self.acquisitions,
            self.interruptions,
            self.preemptions,
            ms(self.stalled)
        )?;
        if let Some(longest) = self.longest.first() {
            let end = if longest.is_over { "" } else { ", not over" };
            writeln!(
                formatter,
                "longest wait: {:.3} ms of {:.3} ms count, thread {}, from {:.3} ms on{end}; \
                 bound {:.3} ms",
                ms(longest.counted),
                ms(longest.lasted),
                longest.thread,
                ms(longest.began),
                ms(self.bound_ns)
            )?;
        }
        for violation in self.violations.iter().take(10) {
            writeln!(formatter, "{}", Described(violation))?;
        }
        if let Some(threads) = &self.threads {
            writeln!(formatter, "{} waits exceed the bound", self.violations.len())?;
            write!(formatter, "threads at the end:\n{threads}")?;
        }
        Ok(())
    }
}

/// A violation as a line of text.
struct Described<'a>(&'a Violation);

impl fmt::Display for Described<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { wait, found, waiter_has_processor, holder, next } = self.0;
        let who = |seen: &Option<Seen>| match seen {
            None => "no thread".to_string(),
            Some(Seen { thread, has_processor: true }) => format!("thread {thread}"),
            Some(Seen { thread, .. }) => format!("thread {thread} (without a processor)"),
        };
        let waiter = Some(Seen { thread: wait.thread, has_processor: *waiter_has_processor });
        write!(
            formatter,
            "{} has waited since {:.3} ms, {:.3} ms count{}. At {:.3} ms, {} held the lock, and \
             {} acquired it next",
            who(&waiter),
            ms(wait.began),
            ms(wait.counted),
            if wait.is_over { "" } else { " so far" },
            ms(*found),
            who(holder),
            who(next)
        )
    }
}
