//! Records of `unconvoy bench counter`, `hashtable`, `nested` and `interference`: the parts that
//! can be simulated.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use unconvoy_measure::arguments::counted;
use unconvoy_measure::input;
use unconvoy_measure::record::SCHEMA;
use unconvoy_measure::statistics::Spread;
use unconvoy_measure::transfer::Distances;

use crate::parameters::Parameters;
use crate::workload::{Workload, bench_counter, bench_nested, hashtable};
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
    /// The program of `interference`.
    #[serde(default)]
    workload: Option<String>,
    /// Its lock without load control.
    #[serde(default)]
    without_load_control: Option<String>,
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
    /// Half a round trip of a cache line between two processors, before the run.
    #[serde(default)]
    transfer_ns: Option<u32>,
}

#[derive(Deserialize)]
struct CellKey {
    #[serde(default)]
    configuration: Option<String>,
    threads: u32,
    #[serde(default)]
    think: u64,
    /// Of `interference`: the other process, and its threads in percent of the processors.
    #[serde(default)]
    line: Option<String>,
    #[serde(default)]
    x: f64,
}

/// Which of two processes a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Process {
    Own,
    Other,
}

/// The other process of a row of `interference`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Beside {
    /// `CONTENTION+LOAD`.
    pub(super) lock: String,
    pub(super) threads: u32,
    /// Whose throughput the row has.
    pub(super) of: Process,
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
    /// The process beside this one, if any.
    pub(super) beside: Option<Beside>,
    pub(super) measured: Spread,
    /// Operations per second of each run, with its round.
    pub(super) runs: Vec<(u32, f64)>,
}

impl Row {
    /// The panel of its simulation. Both rows of two processes have the same one.
    pub(super) fn panel(&self, record: usize) -> String {
        match &self.beside {
            None => format!("{record} {}", self.title),
            Some(Beside { lock, threads, .. }) => format!("{record} beside {threads} of {lock}"),
        }
    }

    /// The lock of the process that the row is about, as `CONTENTION+LOAD`.
    pub(super) fn measured_lock(&self) -> String {
        match &self.beside {
            Some(Beside { lock, of: Process::Other, .. }) => {
                pair::named(lock).map_or_else(|_| lock.clone(), |pair| pair.name())
            }
            _ => self.lock.clone(),
        }
    }

    /// Whether the row of its own process has the same simulation.
    pub(super) fn is_of_other(&self) -> bool {
        self.beside.as_ref().is_some_and(|beside| beside.of == Process::Other)
    }
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
    let is_supported = match file.benchmark.as_str() {
        "counter" | "hashtable" | "nested" => true,
        "interference" => file.parameters.workload.as_deref() == Some("counter"),
        _ => false,
    };
    if !is_supported {
        bail!(messages::unsupported_benchmark(path, &file.benchmark));
    }
    if file.parameters.latency {
        bail!(messages::measured_with_latency(path));
    }
    if !file.parameters.options.is_empty() {
        bail!(messages::measured_with_options(path, &file.parameters.options));
    }
    // Without two cores at one cache, the machine file has the preset's time for it.
    let is_measured = machine.calibrated.is_some() && *machine.topology.cores_per_cache > 1;
    let calibrated = is_measured.then(|| 2 * machine.memory.same_cache_ns);
    let is_far = |ns: u32| {
        let usual = calibrated.and_then(|usual| u32::try_from(usual).ok());
        usual.is_some_and(|usual| Distances::of([ns, usual].into_iter()).is_some())
    };
    let mut samples: BTreeMap<Place, Vec<(u32, f64)>> = BTreeMap::new();
    let mut left_out: BTreeMap<String, u32> = BTreeMap::new();
    for Run { cell, measured, round, transfer_ns } in file.runs {
        let mut leave_out = |why: String| *left_out.entry(why).or_default() += 1;
        if transfer_ns.is_some_and(is_far) {
            leave_out("a cache line took another time to move than at the calibration".into());
            continue;
        }
        let places = match Place::of(&cell, &file.parameters, file.context.processors) {
            Ok(places) => places,
            Err(why) => {
                leave_out(why);
                continue;
            }
        };
        for (mut place, metric) in places {
            if place.threads > most {
                leave_out(format!("more than {most} threads"));
                continue;
            }
            let pair = pair::named(&place.lock).map_err(|why| anyhow::anyhow!("{name}: {why}"))?;
            place.lock = pair.name();
            let ops = measured.get(metric).with_context(|| messages::no_throughput(path))?;
            samples.entry(place).or_default().push((round, *ops));
        }
    }
    let row = |(place, runs): (Place, Vec<(u32, f64)>)| {
        let Place { think, threads, lock, beside } = place;
        let counter = || bench_counter(machine, file.parameters.section_ns, think);
        let of_other = |&threads: &u32| counted(threads.into(), "thread");
        let (workload, title) = match (file.benchmark.as_str(), &beside) {
            ("hashtable", _) => (hashtable(machine), "hashtable".to_string()),
            ("nested", _) => (bench_nested(machine), "nested".to_string()),
            (_, Some(Beside { lock, threads, of: Process::Own })) => {
                (counter(), format!("counter beside {} of {lock}", of_other(threads)))
            }
            (_, Some(Beside { lock, threads, of: Process::Other })) => {
                (counter(), format!("{} of {lock} beside counter", of_other(threads)))
            }
            (_, None) if think == 0 => (counter(), "counter".to_string()),
            (_, None) => (counter(), format!("counter, think {think} ns")),
        };
        let measured = Spread::of(runs.iter().map(|&(_, ops)| ops))?;
        Some(Row { workload, title, lock, threads, beside, measured, runs })
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

/// What a row measures.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    think: u64,
    threads: u32,
    lock: String,
    beside: Option<Beside>,
}

impl Place {
    /// The rows that a run belongs to, and which of its values count there. An error is the reason
    /// why the run cannot be simulated.
    fn of(
        cell: &CellKey,
        parameters: &RunParameters,
        processors: u32,
    ) -> Result<Vec<(Self, &'static str)>, String> {
        let CellKey { think, threads, .. } = *cell;
        let place = |lock: &str, beside| Place { think, threads, lock: lock.into(), beside };
        let Some(line) = &cell.line else {
            let lock = cell.configuration.as_deref().unwrap_or_default();
            if lock == "libc" || lock == "libc-adaptive" {
                return Err(format!("{lock}: not a lock of unconvoy"));
            }
            return Ok(vec![(place(lock, None), "ops_per_sec")]);
        };
        let own = |beside| (place("default", beside), "self_per_sec");
        let other = match line.as_str() {
            "alone" => return Ok(vec![own(None)]),
            "other with load control" => "default",
            "other without load control" => {
                parameters.without_load_control.as_deref().unwrap_or_default()
            }
            other => return Err(format!("{other}: not simulated")),
        };
        let lock = other.to_string();
        let threads = ((cell.x * f64::from(processors) / 100.0).round() as u32).max(1);
        let beside = |of| Some(Beside { lock: lock.clone(), threads, of });
        Ok(vec![
            own(beside(Process::Own)),
            (place("default", beside(Process::Other)), "other_per_sec"),
        ])
    }
}
