//! `unconvoy papers replay`: recorded critical sections of one lock on simulated processors, beside
//! what Syncchar predicts for them (Porter, Hofmann, Witchel 2008, sections 6.2 to 6.4).
//!
//! | file | idea |
//! | --- | --- |
//! | `mod` | the command |
//! | `variant` | a trace with words left out or moved; its estimates |
//! | `outcome` | predicted and simulated gains: rows, table, record |

mod outcome;
mod variant;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueHint};
use unconvoy_measure::context::Context;
use unconvoy_measure::failure::Usage;
use unconvoy_measure::output::{can_write, print};
use unconvoy_sim::experiment::{Replay, Task, on_processors};
use unconvoy_sim::grid::Cell;
use unconvoy_sim::parameters::Parameters;
use unconvoy_sim::points::{Write, finish, simulate, write_json};
use unconvoy_sim::workload::replay::Times;
use unconvoy_sim::{pair, presets};

use outcome::{Record, rows, text};
use variant::{Variant, Words};

/// Options of `replay`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayArgs {
    /// Kept traces of `unconvoy predict`, such as one before a change and one after it
    #[arg(value_name = "TRACE", required = true, value_hint = ValueHint::FilePath)]
    traces: Vec<PathBuf>,
    /// Lock by its number, its name or a part of the name [default: the one held longest]
    #[arg(long, value_name = "LOCK")]
    lock: Option<String>,
    /// Numbers of simulated processors, with a thread each
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "8,32",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    processors: Vec<u32>,
    /// Also simulate without these words: addresses, or `advice` for those that the advice names
    #[arg(long, value_name = "LIST", value_parser = Words::parse)]
    without: Option<Words>,
    /// Also simulate with accesses to these words after the section, as atomic instructions
    #[arg(long, value_name = "LIST", value_parser = Words::parse)]
    moved: Option<Words>,
    /// Locks; gains are over the first
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_value = "ttas+none,default,elided,transactions", value_parser = known_lock)]
    locks: Vec<String>,
    /// Preset or machine file (TOML), of which the processors are
    #[arg(long, value_name = "PRESET|FILE", default_value = "metatm-8",
          value_hint = ValueHint::FilePath)]
    machine: String,
    /// Sections to simulate per processor
    #[arg(long, value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sections: u32,
    /// Random seed; equal seeds give equal results
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Points to simulate at a time [default: number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  unconvoy predict --keep-trace server.parquet -- ./server --threads 32
  unconvoy papers replay server.parquet
  unconvoy papers replay server.parquet --lock queue --without advice
  unconvoy papers replay server.parquet --without 0x4000020340,0x4004000e78
  unconvoy papers replay before.parquet after.parquet --machine server";

fn known_lock(name: &str) -> Result<String, String> {
    pair::named(name).map(|_| name.to_string())
}

/// Reads the traces, simulates them, and prints the gains.
///
/// # Errors
///
/// A trace or machine file cannot be used, a simulation failed, or Ctrl-C stopped it.
pub fn replay(args: &ReplayArgs) -> anyhow::Result<()> {
    let machine = presets::named_or_file(&args.machine).map_err(Usage::of)?;
    if let Some(path) = &args.json {
        can_write(path)?;
    }
    let mut processors = args.processors.clone();
    processors.sort_unstable();
    processors.dedup();
    let mut variants = Vec::new();
    for path in &args.traces {
        let lock = args.lock.as_deref();
        let (without, moved) = (args.without.as_ref(), args.moved.as_ref());
        variants.extend(Variant::of_trace(path, lock, &processors, without, moved)?);
    }
    let plan = Plan { machine: &machine, processors: &processors, args };
    let mut context = Context::capture(args.seed);
    let ended = simulate(args.jobs, &plan.cells(&variants), &|_, _| Ok(()))?.ended;
    context.close();
    let rows = rows(&variants, &processors, &args.locks, &ended.results);
    print(&text(&variants, &rows, &args.locks, &machine.name))?;
    if let Some(path) = &args.json {
        let record = Record {
            simulated: true,
            context,
            machine: &machine,
            sections_per_processor: args.sections,
            complete: ended.complete && ended.failures.is_empty(),
            failures: &ended.failures,
            variants: variants.iter().map(Variant::described).collect(),
            rows,
        };
        write_json(path, Write::Last, &record)?;
    }
    finish(&ended)
}

/// What to simulate.
struct Plan<'a> {
    machine: &'a Parameters,
    processors: &'a [u32],
    args: &'a ReplayArgs,
}

impl Plan<'_> {
    /// For each variant, first sections without time between them, then with the recorded time.
    fn cells(&self, variants: &[Variant]) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (number, variant) in variants.iter().enumerate() {
            for is_program in [false, true] {
                let between_ns = if is_program { variant.times.between_ns } else { 0.0 };
                let times = Times { between_ns, ..variant.times };
                for lock in &self.args.locks {
                    for &processors in self.processors {
                        let replay = Replay {
                            machine: on_processors(self.machine, processors),
                            recording: Arc::clone(&variant.recording),
                            times,
                            lock: lock.clone(),
                            sections: self.args.sections,
                            seed: self.args.seed,
                        };
                        cells.push(Cell {
                            panel: outcome::panel_of(number, is_program),
                            series: lock.clone(),
                            x: f64::from(processors),
                            task: Task::Replay(replay),
                        });
                    }
                }
            }
        }
        cells
    }
}
