//! `unconvoy stats`: prints the record of `run --stats` as tables.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueHint};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use unconvoy_measure::arguments::counted;
use unconvoy_measure::chart::quantity;
use unconvoy_measure::input;

use crate::images::{Images, Mapping};
use crate::lock_table;
use crate::members::LockType;
use crate::messages::command as messages;
use crate::names::{FIRST_TAKEN, Names};
use crate::output_file;
use crate::paragraph::columns_of_output;

/// `unconvoy stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Number of locks to list, longest total wait first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// File that `unconvoy run --stats FILE` wrote.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Text below the options in `--help`.
pub const EXAMPLES: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/docs/reference/stats.md explains every count.

Examples:
  unconvoy run --stats locks.json -- ./server
  unconvoy stats --top 5 locks.json"
);

/// Version of the record's format.
const SCHEMA: &str = "unconvoy-stats-1";

/// The lock of a record whose strategy leaves the locks without an entry to libc.
const LIBC: &str = "libc";

/// The record that the interposer writes when a program ends. A missing number counts as zero, so
/// that this command reads records of older versions.
#[derive(Debug, Deserialize)]
pub struct Record {
    program: String,
    pid: u32,
    pub lock: String,
    pub load: String,
    /// Time from the interposer's start to the program's end.
    pub wall_ns: u64,
    #[serde(default)]
    processors: u32,
    #[serde(default)]
    controller: Controller,
    #[serde(default)]
    slots: Slots,
    /// Present if the program ran with `--confine`.
    special: Option<Special>,
    /// Number of locks that did not fit in the interposer's table.
    #[serde(default)]
    pub dropped_locks: u64,
    /// The locks in the table.
    #[serde(default)]
    pub locks: Vec<Lock>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Controller {
    starts: u64,
    ticks: u64,
    cpu_ns: u64,
    sensor: String,
    runnable: f64,
    most_runnable: f64,
    capacity: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Slots {
    slept: u64,
    left: u64,
    woken: u64,
    timed_out: u64,
    given_back: u64,
}

/// The special set of cores.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Special {
    /// Processors that the set was chosen from; 0 if there was no contention.
    cores: u32,
    most_tasks: u32,
    moves: u64,
    votes: u64,
    searches: u64,
    /// Processor time of the confinement, part of the controller's.
    cpu_ns: u64,
    /// Changes of the set's size: time in nanoseconds and the new size; 0 dissolves the set.
    changes: Vec<(u64, u32)>,
    changes_left_out: u64,
}

/// Changes of the set's size that fit in a line.
const CHANGES: usize = 12;

impl Special {
    fn render(&self, wall_ns: u64) -> String {
        if self.cores == 0 {
            return "special set: never used, because no thread waited long enough\n".to_string();
        }
        let &Special { cores, most_tasks, moves, votes, searches, .. } = self;
        let mut text = format!(
            "special set: up to {}, {} of {} for most of the {}; {}, {}, {}, {} of processor \
             time\n",
            counted(most_tasks.into(), "thread"),
            self.usual(wall_ns),
            counted(cores.into(), "processor"),
            if self.changes_left_out == 0 { "time" } else { "recorded time" },
            counted(moves, "move"),
            counted(votes, "vote"),
            counted(searches, "search"),
            quantity::seconds(self.cpu_ns as f64 * 1e-9)
        );
        let changes = self
            .changes
            .iter()
            .take(CHANGES)
            .map(|&(ns, bound)| format!(" {bound} at {}", quantity::seconds(ns as f64 * 1e-9)));
        text.push_str(&format!("its processors:{}", changes.collect::<Vec<_>>().join(",")));
        let hidden = self.changes.len().saturating_sub(CHANGES) as u64 + self.changes_left_out;
        if hidden > 0 {
            text.push_str(&format!(" and {}", counted(hidden, "more change")));
        }
        text + "\n"
    }

