//! What a user may write on the command line: options, their values and the examples of `--help`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use regex::{Regex, RegexBuilder};
use unconvoy::catalogue::{CONTENTION, Entry, LOAD, POLICY, SENSOR};
use unconvoy::load::control::settings::INTERVAL_MS;
use unconvoy::load::sensor::choice::Choice;
use unconvoy_bench::cli::BenchArgs;
use unconvoy_sim::command::SimArgs;
use unconvoy_syncchar::MOST_PROCESSORS;

use crate::compare::plan::Configuration;
use crate::syncchar::Workload;

/// Keep threaded programs at full speed when threads outnumber processors.
#[derive(Debug, Parser)]
#[command(name = "unconvoy", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program with its pthread locks replaced.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Measure a program under several locks, side by side.
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(Box<CompareArgs>),
    /// Measure unconvoy's locks on workloads of its own, and judge them by what they promise.
    Bench(Box<BenchArgs>),
    /// Run unconvoy's locks on a simulated machine of any size.
    Sim(Box<SimArgs>),
    /// Tell which of a program's locks would run faster as transactions or finer locks, and what hinders.
    #[command(after_help = SYNCCHAR_EXAMPLES)]
    Syncchar(Box<SynccharArgs>),
    /// Schedule the machine so that tasks which wait too much for the kernel's locks keep to few cores.
    #[command(after_help = SCHED_EXAMPLES)]
    Sched(SchedArgs),
    /// List the locks, the load managers and the controller's policies.
    #[command(after_help = LOCKS_EXAMPLES)]
    Locks,
    /// Print what `run --stats FILE` has written, worst lock first.
    #[command(after_help = STATS_EXAMPLES)]
    Stats(StatsArgs),
    /// Print the completions for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell to complete for.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one page per subcommand into a directory.
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// Directory for the pages; without it the main page goes to standard output.
        #[arg(value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

/// `unconvoy sched`.
#[derive(Debug, Args)]
pub struct SchedArgs {
    /// Show tasks, shares, bound and votes once a second: on a terminal as a live screen (q ends),
    /// otherwise as lines (also with TERM=dumb or NO_COLOR=1).
    #[arg(long)]
    pub monitor: bool,
    /// Serve OpenMetrics at ADDRESS (host:port), or write them to a FILE once a second.
    #[arg(long, value_name = "ADDRESS|FILE", value_hint = ValueHint::FilePath)]
    pub metrics: Option<OsString>,
    /// A task that waits for locks for more than this part of a time slice is lock-intensive, in
    /// percent: 0.1 to 100 [default: 10].
    #[arg(long, value_name = "PERCENT")]
    pub threshold: Option<String>,
    /// How the size of the set is searched for: as published, or refined between its last two sizes
    /// (then the children of lock-intensive tasks are so, too) [default: refined].
    #[arg(long, value_name = "SEARCH", value_parser = ["published", "refined"])]
    pub search: Option<String>,
    /// The set has so many cores (or all, if those are fewer), and nothing is searched for.
    #[arg(long, value_name = "CORES", conflicts_with = "search", value_parser = clap::value_parser!(u32).range(1..))]
    pub bound: Option<u32>,
}

