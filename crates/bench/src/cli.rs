//! What a user may write after `unconvoy bench`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::figure::FIGURES;
use crate::tasks::load;
use crate::tasks::options::LoadOptions;
use crate::{
    bump, condvar, contention_aware, counter, grid, idle, memory, pair, report, rwlock, sensor, steadiness, sweep,
};

/// `unconvoy bench`.
#[derive(Debug, Args)]
#[command(after_help = after_help(), args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct BenchArgs {
    /// Draw a figure from records instead of measuring: its name, then one record or more, side by side
    #[arg(long, num_args = 2.., value_names = ["NAME", "FILE.json"], value_hint = ValueHint::FilePath)]
    pub figure: Option<Vec<OsString>>,
    /// Where the figure goes: BASENAME.svg and BASENAME.png [default: beside the first record]
    #[arg(long, value_name = "BASENAME", requires = "figure", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// What to measure.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Threads take one lock in a loop: throughput, fairness, processor time, latency
    Counter(counter::Options),
    /// Threads use a hash table with a lock per bucket: every configuration at every thread count
    Hashtable(grid::GridOptions),
    /// Threads take a contended lock, some inside another lock that others wait for
    Nested(grid::GridOptions),
    /// LevelDB: random writes, random reads, or reads beside a writer
    Leveldb(grid::LeveldbOptions),
    /// TATP (TM-1): very small transactions on a database in a directory that `--load` fills
    Tatp(grid::database::TatpOptions),
    /// TPC-C: large transactions on a database in a directory that `--load` fills
    Tpcc(grid::database::TpccOptions),
    /// The ray tracer tachyon, as Debian packages it, on a fixed scene
    Raytrace(grid::GridOptions),
    /// A ray tracer in the manner of SPLASH-2's, with queues of work under locks
    Splash(grid::GridOptions),
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
    Interval(sweep::interval::Options),
    /// Throughput against the time between two acquires, at 95 % and 150 % load (the same, Figure 9)
    Contention(sweep::contention::Options),
    /// Two processes that compete for the processors (the same, Figure 12)
    Interference(sweep::interference::Options),
    /// A lock/unlock pair that nobody contends for
    Pair(pair::Options),
    /// Condition variables: two threads that alternate, one that wakes many, a bounded queue
    Condvar(condvar::Options),
    /// Readers and writers of a table under one reader-writer lock
    Rwlock(rwlock::Options),
    /// What a reading of the load sensor costs, and the controller's share of a processor
    Sensor(sensor::Options),
    /// How fast threads follow a change of the sleep target (Johnson et al., ASPLOS 2010, Figure 8)
    Bump(bump::Options),
    /// How steadily the threads keep a fixed target, under load control and load-triggered backoff (the same, Figure 5)
    Steadiness(steadiness::Options),
    /// Threads, wake-ups and context switches while there is nothing for unconvoy to do
    Idle(idle::Options),
    /// Memory per mutex and per contending thread
    Memory(memory::Options),
    /// Turns the JSON records of a directory into one Markdown page on standard output
    Report(report::Options),
}

/// What the figures are, and examples.
fn after_help() -> String {
    let mut text = "Figures:\n".to_string();
    for figure in FIGURES {
        text.push_str(&format!("  {:<11} {}; from `{}`\n", figure.name, figure.title, figure.measured_by));
    }
    format!("{text}\n{EXAMPLES}")
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
  unconvoy bench --figure asplos-10 results/interval.json --plot results/asplos-10
  unconvoy bench report results > results/report.md";
