//! Continuation of an incomplete record, if it has the same plan and machine.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cells::Sample;
use crate::context::{Machine, command_line, now};
use crate::failure::Failure;
use crate::messages;
use crate::output::with_suffix;
use crate::record::Record;
use crate::transfer;

/// Reads the samples of the cells described by `keys` from the record in `path`. A failed cell is
/// measured again, unless it found inconsistent data: a second run cannot disprove the fault. Its
/// failure becomes a note of the record, because the second run cannot explain it either.
pub fn resume<S: DeserializeOwned>(
    record: &mut Record,
    path: &Path,
    keys: &[Value],
) -> anyhow::Result<Vec<Sample<S>>> {
    let text = std::fs::read_to_string(path).with_context(|| messages::cannot_read(path))?;
    let old: Record = serde_json::from_str(&text).with_context(|| messages::not_a_record(path))?;
    ensure!(!old.complete, messages::record_complete(path));
    let differs = |what: &str, old: &str, new: &str| messages::record_differs(path, what, old, new);
    ensure!(
        old.benchmark == record.benchmark,
        differs("workload", &old.benchmark, &record.benchmark)
    );
    if let Some((what, old, new)) = difference(&old.parameters, &record.parameters) {
        bail!(differs(&what, &old, &new));
    }
    let machine = |machine: &Machine| json!(machine);
    if let Some((what, old, new)) =
        difference(&machine(&old.context.machine), &machine(&record.context.machine))
    {
        bail!(differs(&format!("machine's {what}"), &old, &new));
    }
    let mut samples: Vec<Sample<S>> = Vec::new();
    for run in old.runs {
        let cell = run.get("cell").and_then(|cell| keys.iter().position(|key| key == cell));
        let number = |name: &str| u32::try_from(run.get(name)?.as_u64()?).ok();
        let round = number("round");
        let value = run.get("measured").map(|values| serde_json::from_value(values.clone()));
        let (Some(cell), Some(round), Some(Ok(value))) = (cell, round, value) else {
            bail!(messages::run_not_in_plan(path));
        };
        ensure!(
            !samples.iter().any(|sample| (sample.cell, sample.round) == (cell, round)),
            messages::duplicate_run(path)
        );
        let (transfer_ns, resumed) = (number("transfer_ns"), number("resumed").unwrap_or(0));
        samples.push(Sample { cell, round, resumed, transfer_ns, value });
    }
    let (violations, failures): (Vec<_>, Vec<_>) =
        old.failures.into_iter().partition(|failure| failure.is_violation);
    record.failures = violations;
    record.notes = old.notes;
    record.notes.retain(|note| !transfer::is_remark(note)); // The end makes it of all runs.
    let note = |failure: Failure| format!("Warning: {}.", messages::failed_before(&failure.why));
    record.notes.extend(failures.into_iter().map(note));
    record.notes.push(format!("Continued at {}, after {} runs.", now(), samples.len()));
    let seed = record.context.seed;
    record.context = old.context;
    ensure!(
        record.context.seed == seed,
        differs("seed", &record.context.seed.to_string(), &seed.to_string())
    );
    Ok(samples)
}

/// Returns the first member in which two objects differ, with both values.
pub fn difference(old: &Value, new: &Value) -> Option<(String, String, String)> {
    let names =
        |value: &Value| value.as_object().map(|object| object.keys().cloned().collect::<Vec<_>>());
    let all = names(old).unwrap_or_default().into_iter().chain(names(new).unwrap_or_default());
    let of = |value: &Value, name: &str| value.get(name).cloned().unwrap_or_default();
    let mut differing = all.filter(|name| of(old, name) != of(new, name));
    differing.next().map(|name| {
        let (old, new) = (of(old, &name).to_string(), of(new, &name).to_string());
        (name, old, new)
    })
}

/// Returns this process's command line, with `--resume` of the record with this base name.
pub fn resuming(out: &Path) -> String {
    quoted(&resumed_from(command_line(), &with_suffix(out, ".json")))
}

/// Returns the words that continue `record`. The record that they resumed, if any, lacks the latest
/// runs.
fn resumed_from(mut words: Vec<String>, record: &Path) -> Vec<String> {
    let is_at = |place: usize, name: &str| words.get(place).is_some_and(|word| word == name);
    if is_at(1, "papers") {
        // `papers run` finds its records by --out, and `papers all` resumes in any case.
        if is_at(2, "run") && !words.iter().any(|word| word == "--resume") {
            words.push("--resume".into());
        }
        return words;
    }
    if let Some(place) = words.iter().position(|word| word.starts_with("--resume")) {
        let has_value_apart = words[place] == "--resume";
        words.drain(place..=place + usize::from(has_value_apart));
    }
    words.extend(["--resume".into(), record.display().to_string()]);
    words
}

/// Returns words as a line for a shell.
pub fn quoted(words: &[String]) -> String {
    let quoted = |word: &String| {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=+,./:".contains(letter);
        let is_plain = !word.is_empty() && word.chars().all(is_plain);
        if is_plain { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_resumes_the_record_with_the_latest_runs() {
        let resumed = |line: &str| {
            let words = line.split(' ').map(str::to_string).collect();
            resumed_from(words, Path::new("new.json")).join(" ")
        };
        let expected = "unconvoy bench idle --out new --resume new.json";
        assert_eq!(resumed("unconvoy bench idle --out new"), expected);
        assert_eq!(resumed("unconvoy bench idle --resume old.json --out new"), expected);
        assert_eq!(resumed("unconvoy bench idle --resume=old.json --out new"), expected);
        let figure = "unconvoy papers run asplos-1 --resume";
        assert_eq!(resumed("unconvoy papers run asplos-1"), figure);
        assert_eq!(resumed(figure), figure);
        assert_eq!(resumed("unconvoy papers all native"), "unconvoy papers all native");
    }
}