    /// Returns the size that the set had for the longest time. If changes were left out, the time
    /// after the last recorded one is unknown.
    fn usual(&self, wall_ns: u64) -> u32 {
        let last = (self.changes_left_out == 0).then_some(wall_ns);
        let ends = self.changes.iter().skip(1).map(|&(ns, _)| ns).chain(last);
        let mut times = std::collections::BTreeMap::<u32, u64>::new();
        for (&(begin, bound), end) in self.changes.iter().zip(ends) {
            *times.entry(bound).or_default() += end.saturating_sub(begin);
        }
        times
            .into_iter()
            .filter(|&(bound, _)| bound > 0)
            .max_by_key(|&(_, ns)| ns)
            .map_or(0, |(bound, _)| bound)
    }
}

/// One lock of a [`Record`].
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lock {
    address: String,
    kind: String,
    #[serde(rename = "where")]
    place: String,
    /// Its address within a mapped file, if the file has one.
    pub at: Option<Offset>,
    /// Return address of its first acquisition, if that is in a file.
    pub first_taken: Option<Offset>,
    /// Number of acquisitions.
    pub acquisitions: u64,
    contended: u64,
    /// Total time that threads waited for it.
    pub wait_ns: u64,
    max_wait_ns: u64,
    /// Total time that it was held.
    pub hold_ns: u64,
    slept: u64,
}

/// Names of locks from their files: the files are mapped one after another.
struct Offsets {
    names: Names,
    bases: BTreeMap<PathBuf, u64>,
}

/// Room for each file.
const FILE: u64 = 1 << 40;

impl Offsets {
    fn new(locks: &[Lock]) -> Self {
        let offsets = locks.iter().flat_map(|lock| lock.at.iter().chain(&lock.first_taken));
        let files: BTreeSet<&PathBuf> = offsets.map(|offset| &offset.object).collect();
        let bases: BTreeMap<PathBuf, u64> =
            files.into_iter().cloned().zip((1..).map(|number: u64| number * FILE)).collect();
        let mapping = |(path, &base): (&PathBuf, &u64)| Mapping {
            base,
            end: base + FILE,
            offset: 0,
            path: path.clone(),
        };
        let mappings: Vec<Mapping> = bases.iter().map(mapping).collect();
        Offsets { names: Names::new(Images::new(&mappings)), bases }
    }

    /// The name of a lock, or else what the record says.
    fn name(&self, lock: &Lock) -> String {
        let address = |at: &Offset| Some(self.bases.get(&at.object)? + at.offset);
        let at = lock.at.as_ref().and_then(address);
        let taken = lock.first_taken.as_ref().and_then(address);
        let kind = LockType::of(&lock.kind);
        let name = self.names.lock(at, kind, &lock.kind, &[(taken.as_slice(), FIRST_TAKEN)]);
        name.unwrap_or_else(|| lock.place.clone())
    }
}

/// A position in a mapped file, the same in each run wherever the file is mapped.
#[derive(Debug, Clone, Deserialize)]
pub struct Offset {
    /// The file.
    pub object: PathBuf,
    /// Distance from the lowest address at which the file is mapped, in bytes.
    #[serde(deserialize_with = "hexadecimal")]
    pub offset: u64,
}

fn hexadecimal<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(D::Error::custom)
}

/// Reads `file` and renders its `top` locks by time waited, for standard output.
///
/// # Errors
///
/// As [`read`].
pub fn table(file: &Path, top: usize) -> anyhow::Result<String> {
    Ok(render(read(file)?, top, columns_of_output()))
}

/// Reads a record.
///
/// # Errors
///
/// The file cannot be read, is empty, or is not a whole record of this format.
pub fn read(file: &Path) -> anyhow::Result<Record> {
    let text =
        input::read_text(file, input::RECORD).with_context(|| messages::cannot_read(file))?;
    if text.is_empty() {
        match largest_of_children(file) {
            Some(other) => bail!(messages::statistics_in_other_file(file, &other)),
            None => bail!(messages::statistics_empty(file)),
        }
    }
    ensure!(text.starts_with('{'), messages::not_statistics(file, "it is not JSON"));
    let value: serde_json::Value =
        serde_json::from_str(&text).with_context(|| messages::statistics_cut_off(file))?;
    match value.get("schema").and_then(|schema| schema.as_str()) {
        Some(SCHEMA) => {}
        Some(other) => bail!(messages::statistics_of_other_format(file, other, SCHEMA)),
        None => bail!(messages::not_statistics(file, "it has no \"schema\"")),
    }
    serde_json::from_value(value).with_context(|| messages::statistics_incomplete(file, SCHEMA))
}

