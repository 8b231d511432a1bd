//! Subcommands of `unconvoy bench` for our own goals.

use clap::Subcommand;
use unconvoy_measure::record::Record;

use crate::grid::Grid;
use crate::grid::workload::{HASHTABLE, NESTED};
use crate::{condvar, counter, grid, idle, memory, pair, report, rwlock, sensor};

/// A benchmark.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure throughput, fairness, processor time and latency of one lock
    Counter(counter::Options),
    /// Measure a hash table with a lock per bucket
    Hashtable(grid::GridOptions),
    /// Measure a contended lock that some threads take inside another lock
    Nested(grid::GridOptions),
    /// Measure LevelDB: random writes, random reads, or reads beside a writer
    Leveldb(grid::LeveldbOptions),
    /// Measure an uncontended lock/unlock pair
    Pair(pair::Options),
    /// Measure condition variables: alternation, broadcast, a bounded queue
    Condvar(condvar::Options),
    /// Measure a table under one reader-writer lock
    Rwlock(rwlock::Options),
    /// Measure the load sensor's cost and the controller's share of a processor
    Sensor(sensor::Options),
    /// Count threads, wake-ups and context switches of an idle unconvoy
    Idle(idle::Options),
    /// Measure memory per mutex and per contending thread
    Memory(memory::Options),
    /// Print the JSON records of a directory as one Markdown page
    Report(report::Options),
}

/// Runs a benchmark and returns its record; `None` for a report.
///
/// # Errors
///
/// The benchmark cannot start, or its record cannot be written. Incompleteness is not an error.
pub fn run(command: &Command) -> anyhow::Result<Option<Record>> {
    Ok(Some(match command {
        Command::Counter(options) => counter::run(options)?,
        Command::Hashtable(options) => {
            Grid { is_saturated: true, ..Grid::of(&HASHTABLE) }.run(options)?
        }
        Command::Nested(options) => Grid::of(&NESTED).run(options)?,
        Command::Leveldb(options) => grid::leveldb(options)?,
        Command::Pair(options) => pair::run(options)?,
        Command::Condvar(options) => condvar::run(options)?,
        Command::Rwlock(options) => rwlock::run(options)?,
        Command::Sensor(options) => sensor::run(options)?,
        Command::Idle(options) => idle::run(options)?,
        Command::Memory(options) => memory::run(options)?,
        Command::Report(options) => return report::run(options).map(|()| None),
    }))
}
