//! Syncchar's prediction against the machine's transactions (Porter, Hofmann and Witchel 2008, section 5, Figures 5 and 6).
//!
//! The program runs under a lock of the kernel, which gives its execution time and the address sets of its sections; the
//! model makes a speed-up of these. Then it runs with transactions. All the time is the lock's: 32 threads want it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use unconvoy_syncchar::{Access, Analysis, Estimate, Options, Section};

use crate::outcome::{Stop, Stopped};
use crate::pair::{self, TRANSACTIONAL};
use crate::parameters::Parameters;
use crate::workload::validation::{Execution, Program, Recorded, THREADS};

/// Executions of which means are taken: "a mean of 4 simulated executions".
const EXECUTIONS: u64 = 4;

/// A program to be predicted.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// On what; it has transactions.
    pub machine: Parameters,
    /// The program.
    pub program: Program,
    /// Its lock, of the kernel.
    pub lock: String,
    /// Sections of each thread.
    pub sections: u32,
    /// Of all that is left to chance.
    pub seed: u64,
}

/// What was predicted, and what came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Projection {
    /// Mean execution time under the lock, in nanoseconds.
    pub locked_ns: f64,
    /// With transactions.
    pub transacted_ns: f64,
    /// Of the sections, by cache line, as hardware finds conflicts.
    pub estimate: Estimate,
}

impl Projection {
    /// The execution time that the model expects of transactions.
    pub fn projected_ns(&self) -> f64 {
        self.locked_ns / self.estimate.speed_up()
    }

    /// By how much of the time with transactions that is wrong; positive where the model expects too long a time.
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
                sum += self.execution(lock, in_kernel, self.seed + number)?.complete()?.ns as f64;
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
        let mut analysis = Analysis::new(Options { processors: vec![processors], ..Options::default() })?;
        for recorded in self.execution(&self.lock, true, self.seed)?.address_sets()? {
            analysis.section(Section { lock: 0, thread: recorded.thread, ..Section::default() }, accesses(&recorded));
        }
        let of_lock = analysis.finish().into_iter().next().context("no section was recorded")?;
        of_lock.estimates.first().map(|both| both.line).ok_or_else(|| anyhow!("nothing was estimated"))
    }
}

/// The accesses of a section, word by word. A cell's place is that of its four bytes.
fn accesses(recorded: &Recorded) -> Vec<Access> {
    let mut words: BTreeMap<u64, Access> = BTreeMap::new();
    let mut touch = |place: u64, reads: bool| {
        let word = words.entry(place & !7).or_insert(Access { address: place & !7, ..Access::default() });
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
