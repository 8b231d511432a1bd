//! `unconvoy sched`: becomes the sched_ext scheduler, a program of its own.
//!
//! The kernel takes schedulers under the GPL only, so it is executed and not linked. What the options mean and what the
//! machine lacks is its business (crates/sched-ext); here they are documented and passed on.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::{Args, ValueHint};
use unconvoy::catalogue::environment;
use unconvoy_measure::parts::Part;

use crate::refusal::Refusal;

/// The scheduler.
pub const SCHEDULER: Part =
    Part { name: "unconvoy-sched-ext", variable: Some(environment::SCHED_EXT.name), package: "unconvoy-sched-ext" };

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

/// Below the options in `--help`.
pub const EXAMPLES: &str = "\
Needs root and a kernel of release 6.12 or later with sched_ext; what is missing is named with its
remedy. The kernel goes back to its default scheduler when this ends, is killed or fails.

Exit status: 0 after Ctrl-C. 1: the kernel refused the scheduler, or has unloaded it. 2: wrong
options. 69: this machine lacks something. 125: unconvoy-sched-ext is missing.

Examples:
  sudo unconvoy sched --monitor
  sudo unconvoy sched --metrics localhost:9464
  sudo unconvoy sched --threshold 20 --search published --metrics /run/unconvoy.prom
  sudo unconvoy sched --bound 4";

/// Replaces this process by the scheduler; returns only an error.
pub fn sched(args: &SchedArgs) -> anyhow::Result<Infallible> {
    let path = SCHEDULER.find().map_err(Refusal::installation)?;
    let mut command = Command::new(&path);
    if args.monitor {
        command.arg("--monitor");
    }
    if let Some(metrics) = &args.metrics {
        command.arg("--metrics").arg(metrics);
    }
    for (option, value) in [("--threshold", &args.threshold), ("--search", &args.search)] {
        if let Some(value) = value {
            command.args([option, value]);
        }
    }
    if let Some(bound) = args.bound {
        command.args(["--bound", &bound.to_string()]);
    }
    let error = command.exec();
    Err(Refusal::installation(format!("{}: cannot be executed: {error}", path.display())).into())
}
