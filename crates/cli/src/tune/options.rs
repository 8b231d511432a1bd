//! Options of `unconvoy tune`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// `unconvoy tune`.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// Advise by records: profiles of `profile -o`, predictions of `predict --json`.
    #[arg(long, value_name = "RECORDS", num_args = 1.., required = true,
          value_hint = ValueHint::FilePath)]
    pub advise: Vec<PathBuf>,
    /// Write the advice as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
}

/// Text below the options in `--help`.
pub const EXAMPLES: &str = "\
Exit status: 0. 1: a file cannot be read or written. 2: wrong options.

Examples:
  unconvoy profile -o locks.profile -- ./server
  unconvoy tune --advise locks.profile
  unconvoy predict --json predicted.json -- ./server
  unconvoy tune --advise locks.profile predicted.json";
