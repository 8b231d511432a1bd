//! `unconvoy papers`: lists the figures and tables, and makes them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueHint};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets as styles};
use serde_json::Value;
use unconvoy_bench::exit;
use unconvoy_measure::failure::is_violation;
use unconvoy_measure::interrupt::Interrupted;
use unconvoy_measure::output::{complain, print, with_suffix};

use crate::bench;
use crate::catalogue::FIGURES;
use crate::databases::is_loaded;
use crate::figure::{Figure, Made, Native};
use crate::native;
use crate::plan::Size;
use crate::simulated::{self, How};

/// `unconvoy papers`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true, max_term_width = 100)]
pub struct PapersArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the figures and tables: paper and number, how each is made, about how long that takes
    List,
    /// Make figures: measure or simulate, look for the shape that the paper claims, draw
    Run(RunArgs),
    /// Make all figures; those whose record is complete are kept, and others continued
    All(AllArgs),
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
    /// Keep figures whose record is complete, and continue native ones where a record stopped
    #[arg(long)]
    resume: bool,
    /// Draw a native figure from these records, side by side, instead of measuring
    #[arg(long, value_name = "RECORD.json", num_args = 1.., value_hint = ValueHint::FilePath)]
    from: Vec<PathBuf>,
    /// Draw into BASENAME.svg and BASENAME.png
    #[arg(long, value_name = "BASENAME", hide = true)]
    plot: Option<PathBuf>,
    /// Write the simulated record here
    #[arg(long, value_name = "FILE", hide = true)]
    json: Option<PathBuf>,
}

/// Options of `all`.
#[derive(Debug, Args)]
struct AllArgs {
    /// Only those that are made in this way
    #[arg(value_name = "WAY", value_parser = ["native", "simulated"])]
    way: Option<String>,
    #[command(flatten)]
    how: Options,
}

/// Options of `run` and `all`.
#[derive(Debug, Args)]
struct Options {
    /// Directory for drawings and records, NAME.svg, NAME.png and NAME.json [default: this one; with --from beside the
    /// first record]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// Make it at the size of the test suite: fewer simulated points, shorter and fewer runs
    #[arg(long, alias = "reduced")]
    quick: bool,
    /// Seed of all that is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Points that are simulated at a time [default: as many as there are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Directory for the databases of TATP and TPC-C, which are loaded where they are not there [default: data in --out]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data: Option<PathBuf>,
}

const EXAMPLES: &str = "\
A native figure is measured on this machine by `unconvoy bench`; a simulated one, sim-NAME, is of
machines that are not there (docs/explanation/simulator.md). A simulated figure prints the shapes
that its paper claims, and which of them hold. Exit status: 0 when everything was made, whether or
not a figure has its shape; 1 when something failed; 3 when a program found its data inconsistent;
130 after Ctrl-C, which loses nothing that had finished.

Examples:
  unconvoy papers list
  unconvoy papers run sim-asplos-11 --out figures
  unconvoy papers run asplos-9 asplos-10 --quick
  unconvoy papers run asplos-11 --from results/tatp.json results/tpcc.json
  unconvoy papers all --out figures";

/// Does what the arguments say; the exit status.
pub fn papers(args: &PapersArgs) -> u8 {
    match &args.command {
        Command::List => exit(print(&format!("{}\n", list())).map_err(Into::into)),
        Command::Run(run) => {
            let named = FIGURES.iter().filter(|figure| run.names.iter().any(|name| name == figure.name));
            let figures: Vec<&Figure> = named.collect();
            exit(from_records(run, &figures).unwrap_or_else(|| {
                let (plot, json) = (run.plot.clone(), run.json.clone());
                make_each(&figures, &Making { how: &run.how, resume: run.resume, plot, json })
            }))
        }
        Command::All(AllArgs { way, how }) => {
            let is_wanted = |figure: &&Figure| way.as_deref().is_none_or(|way| way == figure.made.name());
            let figures: Vec<&Figure> = FIGURES.iter().filter(is_wanted).collect();
            exit(make_each(&figures, &Making { how, resume: true, plot: None, json: None }))
        }
    }
}

