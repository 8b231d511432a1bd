//! `unconvoy sim`: what a user may write, and what it leaves behind.

mod calibration;
mod points;
mod validation;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueHint};
use comfy_table::{CellAlignment, Table, presets as styles};
use serde::Serialize;
use unconvoy_measure::arguments::{seconds, threads};
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::interrupt::Interrupted;
use unconvoy_measure::output::{complain, print, with_suffix};

use crate::calibrate::ROUNDS;
use crate::experiment::Task;
use crate::figure::{self, Claim, Figure, Size};
use crate::grid::{self, Cell, Ended};
use crate::outcome::{Outcome, Point};
use crate::parameters::{self, Parameters};
use crate::validate::{How, Validation};
use crate::workload::{Step, WORKLOADS, Workload, profile};
use crate::{pair, presets, workload};
use points::{finish, simulate, write_json};

/// `unconvoy sim`.
#[derive(Debug, Args)]
#[command(after_help = after_help(), max_term_width = 100)]
pub struct SimArgs {
    /// What the threads do [default: counter]
    #[arg(value_name = "WORKLOAD", value_parser = known_workload, conflicts_with = "figure")]
    pub workload: Option<String>,
    /// Simulate one of the papers' figures, and look for the shape that the paper claims
    #[arg(long, value_name = "NAME", value_parser = known_figure)]
    pub figure: Option<String>,
    /// Measure this machine and write it as a machine file [default: where the preset `host` looks for it]
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with_all = ["figure", "workload", "machine"], value_hint = ValueHint::FilePath)]
    pub calibrate: Option<Option<PathBuf>>,
    /// Of `--calibrate`: how often everything is measured, some two seconds each
    #[arg(long, value_name = "N", default_value_t = ROUNDS, requires = "calibrate", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Simulate what `unconvoy bench counter` or `hashtable` measured on this machine, and compare
    #[arg(long, value_name = "RECORD.json", num_args = 0.., conflicts_with_all = ["figure", "workload", "calibrate"], value_hint = ValueHint::FilePath)]
    pub validate: Option<Vec<PathBuf>>,
    /// Simulate the program whose locks `unconvoy run --stats` recorded
    #[arg(long, value_name = "STATS.json", conflicts_with_all = ["figure", "workload", "calibrate", "validate"], value_hint = ValueHint::FilePath)]
    pub profile: Option<PathBuf>,
    /// Of `--profile`: threads that the program ran with [default: as many as there were processors]
    #[arg(long, value_name = "N", requires = "profile", value_parser = threads)]
    pub recorded_threads: Option<u32>,
    /// Of `--validate`: write the report as Markdown too
    #[arg(long, value_name = "FILE", requires = "validate", value_hint = ValueHint::FilePath)]
    pub markdown: Option<PathBuf>,
    /// A preset, or a machine file (TOML)
    #[arg(long, value_name = "PRESET|FILE", default_value = "host", conflicts_with = "figure", value_hint = ValueHint::FilePath)]
    pub machine: String,
    /// Thread counts [default: a quarter, half, all, one and a half and twice as many as the machine has contexts]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = threads, conflicts_with = "figure")]
    pub threads: Vec<u32>,
    /// Locks: `default`, LOCK, or LOCK+LOAD, or `all`; `transactions` for none, on a machine that has some
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "default,tpmcs+none,futex+none", value_parser = known_lock, conflicts_with = "figure")]
    pub locks: Vec<String>,
    /// Simulated seconds that are measured at each point; a fifth of that passes before [default: 1; of `--validate`: as
    /// many as were measured]
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with = "figure")]
    pub seconds: Option<f64>,
    /// Of `counter`: time between two requests, in nanoseconds
    #[arg(long, value_name = "NS", conflicts_with = "figure")]
    pub think: Option<u64>,
    /// Of `counter`: time in the critical section, in nanoseconds
    #[arg(long, value_name = "NS", conflicts_with = "figure")]
    pub section: Option<u64>,
    /// Seed of all that is left to chance: the same one gives the same result
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Simulate a figure at the size of the test suite: fewer points, less time
    #[arg(long, requires = "figure")]
    pub reduced: bool,
    /// Points that are simulated at a time [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Write what has been simulated, again after each point
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Draw the figure into BASENAME.svg and BASENAME.png, and write BASENAME.json [default: the figure's name]
    #[arg(long, value_name = "BASENAME", requires = "figure", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// Print the machine as a machine file, and simulate nothing
    #[arg(long, conflicts_with = "figure")]
    pub print_machine: bool,
}

/// Simulated seconds of a point.
const SECONDS: f64 = 1.0;

fn known_workload(name: &str) -> Result<String, String> {
    if WORKLOADS.iter().any(|(known, _)| *known == name) {
        Ok(name.to_string())
    } else {
        workload::named(name).map(|_| name.to_string())
    }
}

