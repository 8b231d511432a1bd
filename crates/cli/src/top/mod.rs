//! `unconvoy top`: the locks of a running process, live.
//!
//! | module | idea |
//! | --- | --- |
//! | `filter` | whether a program under a filter of system calls may show itself |
//! | `maps` | what is mapped in a process |
//! | `segment` | shared memory of another process |
//! | `target` | finds the page of a process, and the processes that have one |
//! | `watcher` | asks a process to record its waits, and takes snapshots |
//! | `snapshot` | the figures of one interval |
//! | `text` | snapshots as text |
//!
//! The screen is in another program, which needs a terminal's crates and uses these modules.

pub(crate) mod filter;
pub(crate) mod maps;
mod segment;
pub mod snapshot;
pub mod target;
pub mod text;
pub mod watcher;

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use unconvoy::catalogue::environment;
use unconvoy_measure::output::{complain, print};
use unconvoy_measure::parts::Part;

use crate::messages::{command, top as messages};
use crate::refusal::Refusal;
use watcher::Watcher;

/// The program with the screen.
pub const SCREEN: Part = Part {
    name: "unconvoy-top",
    variable: Some(environment::TOP_SCREEN.name),
    package: "unconvoy-top",
};

/// `unconvoy top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Process to watch [default: the only one of yours, or a list to choose from].
    #[arg(value_name = "PID")]
    pub pid: Option<u32>,
    /// Time between two snapshots, 0.1 to 60 seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Print one snapshot as text instead of a live screen.
    #[arg(long)]
    pub once: bool,
    /// Print one snapshot as JSON instead of a live screen.
    #[arg(long, conflicts_with = "once")]
    pub json: bool,
}

/// Text below the options in `--help`.
pub const EXAMPLES: &str = "\
The process must run under unconvoy and belong to you, or you must be root. It records its waits \
only while somebody watches. Without a terminal, the command prints one snapshot.

Keys: arrows select, Enter opens a lock, s sorts, / filters, p chooses another process, q quits.

Exit status: 1: the process cannot be watched. 2: wrong options. 125: unconvoy-top missing.

Examples:
  unconvoy top
  unconvoy top 4711
  unconvoy top 4711 --interval 10 --once
  unconvoy top 4711 --json | jq '.locks[0].name'";

/// Parses the time between two snapshots, in seconds.
fn interval(text: &str) -> Result<f64, String> {
    let (least, most) = (0.1, 60.0);
    let seconds = text.parse().ok().filter(|seconds| (least..=most).contains(seconds));
    seconds.ok_or_else(|| crate::messages::outside::seconds_out_of_range(least, most))
}

/// Prints one snapshot, or becomes the program with the screen. Returns the exit status.
///
/// # Errors
///
/// The process cannot be watched, or the program with the screen is missing.
pub fn top(args: &TopArgs) -> anyhow::Result<u8> {
    // The screen takes the end of its input for the user's departure.
    let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let is_screen = !args.once && !args.json && has_terminal;
    if is_screen && std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
    {
        return show(args);
    }
    let pid = match args.pid {
        Some(pid) => pid,
        None => match &target::publishing()[..] {
            [] => anyhow::bail!(messages::nobody_shows_itself()),
            [only] => only.pid,
            several => {
                if !args.json {
                    print(&text::processes(several))?;
                }
                complain(&messages::choose_one());
                return Ok(1);
            }
        },
    };
    let mut watcher = Watcher::open(pid)?;
    watcher.wait(Duration::from_secs_f64(args.interval));
    let snapshot = watcher.look()?;
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&snapshot)?))?;
    } else {
        print(&text::snapshot(&snapshot))?;
    }
    Ok(0)
}

/// Becomes the program with the screen.
fn show(args: &TopArgs) -> anyhow::Result<u8> {
    if let Some(pid) = args.pid {
        // Report an unsuitable process before the screen opens.
        Watcher::open(pid)?;
    }
    let path = SCREEN.find().map_err(Refusal::installation)?;
    let mut screen = Command::new(&path);
    screen.args(["--interval", &args.interval.to_string()]);
    screen.args(args.pid.map(|pid| pid.to_string()));
    let error = screen.exec();
    Err(Refusal::installation(command::cannot_execute(path.display(), error)).into())
}
