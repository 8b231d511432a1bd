//! The benchmarks of unconvoy's own goals, and the modules that the papers' benchmarks (`papers/`)
//! share with them.
//!
//! | module | idea |
//! | --- | --- |
//! | [`setup`], [`programs`], [`run`], [`scratch`] | a workload program under given locks |
//! | [`energy`], [`process`] | energy; the kernel's accounting of this process |
//! | [`goals`] | the goals, as one table |
//! | [`options`] | options that several benchmarks share |
//! | [`grid`] | tables over thread counts |
//! | [`threads`], [`controller`] | contending threads of this process, and its controller |
//! | [`readings`] | the runs of a record |
//! | [`cli`] | the list of benchmarks, whose options are in their modules |
//! | the others | one benchmark each |
//!
//! The loop, statistics, records and charts are those of crates/measure, which `unconvoy compare`
//! and `unconvoy sim` use too.

pub mod cli;
pub mod energy;
pub mod goals;
pub mod grid;
pub mod options;
pub mod process;
pub mod programs;
pub mod readings;
pub mod run;
pub mod scratch;
pub mod setup;
pub mod threads;

mod condvar;
pub mod controller;
mod counter;
mod idle;
mod memory;
mod messages;
mod pair;
mod report;
mod rwlock;
mod sensor;
mod versus;

use unconvoy_measure::failure::{EXIT_USAGE, Usage, is_violation};
use unconvoy_measure::interrupt::Interrupted;
use unconvoy_measure::output::complain;
use unconvoy_measure::record::Record;

/// Exit status: a workload program found inconsistent data, so a lock does not exclude.
const EXIT_VIOLATION: u8 = 3;
/// Exit status after a signal, as a shell's after SIGINT. It takes precedence over a violation, so
/// that a script of several benchmarks stops.
const EXIT_INTERRUPTED: u8 = 130;

/// Returns the exit status of a benchmark: 0 if everything was measured, whether or not the goals
/// were met; 1 after a failure, which is printed; 3 if a program found inconsistent data; 130 after
/// a signal.
pub fn status(result: anyhow::Result<Option<Record>>) -> u8 {
    match result {
        Ok(Some(record)) => {
            let has_violation = record.has_violation();
            match exit(ended(record).map(drop)) {
                EXIT_INTERRUPTED => EXIT_INTERRUPTED,
                _ if has_violation => EXIT_VIOLATION,
                status => status,
            }
        }
        Ok(None) => 0,
        Err(error) => exit(Err(error)),
    }
}

/// Returns the record if it is complete.
///
/// # Errors
///
/// The record, although written, is incomplete.
pub fn ended(record: Record) -> anyhow::Result<Record> {
    match record.ended_by {
        None => Ok(record),
        Some(why) if why == Interrupted.to_string() => Err(Interrupted.into()),
        Some(why) => Err(anyhow::anyhow!(why)),
    }
}

/// Prints the error, if any, and returns its exit status.
pub fn exit(result: anyhow::Result<()>) -> u8 {
    let Err(error) = result else {
        return 0;
    };
    complain(&format!("{error:#}"));
    if error.is::<Interrupted>() {
        EXIT_INTERRUPTED
    } else if is_violation(&error) {
        EXIT_VIOLATION
    } else if error.is::<Usage>() {
        EXIT_USAGE
    } else {
        1
    }
}
