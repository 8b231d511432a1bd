//! The benchmarks of unconvoy's own goals: they measure its locks, and judge them by what they
//! promise. And what the papers' benchmarks (`papers/`) stand on as well.
//!
//! | module | idea |
//! | --- | --- |
//! | [`setup`], [`programs`], [`run`], [`scratch`] | a workload program under given locks |
//! | [`energy`], [`process`] | joules; what the kernel says of this process |
//! | [`goals`] | the promises, as one table |
//! | [`options`] | options that several benchmarks share |
//! | [`grid`] | tables over thread counts |
//! | [`threads`], [`readings`] | threads of this process that contend; the runs of a record |
//! | [`cli`] | the list of benchmarks; each has its options beside it |
//! | the others | one benchmark each |
//!
//! The loop, statistics, records and charts are crates/measure's, which `unconvoy compare` and
//! `unconvoy sim` stand on too.

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
mod counter;
mod idle;
mod memory;
mod pair;
mod report;
mod rwlock;
mod sensor;
mod versus;

use unconvoy_measure::failure::is_violation;
use unconvoy_measure::interrupt::Interrupted;
use unconvoy_measure::output::complain;
use unconvoy_measure::record::Record;

/// A workload program found its data inconsistent, as a lock that does not exclude leaves it.
const EXIT_VIOLATION: u8 = 3;
/// A signal asked to end; as a shell has it after SIGINT. Above a violation, so that a script that
/// runs one benchmark after the other ends too.
const EXIT_INTERRUPTED: u8 = 130;

/// The exit status of a benchmark: 0 when everything was measured, whether or not a goal was met; 1
/// when something failed, which is said on standard error; 3 when a program found its data
/// inconsistent; 130 when interrupted.
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

/// The record, if it is complete.
///
/// # Errors
///
/// It is not: it was written, and is a failure all the same.
pub fn ended(record: Record) -> anyhow::Result<Record> {
    match record.ended_by {
        None => Ok(record),
        Some(why) if why == Interrupted.to_string() => Err(Interrupted.into()),
        Some(why) => Err(anyhow::anyhow!(why)),
    }
}

/// The exit status of what ended so; what failed is said on standard error.
pub fn exit(result: anyhow::Result<()>) -> u8 {
    let Err(error) = result else {
        return 0;
    };
    complain(&format!("{error:#}"));
    if error.is::<Interrupted>() {
        EXIT_INTERRUPTED
    } else if is_violation(&error) {
        EXIT_VIOLATION
    } else {
        1
    }
}
