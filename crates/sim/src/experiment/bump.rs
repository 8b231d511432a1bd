//! Response of the number of awake threads to the sleep target (ASPLOS 2010, section 5.1, Figure
//! 8), and its variation at a fixed target (section 2.3, Figure 5).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::machine;
use crate::messages;
use crate::outcome::{Point, Stop, Stopped, advance};
use crate::pair;
use crate::parameters::Parameters;
use crate::simulation::Simulation;
use crate::workload::{self, Workload};

/// A sequence of sleep targets, without a controller.
#[derive(Debug, Clone, PartialEq)]
pub struct Bump {
    /// The machine.
    pub machine: Parameters,
    /// The program.
    pub workload: Workload,
    /// Its lock.
    pub lock: String,
    /// Its threads.
    pub threads: u32,
    /// The sleep targets, in order.
    pub targets: Vec<u32>,
    /// How long each target stays in force.
    pub hold_ns: u64,
    /// Random seed.
    pub seed: u64,
}

/// The response to one change of the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reaction {
    /// The previous target.
    pub from: u32,
    /// The new target.
    pub to: u32,
    /// Time until the number of threads awake first changed in the right direction, if it did.
    pub first_ns: Option<u64>,
    /// Time after which the number of threads awake stays near the expected number: within a
    /// twentieth of all threads, or within one thread. The records have its old name.
    #[serde(rename = "settled_ns")]
    pub converged_ns: Option<u64>,
    /// Nanoseconds since the change, and number of awake threads.
    pub awake: Vec<(u64, u32)>,
}

/// Time between two samples.
const SAMPLE_NS: u64 = 5_000;

impl Bump {
    pub(super) fn run(&self, stop: &Stop) -> anyhow::Result<Vec<Reaction>> {
        let mut simulation =
            Simulation::new(&self.machine, self.seed).context(messages::no_memory())?;
        let process = simulation.process();
        simulation.without_controller(process);
        let pair = pair::named(&self.lock).map_err(anyhow::Error::msg)?;
        let _running =
            workload::start(&mut simulation, process, &self.workload, pair, self.threads);
        let control = simulation.control(process);
        let changes: Rc<RefCell<Vec<u64>>> = Rc::default();
        let (targets, hold, recorded) = (self.targets.clone(), self.hold_ns, changes.clone());
        let begin = hold; // no target at first, for the program to stabilise
        simulation.spawn_uncounted(process, "target", move || {
            for (number, target) in targets.into_iter().enumerate() {
                let now = machine::now();
                machine::wait_for_io((begin + number as u64 * hold).saturating_sub(now));
                // Record the time before the wake-ups, which are part of the reaction.
                recorded.borrow_mut().push(machine::now());
                control.slots.set_target(target);
            }
        });
        let mut counts = Vec::new();
        let end = begin + hold * self.targets.len() as u64;
        for time in (0..end).step_by(SAMPLE_NS as usize) {
            if time % 1_000_000 < SAMPLE_NS && stop.load(Ordering::Relaxed) {
                bail!(Stopped);
            }
            simulation.run(time)?;
            counts.push((time, self.threads - control.slots.sleeping()));
        }
        let changes = changes.borrow();
        let targets = || [0].into_iter().chain(self.targets.iter().copied());
        let steps = targets().zip(targets().skip(1)).zip(changes.iter());
        Ok(steps.map(|((from, to), &at)| self.reaction(from, to, at, &counts)).collect())
    }

    fn reaction(&self, from: u32, to: u32, at: u64, counts: &[(u64, u32)]) -> Reaction {
        let span = at..at + self.hold_ns - SAMPLE_NS;
        let awake: Vec<(u64, u32)> = counts
            .iter()
            .filter(|(time, _)| span.contains(time))
            .map(|&(time, count)| (time - at, count))
            .collect();
        let before = self.threads - from;
        let expected = self.threads - to;
        let moved = |count: u32| if to > from { count < before } else { count > before };
        let first_ns = awake.iter().find(|(_, count)| moved(*count)).map(|(time, _)| *time);
        let tolerance = (self.threads / 20).max(1);
        let strayed = awake.iter().rposition(|(_, count)| count.abs_diff(expected) > tolerance);
        let stable_at =
            strayed.map_or(Some(0), |last| (last + 1 < awake.len()).then_some(last + 1));
        // The setter may come so late that no sample follows.
        let converged_ns = stable_at.and_then(|place| awake.get(place)).map(|sample| sample.0);
        Reaction { from, to, first_ns, converged_ns, awake }
    }
}

/// Samples, every `every_ns`, how many threads of `point`'s program run or wait to run while its
/// controllers aim at `aim` contexts.
pub(super) fn watch(
    point: &Point,
    aim: f64,
    every_ns: u64,
    stop: &Stop,
) -> anyhow::Result<Vec<(u64, u32)>> {
    let mut simulation =
        Simulation::new(&point.machine, point.seed).context(messages::no_memory())?;
    let process = simulation.process();
    simulation.aim_at(process, aim);
    let pair = pair::named(&point.lock).map_err(anyhow::Error::msg)?;
    let _running = workload::start(&mut simulation, process, &point.workload, pair, point.threads);
    let length = (point.seconds * 1e9) as u64;
    let mut counts = Vec::new();
    for time in (0..length).step_by(every_ns as usize) {
        advance(&mut simulation, time, time + every_ns, stop)?;
        counts.push((time, simulation.runnable(process)));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    #[test]
    fn change_without_samples_has_no_reaction() {
        let bump = Bump {
            machine: presets::named("niagara2-64").expect("a preset"),
            workload: workload::counter(60, 1_000, 0),
            lock: "tpmcs+control".to_string(),
            threads: 64,
            targets: vec![8],
            hold_ns: 100_000,
            seed: 1,
        };
        let counts = [(190_000, 64), (195_000, 64)];
        let late = bump.reaction(0, 8, 199_000, &counts);
        assert_eq!((late.first_ns, late.converged_ns, late.awake), (None, None, Vec::new()));
        let counts = [(100_000, 64), (105_000, 60), (110_000, 56)];
        let reaction = bump.reaction(0, 8, 100_000, &counts);
        assert_eq!((reaction.first_ns, reaction.converged_ns), (Some(5_000), Some(10_000)));
    }
}