/// `unconvoy run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Contention manager: the order in which waiters get the lock.
    #[arg(long, value_name = "LOCK", value_parser = names(CONTENTION))]
    pub lock: Option<String>,
    /// Load manager: which waiters leave the processor, and when.
    #[arg(long, value_name = "LOAD", value_parser = names(LOAD))]
    pub load: Option<String>,
    /// Write what each lock did to FILE, as JSON, when the program ends.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub stats: Option<PathBuf>,
    /// What the load controller reads the load from: schedstat, loadavg, psi, bpf (with privilege), or
    /// fixed:N for a target of N processors.
    #[arg(long, value_name = "SENSOR", value_parser = sensor)]
    pub sensor: Option<String>,
    /// Interval at which the load controller looks at the load, in milliseconds (0.5 to 1000).
    #[arg(long, value_name = "MS", value_parser = interval)]
    pub interval: Option<f64>,
    /// Longest sleep of a waiter that load control has put aside, in milliseconds.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub sleep_timeout: Option<u32>,
    /// How the load controller gets from the load to the number of waiters that sleep.
    #[arg(long, value_name = "NAME", value_parser = names(POLICY))]
    pub policy: Option<String>,
    /// Mean sleep of a waiter under `--load backoff`, in milliseconds.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub backoff: Option<u32>,
    /// Run threads that wait too much for locks on a special set of cores, of the size that lets them get most done.
    /// `--ssc=published` searches that size as the paper does.
    #[arg(long, value_name = "SEARCH", num_args = 0..=1, require_equals = true, default_missing_value = "refined",
          value_parser = ["refined", "published"])]
    pub ssc: Option<String>,
    /// Leave alone the programs that PROGRAM starts.
    #[arg(long)]
    pub no_children: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM",
          value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// `unconvoy compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Configurations, the first being the one to compare against: `libc` (nothing replaced),
    /// `default`, LOCK, or LOCK+LOAD; with `+ssc` behind it and a special set of cores (`run --ssc`).
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "libc,default",
          value_parser = Configuration::parse)]
    pub locks: Vec<Configuration>,
    /// Thread counts; each replaces `{threads}` in the arguments [default when `{threads}` is
    /// there: 1, 2, 4, ... up to four times the processors].
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Vec<u32>,
    /// Measured runs of every configuration at every thread count.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Runs of each before them that are not recorded.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warmup: u32,
    /// Where the program prints what to compare: one capture group around a number. The last
    /// match on standard output counts, else the last one on standard error [default: the
    /// wall time in seconds, lower is better].
    #[arg(long, value_name = "REGEX", value_parser = one_group)]
    pub metric: Option<Regex>,
    /// What the metric is called in the table and the figure, with its unit.
    #[arg(long, value_name = "TEXT", requires = "metric")]
    pub metric_name: Option<String>,
    /// A smaller metric is better (a time, not a throughput).
    #[arg(long, requires = "metric")]
    pub lower_is_better: bool,
    /// Where the program prints how many operations it did, for the processor time of one.
    #[arg(long, value_name = "REGEX", value_parser = one_group)]
    pub ops: Option<Regex>,
    /// Where the program prints Jain's fairness index (0 to 1).
    #[arg(long, value_name = "REGEX", value_parser = one_group)]
    pub fairness: Option<Regex>,
    /// Write the context, every run and the summary; rewritten after each round.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write one line per run.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
    /// Draw BASENAME.svg and BASENAME.png.
    #[arg(long, value_name = "BASENAME", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// Title of the table and the figure.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Longest that one run may take, in seconds; then it is ended and counts as failed.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Seed of the order within each round; a run prints its own.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// No progress and no table: only warnings, errors and the final sentence.
    #[arg(long)]
    pub quiet: bool,
    /// The program and its arguments, `{threads}` standing for the thread count.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM",
          value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// `unconvoy syncchar`.
#[derive(Debug, Args)]
pub struct SynccharArgs {
    /// Numbers of processors to predict for.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,8,16,32",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PROCESSORS)))]
    pub processors: Vec<u32>,
    /// Sections after which a sample is compared although fewer threads were seen than processors
    /// are asked for.
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub window: u32,
    /// Sample one in N critical sections, at random.
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "analyse",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rate: u32,
    /// Seed of all that is drawn at random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Locks to tell in detail, longest held first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Longest that each of the two runs may take, in seconds; then it is ended, and what was seen
    /// is reported.
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with = "analyse")]
    pub timeout: Option<Duration>,
    /// Write the report as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the report as a page that needs no other file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Keep the address sets, names and times, to analyse them again or query them (Parquet).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "analyse")]
    pub keep_trace: Option<PathBuf>,
    /// Run nothing: analyse a trace that was kept.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "program")]
    pub analyse: Option<PathBuf>,
    /// What only a kernel's profile has.
    #[command(flatten)]
    pub guest: KernelArgs,
    /// The program and its arguments; with --kernel, a command for the guest's shell.
    #[arg(required_unless_present_any = ["analyse", "workload"], trailing_var_arg = true, value_name = "PROGRAM",
          value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// Of `unconvoy syncchar`, what only a kernel's profile has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Profiling a kernel")]
