//! Critical sections of simulated programs.

use super::step::{Step, Workload};
use crate::machine::{self, Word};
use crate::pair::{Lock, Pair};
use crate::simulation::Simulation;

/// A lock and the data it protects.
pub(super) struct Guarded {
    pub(super) lock: Lock,
    data: Vec<Word>,
}

impl Guarded {
    pub(super) fn new(
        simulation: &mut Simulation,
        process: usize,
        workload: &Workload,
        pair: &Pair,
    ) -> Self {
        let lines = workload.all_steps().map(|step| match step {
            Step::Section { lines, .. }
            | Step::Clocked { lines, .. }
            | Step::Perhaps { lines, .. } => *lines,
            Step::Nested { .. } => 1,
            _ => 0,
        });
        let lines = lines.max().unwrap_or(0);
        let lock = if workload.in_kernel {
            simulation.kernel_lock(process, pair)
        } else {
            simulation.lock(process, pair)
        };
        Guarded { lock, data: (0..lines).map(|_| simulation.word()).collect() }
    }

    /// Runs a critical section that ends at a time on the clock.
    pub(super) fn clocked(&self, ns: u64, lines: u32, dispatch_ps: u64) {
        self.around(ns, lines, dispatch_ps, || {});
    }

    /// Runs a critical section: `ns` on the clock, and then `inside`.
    pub(super) fn around(&self, ns: u64, lines: u32, dispatch_ps: u64, inside: impl FnOnce()) {
        let call_ps = self.lock.call_ps(0, dispatch_ps);
        machine::work_ps(call_ps / 2);
        self.lock.lock();
        for word in &self.data[..lines as usize] {
            word.increment();
        }
        machine::delay(ns);
        inside();
        machine::work_ps(call_ps - call_ps / 2);
        self.lock.unlock();
    }

    pub(super) fn section(&self, ns: u64, lines: u32) {
        self.lock.section(|| {
            for word in &self.data[..lines as usize] {
                word.increment();
            }
            machine::work(ns);
        });
    }
}
