//! What a user may write after `unconvoy compare`.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use regex::{Regex, RegexBuilder};
use unconvoy_measure::arguments::timeout;

use super::configuration::Configuration;
use super::extract::Printed;
use super::plan::{PLACEHOLDER, Plan};
use super::record::Metric;
use crate::refusal::Refusal;

/// Without `--threads`, thread counts go up to this many times the processors: enough for
/// overload to show.
const OVERLOAD: u32 = 4;

/// `unconvoy compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Configurations, the first being the one to compare against: `libc` (nothing replaced),
    /// `default`, LOCK, or LOCK+LOAD; with `+confine` behind it and a special set of cores (`run --confine`).
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
    #[arg(long, value_name = "S", value_parser = timeout)]
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

impl CompareArgs {
    /// What is to be run; checks what only several options together show.
    ///
    /// # Errors
    ///
    /// Wrong usage (status 2): a configuration or thread count twice, thread counts without a
    /// place for them.
    pub fn plan(&self, processors: u32) -> Result<Plan, Refusal> {
        let mut seen = HashSet::new();
        if let Some(twice) = self.locks.iter().find(|c| !seen.insert(c.name.as_str())) {
            return Err(Refusal::usage(format!("--locks names {twice} twice")));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = self.threads.iter().find(|count| !seen.insert(**count)) {
            return Err(Refusal::usage(format!("--threads names {twice} twice")));
        }
        let takes_threads = self.program.iter().any(|word| has_placeholder(word));
        if !takes_threads && !self.threads.is_empty() {
            return Err(Refusal::usage(format!(
                "--threads needs a place for the count: write {PLACEHOLDER} where PROGRAM takes it"
            )));
        }
        let threads = match (takes_threads, self.threads.is_empty()) {
            (false, _) => vec![None],
            (true, false) => self.threads.iter().copied().map(Some).collect(),
            (true, true) => powers_of_two(OVERLOAD * processors).map(Some).collect(),
        };
        Ok(Plan {
            configurations: self.locks.clone(),
            threads,
            runs: self.runs,
            warmup: self.warmup,
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            program: self.program.clone(),
        })
    }

    /// What is compared.
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

    /// The numbers that the program prints.
    pub fn printed(&self) -> Printed {
        Printed { metric: self.metric.clone(), operations: self.ops.clone(), fairness: self.fairness.clone() }
    }
}

fn powers_of_two(last: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1_u32), |count| count.checked_mul(2)).take_while(move |count| *count <= last)
}

fn has_placeholder(word: &OsStr) -> bool {
    word.as_bytes().windows(PLACEHOLDER.len()).any(|window| window == PLACEHOLDER.as_bytes())
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

/// Below the options in `--help`.
pub const EXAMPLES: &str = "\
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regex_needs_one_group() {
        assert!(one_group("ops ([0-9]+)").is_ok());
        assert!(one_group("ops [0-9]+").unwrap_err().contains("put ( )"));
        assert!(one_group("(a)(b)").unwrap_err().contains("2 groups"));
        assert!(one_group("(").is_err());
    }

    #[test]
    fn thread_counts_by_themselves() {
        assert_eq!(powers_of_two(8).collect::<Vec<_>>(), [1, 2, 4, 8]);
        assert_eq!(powers_of_two(12).collect::<Vec<_>>(), [1, 2, 4, 8]);
    }
}