pub struct KernelArgs {
    /// Profile a Linux kernel's own spin locks while the command runs in a guest under it: the
    /// stock one of `make kernel`, or a bzImage or vmlinux.
    #[arg(long, value_name = "IMAGE", num_args = 0..=1, value_hint = ValueHint::FilePath,
          conflicts_with = "analyse")]
    pub kernel: Option<Option<PathBuf>>,
    /// Virtual processors of the guest.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "kernel",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub cpus: u32,
    /// Memory of the guest, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048, requires = "kernel",
          value_parser = clap::value_parser!(u32).range(256..=65536))]
    pub memory: u32,
    /// The kernel's modules, if it has virtio_blk or ext4 as such [default: `modules` beside IMAGE,
    /// or /lib/modules/RELEASE].
    #[arg(long, value_name = "DIR", requires = "kernel", value_hint = ValueHint::DirPath)]
    pub modules: Option<PathBuf>,
    /// A vmlinux with debug information, for source lines [default: IMAGE, if it is one].
    #[arg(long, value_name = "FILE", requires = "kernel", value_hint = ValueHint::FilePath)]
    pub debug_info: Option<PathBuf>,
    /// QEMU's system mode, release 10 or later, with plug-ins.
    #[arg(long, value_name = "PATH", requires = "kernel", value_hint = ValueHint::ExecutablePath)]
    pub qemu: Option<PathBuf>,
    /// Run one of the paper's workloads in the guest instead of a command.
    #[arg(long, value_name = "NAME", value_enum, requires = "kernel", conflicts_with = "program")]
    pub workload: Option<Workload>,
    /// Size of the workload, 1 being the paper's.
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "workload", value_parser = scale)]
    pub scale: f64,
}

/// `unconvoy stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// How many locks to list, by time waited.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// The file that `unconvoy run --stats FILE` has written.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Accepts the names of one half of the catalogue; an error lists them all.
fn names(entries: &'static [Entry]) -> PossibleValuesParser {
    entries.iter().map(|entry| PossibleValue::new(entry.name).help(entry.summary)).into()
}

/// A sensor's name; an error lists them all.
fn sensor(text: &str) -> Result<String, String> {
    let names = || SENSOR.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
    Choice::parse(text).map(|_| text.to_string()).ok_or_else(|| format!("the sensors are {}", names()))
}

/// A number of milliseconds that the controller's interval may have.
fn interval(text: &str) -> Result<f64, String> {
    let (least, most) = INTERVAL_MS.into_inner();
    let ms = text.parse().ok().filter(|ms| INTERVAL_MS.contains(ms));
    ms.ok_or_else(|| format!("an interval has {least} to {most} milliseconds"))
}

/// A regular expression that captures exactly one thing.
fn one_group(text: &str) -> Result<Regex, String> {
    // `^` and `$` are those of a line: what is searched is everything that a program printed.
    let regex = RegexBuilder::new(text).multi_line(true).build().map_err(|error| error.to_string())?;
    match regex.captures_len() - 1 {
        1 => Ok(regex),
        0 => Err(format!("nothing is captured: put ( ) around the number, as in '{text}([0-9.]+)'")),
        n => Err(format!("{n} groups capture, one must: write the others as (?: )")),
    }
}

/// A positive number, not so large that no machine has space for it.
fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| (0.001..=100.0).contains(scale));
    scale.ok_or_else(|| "a scale is a number from 0.001 to 100".to_string())
}

/// A positive number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    match Duration::try_from_secs_f64(value) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("a time-out is longer than 0 seconds".to_string()),
    }
}

const EXAMPLES: &str = "\
Examples:
  unconvoy run -- ./server --threads 64
  unconvoy run --stats locks.json -- ./server && unconvoy stats locks.json
  unconvoy compare --metric 'throughput: ([0-9.]+)' -- ./bench --threads {threads}
  unconvoy syncchar --html report.html -- ./server --threads 8
  unconvoy locks";

const RUN_EXAMPLES: &str = "\
Exit status: the program's own, and its signals. 127: program not found. 126: it cannot be
executed. 125: libunconvoy.so is missing. 2: wrong options.

A program in which nothing can be replaced (static, set-user-ID, Go) runs all the same, and one
line on standard error says so.

Examples:
  unconvoy run -- ./server --threads 64
  unconvoy run --lock tpmcs --load control -- ./server
  unconvoy run --stats locks.json -- ./server && unconvoy stats locks.json
  sudo unconvoy run --sensor bpf -- ./server
  UNCONVOY_LIBRARY=target/release/libunconvoy.so unconvoy run -- ./server";