fn known_figure(name: &str) -> Result<String, String> {
    figure::named(name).map(|_| name.to_string())
}

fn known_lock(name: &str) -> Result<String, String> {
    if name == "all" { Ok(name.to_string()) } else { pair::named(name).map(|_| name.to_string()) }
}

fn after_help() -> String {
    let list = |title: &str, rows: &mut dyn Iterator<Item = (&str, &str)>| {
        let rows: String = rows.map(|(name, what)| format!("  {name:<12} {what}\n")).collect();
        format!("{title}:\n{rows}\n")
    };
    let machines = list("Machines", &mut presets::PRESETS.iter().copied());
    let workloads = list("Workloads", &mut WORKLOADS.iter().copied());
    let figures = list("Figures", &mut figure::all().iter().map(|figure| (figure.name, figure.title)));
    format!("{machines}{workloads}{figures}{EXAMPLES}")
}

const EXAMPLES: &str = "\
The locks, load managers and the controller are those that `unconvoy run` uses; the machine is not
real. docs/simulator.md says what is modelled. Exit status: 0 when everything was simulated, whether
or not a figure has its shape; 1 when something failed; 130 after Ctrl-C, which loses nothing that
had finished.

Examples:
  unconvoy sim counter --machine server --threads 32,64,128,256 --locks default,tpmcs+none
  unconvoy sim tm1 --machine niagara2-64 --threads 32,64,96,128 --json tm1.json
  unconvoy sim --figure asplos-11 --plot figures/asplos-11
  unconvoy sim --machine server --print-machine > mine.toml && unconvoy sim --machine mine.toml
  unconvoy run --stats s.json -- ./server && unconvoy sim --profile s.json --machine server
  unconvoy sim --calibrate && unconvoy sim --validate counter.json hashtable.json";

/// Does what the arguments say; the exit status.
pub fn sim(args: &SimArgs) -> u8 {
    let Err(error) = run(args) else { return 0 };
    complain(&format!("{error:#}"));
    if error.is::<Interrupted>() { 130 } else { 1 }
}

fn run(args: &SimArgs) -> anyhow::Result<()> {
    if let Some(file) = &args.calibrate {
        return calibration::run(file.as_deref(), args.rounds as usize);
    }
    if let Some(name) = &args.figure {
        return simulate_figure(args, figure::named(name).map_err(anyhow::Error::msg)?);
    }
    let machine = machine(&args.machine)?;
    if args.print_machine {
        return Ok(print(&toml::to_string(&machine)?)?);
    }
    if let Some(records) = &args.validate {
        let how = How { seconds: args.seconds, seed: args.seed };
        let (json, markdown) = (args.json.as_deref(), args.markdown.as_deref());
        return validation::run(&Validation::of(machine, records)?, how, &args.threads, args.jobs, json, markdown);
    }
    let (workload, assumptions) = match &args.profile {
        Some(path) => {
            let profile = profile::read(path, args.recorded_threads)?;
            (profile.workload, profile.assumptions)
        }
        None => (workload(args, &machine)?, Vec::new()),
    };
    let cells = cells(args, &machine, &workload);
    let subject = Subject { figure: None, on: Some((&machine, &workload)) };
    let write = |ended: &Ended| match &args.json {
        Some(path) => write_json(path, &Record::of(args, subject, ended)),
        None => Ok(()),
    };
    let ended = simulate(args.jobs, &cells, &write)?;
    let assumed: String = assumptions.iter().map(|line| format!("Assumed: {line}.\n")).collect();
    print(&format!("{}\n{}\n{assumed}", table(&ended), caption(&machine, &workload, args)))?;
    finish(&ended)
}

