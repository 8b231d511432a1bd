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
        if is_interrupted && let Some(out) = &out {
            complain(&messages::runs_saved(record.runs.len(), &resuming(out)));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{EXIT_INCONSISTENT, Failed};
    use crate::goal::{Bound, Goal, Verdict};
    use serde_json::json;
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::path::Path;

    type Values = BTreeMap<String, f64>;

    #[derive(Serialize)]
    struct Cell {
        lock: &'static str,
        threads: u32,
    }

    impl Field for Cell {
        fn name(&self) -> String {
            format!("{}, {}", self.lock, self.threads)
        }

        fn row(&self) -> &str {
            self.lock
        }
    }

    const CELLS: [Cell; 3] = [
        Cell { lock: "good", threads: 1 },
        Cell { lock: "bad", threads: 1 },
        Cell { lock: "bad", threads: 2 },
    ];

    fn run(
        out: Option<&Path>,
        resume: Option<&Path>,
        measure: impl FnMut(&Cell) -> anyhow::Result<Values>,
    ) -> anyhow::Result<Record> {
        let record = Record::begin("test", 1, json!({ "threads": [1, 2] }));
        let [out, resume] = [out, resume].map(|path| path.map(Path::to_path_buf));
        Session { cells: &CELLS, rounds: 2, seed: 1, out, resume }.run(record, measure, |_, _| {})
    }

    fn failed(why: &str, status: Option<i32>) -> anyhow::Error {
        Failed { why: why.to_string(), status }.into()
    }

    #[test]
    fn failed_cell_does_not_stop_others_and_is_retried() {
        let directory = tempfile::tempdir().expect("a directory");
        let out = directory.path().join("r.1");
        let tries = RefCell::new(Vec::new());
        let measure = |field: &Cell| {
            tries.borrow_mut().push((field.lock, field.threads));
            if field.threads == 2 {
                Err(failed("RocksDB: IO error: No space left", Some(1)))
            } else {
                Ok(Values::default())
            }
        };
        let record = run(Some(&out), None, measure).expect("a record");
        assert_eq!((record.runs.len(), record.failures.len(), record.complete), (4, 1, false));
        assert!(
            !record.failures[0].is_violation && record.failures[0].why.contains("No space left")
        );
        assert_eq!(tries.borrow().iter().filter(|&&cell| cell == ("bad", 2)).count(), 1);
        // Resuming measures only the failed cell.
        tries.borrow_mut().clear();
        let path = directory.path().join("r.1.json");
        let record = run(None, Some(&path), |field| {
            tries.borrow_mut().push((field.lock, field.threads));
            Ok(Values::default())
        });
        let record = record.expect("a record");
        assert_eq!(*tries.borrow(), [("bad", 2); 2]);
        assert_eq!((record.runs.len(), record.complete), (6, true));
        let is_repeated = |run: &&Value| run["resumed"] == 1 && run["cell"]["threads"] == 2;
        assert_eq!(record.runs.iter().filter(is_repeated).count(), 2);
        let failures = |notes: &[String]| {
            notes.iter().filter(|note| note.contains("bad, 2, round 1: RocksDB")).count()
        };
        assert_eq!(failures(&record.notes), 1, "the failure is kept: {:?}", record.notes);
        let error = run(None, Some(&path), |_| Ok(Values::default())).expect_err("complete");
        assert!(error.to_string().contains("nothing to resume"), "{error}");
    }

    #[test]
    fn failed_cell_withdraws_passes_of_its_row() {
        let goal = Goal {
            id: "id",
            text: "text",
            measured_by: "test",
            bound: Bound::AtMost(1.0),
            unit: "",
        };
        let plan = Session { cells: &CELLS, rounds: 2, seed: 1, out: None, resume: None };
        let measure = |field: &Cell| match field.threads {
            2 => Err(failed("hangs", None)),
            _ => Ok(Values::default()),
        };
        let record = plan.run(Record::begin("test", 1, json!({})), measure, |record, _| {
            let pass = || goal.judge(0.5, "note");
            record.judgements =
                vec![pass().of_rows(["good"]), pass().of_rows(["good", "bad"]), pass()];
        });
        let judgements = record.expect("a record").judgements;
        let verdicts: Vec<Verdict> = judgements.iter().map(|it| it.verdict).collect();
        assert_eq!(verdicts, [Verdict::Pass, Verdict::NotJudged, Verdict::NotJudged]);
        assert_eq!(judgements[1].note, "a run failed: bad, 2; note");
    }

    #[test]
    fn violation_ends_row_and_survives_resume() {
        let directory = tempfile::tempdir().expect("a directory");
        let out = directory.path().join("r");
        let measure = |field: &Cell| match field.lock {
            "bad" => Err(failed("counter: the lock did not exclude", Some(EXIT_INCONSISTENT))),
            _ => Ok(Values::default()),
        };
        let record = run(Some(&out), None, measure).expect("a record");
        assert_eq!((record.runs.len(), record.failures.len()), (2, 1));
        assert!(record.ended_by.expect("a reason").contains("CONSISTENCY VIOLATION"));
        let path = directory.path().join("r.json");
        let again = run(None, Some(&path), |_| Ok(Values::default())).expect("a record");
        assert!(again.failures[0].is_violation && !again.complete && again.runs.len() == 2);
        assert!(again.has_violation());
    }

    #[test]
    fn resume_rejects_other_plan_or_machine() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("r.json");
        let write = |change: &dyn Fn(&mut Record)| {
            let mut record = Record::begin("test", 1, json!({ "threads": [1, 2] }));
            change(&mut record);
            record.write(&directory.path().join("r")).expect("written");
        };
        let refusal =
            || run(None, Some(&path), |_| Ok(Values::default())).expect_err("refused").to_string();
        write(&|record| record.benchmark = "other".into());
        assert!(refusal().contains("its workload is other and not test"));
        write(&|record| record.parameters = json!({ "threads": [1] }));
        assert!(refusal().contains("its threads are [1] and not [1,2]"));
        write(&|record| record.context.machine.cpu = "Z80".into());
        assert!(refusal().contains("its machine's cpu is \"Z80\""));
        write(&|record| record.runs = vec![json!({ "cell": 1, "round": 1, "measured": {} })]);
        assert!(refusal().contains("not in the plan"));
        std::fs::write(&path, "{}").expect("written");
        assert!(refusal().contains("not a record"));
    }

    #[test]
    fn interleave_measures_every_cell_once_per_round() {
        let cells = [10.0, 20.0, 30.0];
        let samples =
            interleave(&cells, 4, 1, f64::to_string, |&cell| Ok(cell)).expect("nothing fails");
        assert_eq!(samples.all.len(), 12);
        for round in 1..=4 {
            let mut seen: Vec<usize> = samples
                .all
                .iter()
                .filter(|sample| sample.round == round)
                .map(|sample| sample.cell)
                .collect();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2]);
        }
        assert_eq!(
            samples.ratio(2, 0, |&value| Some(value)).map(|spread| spread.median),
            Some(3.0)
        );
    }

    #[test]
    fn interleave_order_depends_on_seed() {
        let order = |seed| {
            let samples = interleave(&[0, 1, 2, 3, 4, 5], 3, seed, i32::to_string, |_| Ok(()))
                .expect("nothing fails");
            samples.all.iter().map(|sample| sample.cell).collect::<Vec<_>>()
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
    }

    #[test]
    fn interleave_keeps_samples_after_failure() {
        let mut left = 2;
        let samples = interleave(
            &[(); 3],
            5,
            1,
            |()| String::new(),
            |()| {
                left -= 1;
                anyhow::ensure!(left >= 0, "broken");
                Ok(1.0)
            },
        );
        let samples = samples.expect("the failure is part of the result");
        assert_eq!(samples.all.len(), 2);
        assert_eq!(samples.ended_by.map(|error| error.to_string()).as_deref(), Some("broken"));
    }
}
