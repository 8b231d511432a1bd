//! `unconvoy sim`: the arguments and the results.

mod calibration;
mod validation;

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::{Args, ValueHint};
use comfy_table::{CellAlignment, Table, presets as styles};
use serde::Serialize;
use unconvoy_measure::arguments::{seconds, threads};
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::failure::{EXIT_USAGE, Usage};
use unconvoy_measure::interrupt::Interrupted;
use unconvoy_measure::output::{can_write, complain, print};

use crate::calibrate::ROUNDS;
use crate::experiment::Task;
use crate::grid::{self, Cell, Ended};
use crate::outcome::{Outcome, Point};
use crate::parameters::Parameters;
use crate::points::{Simulated, finish, simulate, write_json};
use crate::validate::{Options, Validation};
use crate::workload::{Step, WORKLOADS, Workload, profile};
use crate::{messages, pair, presets, workload};

/// `unconvoy sim`.
#[derive(Debug, Args)]
#[command(after_help = after_help(), max_term_width = 100)]
pub struct SimArgs {
    /// Program to simulate [default: counter]
    #[arg(value_name = "WORKLOAD", value_parser = known_workload)]
    pub workload: Option<String>,
    /// Measure this machine and write a machine file [default: the file of preset `host`]
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        conflicts_with_all = [
            "workload", "machine", "threads", "locks", "seconds", "seed", "jobs", "json",
            "print_machine",
        ],
        value_hint = ValueHint::FilePath,
    )]
    pub calibrate: Option<Option<PathBuf>>,
    /// Rounds of --calibrate, about two seconds each
    #[arg(
        long,
        value_name = "N",
        default_value_t = ROUNDS,
        requires = "calibrate",
        value_parser = clap::value_parser!(u32).range(1..=1000),
    )]
    pub rounds: u32,
    /// Simulate records of `unconvoy bench` counter, hashtable, nested or interference, and compare
    #[arg(
        long,
        value_name = "RECORD.json",
        num_args = 0..,
        conflicts_with_all = ["workload", "calibrate", "locks"],
        value_hint = ValueHint::FilePath,
    )]
    pub validate: Option<Vec<PathBuf>>,
    /// Simulate the program whose locks `unconvoy run --stats` recorded
    #[arg(
        long,
        value_name = "STATS.json",
        conflicts_with_all = ["workload", "calibrate", "validate"],
        value_hint = ValueHint::FilePath,
    )]
    pub profile: Option<PathBuf>,
    /// Thread count of the recorded program [default: number of processors]
    #[arg(long, value_name = "N", requires = "profile", value_parser = threads)]
    pub recorded_threads: Option<u32>,
    /// Also write the report of --validate as Markdown
    #[arg(
        long,
        value_name = "FILE",
        requires = "validate",
        value_hint = ValueHint::FilePath,
    )]
    pub markdown: Option<PathBuf>,
    /// Preset or machine file (TOML) to simulate
    #[arg(
        long,
        value_name = "PRESET|FILE",
        default_value = "host",
        value_hint = ValueHint::FilePath,
    )]
    pub machine: String,
    /// Thread counts [default: 1/4, 1/2, 1, 3/2 and 2 times the machine's contexts]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = threads)]
    pub threads: Vec<u32>,
    /// Locks: `default`, LOCK, LOCK+LOAD, `all`, `libc`, or `transactions` (instead of locks)
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "default,tpmcs+none,futex+none",
        value_parser = known_lock,
    )]
    pub locks: Vec<String>,
    /// Simulated seconds per point, after a fifth for warm-up [default: 1; --validate: as recorded]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Time between two requests of `counter`, in nanoseconds
    #[arg(
        long,
        value_name = "NS",
        conflicts_with_all = ["profile", "calibrate", "validate"],
        value_parser = clap::value_parser!(u64).range(..=LONGEST_NS),
    )]
    pub think: Option<u64>,
    /// Length of the critical section of `counter`, in nanoseconds
    #[arg(
        long,
        value_name = "NS",
        conflicts_with_all = ["profile", "calibrate", "validate"],
        value_parser = clap::value_parser!(u64).range(..=LONGEST_NS),
    )]
    pub section: Option<u64>,
    /// Let threads sleep for load at the end of each transaction
    #[arg(long, conflicts_with_all = ["calibrate", "validate"])]
    pub checkpoint: bool,
    /// Random seed; equal seeds give equal results
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Points to simulate in parallel [default: number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Write the results as JSON, again after each point
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Print the machine as a machine file and exit
    #[arg(long)]
    pub print_machine: bool,
}