/// The preset of this name, or what a file says.
fn machine(name: &str) -> anyhow::Result<Parameters> {
    let path = Path::new(name);
    if !path.exists() {
        return presets::named(name).map_err(anyhow::Error::msg);
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    parameters::parse(&text).map_err(|error| anyhow!("{name} is no machine: {error}"))
}

fn workload(args: &SimArgs, machine: &Parameters) -> anyhow::Result<Workload> {
    let name = args.workload.as_deref().unwrap_or("counter");
    let mut workload = workload::on(machine, name).map_err(anyhow::Error::msg)?;
    if name != "counter" && (args.think.is_some() || args.section.is_some()) {
        bail!("--think and --section are of the workload counter, and this is {name}");
    }
    for step in &mut workload.steps {
        match (step, args.think, args.section) {
            (Step::Work { ns }, Some(think), _) => *ns = think,
            (Step::Section { ns, .. }, _, Some(section)) => *ns = section,
            _ => {}
        }
    }
    Ok(workload)
}

fn cells(args: &SimArgs, machine: &Parameters, workload: &Workload) -> Vec<Cell> {
    let contexts = machine.topology.contexts() as u32;
    let mut counts = args.threads.clone();
    if counts.is_empty() {
        counts =
            [contexts / 4, contexts / 2, contexts, contexts * 3 / 2, contexts * 2].map(|count| count.max(1)).into();
        counts.dedup();
    }
    let locks = args.locks.iter().flat_map(|lock| match lock.as_str() {
        "all" => pair::all().map(pair::Pair::name).collect(),
        _ => vec![lock.clone()],
    });
    let at = |lock: String| {
        let cell = |&threads: &u32| Cell {
            panel: workload.name.clone(),
            series: lock.clone(),
            x: f64::from(threads),
            task: Task::Point(Point {
                machine: machine.clone(),
                workload: workload.clone(),
                lock: lock.clone(),
                threads,
                seconds: args.seconds.unwrap_or(SECONDS),
                seed: args.seed,
                warm_up: None,
                interval_ns: None,
            }),
        };
        counts.iter().map(cell).collect::<Vec<_>>()
    };
    locks.flat_map(at).collect()
}

/// What is being simulated.
#[derive(Clone, Copy)]
struct Subject<'a> {
    figure: Option<&'static Figure>,
    /// The machine and the workload; of a figure, each cell has its own.
    on: Option<(&'a Parameters, &'a Workload)>,
}

/// What is left behind.
#[derive(Serialize)]
struct Record<'a> {
    /// That nothing here was measured on a real machine.
    simulated: bool,
    unconvoy: &'static str,
    seed: u64,
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    figure: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<&'a Parameters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workload: Option<&'a Workload>,
    complete: bool,
    failures: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    claims: Vec<Claim>,
    results: &'a [grid::Result],
}

impl<'a> Record<'a> {
    fn of(args: &SimArgs, subject: Subject<'a>, ended: &'a Ended) -> Self {
        Record {
            simulated: true,
            unconvoy: env!("CARGO_PKG_VERSION"),
            seed: args.seed,
            seconds: args.figure.is_none().then_some(args.seconds.unwrap_or(SECONDS)),
            figure: subject.figure.map(|figure| figure.name),
            machine: subject.on.map(|(machine, _)| machine),
            workload: subject.on.map(|(_, workload)| workload),
            complete: ended.complete,
            failures: &ended.failures,
            claims: subject.figure.map_or_else(Vec::new, |figure| figure.judge(&ended.results)),
            results: &ended.results,
        }
    }
}

fn caption(machine: &Parameters, workload: &Workload, args: &SimArgs) -> String {
    format!(
        "Simulated: {} on {}, {} s at each point, seed {}. Parts are of the threads' time.",
        workload.name,
        machine.origin(),
        args.seconds.unwrap_or(SECONDS),
        args.seed
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
    for column in 1..12 {
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
    row.extend([split.working, split.spinning, split.inverted, split.blocked, split.away, split.ready].map(part));
    row.push(Unit::Plain.show(outcome.switches_per_s));
    row.push(outcome.aborts_per_commit.map_or_else(String::new, |aborts| format!("{aborts:.2}")));
    row
}

fn simulate_figure(args: &SimArgs, figure: &'static Figure) -> anyhow::Result<()> {
    let size = if args.reduced { Size::Reduced } else { Size::Full };
    let base = args.plot.clone().unwrap_or_else(|| PathBuf::from(figure.name));
    let json = args.json.clone().unwrap_or_else(|| with_suffix(&base, ".json"));
    let cells = figure.cells(size, args.seed);
    let subject = Subject { figure: Some(figure), on: None };
    let ended = simulate(args.jobs, &cells, &|ended| write_json(&json, &Record::of(args, subject, ended)))?;
    let claims = figure.judge(&ended.results);
    let what = if ended.complete { "" } else { "INCOMPLETE. " };
    let caption = format!("{what}Simulated, not measured: unconvoy {}, seed {}", env!("CARGO_PKG_VERSION"), args.seed);
    let drawing = figure::draw(figure, &ended.results, &claims, caption);
    let files = drawing.write(&base)?;
    let mut text = format!("{}\n\n{}\n\n", figure.title, figure.remark);
    for claim in &claims {
        let verdict = if claim.holds { "holds        " } else { "DOES NOT HOLD" };
        text.push_str(&format!("{verdict}  {} (found {})\n", claim.claim, claim.found));
    }
    if let Some(rows) = figure.table(&ended.results) {
        let mut table = Table::new();
        table.load_style(styles::ASCII_MARKDOWN);
        let mut rows = rows.into_iter();
        table.set_header(rows.next().unwrap_or_default());
        table.add_rows(rows);
        text.push_str(&format!("\nAt 32 tasks:\n\n{table}\n"));
    }
    text.push_str(&format!("\n{}, {} and {}\n", files[0].display(), files[1].display(), json.display()));
    print(&text)?;
    finish(&ended)
}
