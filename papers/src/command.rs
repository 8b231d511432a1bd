//! `unconvoy papers`: lists and makes the figures and tables.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueHint};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets as styles};
use serde_json::Value;
use unconvoy_bench::exit;
use unconvoy_measure::failure::{Usage, is_violation};
use unconvoy_measure::interrupt::Interrupted;
use unconvoy_measure::output::{complain, print, with_suffix};

use crate::bench;
use crate::catalogue::FIGURES;
use crate::databases::is_loaded;
use crate::figure::{Figure, Made, Native};
use crate::messages;
use crate::native;
use crate::plan::Size;
use crate::replay::{ReplayArgs, replay};
use crate::simulated::{self, How};

/// Rounds of a quick version's benchmarks.
const QUICK_RUNS: u32 = 2;
/// Length of their windows, seconds.
const QUICK_SECONDS: f64 = 0.2;

/// `unconvoy papers`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true, max_term_width = 100)]
pub struct PapersArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the figures and tables, with how each is made and about how long that takes
    List,
    /// Make figures: measure or simulate, check the paper's claims, draw
    Run(RunArgs),
    /// Make all figures; keep complete records and resume the others
    All(AllArgs),
    /// Simulate recorded critical sections of one lock, beside Syncchar's prediction
    Replay(ReplayArgs),
}

/// Options of `run`.
#[derive(Debug, Args)]
struct RunArgs {
    /// Figures, as `unconvoy papers list` names them
    #[arg(value_name = "NAME", required = true, hide_possible_values = true,
          value_parser = PossibleValuesParser::new(FIGURES.iter().map(|figure| figure.name)))]
    names: Vec<String>,
    #[command(flatten)]
    how: Options,
    /// Keep complete records, and continue those that stopped midway or have fewer seeds
    #[arg(long)]
    resume: bool,
    /// Draw a figure from existing records: a native one with a panel for each, a simulated one
    /// with the seeds of all
    #[arg(long, value_name = "RECORD.json", num_args = 1.., value_hint = ValueHint::FilePath)]
    from: Vec<PathBuf>,
    /// Draw into BASENAME.svg and BASENAME.png
    #[arg(long, value_name = "BASENAME", hide = true)]
    plot: Option<PathBuf>,
    /// Write the simulated record to FILE
    #[arg(long, value_name = "FILE", hide = true)]
    json: Option<PathBuf>,
}

/// Options of `all`.
#[derive(Debug, Args)]
struct AllArgs {
    /// Make only native, or only simulated figures
    #[arg(value_name = "WAY", value_parser = ["native", "simulated"])]
    way: Option<String>,
    #[command(flatten)]
    how: Options,
}