/// Default length of a point, in simulated seconds.
const SECONDS: f64 = 1.0;

/// Longest section and think time: an hour, as long as a simulation may be. A time near the limit
/// of 64 bits would turn the simulated clock back.
const LONGEST_NS: u64 = 3_600_000_000_000;

fn known_workload(name: &str) -> Result<String, String> {
    if WORKLOADS.iter().any(|(known, _)| *known == name) {
        Ok(name.to_string())
    } else {
        workload::named(name).map(|_| name.to_string())
    }
}

fn known_lock(name: &str) -> Result<String, String> {
    if name == "all" { Ok(name.to_string()) } else { pair::named(name).map(|_| name.to_string()) }
}

fn after_help() -> String {
    let list = |title: &str, rows: &mut dyn Iterator<Item = (&str, &str)>| {
        let rows: String = rows.map(|(name, what)| format!("  {name:<14} {what}\n")).collect();
        format!("{title}:\n{rows}\n")
    };
    let machines = list("Machines", &mut presets::PRESETS.iter().copied());
    let workloads = list("Workloads", &mut WORKLOADS.iter().copied());
    format!("{machines}{workloads}{EXAMPLES}")
}

const EXAMPLES: &str = "\
The simulator runs the same locks, load managers and controller as `unconvoy run`; only the \
machine is simulated. `unconvoy papers` reproduces the papers' figures.

Exit status: 0 on success, 1 after a failure, 2 for wrong options, 130 after Ctrl-C, which keeps \
finished points.

Examples:
  unconvoy sim --machine server --threads 32,128 --locks default,tpmcs+none
  unconvoy sim tm1 --machine niagara2-64 --threads 32,64,128 --json tm1.json
  unconvoy sim --machine server --print-machine > mine.toml
  unconvoy sim --machine mine.toml
  unconvoy run --stats s.json -- ./server
  unconvoy sim --profile s.json --machine server
  unconvoy sim --calibrate
  unconvoy sim --validate counter.json hashtable.json";

/// Runs the command and returns its exit status.
pub fn sim(args: &SimArgs) -> u8 {
    let Err(error) = run(args) else { return 0 };
    complain(&format!("{error:#}"));
    match () {
        () if error.is::<Interrupted>() => 130,
        () if error.is::<Usage>() => EXIT_USAGE,
        () => 1,
    }
}

fn run(args: &SimArgs) -> anyhow::Result<()> {
    if let Some(file) = &args.calibrate {
        return calibration::run(file.as_deref(), args.rounds as usize);
    }
    let machine = presets::named_or_file(&args.machine).map_err(Usage::of)?;
    if args.print_machine {
        return Ok(print(&toml::to_string(&machine)?)?);
    }
    if let Some(records) = &args.validate {
        if records.is_empty() {
            return Err(Usage::of(anyhow!(messages::no_records())));
        }
        let options = Options { seconds: args.seconds, seed: args.seed };
        let (json, markdown) = (args.json.as_deref(), args.markdown.as_deref());
        return validation::run(
            &Validation::of(machine, records)?,
            options,
            &args.threads,
            args.jobs,
            json,
            markdown,
        );
    }
    let (workload, assumptions) = match &args.profile {
        Some(path) => {
            let profile = profile::read(path, args.recorded_threads)?;
            (profile.workload, profile.assumptions)
        }
        None => {
            let named = workload(&machine, args.workload.as_deref(), args.think, args.section);
            (named.map_err(Usage::of)?, Vec::new())
        }
    };
    let workload = if args.checkpoint { workload.with_checkpoints() } else { workload };
    let seconds = args.seconds.unwrap_or(SECONDS);
    let point = Point {
        machine: machine.clone(),
        workload: workload.clone(),
        lock: String::new(),
        threads: 0,
        seconds,
        seed: args.seed,
        warm_up: None,
        interval_ns: None,
    };
    let cells = cells(&point, &args.locks, &args.threads);
    if let Some(path) = &args.json {
        can_write(path)?;
    }
    let write = |ended: &Ended, when| match &args.json {
        Some(path) => write_json(
            path,
            when,
            &Record {
                simulated: true,
                unconvoy: env!("CARGO_PKG_VERSION"),
                seed: args.seed,
                seconds,
                machine: &machine,
                workload: &workload,
                complete: ended.complete,
                failures: &ended.failures,
                results: &ended.results,
            },
        ),
        None => Ok(()),
    };
    let Simulated { ended, written } = simulate(args.jobs, &cells, &write)?;
    let assumed: String = assumptions.iter().map(|line| format!("Assumed: {line}.\n")).collect();
    print(&format!(
        "{}\n{}\n{assumed}",
        table(&ended),
        caption(&machine, &workload, seconds, args.seed)
    ))?;
    written?;
    finish(&ended)
}

