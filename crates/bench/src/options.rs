//! Options that several benchmarks share.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use unconvoy_measure::arguments::seconds;
use unconvoy_measure::cells::Samples;
use unconvoy_measure::output::can_write;
use unconvoy_measure::record::Record;
use unconvoy_measure::session::{Session, interleave};

use crate::programs::Programs;
use crate::run::GRACE;

/// Options of every benchmark.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Common {
    /// Rounds; every cell is measured once in each [default: 5; bump: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,
    /// Length of one measured window, in seconds
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// Seed of the order of the runs
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write BASENAME.json, BASENAME.csv and BASENAME.md
    #[arg(long, value_name = "BASENAME")]
    pub out: Option<PathBuf>,
}

impl Common {
    /// Rounds, where no other number is usual.
    pub fn runs(&self) -> u32 {
        self.runs.unwrap_or(5)
    }

    /// The record of a benchmark of a few moments.
    ///
    /// # Errors
    ///
    /// It could not be kept, which is better known before it is measured.
    pub fn begin(&self, benchmark: &str, parameters: Value) -> anyhow::Result<Record> {
        self.out.as_deref().map_or(Ok(()), can_write)?;
        Ok(Record::begin(benchmark, self.seed, parameters))
    }

    /// Measures every cell once per round, for this record.
    ///
    /// # Errors
    ///
    /// As [`interleave`].
    pub fn interleave<C: Serialize, S: Serialize>(
        &self,
        record: &mut Record,
        cells: &[C],
        name: impl Fn(&C) -> String,
        measure: impl FnMut(&C) -> anyhow::Result<S>,
    ) -> anyhow::Result<Samples<S>> {
        let samples = interleave(cells, self.runs(), self.seed, name, measure)?;
        record.take(cells, &samples)?;
        Ok(samples)
    }
}

/// Where programs lie.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Places {
    /// Directory of the built workload programs [default: those of this build or installation]
    #[arg(long, value_name = "DIR")]
    workloads: Option<PathBuf>,
}

impl Places {
    /// The programs `needed`, built against some Debian packages, and the interposer.
    ///
    /// # Errors
    ///
    /// As [`Programs::find`].
    pub fn find(&self, needed: &[&str], packages: &[&str]) -> anyhow::Result<Programs> {
        Programs::find(self.workloads.as_deref(), needed, packages)
    }
}

/// Options of every benchmark that can be continued.
#[derive(Debug, Clone, Args)]
pub struct SessionOptions {
    /// Those of every benchmark.
    #[command(flatten)]
    pub common: Common,
    /// Where programs lie.
    #[command(flatten)]
    pub places: Places,
    /// Go on where a record stopped that Ctrl-C or a failure ended; wants the options that it was begun with
    #[arg(long, value_name = "BASENAME.json")]
    pub resume: Option<PathBuf>,
    /// Longest that one run may take, in seconds; then it is ended and counts as failed [default: its window and a minute]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub timeout: Option<f64>,
}

impl SessionOptions {
    /// The session that they ask for, over these cells.
    pub fn session<'a, C>(&self, cells: &'a [C]) -> Session<'a, C> {
        let Common { seed, out, .. } = &self.common;
        Session { cells, rounds: self.common.runs(), seed: *seed, out: out.clone(), resume: self.resume.clone() }
    }

    /// How long a run may take.
    pub fn patience(&self) -> Duration {
        self.timeout.map_or(Duration::from_secs_f64(self.common.seconds) + GRACE, Duration::from_secs_f64)
    }
}
