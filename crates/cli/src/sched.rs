//! `unconvoy sched`: becomes the sched_ext scheduler, a program of its own.
//!
//! The kernel takes schedulers under the GPL only, so it is executed and not linked. What the options mean and what the
//! machine lacks is its business (crates/sched-ext); here they are documented and passed on.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::cli::SchedArgs;
use crate::refusal::Refusal;

/// Replaces this process by the scheduler; returns only an error.
pub fn sched(args: &SchedArgs) -> anyhow::Result<Infallible> {
    let path = unconvoy_bench::library::find_scheduler().map_err(Refusal::installation)?;
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
