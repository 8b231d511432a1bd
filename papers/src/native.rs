//! Draws a figure from measured records, of this machine or another.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use unconvoy_measure::chart;
use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::output::print;
use unconvoy_measure::record::Record;

use crate::figure::{Draw, Figure, Native};
use crate::messages;

/// Draws the figure from `paths` into `base`.svg and `base`.png. If the figure consists of tables,
/// prints them with `shows_tables`: of an earlier record, because a benchmark that has just been
/// run has printed them.
///
/// # Errors
///
/// Fails if a record cannot be read or is of another benchmark, or if a file cannot be written.
pub fn draw(
    figure: &Figure,
    native: &Native,
    paths: &[PathBuf],
    base: &Path,
    shows_tables: bool,
) -> anyhow::Result<()> {
    let mut records = Vec::new();
    for path in paths {
        records.push(
            read(path).with_context(|| {
                messages::figure_needs_record(figure.name, &native.measured_by())
            })?,
        );
    }
    let shown = match native.draw {
        Some(draw) => {
            let files = compose(figure, native, draw, &records)?.write(base)?;
            let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            format!("{}\n", files.join(" and "))
        }
        None => {
            let tables = tables(figure, native, &records)?;
            if shows_tables { tables } else { String::new() }
        }
    };
    print(&format!("{}\n\n{}\n\n{shown}", figure.title, figure.remark))?;
    Ok(())
}

/// The tables of the figure's records.
fn tables(figure: &Figure, native: &Native, records: &[Record]) -> anyhow::Result<String> {
    let of_record = |record: &Record| {
        check_benchmark(figure, native, record)?;
        anyhow::Ok(record.figures())
    };
    records.iter().map(of_record).collect()
}

