//! `--figure`: the papers' figures, drawn from records.
//!
//! [`words`] has the figures and what the papers' own look like, [`panels`] turns records into
//! something to draw, [`unconvoy_measure::chart`] draws it.

mod panels;
mod words;

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use unconvoy_measure::chart::Figure;
use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::output::{print, with_suffix};
use unconvoy_measure::record::Record;

use words::{Paper, Source};

pub use words::FIGURES;

/// Draws the figure `words[0]` from the records `words[1..]` into `plot`.svg and `plot`.png.
///
/// # Errors
///
/// There is no such figure, a record cannot be read or is of another benchmark, or a file cannot be written.
pub fn draw(words: &[OsString], plot: Option<&Path>) -> anyhow::Result<()> {
    let [name, paths @ ..] = words else {
        bail!("--figure needs a name and records");
    };
    let paper = words::named(&name.to_string_lossy()).map_err(anyhow::Error::msg)?;
    let mut records = Vec::new();
    for path in paths.iter().map(Path::new) {
        records.push(read(path).with_context(|| {
            format!("figure {} is drawn from a record of `unconvoy bench {}`", paper.name, paper.measured_by)
        })?);
    }
    let figure = compose(paper, &records)?;
    let first = paths.first().map(Path::new).context("--figure needs a record")?;
    let plot =
        plot.map_or_else(|| with_suffix(&first.with_extension(""), format!("-{}", paper.name)), Path::to_path_buf);
    let files = figure.write(&plot)?;
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    print(&format!("{}\n\n{}\n\n{}\n", figure.title, paper.remark, files.join(" and ")))?;
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Record> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no record of `unconvoy bench`", path.display()))
}

fn compose(paper: &Paper, records: &[Record]) -> anyhow::Result<Figure> {
    for record in records {
        let is_right = match paper.source {
            Source::Series => record.benchmark == "bump",
            Source::Steadiness => record.benchmark == "steadiness",
            Source::Sweep(name) => record.benchmark == name,
            Source::Fractions => record.benchmark == "interference",
            Source::Grid(names) => names.is_empty() || names.contains(&record.benchmark.as_str()),
        };
        ensure!(
            is_right,
            "figure {} is drawn from a record of `unconvoy bench {}`, and this one is of {}",
            paper.name,
            paper.measured_by,
            record.benchmark
        );
        ensure!(!record.runs.is_empty(), "a record of {} has no run, so there is nothing to draw", record.benchmark);
    }
    let mut names: Vec<String> = Vec::new();
    let mut panels: Vec<Panel> = Vec::new();
    for record in records {
        panels.push(match paper.source {
            Source::Series => panels::series(record, &mut names)?,
            Source::Steadiness => panels::steadiness(record, &mut names)?,
            Source::Sweep(_) => panels::sweep(record, &mut names)?,
            Source::Fractions => panels::fractions(record, &mut names)?,
            Source::Grid(_) => panels::grid(record, &mut names)?,
        });
    }
    let remark = (!paper.remark.is_empty()).then(|| paper.remark.to_string());
    Ok(Figure { title: paper.title.to_string(), names, panels, caption: caption(paper, records), remark })
}

