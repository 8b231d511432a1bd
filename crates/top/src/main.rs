//! The live screen of `unconvoy top`, which executes this program on a terminal.
//!
//! | file | subject |
//! | --- | --- |
//! | `screen.rs` | the loop: snapshots, keys, signals |
//! | `keys.rs` | bytes from a terminal as keys |
//! | `state.rs` | what the screen shows, and what a key changes |
//! | `picture.rs` | drawing |

mod keys;
mod picture;
mod screen;
mod state;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use unconvoy_measure::output::complain;

/// Show the locks of a running process on a live screen.
#[derive(Debug, Parser)]
#[command(name = "unconvoy-top", version)]
struct Arguments {
    /// Process to watch [default: choose on the screen].
    pid: Option<u32>,
    /// Time between two snapshots, in seconds.
    #[arg(long, default_value = "1", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=60.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 0.1 to 60 seconds".to_string())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match screen::show(arguments.pid, arguments.interval) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