fn check_benchmark(figure: &Figure, native: &Native, record: &Record) -> anyhow::Result<()> {
    ensure!(
        native.takes(&record.benchmark),
        messages::wrong_record(figure.name, &native.measured_by(), &record.benchmark)
    );
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Record> {
    let text = std::fs::read_to_string(path).with_context(|| messages::cannot_read(path))?;
    serde_json::from_str(&text).with_context(|| messages::not_a_record(path))
}

fn compose(
    figure: &Figure,
    native: &Native,
    draw: Draw,
    records: &[Record],
) -> anyhow::Result<chart::Figure> {
    let mut names: Vec<String> = Vec::new();
    let mut panels: Vec<Panel> = Vec::new();
    for record in records {
        check_benchmark(figure, native, record)?;
        ensure!(!record.runs.is_empty(), messages::record_without_runs(&record.benchmark));
        panels.push(draw(record, &mut names)?);
    }
    let remark = (!figure.remark.is_empty()).then(|| figure.remark.to_string());
    let caption = caption(native, records);
    Ok(chart::Figure { title: figure.title.to_string(), names, panels, caption, remark })
}

/// The number of runs, the machine and the day of the records, once if they are alike.
fn caption(native: &Native, records: &[Record]) -> String {
    let partial = if records.iter().all(|record| record.complete) { "" } else { "INCOMPLETE, " };
    let of = |record: &Record| {
        let what = if native.is_first_round {
            "first round".to_string()
        } else {
            let rounds = record
                .parameters
                .get("runs")
                .map_or_else(|| "several".to_string(), ToString::to_string);
            format!("median of {rounds} runs, band: smallest to largest")
        };
        let context = &record.context;
        let day = context.date.split(' ').next().unwrap_or_default();
        format!("{what}. {}, {day}", context.machine.line())
    };
    let mut parts: Vec<String> = records.iter().map(of).collect();
    parts.dedup();
    partial.to_string() + &parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::FIGURES;
    use crate::figure::Made;
    use crate::ours::throughput;
    use crate::taco::contention_aware;
    use serde_json::{Value, json};
    use unconvoy_measure::table::Table;

    fn parts(figure: &Figure) -> &Native {
        match &figure.made {
            Made::Native(native) => native,
            Made::Simulated(_) => panic!("{} is simulated", figure.name),
        }
    }

    /// The native figures that have a drawing.
    fn drawn() -> impl Iterator<Item = &'static Figure> {
        let is_drawn = |figure: &&Figure| match &figure.made {
            Made::Native(native) => native.draw.is_some(),
            _ => false,
        };
        FIGURES.iter().filter(is_drawn)
    }

    fn made(figure: &Figure, records: &[Record]) -> anyhow::Result<chart::Figure> {
        let native = parts(figure);
        compose(figure, native, native.draw.expect("it is drawn"), records)
    }

    fn record(benchmark: &str, parameters: Value, runs: Vec<Value>) -> Record {
        let mut record = Record::begin(benchmark, 1, parameters);
        record.runs = runs;
        record.complete = true;
        record
    }

    fn shaped(lines: &[&str]) -> Value {
        json!({
            "runs": 1,
            "shape": {
                "across": "ms", "up": "operations/s", "metric": "ops", "lines": lines,
                "places": [0.5, 2.0],
            },
        })
    }

    fn at(line: &str, x: f64, values: Value) -> Value {
        json!({ "cell": { "line": line, "threads": 2, "x": x }, "round": 1, "measured": values })
    }

    /// A minimal record of the figure's benchmark.
    fn sample(figure: &Figure) -> Record {
        match figure.name {
            "asplos-8" => {
                let change = |from: u32, to: u32| {
                    json!({
                        "cell": { "from": from, "to": to }, "round": 1,
                        "measured": {
                            "before": 8 - from, "expected": 8 - to, "end_ns": 5_000_000,
                            "points": [{ "ns": 20_000, "awake": 8 - to }],
                        },
                    })
                };
                record("bump", json!({ "threads": 8 }), vec![change(0, 6), change(6, 4)])
            }
            "asplos-5" => {
                let run = |manager: &str, awake: u32| {
                    json!({
                        "cell": manager, "round": 1,
                        "measured": {
                            "target": 4,
                            "counts": [
                                { "ns": 0, "awake": 4 }, { "ns": 9_000_000, "awake": awake },
                            ],
                        },
                    })
                };
                record(
                    "steadiness",
                    json!({ "threads": 8 }),
                    vec![run("control", 4), run("backoff", 8)],
                )
            }
            "asplos-9" | "asplos-10" => {
                let runs = vec![
                    at("150 % load", 0.5, json!({ "ops": 5.0 })),
                    at("150 % load", 2.0, json!({ "ops": 6.0 })),
                ];
                record(parts(figure).benchmarks[0][0], shaped(&["150 % load"]), runs)
            }
            "asplos-12" => {
                let lines = crate::asplos::interference::fraction_lines();
                let mut runs = vec![at("alone", 0.0, json!({ "self_per_sec": 10.0 }))];
                for (_, other, _) in &lines {
                    runs.push(at(other, 2.0, json!({ "self_per_sec": 5.0, "other_per_sec": 2.0 })));
                }
                record("interference", shaped(&["alone"]), runs)
            }
            _ => {
                let cell = |name: &str, threads: u32, tps: f64| {
                    json!({
                        "cell": { "configuration": name, "threads": threads }, "round": 1,
                        "measured": { "ops_per_sec": tps, "tps": tps, "seconds": tps },
                    })
                };
                let runs = vec![
                    cell("libc", 1, 5.0),
                    cell("libc", 4, 9.0),
                    cell("default", 1, 5.0),
                    cell("default", 4, 10.0),
                ];
                let parameters = json!({
                    "configurations": ["libc", "default"], "threads": [1, 4], "runs": 1,
                    "title": "t",
                });
                record(parts(figure).benchmarks[0][0], parameters, runs)
            }
        }
    }

    #[test]
    fn drawing_has_title_and_remark() {
        for paper in drawn() {
            let figure = made(paper, &[sample(paper)])
                .unwrap_or_else(|error| panic!("{}: {error}", paper.name));
            assert!(
                !figure.names.is_empty() && !figure.panels[0].series.is_empty(),
                "{}",
                paper.name
            );
            assert!(
                figure.panels[0].series.iter().any(|series| series.points.len() > 1)
                    || paper.name == "asplos-12"
            );
            let svg = figure.svg().expect("drawn");
            assert!(
                paper.title.split('\'').all(|part| svg.contains(part)) && svg.contains("Linux"),
                "{}",
                paper.name
            );
            // SVG escapes apostrophes: look at plain words only.
            let mut words = paper
                .remark
                .split_whitespace()
                .filter(|word| word.chars().all(char::is_alphanumeric));
            assert_eq!(words.find(|word| !svg.contains(word)), None, "{}", paper.name);
        }
    }

    #[test]
    fn record_of_another_benchmark_is_rejected() {
        let wrong = record("pair", json!({}), vec![json!({})]);
        for paper in drawn() {
            let error = made(paper, std::slice::from_ref(&wrong)).expect_err("refused");
            assert!(error.to_string().contains("pair"), "{error}");
        }
    }

    #[test]
    fn figure_of_tables_has_those_of_its_own_record_only() {
        let paper = &contention_aware::NATIVE;
        let shown = |benchmark: &str| {
            let mut record = record(benchmark, json!({}), Vec::new());
            record.tables.push(Table::new("remedies compared", ["lock"]));
            tables(paper, parts(paper), &[record])
        };
        assert!(shown("contention-aware").expect("its own").contains("remedies compared"));
        let error = shown("pair").expect_err("another").to_string();
        assert!(error.contains("contention-aware") && error.contains("pair"), "{error}");
    }

    #[test]
    fn several_records_share_one_legend() {
        let paper = &throughput::NATIVE;
        let mut other = sample(paper);
        other.parameters["configurations"] = json!(["libc", "tpmcs+none"]);
        let figure = made(paper, &[sample(paper), other]).expect("two panels");
        assert_eq!(
            (figure.panels.len(), figure.names),
            (2, ["libc", "default", "tpmcs+none"].map(String::from).to_vec())
        );
    }
}
