//! A long benchmark: interleaved as [`crate::cells`] has it, written after every round, continued after an interruption.
//!
//! Invariants:
//!
//! 1. No cell has two measurements of one round, however often the benchmark is interrupted and continued.
//! 2. The order of a round depends on the seed and the round only, so a continued benchmark measures in the order that it would have had.
//! 3. A cell that fails is not tried again in this session, and the others go on. A cell of which the program found its data inconsistent takes all cells of its row with it: its locks
//!    are wrong, and their figures worth nothing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cells::{Sample, Samples};
use crate::cli::{Common, Places, seconds};
use crate::complain;
use crate::context::{Machine, now};
use crate::interrupt::{Interrupted, Interrupts};
use crate::output::{can_write, with_suffix};
use crate::progress::Progress;
use crate::record::{Failure, Record};
use crate::run::{Values, is_violation};

/// A run that takes this long beyond its window, in seconds, hangs: the threads of a strict queue may need many time slices each to come to their end.
const PATIENCE: f64 = 60.0;

/// Where results go that the user did not ask for but must not lose.
const PARTIAL: &str = "unconvoy-bench-partial";

/// Options of every benchmark that can be continued.
#[derive(Debug, Clone, Args)]
pub struct SessionOptions {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    pub places: Places,
    /// Go on where a record stopped that Ctrl-C or a failure ended; wants the options that it was begun with
    #[arg(long, value_name = "BASENAME.json")]
    pub resume: Option<PathBuf>,
    /// Longest that one run may take, in seconds; then it is ended and counts as failed [default: its window and a minute]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub timeout: Option<f64>,
}

impl SessionOptions {
    /// How long a run may take.
    pub fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.timeout.unwrap_or(self.common.seconds + PATIENCE))
    }
}

/// A field of a benchmark's table.
pub trait Place: Serialize {
    /// For messages.
    fn name(&self) -> String;
    /// What one inconsistency condemns.
    fn row(&self) -> &str;
}

/// What is to be measured, and where it goes.
pub struct Session<'a, C> {
    /// The fields of the table.
    pub cells: &'a [C],
    /// Rounds, seed, base name, and the record to continue.
    pub options: &'a SessionOptions,
}

