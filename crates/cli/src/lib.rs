//! The `unconvoy` command: run a program with faster locks, compare locks, explain them.
//!
//! The study commands are in another binary, which takes the definition of the whole command line
//! from here.

mod advice;
mod bpf;
mod child;
pub mod cli;
mod compare;
mod debug_files;
mod demangled;
mod doctor;
mod duration;
mod executable;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod images;
mod inspect;
mod kinds;
mod listing;
mod live_thread;
mod lock_table;
mod members;
mod messages;
mod names;
mod output_file;
mod paragraph;
mod predict;
mod process_file;
mod profile;
pub mod reference;
mod refusal;
mod run;
pub mod sched;
mod stats;
mod strategy;
mod study;
pub mod top;
mod tune;
mod version;
pub mod wrong_usage;

use std::ffi::c_int;

use clap::error::ErrorKind;
use unconvoy_measure::output::{complain, print_all};

use cli::{Cli, Command};
use messages::causes;
pub use predict::recorded;
use refusal::Refusal;

/// Runs the command line of this process and returns the exit status.
pub fn main() -> c_int {
    occupy_standard_descriptors();
    if study::is_wanted(std::env::args_os().skip(1)) {
        return ended(study::become_it().map(|never| match never {}));
    }
    match Cli::read() {
        Ok(cli) => ended(dispatch(cli.command)),
        Err(error)
            if error.kind() == ErrorKind::DisplayVersion
                && version::is_verbose(std::env::args_os()) =>
        {
            ended(print_all(version::verbose()).map(|()| 0).map_err(Into::into))
        }
        Err(error) => wrong_usage::explain(error, &Cli::grouped()),
    }
}

/// Opens /dev/null at the standard descriptors that are closed. Otherwise a file that this process
/// opens would take their place and receive the output. `exec` closes them again, for the program
/// of `run`.
fn occupy_standard_descriptors() {
    for standard in 0..=2 {
        // SAFETY: the path ends in a zero. The lowest free number is this one.
        unsafe {
            if libc::fcntl(standard, libc::F_GETFD) < 0 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            }
        }
    }
}

fn ended(result: anyhow::Result<u8>) -> c_int {
    result.map_or_else(
        |error| {
            complain(&causes(&error));
            error.downcast_ref::<Refusal>().map_or(1, |refusal| c_int::from(refusal.status))
        },
        c_int::from,
    )
}

/// Runs one subcommand and returns its exit status.
fn dispatch(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Run(args) => match run::run(&args)? {},
        Command::Compare(args) => return compare::compare(&args),
        Command::Bench | Command::Sim | Command::Papers => match study::become_it()? {},
        Command::Predict(args) => return predict::predict(&args),
        Command::Profile(args) => return profile::profile(&args),
        Command::Top(args) => return top::top(&args),
        Command::Tune(args) => return tune::tune(&args),
        Command::Sched(args) => match sched::sched(&args)? {},
        Command::Inspect(args) => inspect::inspect(&args)?,
        Command::Doctor(args) => doctor::doctor(&args)?,
        Command::Locks => print_all(listing::locks())?,
        Command::Stats(args) => print_all(stats::table(&args.file, args.top)?)?,
        Command::Completions { shell } => reference::completions(shell, Cli::grouped())?,
        Command::Man { dir } => reference::manual(dir.as_deref(), Cli::grouped())?,
    }
    Ok(0)
}