/// Options of `run` and `all`.
#[derive(Debug, Args)]
struct Options {
    /// Directory for NAME.svg, .png and .json [default: the current one, or --from's]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// Make a quick version: fewer simulated points, shorter and fewer runs
    #[arg(long, alias = "reduced")]
    quick: bool,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Simulate each figure N times, with seeds from --seed on; draw medians and spread. One shows
    /// the shape; the published figures have 5, which take 5 times as long
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Points to simulate at a time [default: number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Directory of the TATP and TPC-C databases, loaded there if missing [default: data below
    /// --out]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Native figures are measured on this machine by `unconvoy bench`. Simulated ones (sim-NAME) run \
on modelled machines and report which of the paper's claims hold. NAME-published has the paper's \
own parameters where those of NAME differ.

Exit status: 0 if everything was made, whether or not claims hold; 1 if something failed; 2 for \
wrong options; 3 if a program found its data inconsistent; 130 after Ctrl-C, which keeps all \
finished points.

Examples:
  unconvoy papers list
  unconvoy papers run sim-asplos-11 --out figures
  unconvoy papers run sim-asplos-11 --out figures --seeds 5 --resume
  unconvoy papers run asplos-9 asplos-10 --quick
  unconvoy papers run asplos-11 --from results/tatp.json results/tpcc.json
  unconvoy papers all --out figures
  unconvoy papers replay server.parquet --without advice";

/// Runs the command; returns the exit status.
pub fn papers(args: &PapersArgs) -> u8 {
    match &args.command {
        Command::List => exit(print(&format!("{}\n", list())).map_err(Into::into)),
        Command::Run(run) => {
            let named =
                FIGURES.iter().filter(|figure| run.names.iter().any(|name| name == figure.name));
            let figures: Vec<&Figure> = named.collect();
            exit(from_records(run, &figures).unwrap_or_else(|| {
                let (plot, json) = (run.plot.clone(), run.json.clone());
                make_each(&figures, &Making { how: &run.how, resume: run.resume, plot, json })
            }))
        }
        Command::Replay(args) => exit(replay(args)),
        Command::All(AllArgs { way, how }) => {
            let is_wanted =
                |figure: &&Figure| way.as_deref().is_none_or(|way| way == figure.made.name());
            let figures: Vec<&Figure> = FIGURES.iter().filter(is_wanted).collect();
            exit(make_each(&figures, &Making { how, resume: true, plot: None, json: None }))
        }
    }
}

fn list() -> Table {
    let mut table = Table::new();
    table
        .load_style(styles::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["name", "figure", "shows", "made", "minutes"]);
    for figure in FIGURES {
        let title = figure.title.trim_end_matches(" (simulated)").to_string();
        let (made, minutes) = (figure.made.name().to_string(), figure.minutes.to_string());
        table.add_row([figure.name.to_string(), figure.paper.to_string(), title, made, minutes]);
    }
    if let Some(column) = table.column_mut(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Draws the figure of `--from`, if that option is given.
fn from_records(run: &RunArgs, figures: &[&Figure]) -> Option<anyhow::Result<()>> {
    let first = run.from.first()?;
    let draw = || {
        let [figure] = figures else {
            return Err(Usage::of(anyhow!(messages::from_needs_one_figure())));
        };
        let beside = || with_suffix(&first.with_extension(""), format!("-{}", figure.name));
        let in_directory = || run.how.out.as_ref().map_or_else(beside, |out| out.join(figure.name));
        let base = run.plot.clone().unwrap_or_else(in_directory);
        match &figure.made {
            Made::Native(native) => native::draw(figure, native, &run.from, &base, true),
            Made::Simulated(simulated) => simulated::redraw(figure, simulated, &run.from, &base),
        }
    };
    Some(draw())
}

/// How to make figures, and where to put them.
struct Making<'a> {
    how: &'a Options,
    resume: bool,
    plot: Option<PathBuf>,
    json: Option<PathBuf>,
}

/// Makes the figures one by one. Only Ctrl-C and inconsistent data stop the figures that follow.
fn make_each(figures: &[&Figure], making: &Making) -> anyhow::Result<()> {
    making.check_full_records(figures)?;
    let mut failed = Vec::new();
    for figure in figures {
        match making.make(figure) {
            Ok(()) => {}
            Err(error)
                if figures.len() == 1 || error.is::<Interrupted>() || is_violation(&error) =>
            {
                return Err(error);
            }
            Err(error) => {
                complain(&messages::figure_failed(figure.name, &error));
                failed.push(figure.name);
            }
        }
    }
    ensure!(failed.is_empty(), messages::figures_failed(&failed));
    Ok(())
}

impl Making<'_> {
    fn directory(&self) -> &Path {
        self.how.out.as_deref().unwrap_or(Path::new("."))
    }

    /// Path of the figure's drawings, without extension.
    fn base(&self, figure: &Figure) -> PathBuf {
        self.plot.clone().unwrap_or_else(|| self.directory().join(figure.name))
    }

    fn how_simulated<'a>(&self, base: &'a Path) -> How<'a> {
        How {
            size: if self.how.quick { Size::Reduced } else { Size::Full },
            seeds: (0..self.how.seeds)
                .map(|number| self.how.seed.wrapping_add(number.into()))
                .collect(),
            jobs: self.how.jobs,
            resume: self.resume,
            base,
            json: self.json.clone(),
        }
    }

    /// Rejects quick versions that would replace full records, which took hours.
    fn check_full_records(&self, figures: &[&Figure]) -> anyhow::Result<()> {
        if !self.how.quick {
            return Ok(());
        }
        let mut replaced = figures.iter().flat_map(|figure| self.replaced_full_records(figure));
        let Some(first) = replaced.next() else { return Ok(()) };
        Err(Usage::of(anyhow!(messages::full_records_replaced(&first, replaced.count()))))
    }

    /// The full records that a quick version of the figure would replace. `--resume` keeps complete
    /// native ones.
    fn replaced_full_records(&self, figure: &Figure) -> Vec<PathBuf> {
        match &figure.made {
            Made::Simulated(simulated) => {
                let base = self.base(figure);
                let how = self.how_simulated(&base);
                simulated::replaced_full_record(figure, simulated, &how).into_iter().collect()
            }
            Made::Native(native) => {
                let path = |words: &&[&str]| self.record(&record_name(figure, native, words[0]));
                let is_replaced = |record: &PathBuf| {
                    let is_kept = |is_complete: bool| self.resume && is_complete;
                    state(record).is_some_and(|is_complete| !is_kept(is_complete))
                        && !is_quick(record)
                };
                native.benchmarks.iter().map(path).filter(is_replaced).collect()
            }
        }
    }

    /// Path of the native record `name`.
    fn record(&self, name: &str) -> PathBuf {
        with_suffix(&self.directory().join(name), ".json")
    }

    fn make(&self, figure: &Figure) -> anyhow::Result<()> {
        let directory = self.directory();
        std::fs::create_dir_all(directory).with_context(|| messages::cannot_create(directory))?;
        let base = self.base(figure);
        match &figure.made {
            Made::Simulated(simulated) => {
                simulated::make(figure, simulated, &self.how_simulated(&base))
            }
            Made::Native(native) => {
                let records =
                    native.benchmarks.iter().map(|words| self.measured(figure, native, words));
                let records: Vec<(PathBuf, bool)> = records.collect::<anyhow::Result<_>>()?;
                let (records, kept): (Vec<PathBuf>, Vec<bool>) = records.into_iter().unzip();
                native::draw(figure, native, &records, &base, kept.contains(&true))
            }
        }
    }

    /// Whether `--resume` keeps a complete native record. One of a quick version is kept only for
    /// another quick version.
    fn is_kept(&self, name: &str, record: &Path) -> bool {
        if !self.resume || state(record) != Some(true) {
            return false;
        }
        let is_kept = self.how.quick || !is_quick(record);
        let message = if is_kept { messages::record_kept } else { messages::record_is_quick };
        complain(&message(name, record));
        is_kept
    }

    /// Whether `--resume` continues an incomplete native record. A full version does not continue a
    /// quick one, because their parameters differ. A quick version does continue a full record:
    /// `bench` rejects that, and so the full runs are not lost.
    fn is_continued(&self, name: &str, record: &Path) -> bool {
        if !self.resume || state(record) != Some(false) {
            return false;
        }
        let is_stale = !self.how.quick && is_quick(record);
        if is_stale {
            complain(&messages::record_is_quick(name, record));
        }
        !is_stale
    }

    /// The record of one benchmark, and whether it was kept instead of measured now.
    fn measured(
        &self,
        figure: &Figure,
        native: &Native,
        words: &[&str],
    ) -> anyhow::Result<(PathBuf, bool)> {
        let benchmark = words[0];
        let name = record_name(figure, native, benchmark);
        let base = self.directory().join(&name);
        let record = self.record(&name);
        if self.is_kept(&name, &record) {
            return Ok((record, true));
        }
        let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
        // Figures of the paper's TM-1 that measure `counter` unless there is a data set.
        let set = match benchmark {
            "tatp" | "tpcc" => Some(benchmark),
            "interval" | "interference" if self.how.data.is_some() => Some("tatp"),
            _ => None,
        };
        if let Some(set) = set {
            let data =
                self.how.data.clone().unwrap_or_else(|| self.directory().join("data")).join(set);
            let of_data = ["--data".into(), data.clone().into_os_string()];
            if !is_loaded(&data) {
                bench::measure(
                    [set.into()].into_iter().chain(of_data.clone()).chain(["--load".into()]),
                )?;
            }
            words.extend(of_data);
        }
        if self.how.quick {
            let (runs, seconds) = (QUICK_RUNS.to_string(), QUICK_SECONDS.to_string());
            words.extend(["--runs", &runs, "--seconds", &seconds].map(OsString::from));
        }
        words.extend([
            "--seed".into(),
            self.how.seed.to_string().into(),
            "--out".into(),
            base.into_os_string(),
        ]);
        if bench::can_resume(benchmark) && self.is_continued(&name, &record) {
            words.extend(["--resume".into(), record.clone().into_os_string()]);
        }
        bench::measure(words)?;
        Ok((record, false))
    }
}

/// Name of a benchmark's record, without extension.
fn record_name(figure: &Figure, native: &Native, benchmark: &str) -> String {
    match native.benchmarks {
        [_] => figure.name.to_string(),
        _ => format!("{}-{benchmark}", figure.name),
    }
}

/// The file's JSON; `None` if the file is missing or has none.
fn read(record: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(record).ok()?;
    serde_json::from_str(&text).ok()
}

/// Whether the record is complete; `None` if the file is missing or is no record.
fn state(record: &Path) -> Option<bool> {
    read(record)?.get("complete")?.as_bool()
}

/// Whether the record is of a quick version. `bump` records no seconds, because its windows have a
/// fixed length.
fn is_quick(record: &Path) -> bool {
    let record = read(record).unwrap_or_default();
    let parameter = |name: &str| record.get("parameters")?.get(name)?.as_f64();
    parameter("runs") == Some(f64::from(QUICK_RUNS))
        && parameter("seconds").is_none_or(|seconds| seconds == QUICK_SECONDS)
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
