//! A benchmark from its first run to its record: interleaved, saved after every round, resumable.
//!
//! Invariants:
//!
//! 1. A cell has at most one measurement per round, however often the benchmark is interrupted and
//!    resumed.
//! 2. The order of a round depends on the seed and the round only, so a resumed benchmark keeps its
//!    order.
//! 3. A failed cell is not measured again in this session; the others continue, but no goal that
//!    the cell's row decides is passed. A cell whose program found inconsistent data ends its whole
//!    row, because the row's locks are broken.
//! 4. No ratio and no passed goal rests on runs that only a resumed benchmark brings together.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cells::{Sample, Samples};
use crate::failure::Failure;
use crate::interrupt::{Interrupted, Interrupts};
use crate::messages;
use crate::output::{complain, free_name, with_suffix};
use crate::record::Record;
use crate::resume::{resume, resuming};
use crate::rounds::{Order, Rounds, Step, Turn};
use crate::transfer::{self, line_transfer_ns};

/// Base name for the results of an interrupted benchmark without `--out`.
const PARTIAL: &str = "unconvoy-bench-partial";

/// Measures every cell once per round. A failure or a signal ends the measurement and keeps the
/// samples.
///
/// # Errors
///
/// The signal handlers cannot be installed.
pub fn interleave<C, S>(
    cells: &[C],
    rounds: u32,
    seed: u64,
    name: impl Fn(&C) -> String,
    mut measure: impl FnMut(&C) -> anyhow::Result<S>,
) -> anyhow::Result<Samples<S>> {
    let interrupts = Interrupts::of_process()?;
    let mut samples = Samples { all: Vec::new(), ended_by: None };
    let mut steps =
        Rounds::new(cells.len(), 1..rounds + 1, seed, Order::Onward, HashSet::new(), false);
    while let Some(step) = steps.next() {
        let Step::Measure(Turn { cell, round }) = step else { continue };
        steps.begin(&format!("round {round} of {rounds}: {}", name(&cells[cell])));
        let transfer_ns = line_transfer_ns();
        match interrupts.check().map_err(Into::into).and_then(|()| measure(&cells[cell])) {
            Ok(value) => {
                samples.all.push(Sample { transfer_ns, ..Sample::new(cell, round, value) });
            }
            Err(error) => {
                samples.ended_by = Some(interrupts.check().err().map_or(error, Into::into));
                break;
            }
        }
    }
    Ok(samples)
}

/// A cell of a benchmark's table.
pub trait Field: Serialize {
    /// Returns the cell's name for messages.
    fn name(&self) -> String;
    /// Returns the row, which one violation ends.
    fn row(&self) -> &str;
}

/// A measurement's plan and files.
#[derive(Debug)]
pub struct Session<'a, C> {
    /// Cells of the table.
    pub cells: &'a [C],
    /// Number of rounds.
    pub rounds: u32,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Base name of the files.
    pub out: Option<PathBuf>,
    /// Record to resume, which also gives the default base name.
    pub resume: Option<PathBuf>,
}

