//! `unconvoy stats`: the record of `run --stats`, as tables.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use comfy_table::{CellAlignment, Table, presets};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use unconvoy_measure::chart::quantity;

/// `unconvoy stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// How many locks to list, by time waited.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// The file that `unconvoy run --stats FILE` has written.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Below the options in `--help`.
pub const EXAMPLES: &str = "\
Examples:
  unconvoy run --stats locks.json -- ./server
  unconvoy stats --top 5 locks.json";

/// The record format this command reads.
const SCHEMA: &str = "unconvoy-stats-1";

/// What the interposer writes when a program ends. Missing numbers count as zero, so that a
/// newer command reads an older record.
#[derive(Debug, Deserialize)]
pub struct Record {
    program: String,
    pid: u32,
    lock: String,
    load: String,
    /// From the interposer's start to the program's end.
    pub wall_ns: u64,
    #[serde(default)]
    processors: u32,
    #[serde(default)]
    controller: Controller,
    #[serde(default)]
    slots: Slots,
    /// Of a program that was to have one.
    special: Option<Special>,
    /// Locks that found no place in the interposer's table.
    #[serde(default)]
    pub dropped_locks: u64,
    /// All others.
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
    /// Processors that it was chosen from; 0: there was no contention.
    cores: u32,
    most_tasks: u32,
    moves: u64,
    votes: u64,
    searches: u64,
    /// What the controller took for it; that is part of its time.
    cpu_ns: u64,
    /// When the set had another size, in nanoseconds, and which; 0: there was none from then on.
    changes: Vec<(u64, u32)>,
    changes_left_out: u64,
}

/// Changes of the set's size that a line has room for.
const CHANGES: usize = 12;

impl Special {
    fn render(&self, wall_ns: u64) -> String {
        if self.cores == 0 {
            return "special set: none, no thread waited long enough\n".to_string();
        }
        let Special { cores, most_tasks, moves, votes, searches, .. } = self;
        let mut text = format!(
            "special set: up to {most_tasks} threads, {} of {cores} processors for most of the time; \
             {moves} moves, {votes} votes, {searches} searches anew, {} of processor time\n",
            self.usual(wall_ns),
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
            text.push_str(&format!(", and {hidden} changes more"));
        }
        text + "\n"
    }

    /// The size that the set had longest, while there was one.
    fn usual(&self, wall_ns: u64) -> u32 {
        let ends = self.changes.iter().skip(1).map(|&(ns, _)| ns).chain([wall_ns]);
        let mut times = std::collections::BTreeMap::<u32, u64>::new();
        for (&(begin, bound), end) in self.changes.iter().zip(ends) {
            *times.entry(bound).or_default() += end.saturating_sub(begin);
        }
        times.into_iter().filter(|&(bound, _)| bound > 0).max_by_key(|&(_, ns)| ns).map_or(0, |(bound, _)| bound)
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
    /// Where it lies, if in a file's memory.
    pub at: Option<Offset>,
    /// Where the caller of its first acquisition goes on, if that is code of a file.
    pub first_taken: Option<Offset>,
    /// Times it was acquired.
    pub acquisitions: u64,
    contended: u64,
    /// Time that threads waited for it, all together.
    pub wait_ns: u64,
    max_wait_ns: u64,
    /// Time it was held.
    pub hold_ns: u64,
    slept: u64,
}

/// A place in a loaded file: the same in each run, wherever the file is loaded.
#[derive(Debug, Clone, Deserialize)]
pub struct Offset {
    /// The file.
    pub object: PathBuf,
    /// From the lowest address at which the file is mapped, in bytes.
    #[serde(deserialize_with = "hexadecimal")]
    pub offset: u64,
}

fn hexadecimal<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(D::Error::custom)
}

/// Reads `file` and renders its `top` locks by time waited.
///
/// # Errors
///
/// As [`read`].
pub fn table(file: &Path, top: usize) -> anyhow::Result<String> {
    Ok(render(read(file)?, top))
}

/// Reads `file`.
///
/// # Errors
///
/// The file cannot be read, is no JSON, or is not a record of this format.
pub fn read(file: &Path) -> anyhow::Result<Record> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    let value: serde_json::Value = serde_json::from_str(&text)
        .with_context(|| format!("{name} is not JSON; was the program killed while it wrote?"))?;
    match value.get("schema").and_then(|schema| schema.as_str()) {
        Some(SCHEMA) => {}
        Some(other) => bail!("{name} has the format {other}, this command reads {SCHEMA}"),
        None => bail!("{name} is no record of `unconvoy run --stats` (it has no \"schema\")"),
    }
    serde_json::from_value(value).with_context(|| format!("{name} is not a complete {SCHEMA} record"))
}

fn render(mut record: Record, top: usize) -> String {
    let nanoseconds = |ns: u64| quantity::seconds(ns as f64 * 1e-9);
    let Controller { starts, ticks, cpu_ns, sensor, runnable, capacity } = record.controller;
    // A process without contention has no controller, and nobody looked.
    let load = match capacity {
        0.0 => String::new(),
        _ => format!("load: {runnable:.1} runnable on {capacity:.2} processors when last looked at, by {sensor}\n"),
    };
    let Slots { slept, left, woken, timed_out, given_back } = record.slots;
    let mut text = format!(
        "{} (process {}): {}+{}, {} on {} processors\n\
         controller: {starts} starts, {ticks} ticks, {} of processor time\n\
         {load}\
         sleep slots: {slept} slept, {woken} woken, {timed_out} timed out, \
         {given_back} given back, {left} left\n",
        record.program,
        record.pid,
        record.lock,
        record.load,
        nanoseconds(record.wall_ns),
        record.processors,
        nanoseconds(cpu_ns),
    );
    if let Some(special) = &record.special {
        text.push_str(&special.render(record.wall_ns));
    }
    if record.locks.is_empty() {
        text.push_str(
            "No lock is listed: the program took none that unconvoy replaces, \
             or it ended before they were counted.\n",
        );
        return text;
    }
    record.locks.sort_by_key(|lock| Reverse(lock.wait_ns));
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header([
        "lock",
        "kind",
        "taken",
        "contended",
        "waited",
        "longest",
        "held",
        "slept",
        "where",
    ]);
    for column in table.column_iter_mut().skip(2).take(6) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for lock in record.locks.iter().take(top) {
        let share = 100.0 * lock.contended as f64 / lock.acquisitions.max(1) as f64;
        table.add_row([
            lock.address.clone(),
            lock.kind.clone(),
            lock.acquisitions.to_string(),
            format!("{} ({share:.1} %)", lock.contended),
            nanoseconds(lock.wait_ns),
            nanoseconds(lock.max_wait_ns),
            nanoseconds(lock.hold_ns),
            lock.slept.to_string(),
            lock.place.clone(),
        ]);
    }
    text.push_str(&format!("{table}\n"));
    let hidden = record.locks.len().saturating_sub(top);
    if hidden > 0 {
        text.push_str(&format!("{hidden} more locks waited less; --top shows more.\n"));
    }
    if record.dropped_locks > 0 {
        text.push_str(&format!(
            "{} more locks were not recorded: the interposer's table was full.\n",
            record.dropped_locks
        ));
    }
    text
}
