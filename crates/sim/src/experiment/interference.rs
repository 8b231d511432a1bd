//! Two processes that compete for the processors (ASPLOS 2010, section 5.5, Figure 12).

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::messages;
use crate::outcome::{Point, Stop, advance};
use crate::pair;
use crate::simulation::Simulation;
use crate::workload;

/// Throughput of each process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Transactions per second of the first process.
    pub own_per_s: f64,
    /// Transactions per second of the other.
    pub other_per_s: f64,
}

/// Runs `point`'s program beside another process with the same program.
pub(super) fn beside(
    point: &Point,
    other: &str,
    threads: u32,
    stop: &Stop,
) -> anyhow::Result<Shares> {
    let mut simulation =
        Simulation::new(&point.machine, point.seed).context(messages::no_memory())?;
    let mut begin = |lock: &str, threads: u32| -> anyhow::Result<workload::Running> {
        let process = simulation.process();
        // Overload is a property of the system (ASPLOS 2010, section 3.1.1), not of one process.
        simulation.read_machine_load(process);
        // While both programs start, neither of two processors is idle. On a larger machine the
        // threads spread at once.
        if point.machine.topology.contexts() == 2 {
            simulation.start_on(process, process % 2);
        }
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