impl<C: Place> Session<'_, C> {
    /// Measures every cell once per round; `digest` turns what there is into tables and judgements, after every round.
    ///
    /// # Errors
    ///
    /// The record to continue is another's, or the results cannot be written: before the first run, if nothing can be. A run that fails is part of the result.
    pub fn run(
        &self,
        mut record: Record,
        mut measure: impl FnMut(&C) -> anyhow::Result<Values>,
        digest: impl Fn(&mut Record, &Samples<Values>),
    ) -> anyhow::Result<Record> {
        let keys: Vec<Value> = self.cells.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        let mut samples = Samples { all: Vec::new(), ended_by: None };
        if let Some(path) = &self.options.resume {
            samples.all = resume(&mut record, path, &keys)?;
        }
        let out = self.out();
        if let Some(out) = &out {
            can_write(out)?;
        }
        let interrupts = Interrupts::of_process()?;
        let rounds = self.options.common.runs();
        let mut measured: HashSet<(usize, u32)> =
            samples.all.iter().map(|sample| (sample.cell, sample.round)).collect();
        let total = (self.cells.len() * rounds as usize - measured.len()) as u64;
        let mut progress = Progress::new(total, false);
        let mut done = 0;
        'rounds: for round in 1..=rounds {
            for cell in order(self.cells.len(), round, self.options.common.seed) {
                if measured.contains(&(cell, round)) {
                    continue;
                }
                let place = &self.cells[cell];
                let name = format!("{}, round {round}", place.name());
                progress.begin(&name);
                if !self.is_lost(&record.failures, &keys, cell) {
                    match interrupts.check().map_err(Into::into).and_then(|()| measure(place)) {
                        Ok(value) => {
                            samples.all.push(Sample { cell, round, value });
                            measured.insert((cell, round));
                        }
                        Err(error) if error.is::<Interrupted>() => {
                            samples.ended_by = Some(error);
                            break 'rounds;
                        }
                        Err(error) => {
                            let failure = failure(&error, &name, &keys[cell], round);
                            progress.note(&failure.why);
                            record.failures.push(failure);
                        }
                    }
                }
                done += 1;
                progress.end();
            }
            progress.round(done);
            if let Some(out) = &out {
                self.digest(&mut record, &samples, &digest)?;
                record.complete = false;
                record.ended_by = Some("still running when this was written".to_string());
                // The final write reports an error; a disk that is full now may not be so then.
                let _ = record.write(out);
            }
        }
        progress.finish();
        self.digest(&mut record, &samples, &digest)?;
        self.end(record, &samples, out)
    }

    /// `--out`, else the name of the record that is continued.
    fn out(&self) -> Option<PathBuf> {
        let resumed = || Some(self.options.resume.as_ref()?.with_extension(""));
        self.options.common.out.clone().or_else(resumed)
    }

    fn digest(
        &self,
        record: &mut Record,
        samples: &Samples<Values>,
        digest: &impl Fn(&mut Record, &Samples<Values>),
    ) -> anyhow::Result<()> {
        record.runs.clear();
        record.ended_by = None;
        record.take(self.cells, samples)?;
        digest(record, samples);
        Ok(())
    }

    /// Whether there is no point in measuring a cell any more.
    fn is_lost(&self, failures: &[Failure], keys: &[Value], cell: usize) -> bool {
        failures.iter().any(|failure| {
            failure.cell == keys[cell]
                || failure.is_violation
                    && keys
                        .iter()
                        .position(|key| *key == failure.cell)
                        .is_some_and(|failed| self.cells[failed].row() == self.cells[cell].row())
        })
    }

    fn end(&self, mut record: Record, samples: &Samples<Values>, mut out: Option<PathBuf>) -> anyhow::Result<Record> {
        record.context.close();
        let is_interrupted = samples.ended_by.is_some();
        let violations = record.failures.iter().filter(|failure| failure.is_violation).count();
        if is_interrupted {
            record.void("not all runs were measured");
        } else if violations > 0 {
            record.void("there was a consistency violation");
        }
        if !is_interrupted && !record.failures.is_empty() {
            let cells = self.cells.len();
            record.ended_by = Some(match violations {
                0 => format!("{} of {cells} cells gave no result; see there", record.failures.len()),
                count => format!("CONSISTENCY VIOLATION in {count} of {cells} cells: these locks are not to be used"),
            });
        }
        record.complete = record.ended_by.is_none();
        if is_interrupted && out.is_none() && !record.runs.is_empty() {
            out = Some(PathBuf::from(PARTIAL));
        }
        let record = record.deliver(out.as_deref())?;
        for failure in &record.failures {
            complain(&failure.why);
        }
        if is_interrupted && let Some(out) = &out {
            complain(&format!("{} runs are kept; to go on: {}", record.runs.len(), resuming(out)));
        }
        Ok(record)
    }
}

/// The command of this process, with `--resume`.
fn resuming(out: &Path) -> String {
    let quoted = |word: String| {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=+,./:".contains(letter);
        if word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    let mut words: Vec<String> = crate::context::command_line().into_iter().map(quoted).collect();
    if !words.iter().any(|word| word.starts_with("--resume")) {
        words.push(format!("--resume {}", quoted(with_suffix(out, ".json").display().to_string())));
    }
    words.join(" ")
}

/// The cells of a round, by Invariant 2.
fn order(cells: usize, round: u32, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cells).collect();
    fastrand::Rng::with_seed(seed.wrapping_add(u64::from(round))).shuffle(&mut order);
    order
}

fn failure(error: &anyhow::Error, name: &str, key: &Value, round: u32) -> Failure {
    let is_violation = is_violation(error);
    let what = if is_violation { "CONSISTENCY VIOLATION: " } else { "" };
    Failure { cell: key.clone(), round, why: format!("{what}{name}: {error:#}"), is_violation }
}

