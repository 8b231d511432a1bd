//! Options that several benchmarks share.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use unconvoy_measure::arguments::seconds;
use unconvoy_measure::cells::Samples;
use unconvoy_measure::record::Record;
use unconvoy_measure::session::{Session, interleave};

use crate::programs::Programs;
use crate::run::GRACE;

/// Options of every benchmark.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Common {
    /// Number of rounds, each of which measures every cell once [default: 5; bump: 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,
    /// Length of a measured window, in seconds
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// Seed of the order of runs
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write BASENAME.json, BASENAME.csv and BASENAME.md
    #[arg(long, value_name = "BASENAME")]
    pub out: Option<PathBuf>,
}

impl Common {
    /// Returns the number of rounds, 5 by default.
    pub fn runs(&self) -> u32 {
        self.runs.unwrap_or(5)
    }

    /// Starts the record of a short benchmark.
    ///
    /// # Errors
    ///
    /// The record could not be written.
    pub fn begin(&self, benchmark: &str, parameters: Value) -> anyhow::Result<Record> {
        self.out.as_deref().map_or(Ok(()), Record::can_write)?;
        Ok(Record::begin(benchmark, self.seed, parameters))
    }

    /// Measures every cell once per round and adds the samples to the record.
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

/// Directories of programs.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Places {
    /// Directory of the workload programs [default: this build's or installation's]
    #[arg(long, value_name = "DIR")]
    workloads: Option<PathBuf>,
}

impl Places {
    /// Finds the `needed` programs, which use some Debian packages, and the interposer.
    ///
    /// # Errors
    ///
    /// As [`Programs::find`].
    pub fn find(&self, needed: &[&str], packages: &[&str]) -> anyhow::Result<Programs> {
        Programs::find(self.workloads.as_deref(), needed, packages)
    }
}

/// Options of every benchmark that can be resumed.
#[derive(Debug, Clone, Args)]
pub struct SessionOptions {
    /// Options of every benchmark.
    #[command(flatten)]
    pub common: Common,
    /// Directories of programs.
    #[command(flatten)]
    pub places: Places,
    /// Resume an incomplete record, with the same options
    #[arg(long, value_name = "BASENAME.json")]
    pub resume: Option<PathBuf>,
    /// Longest time for one run, in seconds; a longer run fails [default: the window and a minute]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub timeout: Option<f64>,
}

impl SessionOptions {
    /// Creates the session for these cells.
    pub fn session<'a, C>(&self, cells: &'a [C]) -> Session<'a, C> {
        let Common { seed, out, .. } = &self.common;
        Session {
            cells,
            rounds: self.common.runs(),
            seed: *seed,
            out: out.clone(),
            resume: self.resume.clone(),
        }
    }

    /// Returns the time limit of a run.
    pub fn time_limit(&self) -> Duration {
        self.timeout
            .map_or(Duration::from_secs_f64(self.common.seconds) + GRACE, Duration::from_secs_f64)
    }
}