impl<C: Field> Session<'_, C> {
    /// Measures every cell once per round. After every round, `digest` turns the samples into
    /// tables and judgements. A failed run is part of the result.
    ///
    /// # Errors
    ///
    /// The record to resume has another plan, or the results cannot be written, which is checked
    /// before the first run.
    pub fn run<S: Serialize + DeserializeOwned>(
        &self,
        mut record: Record,
        mut measure: impl FnMut(&C) -> anyhow::Result<S>,
        digest: impl Fn(&mut Record, &Samples<S>),
    ) -> anyhow::Result<Record> {
        let keys: Vec<Value> =
            self.cells.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        let mut samples = Samples { all: Vec::new(), ended_by: None };
        if let Some(path) = &self.resume {
            samples.all = resume(&mut record, path, &keys)?;
        }
        let resumed = samples.all.iter().map(|sample| sample.resumed + 1).max().unwrap_or(0);
        let beside = || Some(self.resume.as_ref()?.with_extension(""));
        let out = self.out.clone().or_else(beside);
        if let Some(out) = &out {
            Record::can_write(out)?;
        }
        let digest = |record: &mut Record, samples: &Samples<S>| {
            record.runs.clear();
            record.ended_by = None;
            record.take(self.cells, samples)?;
            digest(record, samples);
            self.void_passes(record, &keys);
            for cell in samples.separated().into_iter().filter_map(|cell| self.cells.get(cell)) {
                record.void_passes(cell.row(), &messages::measured_later(&cell.name()));
            }
            anyhow::Ok(())
        };
        let interrupts = Interrupts::of_process()?;
        let measured = samples
            .all
            .iter()
            .map(|sample| Turn { cell: sample.cell, round: sample.round })
            .collect();
        let mut steps = Rounds::new(
            self.cells.len(),
            1..self.rounds + 1,
            self.seed,
            Order::ByNumber,
            measured,
            false,
        );
        while let Some(step) = steps.next() {
            if let Step::Measure(Turn { cell, round }) = step {
                let name = format!("{}, round {round}", self.cells[cell].name());
                steps.begin(&name);
                if self.is_lost(&record.failures, &keys, cell) {
                    continue;
                }
                let transfer_ns = line_transfer_ns();
                match interrupts
                    .check()
                    .map_err(Into::into)
                    .and_then(|()| measure(&self.cells[cell]))
                {
                    Ok(value) => {
                        samples.all.push(Sample { cell, round, resumed, transfer_ns, value });
                    }
                    Err(error) if error.is::<Interrupted>() => {
                        samples.ended_by = Some(error);
                        break;
                    }
                    Err(error) => {
                        let failure = Failure::new(&error, &name, &keys[cell], round);
                        steps.note(&failure.why);
                        record.failures.push(failure);
                    }
                }
            } else if let Some(out) = &out {
                digest(&mut record, &samples)?;
                record.complete = false;
                record.ended_by = Some("still running when this was written".to_string());
                // Ignore a failure: space may be free again for the final write, which reports
                // errors.
                let _ = record.write(out);
            }
        }
        drop(steps);
        digest(&mut record, &samples)?;
        let times = samples.all.iter().filter_map(|sample| sample.transfer_ns);
        record.notes.extend(transfer::remark(times).map(|text| format!("Warning: {text}.")));
        self.end(record, samples.ended_by.is_some(), out)
    }

    /// Returns whether a cell is not to be measured again.
    fn is_lost(&self, failures: &[Failure], keys: &[Value], cell: usize) -> bool {
        let row_of =
            |key: &Value| Some(self.cells[keys.iter().position(|other| other == key)?].row());
        failures.iter().any(|failure| {
            failure.cell == keys[cell]
                || failure.is_violation && row_of(&failure.cell) == Some(self.cells[cell].row())
        })
    }

    /// Withdraws the verdicts on rows with a failed cell.
    fn void_passes(&self, record: &mut Record, keys: &[Value]) {
        let failed = |cell: &Value| record.failures.iter().any(|failure| failure.cell == *cell);
        let failed: Vec<&C> = self
            .cells
            .iter()
            .zip(keys)
            .filter(|(_, key)| failed(key))
            .map(|(cell, _)| cell)
            .collect();
        for cell in failed {
            record.void_passes(cell.row(), &messages::run_failed(&cell.name()));
        }
    }

    fn end(
        &self,
        mut record: Record,
        is_interrupted: bool,
        mut out: Option<PathBuf>,
    ) -> anyhow::Result<Record> {
        record.context.close();
        let violations = record.failures.iter().filter(|failure| failure.is_violation).count();
        if is_interrupted {
            record.void("not all runs were measured");
        } else if violations > 0 {
            record.void("there was a consistency violation");
        }
        if !is_interrupted && !record.failures.is_empty() {
            let cells = self.cells.len();
            record.ended_by = Some(match violations {
                0 => messages::cells_failed(record.failures.len(), cells),
                count => messages::cells_violated(count, cells),
            });
        }
        record.complete = record.ended_by.is_none();
        if is_interrupted && out.is_none() && !record.runs.is_empty() {
            let is_free = |out: &Path| !with_suffix(out, ".json").exists();
            out = Some(free_name(Path::new(PARTIAL), is_free));
        }
        let record = record.deliver(out.as_deref())?;
        for failure in &record.failures {
            complain(&failure.why);
        }
        if is_interrupted && let Some(out) = out.filter(|_| !record.runs.is_empty()) {
            complain(&messages::runs_saved(record.runs.len(), &resuming(&out)));
        }
        Ok(record)
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
