//! `unconvoy bench`: measures unconvoy's locks, and judges them by what they promise.
//!
//! | module | idea |
//! | --- | --- |
//! | [`setup`], [`programs`], [`run`] | a workload program under given locks |
//! | [`energy`] | joules |
//! | [`goals`] | the promises, as one table |
//! | [`options`] | options that several subcommands share |
//! | [`grid`], [`sweep`], [`tasks`] | tables over thread counts, lines over places, loads on the kernel |
//! | [`figure`] | records drawn as the papers' figures |
//! | [`cli`] | the list of subcommands; each has its options beside it |
//! | the others | one subcommand each |
//!
//! The loop, statistics, records and charts are crates/measure's, which `unconvoy compare` and
//! `unconvoy sim` stand on too.

pub mod cli;

mod bump;
mod condvar;
mod contention_aware;
mod counter;
mod energy;
mod figure;
mod goals;
mod grid;
mod idle;
mod memory;
mod options;
mod pair;
mod process;
mod programs;
mod readings;
mod report;
mod run;
mod rwlock;
mod scratch;
mod sensor;
mod series;
mod setup;
mod steadiness;
mod sweep;
mod tasks;
mod threads;
mod versus;

use unconvoy_measure::failure::is_violation;
use unconvoy_measure::interrupt::Interrupted;
use unconvoy_measure::output::complain;
use unconvoy_measure::record::Record;

use cli::{BenchArgs, Command};
use grid::Grid;
use grid::workload::{HASHTABLE, NESTED, RAYTRACE, SPLASH};
use sweep::contention::contention;
use sweep::interference::interference;
use sweep::interval::interval;

/// A workload program found its data inconsistent, as a lock that does not exclude leaves it.
const EXIT_VIOLATION: u8 = 3;
/// A signal asked to end; as a shell has it after SIGINT. Above a violation, so that a script that runs one benchmark after the other ends too.
const EXIT_INTERRUPTED: u8 = 130;

/// Runs one benchmark and returns the exit status: 0 when everything was measured, whether or not a goal was met; 1 when something failed, which is said on standard error;
/// 3 when a program found its data inconsistent; 130 when interrupted.
pub fn bench(args: &BenchArgs) -> u8 {
    if let Some(words) = &args.figure {
        return exit(figure::draw(words, args.plot.as_deref()));
    }
    let Some(command) = &args.command else {
        return exit(Err(anyhow::anyhow!("nothing to measure: name a benchmark, or a --figure")));
    };
    let result = match command {
        Command::Counter(options) => counter::run(options),
        Command::Hashtable(options) => Grid { is_saturated: true, ..Grid::of(&HASHTABLE) }.run(options),
        Command::Nested(options) => Grid::of(&NESTED).run(options),
        Command::Leveldb(options) => grid::leveldb(options),
        Command::Tatp(options) => grid::database::tatp(options),
        Command::Tpcc(options) => grid::database::tpcc(options),
        Command::Raytrace(options) => Grid::of(&RAYTRACE).run(options),
        Command::Splash(options) => Grid::of(&SPLASH).run(options),
        Command::Mmapbench(options) => tasks::run(options),
        Command::Sockbench(options) => tasks::run(options),
        Command::Postmark(options) => tasks::run(options),
        Command::Find(options) => tasks::run(options),
        Command::Grep(options) => tasks::run(options),
        Command::Compile(options) => tasks::run(options),
        Command::ContentionAware(options) => contention_aware::run(options),
        Command::Interval(options) => interval(options),
        Command::Contention(options) => contention(options),
        Command::Interference(options) => interference(options),
        Command::Pair(options) => pair::run(options),
        Command::Condvar(options) => condvar::run(options),
        Command::Rwlock(options) => rwlock::run(options),
        Command::Sensor(options) => sensor::run(options),
        Command::Bump(options) => bump::run(options),
        Command::Steadiness(options) => steadiness::run(options),
        Command::Idle(options) => idle::run(options),
        Command::Memory(options) => memory::run(options),
        Command::Report(options) => return exit(report::run(options)),
    };
    match result {
        Ok(record) => {
            let has_violation = record.has_violation();
            match exit(ended(record)) {
                EXIT_INTERRUPTED => EXIT_INTERRUPTED,
                _ if has_violation => EXIT_VIOLATION,
                status => status,
            }
        }
        Err(error) => exit(Err(error)),
    }
}

/// A record that is not complete was written, and is a failure all the same.
fn ended(record: Record) -> anyhow::Result<()> {
    match record.ended_by {
        None => Ok(()),
        Some(why) if why == Interrupted.to_string() => Err(Interrupted.into()),
        Some(why) => Err(anyhow::anyhow!(why)),
    }
}

fn exit(result: anyhow::Result<()>) -> u8 {
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