/// Takes over what a record has, if it is of the same plan on the same machine. A cell that failed is tried again, except after a violation, which no luck of a second run takes back.
fn resume(record: &mut Record, path: &Path, keys: &[Value]) -> anyhow::Result<Vec<Sample<Values>>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let old: Record =
        serde_json::from_str(&text).with_context(|| format!("{} is no record of `unconvoy bench`", path.display()))?;
    let shown = path.display();
    ensure!(!old.complete, "{shown} is complete: there is nothing to resume");
    let differs = |what: &str, old: &str, new: &str| {
        format!(
            "{shown} cannot be resumed: its {what} is {old} and not {new}; repeat its options, or start anew without --resume"
        )
    };
    ensure!(old.benchmark == record.benchmark, differs("workload", &old.benchmark, &record.benchmark));
    if let Some((what, old, new)) = difference(&old.parameters, &record.parameters) {
        bail!(differs(&what, &old, &new));
    }
    let machine = |machine: &Machine| json!(machine);
    if let Some((what, old, new)) = difference(&machine(&old.context.machine), &machine(&record.context.machine)) {
        bail!(differs(&format!("machine's {what}"), &old, &new));
    }
    let mut samples: Vec<Sample<Values>> = Vec::new();
    for run in old.runs {
        let cell = run.get("cell").and_then(|cell| keys.iter().position(|key| key == cell));
        let round = run.get("round").and_then(Value::as_u64).and_then(|round| u32::try_from(round).ok());
        let value = run.get("measured").map(|values| serde_json::from_value(values.clone()));
        let (Some(cell), Some(round), Some(Ok(value))) = (cell, round, value) else {
            bail!("{shown} cannot be resumed: it has a run that is none of the plan's");
        };
        ensure!(
            !samples.iter().any(|sample| (sample.cell, sample.round) == (cell, round)),
            "{shown} cannot be resumed: it has a run twice"
        );
        samples.push(Sample { cell, round, value });
    }
    record.failures = old.failures.into_iter().filter(|failure| failure.is_violation).collect();
    record.notes = old.notes;
    record.notes.push(format!("Continued at {}, after {} runs.", now(), samples.len()));
    let seed = record.context.seed;
    record.context = old.context;
    ensure!(record.context.seed == seed, differs("seed", &record.context.seed.to_string(), &seed.to_string()));
    Ok(samples)
}

