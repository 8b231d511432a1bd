//! Sessions that are interrupted, resumed, and fail.

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
    assert!(!record.failures[0].is_violation && record.failures[0].why.contains("No space left"));
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
fn interruption_before_the_first_run_keeps_an_earlier_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("r");
    run(Some(&out), None, |_| Ok(Values::default())).expect("a record");
    let read = || std::fs::read(directory.path().join("r.json")).expect("a record");
    let before = read();
    let record = run(Some(&out), None, |_| Err(Interrupted.into())).expect("a record");
    assert!(record.runs.is_empty() && !record.complete);
    assert_eq!(read(), before);
}

#[test]
fn failed_cell_withdraws_passes_of_its_row() {
    let goal =
        Goal { id: "id", text: "text", measured_by: "test", bound: Bound::AtMost(1.0), unit: "" };
    let plan = Session { cells: &CELLS, rounds: 2, seed: 1, out: None, resume: None };
    let measure = |field: &Cell| match field.threads {
        2 => Err(failed("hangs", None)),
        _ => Ok(Values::default()),
    };
    let record = plan.run(Record::begin("test", 1, json!({})), measure, |record, _| {
        let pass = || goal.judge(0.5, "note");
        record.judgements = vec![pass().of_rows(["good"]), pass().of_rows(["good", "bad"]), pass()];
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
    assert_eq!(samples.ratio(2, 0, |&value| Some(value)).map(|spread| spread.median), Some(3.0));
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