const COMPARE_EXAMPLES: &str = "\
Every configuration runs at every thread count once per round, in an order shuffled anew, so
that a neighbour on the machine disturbs all of them alike. Shown are the median and the median
absolute deviation. A difference counts as real when the medians are further apart than twice
the (normalised) deviations of both together.

Exit status: 0, or 1 when a run fails or its metric does not match (what was measured stays on
disk), 130 after Ctrl-C.

Examples:
  unconvoy compare --threads 1,2,4,8 -- ./bench --threads {threads}
  unconvoy compare --metric 'ops/s: ([0-9.]+)' --ops 'ops: ([0-9]+)' --plot figure \\
      --json runs.json -- ./bench -t {threads}
  unconvoy compare --locks libc,default,tpmcs+none --runs 9 -- pigz -k -p {threads} file";

const SYNCCHAR_EXAMPLES: &str = "\
The program runs twice: natively, for the time that each lock is held, and emulated (by
qemu-x86_64, several times slower), for what its critical sections touch. Standard input is given
to both runs if it is a file.

With --kernel, a guest of its own boots (twice, the first time for symbols, which are kept for later
runs) with a busybox, an ext4 disk in /scratch and nothing else, and the command is given to its shell.

Exit status: 0 with a report, whatever the program's own. 1: nothing could be collected, or a file
could not be written, or a trace is truncated or foreign. 2: wrong options, or a file that cannot
be written. 125: QEMU or a part of unconvoy is missing. 126, 127: as of `run`. 130 after Ctrl-C:
what was seen is reported.

Examples:
  unconvoy syncchar -- ./server --threads 8
  unconvoy syncchar --processors 4,64 --html report.html -- ./server --threads 64
  unconvoy syncchar --keep-trace server.parquet -- ./server
  unconvoy syncchar --analyse server.parquet --processors 2,128 --window 1024
  unconvoy syncchar --rate 1 --timeout 60 -- ./short
  unconvoy syncchar --kernel --cpus 16 -- 'find /sys -type f | wc -l'
  unconvoy syncchar --kernel --cpus 32 --workload mab --html mab.html
  unconvoy syncchar --kernel arch/x86/boot/bzImage --debug-info vmlinux --workload find";

const SCHED_EXAMPLES: &str = "\
Needs root and a kernel of release 6.12 or later with sched_ext; what is missing is named with its
remedy. The kernel goes back to its default scheduler when this ends, is killed or fails.

Exit status: 0 after Ctrl-C. 1: the kernel refused the scheduler, or has unloaded it. 2: wrong
options. 69: this machine lacks something. 125: unconvoy-sched-ext is missing.

Examples:
  sudo unconvoy sched --monitor
  sudo unconvoy sched --metrics localhost:9464
  sudo unconvoy sched --threshold 20 --search published --metrics /run/unconvoy.prom
  sudo unconvoy sched --bound 4";

const LOCKS_EXAMPLES: &str = "\
Examples:
  unconvoy locks";

const STATS_EXAMPLES: &str = "\
Examples:
  unconvoy run --stats locks.json -- ./server
  unconvoy stats --top 5 locks.json";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  unconvoy completions bash > ~/.local/share/bash-completion/completions/unconvoy
  unconvoy completions zsh > ~/.zfunc/_unconvoy";

const MAN_EXAMPLES: &str = "\
Examples:
  unconvoy man | man -l -
  unconvoy man /usr/local/share/man/man1";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_regex_needs_one_group() {
        assert!(one_group("ops ([0-9]+)").is_ok());
        assert!(one_group("ops [0-9]+").unwrap_err().contains("put ( )"));
        assert!(one_group("(a)(b)").unwrap_err().contains("2 groups"));
        assert!(one_group("(").is_err());
    }

    #[test]
    fn an_interval_may_be_half_a_millisecond() {
        assert_eq!(interval("0.5"), Ok(0.5));
        assert_eq!(interval("1000"), Ok(1000.0));
        for wrong in ["0.4", "0", "-1", "1001", "nan", "inf", "soon", ""] {
            assert!(interval(wrong).unwrap_err().contains("0.5 to 1000"), "{wrong}");
        }
    }

    #[test]
    fn a_sensor_is_one_of_the_list() {
        assert_eq!(sensor("fixed:2.5").as_deref(), Ok("fixed:2.5"));
        assert!(sensor("fixed:none").unwrap_err().contains("loadavg"));
    }

    #[test]
    fn a_timeout_is_positive() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