fn list() -> Table {
    let mut table = Table::new();
    table.load_style(styles::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["name", "of", "what it shows", "", "minutes"]);
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

/// The figure of `--from`, where it is given.
fn from_records(run: &RunArgs, figures: &[&Figure]) -> Option<anyhow::Result<()>> {
    let first = run.from.first()?;
    let draw = || {
        let one = if let [figure] = figures { Some(*figure) } else { None };
        let native =
            one.and_then(|figure| if let Made::Native(native) = &figure.made { Some((figure, native)) } else { None });
        let (figure, native) = native.context("--from wants the name of one native figure")?;
        let beside = || with_suffix(&first.with_extension(""), format!("-{}", figure.name));
        let in_directory = || run.how.out.as_ref().map_or_else(beside, |out| out.join(figure.name));
        native::draw(figure, native, &run.from, &run.plot.clone().unwrap_or_else(in_directory))
    };
    Some(draw())
}

/// What is made, and where.
struct Making<'a> {
    how: &'a Options,
    resume: bool,
    plot: Option<PathBuf>,
    json: Option<PathBuf>,
}

/// Makes the figures one after the other, those after one that fails too.
fn make_each(figures: &[&Figure], making: &Making) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for figure in figures {
        match making.make(figure) {
            Ok(()) => {}
            Err(error) if figures.len() == 1 || error.is::<Interrupted>() || is_violation(&error) => return Err(error),
            Err(error) => {
                complain(&format!("{}: {error:#}", figure.name));
                failed.push(figure.name);
            }
        }
    }
    ensure!(failed.is_empty(), "not made: {}", failed.join(", "));
    Ok(())
}

impl Making<'_> {
    fn directory(&self) -> &Path {
        self.how.out.as_deref().unwrap_or(Path::new("."))
    }

    fn make(&self, figure: &Figure) -> anyhow::Result<()> {
        let directory = self.directory();
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let base = self.plot.clone().unwrap_or_else(|| directory.join(figure.name));
        match &figure.made {
            Made::Simulated(simulated) => {
                if self.is_kept(figure.name, &with_suffix(&base, ".json")) {
                    return Ok(());
                }
                let size = if self.how.quick { Size::Reduced } else { Size::Full };
                let how = How { size, seed: self.how.seed, jobs: self.how.jobs, base: &base, json: self.json.clone() };
                simulated::make(figure, simulated, &how)
            }
            Made::Native(native) => {
                let records = native.benchmarks.iter().map(|words| self.measured(figure, native, words));
                let records: Vec<PathBuf> = records.collect::<anyhow::Result<_>>()?;
                native::draw(figure, native, &records, &base)
            }
        }
    }

    /// Whether a record is complete, and stays as it is.
    fn is_kept(&self, name: &str, record: &Path) -> bool {
        let is_kept = self.resume && state(record) == Some(true);
        if is_kept {
            complain(&format!("{name}: {} is complete, and kept", record.display()));
        }
        is_kept
    }

    /// The record of a benchmark, measured or kept.
    fn measured(&self, figure: &Figure, native: &Native, words: &[&str]) -> anyhow::Result<PathBuf> {
        let benchmark = words[0];
        let name = match native.benchmarks {
            [_] => figure.name.to_string(),
            _ => format!("{}-{benchmark}", figure.name),
        };
        let base = self.directory().join(&name);
        let record = with_suffix(&base, ".json");
        if self.is_kept(&name, &record) {
            return Ok(record);
        }
        let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
        if ["tatp", "tpcc"].contains(&benchmark) {
            let data = self.how.data.clone().unwrap_or_else(|| self.directory().join("data")).join(benchmark);
            let of_data = ["--data".into(), data.clone().into_os_string()];
            if !is_loaded(&data) {
                bench::measure([benchmark.into()].into_iter().chain(of_data.clone()).chain(["--load".into()]))?;
            }
            words.extend(of_data);
        }
        if self.how.quick {
            words.extend(["--runs", "2", "--seconds", "0.2"].map(OsString::from));
        }
        words.extend(["--seed".into(), self.how.seed.to_string().into(), "--out".into(), base.into_os_string()]);
        if self.resume && state(&record) == Some(false) && bench::can_resume(benchmark) {
            words.extend(["--resume".into(), record.clone().into_os_string()]);
        }
        let measured = bench::measure(words)?;
        ensure!(!measured.has_violation(), "{benchmark} found its data inconsistent: the lock is not to be used");
        Ok(record)
    }
}

/// Whether the record at a path is complete; `None` if there is none.
fn state(record: &Path) -> Option<bool> {
    let text = std::fs::read_to_string(record).ok()?;
    serde_json::from_str::<Value>(&text).ok()?.get("complete")?.as_bool()
}
