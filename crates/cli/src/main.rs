//! The `unconvoy` command: run a program under load-controlled locks, compare locks, explain them.
//!
//! `run` must hand the program exactly the process it would have had without unconvoy. The Rust
//! runtime would first set SIGPIPE to "ignored", which a program inherits through `exec`, so `main`
//! is C's here and that runtime does not start.

#![cfg_attr(not(test), no_main)]

mod bpf;
mod cli;
mod compare;
mod inspect;
mod listing;
mod predict;
mod refusal;
mod run;
mod sched;
mod stats;
mod wrong_usage;

use std::ffi::c_int;

use unconvoy_measure::output::{complain, print_all};

use cli::{Cli, Command};
use refusal::Refusal;

/// Entry point of the process; the arguments come from `std::env::args_os`, which glibc fills
/// in before `main`.
// SAFETY: `main` is the name the C runtime looks for, nothing else here defines it, and the
// signature is one of those it may have.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn main() -> c_int {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => return wrong_usage::explain(&error),
    };
    match dispatch(cli.command) {
        Ok(status) => c_int::from(status),
        Err(error) => {
            complain(&format!("{error:#}"));
            error.downcast_ref::<Refusal>().map_or(1, |refusal| c_int::from(refusal.status))
        }
    }
}

/// Runs one subcommand and returns the exit status.
fn dispatch(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Run(args) => match run::run(&args)? {},
        Command::Compare(args) => compare::compare(&args),
        Command::Bench(args) => Ok(unconvoy_bench::bench(&args)),
        Command::Sim(args) => Ok(unconvoy_sim::command::sim(&args)),
        Command::Predict(args) => predict::predict(&args),
        Command::Sched(args) => match sched::sched(&args)? {},
        Command::Locks => {
            print_all(listing::locks())?;
            Ok(0)
        }
        Command::Stats(args) => {
            print_all(stats::table(&args.file, args.top)?)?;
            Ok(0)
        }
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::grouped(), "unconvoy", &mut text);
            print_all(text)?;
            Ok(0)
        }
        Command::Man { dir } => {
            manual(dir.as_deref())?;
            Ok(0)
        }
    }
}

/// The manual page on standard output, or one page per subcommand in `dir`.
fn manual(dir: Option<&std::path::Path>) -> anyhow::Result<()> {
    use anyhow::Context;
    match dir {
        Some(dir) => clap_mangen::generate_to(Cli::grouped(), dir)
            .with_context(|| format!("cannot write the manual pages into {}", dir.display())),
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::grouped()).render(&mut text)?;
            Ok(print_all(text)?)
        }
    }
}
