//! Syncchar's prediction compared with the machine's transactions (Porter, Hofmann and Witchel
//! 2008, section 5, Figures 5 and 6).
//!
//! First the program runs under a kernel lock, which gives the execution time and the address sets
//! of the sections. From the address sets, the model predicts a speed-up. Then the program runs
//! with transactions. The predicted speed-up applies to the whole execution time, because 32
//! threads contend for the lock throughout.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use unconvoy_syncchar::{Access, Analysis, Estimate, Options, Section};

use crate::messages;
use crate::outcome::{Stop, Stopped};
use crate::pair::{self, TRANSACTIONAL};
use crate::parameters::Parameters;
use crate::workload::validation::{Execution, Program, Recorded, THREADS};

/// Number of executions averaged: "a mean of 4 simulated executions".
const EXECUTIONS: u64 = 4;

/// A program for a prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// The machine, which has transactions.
    pub machine: Parameters,
    /// The program.
    pub program: Program,
    /// Its lock, a kernel lock.
    pub lock: String,
    /// Sections per thread.
    pub sections: u32,
    /// Random seed.
    pub seed: u64,
}

/// A prediction and its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Projection {
    /// Mean execution time under the lock, in nanoseconds.
    pub locked_ns: f64,
    /// Mean execution time with transactions.
    pub transacted_ns: f64,
    /// The model's estimate. It detects conflicts by cache line, as hardware does.
    pub estimate: Estimate,
}

impl Projection {
    /// Predicted execution time with transactions.
    pub fn projected_ns(&self) -> f64 {
        self.locked_ns / self.estimate.speed_up()
    }

    /// Relative error of the prediction; positive if the predicted time is too long.
    pub fn error(&self) -> f64 {
        self.projected_ns() / self.transacted_ns - 1.0
    }
}

impl Predicted {
    pub(super) fn run(&self, stop: &Stop) -> anyhow::Result<Projection> {
        let mean = |lock: &str, in_kernel: bool| {
            let mut sum = 0.0;
            for number in 0..EXECUTIONS {
                if stop.load(Ordering::Relaxed) {
                    anyhow::bail!(Stopped);
                }
                let seed = self.seed.wrapping_mul(EXECUTIONS).wrapping_add(number);
                sum += self.execution(lock, in_kernel, seed)?.complete()?.ns as f64;
            }
            anyhow::Ok(sum / EXECUTIONS as f64)
        };
        let (locked_ns, transacted_ns) = (mean(&self.lock, true)?, mean(TRANSACTIONAL, false)?);
        Ok(Projection { locked_ns, transacted_ns, estimate: self.estimate()? })
    }

    fn execution(&self, lock: &str, in_kernel: bool, seed: u64) -> anyhow::Result<Execution<'_>> {
        let pair = pair::named(lock).map_err(anyhow::Error::msg)?;
        let (machine, program, sections) = (&self.machine, self.program, self.sections);
        Ok(Execution { machine, program, pair, in_kernel, threads: THREADS, sections, seed })
    }

    fn estimate(&self) -> anyhow::Result<Estimate> {
        let processors = self.machine.topology.contexts() as u32;
        let mut analysis =
            Analysis::new(Options { processors: vec![processors], ..Options::default() })?;
        for recorded in self.execution(&self.lock, true, self.seed)?.address_sets()? {
            analysis.section(
                Section { lock: 0, thread: recorded.thread, ..Section::default() },
                accesses(&recorded),
            );
        }
        let of_lock =
            analysis.finish().into_iter().next().context(messages::no_section_recorded())?;
        of_lock.estimates.first().map(|both| both.line).context(messages::no_estimate())
    }
}

/// The accesses of a section, word by word. A cell covers four bytes.
fn accesses(recorded: &Recorded) -> Vec<Access> {
    let mut words: BTreeMap<u64, Access> = BTreeMap::new();
    let mut touch = |place: u64, reads: bool| {
        let word =
            words.entry(place & !7).or_insert(Access { address: place & !7, ..Access::default() });
        let bytes = 0xf << (place & 4);
        if reads {
            word.read |= bytes;
        } else {
            word.written |= bytes;
        }
    };
    recorded.set.read_words.iter().for_each(|&place| touch(place, true));
    recorded.set.written_words.iter().for_each(|&place| touch(place, false));
    words.into_values().collect()
}
