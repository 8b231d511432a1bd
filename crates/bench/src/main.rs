//! `unconvoy-bench`: measures unconvoy's locks, and judges them by what they promise.
//!
//! | module | idea |
//! | --- | --- |
//! | [`cells`] | interleaved repeats |
//! | [`statistics`] | median and range |
//! | [`setup`], [`programs`], [`run`] | a workload program under given locks |
//! | [`goals`] | the promises, as one table |
//! | [`record`], [`table`], [`context`] | what a benchmark leaves behind |
//! | the others | one subcommand each |
//!
//! Exit status: 0 when everything was measured, whether or not a goal was met; 1 when something failed; 2 for a wrong command line; 130 when interrupted.

mod bump;
mod cells;
mod cli;
mod condvar;
mod contenders;
mod context;
mod counter;
mod goals;
mod idle;
mod interrupt;
mod memory;
mod output;
mod pair;
mod process;
mod programs;
mod progress;
mod record;
mod report;
mod run;
mod rwlock;
mod sensor;
mod setup;
mod statistics;
mod table;
mod versus;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use interrupt::Interrupted;
use record::Record;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Counter(options) => counter::run(&options),
        Command::Pair(options) => pair::run(&options),
        Command::Condvar(options) => condvar::run(&options),
        Command::Rwlock(options) => rwlock::run(&options),
        Command::Sensor(options) => sensor::run(&options),
        Command::Bump(options) => bump::run(&options),
        Command::Idle(options) => idle::run(&options),
        Command::Memory(options) => memory::run(&options),
        Command::Report(options) => return exit(report::run(&options)),
    };
    exit(result.and_then(ended))
}

/// A record that is not complete was written, and is a failure all the same.
fn ended(record: Record) -> anyhow::Result<()> {
    match record.ended_by {
        None => Ok(()),
        Some(why) if why == Interrupted.to_string() => Err(Interrupted.into()),
        Some(why) => Err(anyhow::anyhow!(why)),
    }
}

fn exit(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    eprintln!("unconvoy-bench: {error:#}");
    ExitCode::from(if error.is::<Interrupted>() { 130 } else { 1 })
}
