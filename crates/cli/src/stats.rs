//! `unconvoy stats`: the record of `run --stats`, as tables.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use comfy_table::{CellAlignment, Table, presets};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use unconvoy_bench::chart::quantity;

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
