//! Records of `unconvoy bench counter` and `unconvoy bench hashtable`: the parts that can be
//! simulated.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use unconvoy_measure::input;
use unconvoy_measure::record::SCHEMA;
use unconvoy_measure::statistics::Spread;

use crate::parameters::Parameters;
use crate::workload::{Workload, bench_counter, hashtable};
use crate::{messages, pair};

/// The compared parts of a record's file.
#[derive(Deserialize)]
struct File {
    schema: String,
    benchmark: String,
    context: Context,
    parameters: RunParameters,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Context {
    cpu: String,
    kernel: String,
    processors: u32,
    date: String,
}

#[derive(Deserialize)]
struct RunParameters {
    seconds: f64,
    #[serde(default = "usual_section")]
    section_ns: u64,
    #[serde(default)]
    latency: bool,
    #[serde(default)]
    options: Vec<String>,
}

fn usual_section() -> u64 {
    100
}

#[derive(Deserialize)]
struct Run {
    cell: CellKey,
    measured: BTreeMap<String, f64>,
    #[serde(default)]
    round: u32,
}

#[derive(Deserialize)]
struct CellKey {
    configuration: String,
    threads: u32,
    #[serde(default)]
    think: u64,
}

#[derive(Debug)]
pub(super) struct Record {
    /// File name as given by the user.
    pub(super) file: String,
    /// Processor, kernel and date.
    pub(super) machine: String,
    pub(super) processors: u32,
    /// Length of a measurement, in seconds.
    pub(super) seconds: f64,
    pub(super) rows: Vec<Row>,
    /// Rows that cannot be simulated, with reasons.
    pub(super) left_out: Vec<String>,
}

/// The measurements of one lock at one thread count.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) workload: Workload,
    /// Name of the workload, with the think time if it has one.
    pub(super) title: String,
    /// `CONTENTION+LOAD`.
    pub(super) lock: String,
    pub(super) threads: u32,
    pub(super) measured: Spread,
    /// Operations per second of each run, with its round.
    pub(super) runs: Vec<(u32, f64)>,
}

/// Reads a record, without rows of more than `most` threads.
///
/// # Errors
///
/// The file cannot be read, is not a record, or has an unknown benchmark or lock.
pub(super) fn read(path: &Path, machine: &Parameters, most: u32) -> anyhow::Result<Record> {
    let name = path.display();
    let text =
        input::read_text(path, input::RECORD).with_context(|| messages::cannot_read(path))?;
    let file: File =
        serde_json::from_str(&text).with_context(|| messages::not_a_benchmark_record(path))?;
    if file.schema != SCHEMA {
        bail!(messages::unknown_schema(path, &file.schema, SCHEMA));
    }
    if !["counter", "hashtable"].contains(&file.benchmark.as_str()) {
        bail!(messages::unsupported_benchmark(path, &file.benchmark));
    }
    if file.parameters.latency {
        bail!(messages::measured_with_latency(path));
    }
    if !file.parameters.options.is_empty() {
        bail!(messages::measured_with_options(path, &file.parameters.options));
    }
    let mut samples: BTreeMap<(u64, u32, String), Vec<(u32, f64)>> = BTreeMap::new();
    let mut left_out: BTreeMap<String, u32> = BTreeMap::new();
    for Run { cell, measured, round } in file.runs {
        if cell.configuration == "libc" || cell.configuration == "libc-adaptive" {
            *left_out
                .entry(format!("{}: not a lock of unconvoy", cell.configuration))
                .or_default() += 1;
        } else if cell.threads > most {
            *left_out.entry(format!("more than {most} threads")).or_default() += 1;
        } else {
            let pair =
                pair::named(&cell.configuration).map_err(|why| anyhow::anyhow!("{name}: {why}"))?;
            let ops = measured.get("ops_per_sec").with_context(|| messages::no_throughput(path))?;
            samples.entry((cell.think, cell.threads, pair.name())).or_default().push((round, *ops));
        }
    }
    let row = |((think, threads, lock), runs): ((u64, u32, String), Vec<(u32, f64)>)| {
        let (workload, title) = match file.benchmark.as_str() {
            "counter" if think == 0 => {
                (bench_counter(machine, file.parameters.section_ns, 0), "counter".to_string())
            }
            "counter" => (
                bench_counter(machine, file.parameters.section_ns, think),
                format!("counter, think {think} ns"),
            ),
            _ => (hashtable(machine), "hashtable".to_string()),
        };
        let measured = Spread::of(runs.iter().map(|&(_, ops)| ops))?;
        Some(Row { workload, title, lock, threads, measured, runs })
    };
    let Context { cpu, kernel, processors, date } = file.context;
    Ok(Record {
        file: name.to_string(),
        machine: format!("{cpu}, {processors} processors, {kernel}, {date}"),
        processors,
        seconds: file.parameters.seconds,
        rows: samples.into_iter().filter_map(row).collect(),
        left_out: left_out.into_iter().map(|(why, runs)| format!("{why} ({runs} runs)")).collect(),
    })
}
