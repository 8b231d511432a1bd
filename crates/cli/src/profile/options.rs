//! Options of `unconvoy profile`.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use unconvoy::catalogue::{CONTENTION, LOAD};
use unconvoy::load::settings::PROFILE_PERIOD_MS;

use super::intervals::{self, Intervals, Keep};

/// `unconvoy profile`.
#[derive(Debug, Args)]
#[group(skip)]
#[command(group(ArgGroup::new("timed").args(["pid", "kernel"]).multiple(true)))]
pub struct ProfileArgs {
    /// Keep the profile in FILE for `--read` [default: discard it after the report].
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Run the program with libc's own locks, or with this contention manager.
    #[arg(long, value_name = "LOCK", default_value = LIBC, value_parser = locks(),
          hide_possible_values = true)]
    pub lock: String,
    /// Set the load manager of `--lock`.
    #[arg(long, value_name = "LOAD", value_parser = loads(), hide_possible_values = true)]
    pub load: Option<String>,
    /// Sample all waits of MS milliseconds or more, shorter ones with proportionally smaller
    /// probability.
    #[arg(long, value_name = "MS", default_value_t = 1.0, value_parser = period)]
    pub period: f64,
    /// List locks grouped by name, single locks, waiting places, holding places, or callers of
    /// the kernel.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = By::Class)]
    pub by: By,
    /// Order the locks by this quantity.
    #[arg(long, value_name = "QUANTITY", value_enum, default_value_t = Sort::Waited)]
    pub sort: Sort,
    /// Limit each table to N rows.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Write the report to FILE, and leave standard output to the program.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub text: Option<PathBuf>,
    /// Write the report as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the locks as CSV.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
    /// Write the waiters' stacks as a contention profile for pprof.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pprof: Option<PathBuf>,
    /// Write the waiters' folded stacks, with the microseconds waited, for flame graphs.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub folded: Option<PathBuf>,
    /// Write the holders' folded stacks, with the microseconds that they made others wait.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub folded_holders: Option<PathBuf>,
    /// Write a flame graph as SVG: waiters' stacks above the locks, holders' below.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub flamegraph: Option<PathBuf>,
    /// Write the longest waits by thread and all waiters' stacks for profiler.firefox.com.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub firefox: Option<PathBuf>,
    /// Write the report as an HTML page with tables, a flame graph and a graph of waits.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Record waits for the kernel's own locks: of the whole machine, of PROGRAM or of PID, with
    /// their children. Needs root, or CAP_BPF and CAP_PERFMON.
    #[arg(long, conflicts_with_all = ["read", "lock", "load"])]
    pub kernel: bool,
    /// Record a running process, without unconvoy's library, as root or with CAP_BPF, CAP_PERFMON
    /// and CAP_SYS_PTRACE.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..),
          conflicts_with_all = ["program", "read", "lock", "load"])]
    pub pid: Option<u32>,
    /// Record for N seconds.
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = seconds,
          requires = "timed", conflicts_with_all = ["program", "read"])]
    pub seconds: f64,
    /// Write a pprof profile of each INTERVAL (60s, 5m) to `--to`, for continuous profiling.
    #[arg(long, value_name = "INTERVAL", value_parser = intervals::interval, requires = "to",
          conflicts_with_all = ["read", "pid", "kernel"])]
    pub continuous: Option<Duration>,
    /// Directory for the profiles of `--continuous`.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "continuous")]
    pub to: Option<PathBuf>,
    /// Keep at most this many profiles (1440), or this much of them (500M), in the directory of
    /// `--to`.
    #[arg(long, value_name = "BOUND", value_parser = intervals::keep, default_value = "1440",
          requires = "continuous")]
    pub keep: Keep,
    /// Label the profiles of `--continuous` with this service [default: the program's name].
    #[arg(long, value_name = "NAME", requires = "continuous")]
    pub service: Option<String>,
    /// Report a kept profile instead of running a program.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["program", "output", "lock", "load", "period"])]
    pub read: Option<PathBuf>,
    /// Program and arguments.
    #[arg(required_unless_present_any = ["read", "pid", "kernel"], trailing_var_arg = true,
          value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

impl ProfileArgs {
    /// The request for one profile per interval, if there is one.
    pub fn intervals(&self) -> Option<Intervals> {
        Some(Intervals {
            interval: self.continuous?,
            to: self.to.clone()?,
            keep: self.keep,
            service: self.service.clone(),
        })
    }
}

/// The name of libc's own locks.
pub const LIBC: &str = "libc";

/// Range of `--seconds`.
const SECONDS: RangeInclusive<f64> = 0.1..=86_400.0;

/// Text below the options in `--help`.
pub const EXAMPLES: &str = "\
Exit status: the program's own (0 with --pid), or 128 plus the signal's number after Ctrl-C, \
which still reports the profile so far. 127: program not found. 126: cannot execute it. 125: \
libunconvoy.so missing. 2: wrong options. 1: no profile, or a file cannot be read or written.

Examples:
  unconvoy profile -- ./server --threads 64
  unconvoy profile -o locks.profile -- ./server
  unconvoy profile --pid 4711 --seconds 30
  unconvoy profile --kernel --seconds 10
  unconvoy profile --kernel -- ./server
  unconvoy profile --continuous 60s --to /var/lib/locks -- ./server
  unconvoy profile --read locks.profile --by holder
  unconvoy profile --lock loiter --json locks.json -- ./server
  unconvoy profile --html locks.html -- ./server
  unconvoy profile --pprof waits.pb -- ./server && pprof -top waits.pb";

/// What the rows of the first table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Locks grouped by name.
    Class,
    /// Single locks.
    Lock,
    /// Places that waited.
    Waiter,
    /// Places that held a lock while others waited for it.
    Holder,
    /// System calls and tasks that waited for the kernel's locks.
    Caller,
}

/// The order of the locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Time waited.
    Waited,
    /// Number of waits.
    Waits,
    /// Longest wait.
    Longest,
    /// Median time held.
    Held,
}

fn locks() -> PossibleValuesParser {
    let libc = PossibleValue::new(LIBC).help("the locks that the program has without unconvoy");
    let others = CONTENTION.iter().map(|entry| PossibleValue::new(entry.name).help(entry.summary));
    std::iter::once(libc).chain(others).collect::<Vec<_>>().into()
}

fn loads() -> PossibleValuesParser {
    LOAD.iter().map(|entry| PossibleValue::new(entry.name).help(entry.summary)).into()
}

fn seconds(text: &str) -> Result<f64, String> {
    let (least, most) = SECONDS.into_inner();
    let seconds = text.parse().ok().filter(|seconds| SECONDS.contains(seconds));
    seconds.ok_or_else(|| crate::messages::outside::seconds_out_of_range(least, most))
}

fn period(text: &str) -> Result<f64, String> {
    let (least, most) = PROFILE_PERIOD_MS.into_inner();
    let ms = text.parse().ok().filter(|ms| PROFILE_PERIOD_MS.contains(ms));
    ms.ok_or_else(|| crate::messages::command::interval_out_of_range(least, most))
}
