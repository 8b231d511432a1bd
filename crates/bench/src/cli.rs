//! The benchmarks of our own goals, as a user writes them after `unconvoy bench`.

use clap::Subcommand;
use unconvoy_measure::record::Record;

use crate::grid::Grid;
use crate::grid::workload::{HASHTABLE, NESTED};
use crate::{condvar, counter, grid, idle, memory, pair, report, rwlock, sensor};

/// What to measure.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Threads take one lock in a loop: throughput, fairness, processor time, latency
    Counter(counter::Options),
    /// Threads use a hash table with a lock per bucket: every configuration at every thread count
    Hashtable(grid::GridOptions),
    /// Threads take a contended lock, some inside another lock that others wait for
    Nested(grid::GridOptions),
    /// LevelDB: random writes, random reads, or reads beside a writer
    Leveldb(grid::LeveldbOptions),
    /// A lock/unlock pair that nobody contends for
    Pair(pair::Options),
    /// Condition variables: two threads that alternate, one that wakes many, a bounded queue
    Condvar(condvar::Options),
    /// Readers and writers of a table under one reader-writer lock
    Rwlock(rwlock::Options),
    /// What a reading of the load sensor costs, and the controller's share of a processor
    Sensor(sensor::Options),
    /// Threads, wake-ups and context switches while there is nothing for unconvoy to do
    Idle(idle::Options),
    /// Memory per mutex and per contending thread
    Memory(memory::Options),
    /// Turns the JSON records of a directory into one Markdown page on standard output
    Report(report::Options),
}

/// Runs a benchmark; the record, of which a report has none.
///
/// # Errors
///
/// It cannot begin, or be written; a record that is not complete is none.
pub fn run(command: &Command) -> anyhow::Result<Option<Record>> {
    Ok(Some(match command {
        Command::Counter(options) => counter::run(options)?,
        Command::Hashtable(options) => Grid { is_saturated: true, ..Grid::of(&HASHTABLE) }.run(options)?,
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
