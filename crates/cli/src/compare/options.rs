//! Options of `unconvoy compare`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use regex::{Regex, RegexBuilder};
use unconvoy_measure::arguments::timeout;
use unconvoy_measure::sequential::LOOKS;

use super::configuration::Configuration;
use super::extract::Printed;
use super::plan::{PLACEHOLDER, Plan};
use super::record::Metric;
use super::session::FEWEST_ROUNDS;
use crate::messages::compare as messages;
use crate::refusal::Refusal;

/// Default thread counts go up to this many times the processors, far enough to show overload.
const OVERLOAD: u32 = 4;
/// Most runs of a cell: the time for an interval grows with their third power, here to a second.
const MOST_ROUNDS: i64 = 1_000;

/// Default number of runs.
const RUNS: u32 = 5;
/// The same with `--precision`.
const MOST_RUNS: u32 = 40;

/// `unconvoy compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Locks to compare, baseline first: libc, default, LOCK, LOCK+LOAD or a strategy file
    /// (*.toml).
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "libc,default",
          value_parser = Configuration::parse)]
    pub locks: Vec<Configuration>,
    #[command(flatten)]
    pub measured: Measured,
    /// Measured runs per configuration and thread count [default: 5; with --precision 8 to 64,
    /// by default 40].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_ROUNDS))]
    pub runs: Option<u32>,
    /// Measure each thread count until the intervals of its ratios reach at most FRACTION to each
    /// side, such as .015.
    #[arg(long, value_name = "FRACTION", value_parser = precision)]
    pub precision: Option<f64>,
    /// Unrecorded runs per configuration and thread count before the measured ones.
    #[arg(long, value_name = "N", default_value_t = 0, alias = "warm-up",
          value_parser = clap::value_parser!(u32).range(..=MOST_ROUNDS))]
    pub warmup: u32,
    /// Extract the number of operations, to show processor time per operation.
    #[arg(long, value_name = "REGEX", value_parser = one_group)]
    pub ops: Option<Regex>,
    /// Extract Jain's fairness index (0 to 1).
    #[arg(long, value_name = "REGEX", value_parser = one_group)]
    pub fairness: Option<Regex>,
    /// Write context, runs and summary as JSON, again after each round.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the runs as CSV, one per line.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
    /// Draw NAME.svg and NAME.png, or only the one that NAME ends with.
    #[arg(long, value_name = "NAME", value_hint = ValueHint::FilePath)]
    pub plot: Option<PathBuf>,
    /// Title of the table and the figure.
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Program and arguments; `{threads}` stands for the thread count.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM",
          value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// What is measured, and with how many threads.
#[derive(Debug, Clone, Args)]
pub struct Measured {
    /// Thread counts for `{threads}` [default: up to 4 times the processors].
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = thread_count)]
    pub threads: Vec<u32>,
    /// Extract the metric: the number captured by the last match of REGEX on stdout, or else on
    /// stderr [default: wall time].
    #[arg(long, value_name = "REGEX", value_parser = one_group)]
    pub metric: Option<Regex>,
    /// Name of the metric, with its unit, for the table and the figure.
    #[arg(long, value_name = "TEXT", requires = "metric")]
    pub metric_name: Option<String>,
    /// Treat a smaller metric as better (a time, not a throughput).
    #[arg(long, requires = "metric")]
    pub lower_is_better: bool,
    /// Longest time for one run, in seconds; a longer run is killed and fails.
    #[arg(long, value_name = "S", value_parser = timeout)]
    pub timeout: Option<Duration>,
    /// Seed of the order of runs [default: random, printed].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print only warnings, errors and the conclusion.
    #[arg(long)]
    pub quiet: bool,
}

impl CompareArgs {
    /// Builds the plan and checks the options against each other.
    ///
    /// # Errors
    ///
    /// Wrong usage (status 2): a duplicate configuration or thread count, or thread counts without
    /// a placeholder.
    pub fn plan(&self, processors: u32) -> Result<Plan, Refusal> {
        let mut seen = HashSet::new();
        if let Some(twice) = self.locks.iter().find(|c| !seen.insert(c.name.as_str())) {
            return Err(Refusal::usage(messages::duplicate_value("--locks", twice)));
        }
        if self.precision.is_some() && self.locks.len() < 2 {
            return Err(Refusal::usage(messages::precision_of_one()));
        }
        let looks = FEWEST_ROUNDS..=LOOKS[LOOKS.len() - 1];
        let is_wrong = |runs: u32| !looks.contains(&(runs as usize));
        if self.precision.is_some() && self.runs.is_some_and(is_wrong) {
            return Err(Refusal::usage(messages::runs_for_precision(*looks.start(), *looks.end())));
        }
        let runs = if self.precision.is_some() { MOST_RUNS } else { RUNS };
        let defaults = || powers_of_two(OVERLOAD * processors).collect();
        Ok(Plan {
            configurations: self.locks.clone(),
            threads: self.measured.thread_counts(&self.program, defaults)?,
            runs: self.runs.unwrap_or(runs),
            precision: self.precision,
            warmup: self.warmup,
            seed: self.measured.seed(),
            program: self.program.clone(),
        })
    }

