//! Options of `unconvoy tune`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use crate::compare::options::Measured;
use crate::duration;
use crate::messages::search as messages;

const THREADS: &str =
    "Thread counts for `{threads}` [default: as many as processors, and 4 times as many]";

/// `unconvoy tune`.
#[derive(Debug, Args)]
#[command(mut_arg("threads", |threads| threads.help(THREADS)))]
pub struct TuneArgs {
    #[command(flatten)]
    pub measured: Measured,
    /// Advise by records instead: profiles of `profile -o`, predictions of `predict --json`.
    #[arg(long, value_name = "RECORDS", num_args = 1.., value_hint = ValueHint::FilePath,
          conflicts_with_all = ["program", "threads", "metric", "time", "budget", "output", "html",
                                "resume", "seed", "timeout", "quiet", "error_rate"])]
    pub advise: Vec<PathBuf>,
    /// Judge by the wall time, which is also the default.
    #[arg(long, conflicts_with = "metric")]
    pub time: bool,
    /// Limit the whole search to TIME, such as 90s or 10m.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = budget)]
    pub budget: Duration,
    /// Limit the probabilities of a wrong choice and of an interval without the true ratio.
    #[arg(long, value_name = "RATE", default_value_t = 0.05, value_parser = error_rate)]
    pub error_rate: f64,
    /// Write the strategy file to FILE [default: PROGRAM.toml in this directory].
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Write the result as an HTML page.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Write all runs and the result as JSON, again after each round.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Continue an interrupted search from the file that it kept.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "seed")]
    pub resume: Option<PathBuf>,
    /// Program and arguments; `{threads}` stands for the thread count.
    #[arg(required_unless_present = "advise", trailing_var_arg = true, value_name = "PROGRAM",
          value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// Text below the options in `--help`.
pub const EXAMPLES: &str = "\
The command runs PROGRAM under libc's locks, profiles it, tries other locks for the process and \
for the locks that cost most, and confirms the best in fresh runs. The result is a strategy file \
for `unconvoy run --strategy`, and one sentence. With several thread counts, one strategy must \
serve all.

Exit status: 0. 1: a run failed or its metric did not match. 2: wrong options. 3: undecided, \
because the metric varies too much or the budget is too small. 125: libunconvoy.so missing. 126, \
127: as in run. 130: interrupted.

Examples:
  unconvoy tune -- ./batch --threads {threads}
  unconvoy tune --metric 'ops/s: ([0-9.]+)' --html tune.html -- ./bench
  unconvoy tune --threads 2,8 --budget 3m -- ./bench --threads {threads}
  unconvoy tune --advise locks.profile
  unconvoy tune --resume bench-tune.json -- ./bench";

/// Parses a duration from a second to a day.
fn budget(text: &str) -> Result<Duration, String> {
    let seconds = duration::seconds(text).filter(|seconds| (1.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| messages::no_budget().to_string())
}

fn error_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0001..=0.5).contains(rate));
    rate.ok_or_else(|| messages::no_error_rate().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_a_second_to_a_day() {
        assert_eq!(budget("5m"), Ok(Duration::from_secs(300)));
        for wrong in ["", "0s", "soon", "99h"] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
        assert!(error_rate(".05").is_ok() && error_rate("1").is_err());
    }
}