/// What was measured, and on which machine; of several records, the first's.
fn caption(paper: &Paper, records: &[Record]) -> String {
    let Some(record) = records.first() else { return String::new() };
    let partial = if records.iter().all(|record| record.complete) { "" } else { "INCOMPLETE, " };
    let what = match paper.source {
        Source::Series | Source::Steadiness => "first round".to_string(),
        _ => {
            let rounds = record.parameters.get("runs").map_or_else(|| "several".to_string(), ToString::to_string);
            format!("median of {rounds} runs, band: smallest to largest")
        }
    };
    let context = &record.context;
    format!("{partial}{what}. {}, {}", context.machine.line(), context.date)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn record(benchmark: &str, parameters: Value, runs: Vec<Value>) -> Record {
        let mut record = Record::begin(benchmark, 1, parameters);
        record.runs = runs;
        record.complete = true;
        record
    }

    fn shaped(lines: &[&str]) -> Value {
        json!({ "runs": 1, "shape": { "across": "ms", "up": "operations/s", "metric": "ops", "lines": lines, "places": [0.5, 2.0] } })
    }

    fn at(line: &str, x: f64, values: Value) -> Value {
        json!({ "cell": { "line": line, "threads": 2, "x": x }, "round": 1, "measured": values })
    }

    /// A record that the figure can be drawn from.
    fn sample(paper: &Paper) -> Record {
        match paper.source {
            Source::Series => {
                let change = |from: u32, to: u32| {
                    json!({
                        "cell": { "from": from, "to": to }, "round": 1,
                        "measured": { "before": 8 - from, "expected": 8 - to, "end_ns": 5_000_000, "points": [{ "ns": 20_000, "awake": 8 - to }] },
                    })
                };
                record("bump", json!({ "threads": 8 }), vec![change(0, 6), change(6, 4)])
            }
            Source::Steadiness => {
                let run = |manager: &str, awake: u32| {
                    json!({
                        "cell": manager, "round": 1,
                        "measured": { "target": 4, "counts": [{ "ns": 0, "awake": 4 }, { "ns": 9_000_000, "awake": awake }] },
                    })
                };
                record("steadiness", json!({ "threads": 8 }), vec![run("control", 4), run("backoff", 8)])
            }
            Source::Sweep(name) => {
                let runs =
                    vec![at("150 % load", 0.5, json!({ "ops": 5.0 })), at("150 % load", 2.0, json!({ "ops": 6.0 }))];
                record(name, shaped(&["150 % load"]), runs)
            }
            Source::Fractions => {
                let lines = crate::sweep::interference::fraction_lines();
                let mut runs = vec![at("alone", 0.0, json!({ "self_per_sec": 10.0 }))];
                for (_, other, _) in &lines {
                    runs.push(at(other, 2.0, json!({ "self_per_sec": 5.0, "other_per_sec": 2.0 })));
                }
                record("interference", shaped(&["alone"]), runs)
            }
            Source::Grid(names) => {
                let cell = |name: &str, threads: u32, tps: f64| {
                    json!({
                        "cell": { "configuration": name, "threads": threads }, "round": 1, "measured": { "ops_per_sec": tps, "tps": tps, "seconds": tps },
                    })
                };
                let runs =
                    vec![cell("libc", 1, 5.0), cell("libc", 4, 9.0), cell("default", 1, 5.0), cell("default", 4, 10.0)];
                let parameters =
                    json!({ "configurations": ["libc", "default"], "threads": [1, 4], "runs": 1, "title": "t" });
                record(names.first().unwrap_or(&"counter"), parameters, runs)
            }
        }
    }

    #[test]
    fn every_figure_is_drawn_with_its_words() {
        for paper in FIGURES {
            let figure = compose(paper, &[sample(paper)]).unwrap_or_else(|error| panic!("{}: {error}", paper.name));
            assert!(!figure.names.is_empty() && !figure.panels[0].series.is_empty(), "{}", paper.name);
            assert!(
                figure.panels[0].series.iter().any(|series| series.points.len() > 1)
                    || paper.source == Source::Fractions
            );
            let svg = figure.svg().expect("drawn");
            assert!(paper.title.split('\'').all(|part| svg.contains(part)) && svg.contains("Linux"), "{}", paper.name);
            // What has an apostrophe is escaped there.
            let mut words = paper.remark.split_whitespace().filter(|word| word.chars().all(char::is_alphanumeric));
            assert_eq!(words.find(|word| !svg.contains(word)), None, "{}", paper.name);
        }
    }

    #[test]
    fn another_benchmarks_record_is_refused() {
        let wrong = record("pair", json!({}), vec![json!({})]);
        for paper in FIGURES {
            let error = compose(paper, std::slice::from_ref(&wrong)).expect_err("refused");
            assert!(error.to_string().contains("pair"), "{error}");
        }
    }

    #[test]
    fn records_side_by_side_share_a_legend() {
        let paper = words::named("throughput").expect("there is one");
        let mut other = sample(paper);
        other.parameters["configurations"] = json!(["libc", "tpmcs+none"]);
        let figure = compose(paper, &[sample(paper), other]).expect("two panels");
        assert_eq!(
            (figure.panels.len(), figure.names),
            (2, ["libc", "default", "tpmcs+none"].map(String::from).to_vec())
        );
    }
}