/// The largest record that child processes wrote: FILE.PID beside an empty FILE. A shell that
/// starts the program, or the launcher of a daemon, often leaves FILE empty.
fn largest_of_children(file: &Path) -> Option<PathBuf> {
    let all = output_file::of_processes(file).ok()?.into_iter();
    let sizes = all.filter_map(|path| Some((path.metadata().ok()?.len(), path)));
    sizes.filter(|&(size, _)| size > 0).max().map(|(_, path)| path)
}

fn render(mut record: Record, top: usize, columns: Option<usize>) -> String {
    let nanoseconds = |ns: u64| quantity::seconds(ns as f64 * 1e-9);
    let Controller { starts, ticks, cpu_ns, sensor, runnable, most_runnable, capacity } =
        record.controller;
    // A process without contention never starts the controller and has no sensor reading.
    let load = match capacity {
        0.0 => String::new(),
        _ => format!(
            "load: up to {:.1} runnable on {capacity:.2} processors, {runnable:.1} at the last \
             reading of {sensor}\n",
            most_runnable.max(runnable)
        ),
    };
    let Slots { slept, left, woken, timed_out, given_back } = record.slots;
    let is_libcs = record.lock == LIBC;
    let pair = match is_libcs {
        true => "libc's locks".to_string(),
        false => format!("{}+{}", record.lock, record.load),
    };
    let mut text = format!(
        "{} (process {}): {pair}, {} on {}\n\
         controller: {}, {}, {} of processor time\n\
         {load}\
         sleep slots: {slept} claimed, {woken} woken, {timed_out} timed out, \
         {given_back} given back, {left} freed\n",
        record.program,
        record.pid,
        nanoseconds(record.wall_ns),
        counted(record.processors.into(), "processor"),
        counted(starts, "start"),
        counted(ticks, "tick"),
        nanoseconds(cpu_ns),
    );
    if let Some(special) = &record.special {
        text.push_str(&special.render(record.wall_ns));
    }
    if record.locks.is_empty() {
        text.push_str(if is_libcs {
            "No locks recorded: the strategy leaves the locks to libc, which counts nothing.\n"
        } else {
            "No locks recorded: the program took no lock that unconvoy replaces, or ended before \
             the first was counted.\n"
        });
        return text;
    }
    record.locks.sort_by_key(|lock| Reverse(lock.wait_ns));
    let names = Offsets::new(&record.locks);
    let rows = record.locks.iter().take(top).map(|lock| {
        let share = 100.0 * lock.contended as f64 / lock.acquisitions.max(1) as f64;
        let counts = [
            lock.address.clone(),
            lock.kind.clone(),
            lock.acquisitions.to_string(),
            format!("{} ({share:.1} %)", lock.contended),
            nanoseconds(lock.wait_ns),
            nanoseconds(lock.max_wait_ns),
            nanoseconds(lock.hold_ns),
            lock.slept.to_string(),
        ];
        (counts, names.name(lock))
    });
    text.push_str(&lock_table::render(&rows.collect::<Vec<_>>(), columns));
    let hidden = record.locks.len().saturating_sub(top);
    if hidden > 0 {
        let locks = counted(hidden as u64, "more lock");
        text.push_str(&format!("{locks} not shown: raise --top.\n"));
    }
    if record.dropped_locks > 0 {
        let locks = counted(record.dropped_locks, "more lock");
        text.push_str(&format!("At least {locks} not recorded: the library's table was full.\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_one_has_no_plural() {
        let record: Record = serde_json::from_str(
            r#"{"program": "p", "pid": 1, "lock": "loiter", "load": "control", "wall_ns": 1,
                "processors": 1, "controller": {"starts": 1, "ticks": 1}, "dropped_locks": 1,
                "locks": [{}, {}]}"#,
        )
        .unwrap();
        let text = render(record, 1, None);
        assert!(text.contains(" on 1 processor\ncontroller: 1 start, 1 tick, "), "{text}");
        assert!(
            text.contains("1 more lock not shown") && text.contains("1 more lock not recorded")
        );
    }

    #[test]
    fn time_after_the_last_recorded_change_does_not_count_if_changes_were_left_out() {
        let set = |changes_left_out| Special {
            cores: 4,
            changes: vec![(0, 2), (10, 4), (11, 1)],
            changes_left_out,
            ..Special::default()
        };
        assert_eq!((set(0).usual(1_000), set(9).usual(1_000)), (1, 2));
    }
}
