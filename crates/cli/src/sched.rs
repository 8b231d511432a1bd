//! `unconvoy sched`: becomes the sched_ext scheduler, a separate program.
//!
//! The kernel accepts only GPL schedulers, so this command executes the scheduler and does not link
//! it. `crates/sched-ext` parses the options and checks the machine; this module documents the
//! options and passes them on.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::{Args, ValueHint};
use unconvoy::catalogue::environment;
use unconvoy_measure::parts::Part;

use crate::messages::command as messages;
use crate::refusal::Refusal;

/// The scheduler's program.
pub const SCHEDULER: Part = Part {
    name: "unconvoy-sched-ext",
    variable: Some(environment::SCHED_EXT.name),
    package: "unconvoy-sched-ext",
};

/// `unconvoy sched`.
#[derive(Debug, Args)]
pub struct SchedArgs {
    /// Show tasks, shares, bound and votes every second; q quits on a terminal.
    #[arg(long)]
    pub monitor: bool,
    /// Serve OpenMetrics at ADDRESS (host:port), or write them to FILE every second.
    #[arg(long, value_name = "ADDRESS|FILE", value_hint = ValueHint::FilePath)]
    pub metrics: Option<OsString>,
    /// Waiting share that makes a task lock-intensive, 0.1 to 100 percent [default: 10].
    #[arg(long, value_name = "PERCENT")]
    pub threshold: Option<String>,
    /// Search method for the set's size [default: refined].
    #[arg(long, value_name = "SEARCH", value_parser = ["published", "refined"])]
    pub search: Option<String>,
    /// Fix the set at CORES cores instead of searching for a size.
    #[arg(long, value_name = "CORES", conflicts_with = "search",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub bound: Option<u32>,
}

/// Text below the options in `--help`.
pub const EXAMPLES: &str = "\
Needs root and Linux 6.12 or later with sched_ext. When the command ends, even if it is killed, \
the kernel returns to its default scheduler. TERM=dumb or NO_COLOR=1 turns the live screen into \
lines.

A task's waiting share is the part of its time slices that it spent waiting for locks. `--search \
published` is the paper's search. `refined` also tries sizes between the last two of that \
search, and starts children of lock-intensive tasks as lock-intensive.

While it runs, CPU limits and weights of cgroups (containers, systemd units) have no effect.

Exit status: 0 after Ctrl-C. 1: the kernel refused or unloaded the scheduler. 2: wrong options. \
69: unsupported machine. 125: unconvoy-sched-ext missing.

Examples:
  sudo unconvoy sched --monitor
  sudo unconvoy sched --metrics localhost:9464
  sudo unconvoy sched --threshold 20 --metrics /run/unconvoy.prom
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
    Err(Refusal::installation(messages::cannot_execute(path.display(), error)).into())
}
