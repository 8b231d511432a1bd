//! `tatp` and `tpcc`: transactions on a database that is loaded once, into a directory of the
//! user's choice.
//!
//! A run works on its own copy and checks the benchmark's consistency conditions at the end, so
//! every configuration starts from the same data.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::json;
use unconvoy_measure::output::complain;
use unconvoy_measure::record::Record;
use unconvoy_measure::table::Table;

use crate::messages;
use crate::workloads::{TATP, TPCC};
use unconvoy_bench::grid::workload::Workload;
use unconvoy_bench::grid::{Grid, GridOptions, find};
use unconvoy_bench::programs::Programs;
use unconvoy_bench::run::{self, Job};
use unconvoy_bench::setup::Setup;

/// Time limit of a load. A hundred warehouses take minutes.
const LOADING: Duration = Duration::from_secs(86_400);
/// Window of the trial run, which only checks that the data set is usable.
const TRIAL_SECONDS: &str = "0.01";

/// The data set's options.
#[derive(Debug, Args)]
pub struct Data {
    /// Directory of the data set
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Load a data set into DIR, creating DIR, instead of measuring
    #[arg(long)]
    load: bool,
}

/// Options of `tatp`.
#[derive(Debug, Args)]
pub struct TatpOptions {
    #[command(flatten)]
    grid: GridOptions,
    #[command(flatten)]
    data: Data,
    /// Number of subscribers in the data set
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    subscribers: u32,
}

/// Options of `tpcc`.
#[derive(Debug, Args)]
pub struct TpccOptions {
    #[command(flatten)]
    grid: GridOptions,
    #[command(flatten)]
    data: Data,
    /// Number of warehouses in the data set, about 100 MB each
    #[arg(long, value_name = "W", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    warehouses: u32,
    /// Delay each commit by X milliseconds, as a disk would
    #[arg(long, value_name = "X", value_parser = milliseconds)]
    io_ms: Option<f64>,
    /// Leave the Delivery transaction out of the mix
    #[arg(long)]
    without_delivery: bool,
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|ms| (0.0..=10_000.0).contains(ms));
    value.ok_or_else(|| messages::expected_number("milliseconds", 0.0, 10_000.0))
}

/// Runs `tatp`: measures, prints and writes the record.
///
/// # Errors
///
/// Fails as [`Grid::run`] does, and if the data set is missing or has other parameters.
pub fn tatp(options: &TatpOptions) -> anyhow::Result<Record> {
    let words = run::options([("subscribers", options.subscribers.to_string())]);
    let mix = Mix { title: TATP.name.to_string(), words: Vec::new() };
    measure(&TATP, &options.data, &options.grid, words, mix)
}

/// Runs `tpcc`: measures, prints and writes the record.
///
/// # Errors
///
/// Fails as [`tatp`] does.
pub fn tpcc(options: &TpccOptions) -> anyhow::Result<Record> {
    let words = run::options([("warehouses", options.warehouses.to_string())]);
    let mut title = TPCC.name.to_string();
    let mut measured_only = Vec::new();
    if let Some(ms) = options.io_ms {
        title += &format!(", {ms} ms per commit");
        measured_only.extend(run::options([("io-ms", ms.to_string())]));
    }
    if options.without_delivery {
        title += ", without Delivery";
        measured_only.push("--without-delivery".to_string());
    }
    measure(&TPCC, &options.data, &options.grid, words, Mix { title, words: measured_only })
}

/// What a measured run has beyond the data set.
struct Mix {
    title: String,
    words: Vec<String>,
}

fn measure(
    workload: &Workload,
    data: &Data,
    options: &GridOptions,
    scale: Vec<String>,
    mix: Mix,
) -> anyhow::Result<Record> {
    let programs = find(workload, &options.session.places)?;
    let mut words = run::options([("data", data.data.display().to_string())]);
    words.extend(scale);
    if data.load {
        return load(workload, options.session.common.seed, words, &programs);
    }
    let command = format!("unconvoy bench {} --load {}", workload.name, words.join(" "));
    ensure!(data.data.is_dir(), messages::data_set_missing(&data.data, workload.name, &command));
    words.extend(mix.words);
    try_out(workload, &words, &programs).with_context(|| messages::data_set_unusable(&command))?;
    Grid { words, title: mix.title, ..Grid::of(workload) }.run(options)
}

/// Runs the workload for a moment, so that a defect of the data is reported once and not per cell.
fn try_out(workload: &Workload, words: &[String], programs: &Programs) -> anyhow::Result<()> {
    let trial =
        run::options([("threads", "1".to_string()), ("seconds", TRIAL_SECONDS.to_string())]);
    Job::new(workload.program, [words, &trial].concat(), Setup::Libc, LOADING)
        .run(programs)
        .map(drop)
}

fn load(
    workload: &Workload,
    seed: u64,
    mut words: Vec<String>,
    programs: &Programs,
) -> anyhow::Result<Record> {
    let mut record = Record::begin(workload.name, seed, json!({ "load": words }));
    words.push("--load".to_string());
    let job = Job::new(workload.program, words, Setup::Libc, LOADING);
    complain(&messages::loading(&job.name));
    let values = job.run(programs)?;
    let mut table = Table::new(format!("{}: loaded", workload.name), ["what", "value"]);
    for (name, value) in values.iter().filter(|(name, _)| !name.starts_with("process_")) {
        table.row([name.to_string(), value.to_string()]);
    }
    record.tables.push(table);
    record.finish(None)
}

/// Whether a directory holds a loaded data set.
pub fn is_loaded(directory: &Path) -> bool {
    directory.join("dataset").is_file()
}
