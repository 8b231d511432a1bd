//! Options of `unconvoy inspect`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// `unconvoy inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Search FOLDER, by build id, for a core's program and libraries that this machine lacks.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub files: Option<PathBuf>,
    /// Process id, or core dump.
    #[arg(value_name = "PID|CORE", value_hint = ValueHint::FilePath)]
    pub target: PathBuf,
}

/// Text below the options in `--help`.
pub const EXAMPLES: &str = "\
Exit status: 0 after a report. 1: the process or core cannot be read, or has no libunconvoy.so. \
2: wrong options.

Reads the memory of a process that runs under unconvoy, even while it is stopped or in a \
debugger. Threads that wait for libc's own locks are stopped for a moment, to read their \
registers; no other thread is.

Examples:
  unconvoy inspect 4711
  unconvoy inspect core.4711
  unconvoy inspect --files ./from-that-machine core.4711
  unconvoy run --watchdog 10s -- ./server";