/// The first member in which two objects differ, with both values.
fn difference(old: &Value, new: &Value) -> Option<(String, String, String)> {
    let names = |value: &Value| value.as_object().map(|object| object.keys().cloned().collect::<Vec<_>>());
    let all = names(old).unwrap_or_default().into_iter().chain(names(new).unwrap_or_default());
    let of = |value: &Value, name: &str| value.get(name).cloned().unwrap_or_default();
    let mut differing = all.filter(|name| of(old, name) != of(new, name));
    differing.next().map(|name| {
        let (old, new) = (of(old, &name).to_string(), of(new, &name).to_string());
        (name, old, new)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{EXIT_INCONSISTENT, Failed};
    use std::cell::RefCell;

    #[derive(Serialize)]
    struct Field {
        lock: &'static str,
        threads: u32,
    }

    impl Place for Field {
        fn name(&self) -> String {
            format!("{}, {}", self.lock, self.threads)
        }

        fn row(&self) -> &str {
            self.lock
        }
    }

    const CELLS: [Field; 3] =
        [Field { lock: "good", threads: 1 }, Field { lock: "bad", threads: 1 }, Field { lock: "bad", threads: 2 }];

    fn common(out: Option<PathBuf>) -> Common {
        Common { runs: Some(2), seconds: 1.0, seed: 1, out }
    }

    fn run(
        common: &Common,
        resume: Option<&Path>,
        measure: impl FnMut(&Field) -> anyhow::Result<Values>,
    ) -> anyhow::Result<Record> {
        let record = Record::begin("test", 1, json!({ "threads": [1, 2] }));
        let options = SessionOptions {
            common: common.clone(),
            places: Places { workloads: None },
            resume: resume.map(Path::to_path_buf),
            timeout: None,
        };
        Session { cells: &CELLS, options: &options }.run(record, measure, |_, _| {})
    }

    fn failed(why: &str, status: Option<i32>) -> anyhow::Error {
        Failed { why: why.to_string(), status }.into()
    }

    #[test]
    fn a_cell_that_fails_costs_the_others_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let out = directory.path().join("r.1");
        let tries = RefCell::new(Vec::new());
        let measure = |field: &Field| {
            tries.borrow_mut().push((field.lock, field.threads));
            if field.threads == 2 {
                Err(failed("RocksDB: IO error: No space left", Some(1)))
            } else {
                Ok(Values::default())
            }
        };
        let record = run(&common(Some(out.clone())), None, measure).expect("a record");
        assert_eq!((record.runs.len(), record.failures.len(), record.complete), (4, 1, false));
        assert!(!record.failures[0].is_violation && record.failures[0].why.contains("No space left"));
        assert_eq!(tries.borrow().iter().filter(|&&cell| cell == ("bad", 2)).count(), 1);
        // What failed is tried again, and nothing else.
        tries.borrow_mut().clear();
        let path = directory.path().join("r.1.json");
        let record = run(&common(None), Some(&path), |field| {
            tries.borrow_mut().push((field.lock, field.threads));
            Ok(Values::default())
        });
        let record = record.expect("a record");
        assert_eq!(*tries.borrow(), [("bad", 2); 2]);
        assert_eq!((record.runs.len(), record.complete), (6, true));
        let error = run(&common(None), Some(&path), |_| Ok(Values::default())).expect_err("complete");
        assert!(error.to_string().contains("nothing to resume"), "{error}");
    }

    #[test]
    fn a_violation_ends_the_row_and_is_not_forgotten() {
        let directory = tempfile::tempdir().expect("a directory");
        let out = directory.path().join("r");
        let measure = |field: &Field| match field.lock {
            "bad" => Err(failed("counter: the lock did not exclude", Some(EXIT_INCONSISTENT))),
            _ => Ok(Values::default()),
        };
        let record = run(&common(Some(out.clone())), None, measure).expect("a record");
        assert_eq!((record.runs.len(), record.failures.len()), (2, 1));
        assert!(record.ended_by.expect("a reason").contains("CONSISTENCY VIOLATION"));
        let path = directory.path().join("r.json");
        let again = run(&common(None), Some(&path), |_| Ok(Values::default())).expect("a record");
        assert!(again.failures[0].is_violation && !again.complete && again.runs.len() == 2);
        assert!(again.has_violation());
    }

    #[test]
    fn only_the_same_plan_is_resumed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("r.json");
        let write = |change: &dyn Fn(&mut Record)| {
            let mut record = Record::begin("test", 1, json!({ "threads": [1, 2] }));
            change(&mut record);
            record.write(&directory.path().join("r")).expect("written");
        };
        let refusal = || run(&common(None), Some(&path), |_| Ok(Values::default())).expect_err("refused").to_string();
        write(&|record| record.benchmark = "other".into());
        assert!(refusal().contains("its workload is other and not test"));
        write(&|record| record.parameters = json!({ "threads": [1] }));
        assert!(refusal().contains("its threads is [1] and not [1,2]"));
        write(&|record| record.context.machine.cpu = "Z80".into());
        assert!(refusal().contains("its machine's cpu is \"Z80\""));
        write(&|record| record.runs = vec![json!({ "cell": 1, "round": 1, "measured": {} })]);
        assert!(refusal().contains("none of the plan's"));
        std::fs::write(&path, "{}").expect("written");
        assert!(refusal().contains("no record"));
    }
}
