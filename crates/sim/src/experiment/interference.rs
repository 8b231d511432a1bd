//! Two processes that compete for the processors (ASPLOS 2010, section 5.5, Figure 12).

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::outcome::{Point, Stop, advance};
use crate::pair;
use crate::simulation::Simulation;
use crate::workload;

/// What each process did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Transactions per second of the first.
    pub own_per_s: f64,
    /// Of the other.
    pub other_per_s: f64,
}

/// `point`'s program, beside another process of the same kind.
pub(super) fn beside(point: &Point, other: &str, threads: u32, stop: &Stop) -> anyhow::Result<Shares> {
    let mut simulation = Simulation::new(&point.machine, point.seed).context("no memory for the machine")?;
    let mut begin = |lock: &str, threads: u32| -> anyhow::Result<workload::Running> {
        let process = simulation.process();
        // Overload is what is too much in the system (ASPLOS 2010, section 3.1.1), not in the process.
        simulation.see_all(process);
        let pair = pair::named(lock).map_err(anyhow::Error::msg)?;
        Ok(workload::start(&mut simulation, process, &point.workload, pair, threads))
    };
    let both = [begin(&point.lock, point.threads)?, begin(other, threads)?];
    let length = (point.seconds * 1e9) as u64;
    let warm = length / 4;
    let done = || both.each_ref().map(|running| running.finished().iter().sum::<u64>());
    advance(&mut simulation, 0, warm, stop)?;
    let before = done();
    advance(&mut simulation, warm, warm + length, stop)?;
    let after = done();
    let per_s = |number: usize| (after[number] - before[number]) as f64 / point.seconds;
    Ok(Shares { own_per_s: per_s(0), other_per_s: per_s(1) })
}
