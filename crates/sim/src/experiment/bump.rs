//! How the number of threads that are awake follows the sleep target (ASPLOS 2010, section 5.1, Figure 8), and how even
//! it is at a fixed one (section 2.3, Figure 5).

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::machine;
use crate::outcome::{Point, Stop, advance};
use crate::pair;
use crate::parameters::Parameters;
use crate::simulation::Simulation;
use crate::workload::{self, Workload};

/// A pattern of sleep targets, without a controller.
#[derive(Debug, Clone, PartialEq)]
pub struct Bump {
    /// On what.
    pub machine: Parameters,
    /// The program.
    pub workload: Workload,
    /// Its lock.
    pub lock: String,
    /// Its threads.
    pub threads: u32,
    /// Sleep targets, one after the other.
    pub targets: Vec<u32>,
    /// How long each stands.
    pub hold_ns: u64,
    /// Of all that is left to chance.
    pub seed: u64,
}

/// What followed one change of the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reaction {
    /// The target before.
    pub from: u32,
    /// The target.
    pub to: u32,
    /// Time until the number of threads awake first changed in the right direction, if it did.
    pub first_ns: Option<u64>,
    /// Time from which on it stayed within a thread, or a twentieth of all, of what it should be.
    pub settled_ns: Option<u64>,
    /// Times since the change in nanoseconds, and threads awake.
    pub awake: Vec<(u64, u32)>,
}

/// Between two looks at the count.
const LOOK_NS: u64 = 5_000;

impl Bump {
    pub(super) fn run(&self, stop: &Stop) -> anyhow::Result<Vec<Reaction>> {
        let mut simulation = Simulation::new(&self.machine, self.seed).context("no memory for the machine")?;
        let process = simulation.process();
        simulation.without_controller(process);
        let pair = pair::named(&self.lock).map_err(anyhow::Error::msg)?;
        let _running = workload::start(&mut simulation, process, &self.workload, pair, self.threads);
        let control = simulation.control(process);
        let changes: Rc<RefCell<Vec<u64>>> = Rc::default();
        let (targets, hold, noted) = (self.targets.clone(), self.hold_ns, changes.clone());
        let begin = hold; // the first target is none: the program settles
        simulation.spawn_apart(process, "target", move || {
            for (number, target) in targets.into_iter().enumerate() {
                let now = machine::now();
                machine::away((begin + number as u64 * hold).saturating_sub(now));
                noted.borrow_mut().push(machine::now()); // before the wake-ups, which are part of the reaction
                control.slots.set_target(target);
            }
        });
        let mut counts = Vec::new();
        let end = begin + hold * self.targets.len() as u64;
        for time in (0..end).step_by(LOOK_NS as usize) {
            if time % 1_000_000 < LOOK_NS {
                advance(&mut simulation, time, time, stop)?;
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
        let span = at..at + self.hold_ns - LOOK_NS;
        let awake: Vec<(u64, u32)> =
            counts.iter().filter(|(time, _)| span.contains(time)).map(|&(time, count)| (time - at, count)).collect();
        let before = self.threads - from;
        let expected = self.threads - to;
        let moved = |count: u32| if to > from { count < before } else { count > before };
        let first_ns = awake.iter().find(|(_, count)| moved(*count)).map(|(time, _)| *time);
        let tolerance = (self.threads / 20).max(1);
        let strayed = awake.iter().rposition(|(_, count)| count.abs_diff(expected) > tolerance);
        let settled = strayed.map_or(Some(0), |last| (last + 1 < awake.len()).then_some(last + 1));
        Reaction { from, to, first_ns, settled_ns: settled.map(|place| awake[place].0), awake }
    }
}

/// How many threads of `point`'s program are on a processor or wait for one, every `every_ns`; its controllers aim at
/// `aim` contexts.
pub(super) fn watch(point: &Point, aim: f64, every_ns: u64, stop: &Stop) -> anyhow::Result<Vec<(u64, u32)>> {
    let mut simulation = Simulation::new(&point.machine, point.seed).context("no memory for the machine")?;
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