fn workload(
    machine: &Parameters,
    name: Option<&str>,
    think: Option<u64>,
    section: Option<u64>,
) -> anyhow::Result<Workload> {
    let name = name.unwrap_or("counter");
    let mut workload = workload::on(machine, name).map_err(anyhow::Error::msg)?;
    if name != "counter" && (think.is_some() || section.is_some()) {
        bail!(messages::option_of_counter(name));
    }
    for step in &mut workload.steps {
        match (step, think, section) {
            (Step::Work { ns }, Some(think), _) => *ns = think,
            (Step::Section { ns, .. }, _, Some(section)) => *ns = section,
            _ => {}
        }
    }
    Ok(workload)
}

/// One cell per lock and thread count; an empty `threads` stands for the default counts.
fn cells(point: &Point, locks: &[String], threads: &[u32]) -> Vec<Cell> {
    let contexts = point.machine.topology.contexts() as u32;
    let mut counts = threads.to_vec();
    if counts.is_empty() {
        counts = [contexts / 4, contexts / 2, contexts, contexts * 3 / 2, contexts * 2]
            .map(|count| count.max(1))
            .into();
        counts.dedup();
    }
    let locks = locks.iter().flat_map(|lock| match lock.as_str() {
        "all" => pair::all().map(pair::Pair::name).collect(),
        _ => vec![lock.clone()],
    });
    let at = |lock: String| {
        let cell = |&threads: &u32| Cell {
            panel: point.workload.name.clone(),
            series: lock.clone(),
            x: f64::from(threads),
            task: Task::Point(Point { lock: lock.clone(), threads, ..point.clone() }),
        };
        counts.iter().map(cell).collect::<Vec<_>>()
    };
    locks.flat_map(at).collect()
}

#[derive(Serialize)]
struct Record<'a> {
    /// Always true: no number comes from a real machine.
    simulated: bool,
    unconvoy: &'static str,
    seed: u64,
    seconds: f64,
    machine: &'a Parameters,
    workload: &'a Workload,
    complete: bool,
    failures: &'a [String],
    results: &'a [grid::Result],
}

fn caption(machine: &Parameters, workload: &Workload, seconds: f64, seed: u64) -> String {
    format!(
        "Simulated: {}{} on {}, {seconds} s per point, seed {seed}. \
         Percentages of the threads' time.",
        workload.name,
        if workload.checkpoints { " with checkpoints" } else { "" },
        machine.origin(),
    )
}

fn table(ended: &Ended) -> Table {
    let mut table = Table::new();
    table.load_style(styles::UTF8_FULL_CONDENSED);
    table.set_header([
        "lock",
        "threads",
        "per s",
        "fairness",
        "working",
        "spinning",
        "inverted",
        "mwait",
        "blocked",
        "away",
        "ready",
        "switches/s",
        "aborts",
    ]);
    for result in &ended.results {
        let Some(outcome) = result.measured.outcome() else { continue };
        table.add_row(row(&result.series, result.x, outcome));
    }
    for column in 1..13 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn row(lock: &str, threads: f64, outcome: &Outcome) -> Vec<String> {
    let part = |part: f64| format!("{:.1} %", 100.0 * part);
    let split = &outcome.split;
    let mut row = vec![
        lock.to_string(),
        format!("{threads}"),
        Unit::Plain.show(outcome.per_s),
        format!("{:.3}", outcome.fairness),
    ];
    row.extend(
        [
            split.working,
            split.spinning,
            split.inverted,
            split.mwait,
            split.blocked,
            split.away,
            split.ready,
        ]
        .map(part),
    );
    row.push(Unit::Plain.show(outcome.switches_per_s));
    row.push(outcome.aborts_per_commit.map_or_else(String::new, |aborts| format!("{aborts:.2}")));
    row
}
