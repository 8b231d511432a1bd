//! `unconvoy bench`: the benchmarks of our own goals, and those that the papers' figures are drawn
//! from.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};
use unconvoy_bench::grid::{Grid, GridOptions};
use unconvoy_bench::{cli, ended, status};
use unconvoy_measure::record::Record;

use crate::asplos::{bump, contention, interference, interval, steadiness};
use crate::databases;
use crate::taco::contention_aware;
use crate::taco::loads::{self, load, options::LoadOptions};
use crate::workloads::{RAYTRACE, SPLASH};

/// `unconvoy bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    command: Command,
}

/// What to measure.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Goal(cli::Command),
    #[command(flatten)]
    Paper(Paper),
}

/// The papers' benchmarks.
#[derive(Debug, Subcommand)]
enum Paper {
    /// TATP (TM-1): very small transactions on a database in a directory that `--load` fills
    Tatp(databases::TatpOptions),
    /// TPC-C: large transactions on a database in a directory that `--load` fills
    Tpcc(databases::TpccOptions),
    /// The ray tracer tachyon, as Debian packages it, on a fixed scene
    Raytrace(GridOptions),
    /// A ray tracer in the manner of SPLASH-2's, with queues of work under locks
    Splash(GridOptions),
    /// Processes map one file, read a byte of each page, and unmap it (Cui et al., ACM TACO 9(4), 2013)
    Mmapbench(LoadOptions<load::MmapbenchOptions>),
    /// Processes make a socket and close it (the same)
    Sockbench(LoadOptions<load::SockbenchOptions>),
    /// Threads create, delete, read and append to small files of their own (the same)
    Postmark(LoadOptions<load::PostmarkOptions>),
    /// Processes run find in trees of their own (the same)
    Find(LoadOptions<load::FindOptions>),
    /// Processes run grep on files that they share (the same)
    Grep(LoadOptions<load::GrepOptions>),
    /// Processes compile sources, in the place of the same paper's kernbench
    Compile(LoadOptions<load::CompileOptions>),
    /// Ways to keep a contended lock from collapsing, side by side: blocking, adaptive, requester-based, and a special set of cores (the same, Figure 3)
    ContentionAware(contention_aware::Options),
    /// Throughput against the controller's interval (Johnson et al., ASPLOS 2010, Figure 10)
    Interval(interval::Options),
    /// Throughput against the time between two acquires, at 95 % and 150 % load (the same, Figure 9)
    Contention(contention::Options),
    /// Two processes that compete for the processors (the same, Figure 12)
    Interference(interference::Options),
    /// How fast threads follow a change of the sleep target (Johnson et al., ASPLOS 2010, Figure 8)
    Bump(bump::Options),
    /// How steadily the threads keep a fixed target, under load control and load-triggered backoff (the same, Figure 5)
    Steadiness(steadiness::Options),
}

const EXAMPLES: &str = "\
Runs are interleaved: round by round over all cells, in shuffled order. Figures are medians with
smallest and largest value. Exit status: 0 when everything was measured, whether or not a goal was
met; 1 when something failed; 3 when a program found its data inconsistent, so that a lock is not to
be used; 130 after Ctrl-C.

Examples:
  unconvoy bench counter --think 0,1000,10000 --locks tpmcs+control,ttas+none --latency --out r/counter
  unconvoy bench hashtable --locks all --out results/hashtable
  unconvoy bench hashtable --locks all --out results/hashtable --resume results/hashtable.json
  unconvoy bench tatp --load --data ~/tatp && unconvoy bench tatp --data ~/tatp --out results/tatp
  unconvoy bench postmark --files 10000 --tasks 1,2,4 --out results/postmark
  unconvoy bench interval --data ~/tatp --out results/interval
  unconvoy papers run asplos-10 --from results/interval.json
  unconvoy bench report results > results/report.md";

/// Runs one benchmark and returns the exit status; see [`status`].
pub fn bench(args: &BenchArgs) -> u8 {
    status(match &args.command {
        Command::Goal(command) => cli::run(command),
        Command::Paper(command) => run(command).map(Some),
    })
}

fn run(command: &Paper) -> anyhow::Result<Record> {
    match command {
        Paper::Tatp(options) => databases::tatp(options),
        Paper::Tpcc(options) => databases::tpcc(options),
        Paper::Raytrace(options) => Grid::of(&RAYTRACE).run(options),
        Paper::Splash(options) => Grid::of(&SPLASH).run(options),
        Paper::Mmapbench(options) => loads::run(options),
        Paper::Sockbench(options) => loads::run(options),
        Paper::Postmark(options) => loads::run(options),
        Paper::Find(options) => loads::run(options),
        Paper::Grep(options) => loads::run(options),
        Paper::Compile(options) => loads::run(options),
        Paper::ContentionAware(options) => contention_aware::run(options),
        Paper::Interval(options) => interval::interval(options),
        Paper::Contention(options) => contention::contention(options),
        Paper::Interference(options) => interference::interference(options),
        Paper::Bump(options) => bump::run(options),
        Paper::Steadiness(options) => steadiness::run(options),
    }
}

/// A benchmark without the rest of the command line.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Words {
    #[command(subcommand)]
    command: Command,
}

/// Measures what the words after `unconvoy bench` say; the record.
///
/// # Errors
///
/// The words are wrong, or as the benchmark; a record that is not complete is an error too.
pub fn measure(words: impl IntoIterator<Item = OsString>) -> anyhow::Result<Record> {
    let record = match &Words::try_parse_from(words)?.command {
        Command::Goal(command) => cli::run(command)?,
        Command::Paper(command) => Some(run(command)?),
    };
    ended(record.ok_or_else(|| anyhow::anyhow!("a report is no measurement"))?)
}

/// Whether a benchmark can go on where its record stopped.
pub fn can_resume(benchmark: &str) -> bool {
    let all = <Words as clap::CommandFactory>::command();
    let found = all.find_subcommand(benchmark);
    found.is_some_and(|command| command.get_arguments().any(|argument| argument.get_id() == "resume"))
}