    /// Returns the expressions for the numbers that the program prints.
    pub fn printed(&self) -> Printed {
        Printed {
            metric: self.measured.metric.clone(),
            operations: self.ops.clone(),
            fairness: self.fairness.clone(),
        }
    }
}

impl Measured {
    /// Returns the metric to compare.
    pub fn compared(&self) -> Metric {
        let Some(regex) = &self.metric else {
            return Metric { name: "wall time".to_string(), regex: None, lower_is_better: true };
        };
        let name = match (&self.metric_name, self.lower_is_better) {
            (Some(name), _) => name.clone(),
            (None, true) => "metric".to_string(),
            (None, false) => "throughput".to_string(),
        };
        Metric { name, regex: Some(regex.to_string()), lower_is_better: self.lower_is_better }
    }

    /// Returns the seed of the order of runs.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| fastrand::u64(..1 << 32))
    }

    /// Returns the thread counts, `None` for a program that takes none.
    ///
    /// # Errors
    ///
    /// Wrong usage (status 2): a duplicate count, or counts without a placeholder.
    pub fn thread_counts(
        &self,
        program: &[OsString],
        defaults: impl Fn() -> Vec<u32>,
    ) -> Result<Vec<Option<u32>>, Refusal> {
        let mut seen = HashSet::new();
        if let Some(twice) = self.threads.iter().find(|count| !seen.insert(**count)) {
            return Err(Refusal::usage(messages::duplicate_value("--threads", twice)));
        }
        let takes_threads = program.iter().any(|word| has_placeholder(word));
        match (takes_threads, &self.threads[..]) {
            (false, []) => Ok(vec![None]),
            (false, _) => Err(Refusal::usage(messages::threads_without_placeholder(PLACEHOLDER))),
            (true, []) => Ok(defaults().into_iter().map(Some).collect()),
            (true, counts) => Ok(counts.iter().copied().map(Some).collect()),
        }
    }
}

fn powers_of_two(last: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1_u32), |count| count.checked_mul(2))
        .take_while(move |count| *count <= last)
}

fn has_placeholder(word: &OsStr) -> bool {
    word.as_bytes().windows(PLACEHOLDER.len()).any(|window| window == PLACEHOLDER.as_bytes())
}

fn precision(text: &str) -> Result<f64, String> {
    let fraction = text.parse().ok().filter(|fraction| (0.001..=0.5).contains(fraction));
    fraction.ok_or_else(|| messages::no_precision().to_string())
}

/// Parses one of the numbers of `--threads`.
fn thread_count(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|&count: &u32| count > 0);
    count.ok_or_else(|| messages::no_thread_counts().to_string())
}

/// Parses a regular expression with exactly one capture group.
fn one_group(text: &str) -> Result<Regex, String> {
    // `^` and `$` match at line ends, because the text searched is the whole output.
    let regex =
        RegexBuilder::new(text).multi_line(true).build().map_err(|error| error.to_string())?;
    match regex.captures_len() - 1 {
        1 => Ok(regex),
        0 => Err(messages::no_capture_group(text)),
        n => Err(messages::several_capture_groups(n)),
    }
}

/// Text below the options in `--help`.
pub const EXAMPLES: &str = "\
Each round runs every configuration at every thread count once, in random order, so that other \
programs on the machine disturb all of them alike. Results are medians with their median \
absolute deviation. Ratios are taken within rounds, with 95 % intervals: a difference is \
significant if its interval excludes 1. Append +confine to a lock to confine its waiting threads \
to few cores (run --confine).

Exit status: 0. 1: a run failed or its metric did not match; finished runs are saved. 2: wrong \
options. 125: libunconvoy.so missing. 126, 127: as in run. 130 after Ctrl-C; 128 and the signal \
after another one.

Examples:
  unconvoy compare --threads 1,2,4,8 -- ./bench --threads {threads}
  unconvoy compare --metric 'ops/s: ([0-9.]+)' --plot figure -- ./bench
  unconvoy compare --locks default,server.toml -- ./bench
  unconvoy compare --threads 8 --precision .02 -- ./bench --threads {threads}
  unconvoy compare --locks libc,tpmcs+none -- pigz -k -p {threads} file";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regex_without_exactly_one_group_is_rejected() {
        assert!(one_group("ops ([0-9]+)").is_ok());
        assert!(one_group("ops [0-9]+").unwrap_err().contains("put ( )"));
        assert!(one_group("(a)(b)").unwrap_err().contains("2 capture groups"));
        assert!(one_group("(").is_err());
    }

    #[test]
    fn powers_of_two_end_at_limit() {
        assert_eq!(powers_of_two(8).collect::<Vec<_>>(), [1, 2, 4, 8]);
        assert_eq!(powers_of_two(12).collect::<Vec<_>>(), [1, 2, 4, 8]);
    }
}
