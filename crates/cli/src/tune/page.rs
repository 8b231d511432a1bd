//! The result as one self-contained HTML page.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use askama::Template;
use unconvoy_measure::chart::quantity;
use unconvoy_measure::resume::quoted;
use unconvoy_measure::sequential::centre;

use super::candidates::{LIBC, Stage};
use super::chart;
use super::costs::LockCost;
use super::file;
use super::record::{Record, Withdrawn};
use crate::profile::flame;
use crate::profile::page::waits;
use crate::profile::rows::{Pair, Place};

#[derive(Template)]
#[template(path = "tune.html")]
struct Page<'a> {
    program: String,
    sentence: String,
    command: String,
    machine: String,
    metric: String,
    rounds: usize,
    interval: String,
    warnings: &'a [String],
    chart_height: usize,
    chart: String,
    strategy: Option<&'a str>,
    /// The strategy file's path as a shell's word.
    file: String,
    /// The path that a service or a container uses, likewise.
    installed: String,
    /// The same as systemd's word.
    installed_for_systemd: String,
    /// File name and path as JSON strings, for a container's recipe.
    name_as_json: String,
    installed_as_json: String,
    /// The program and its arguments, as a shell's words and as systemd's.
    words: String,
    words_for_systemd: String,
    costs: String,
    locks: Vec<LockRow>,
    conds: Vec<LockRow>,
    conds_waited: String,
    helps: bool,
    waits_height: usize,
    waits: String,
    waits_style: &'static str,
    tried: Vec<TriedRow>,
    advice: Vec<&'a [String]>,
    remarks: &'a [String],
    version: &'static str,
}

struct LockRow {
    name: String,
    numbers: Vec<String>,
    waiters: Vec<String>,
    holders: Vec<String>,
}

struct TriedRow {
    name: &'static str,
    candidate: String,
    why: String,
    rounds: usize,
    ratio: String,
    fate: String,
}

/// Renders the page; `output` is the strategy file.
///
/// # Errors
///
/// The template cannot be rendered.
pub fn render(record: &Record, output: &Path) -> anyhow::Result<String> {
    let costs = record.costs.clone().unwrap_or_default();
    let pairs: Vec<(&str, &Pair)> = costs
        .locks
        .iter()
        .flat_map(|lock| lock.pairs.iter().map(|pair| (&*lock.name, pair)))
        .collect();
    let (waits_height, waits) = waits(&pairs);
    let verdict = record.verdict.as_ref();
    let drawn = verdict.filter(|verdict| !verdict.comparisons.is_empty());
    let (chart_height, chart) = drawn.map_or((0, String::new()), |it| chart::draw(record, it));
    let threads = record.plan.threads.iter().copied().max().flatten();
    let count = threads.map_or("N".to_string(), |count| count.to_string());
    let words: Vec<String> =
        record.plan.program.iter().map(|word| word.replace("{threads}", &count)).collect();
    let path = std::path::absolute(output).unwrap_or_else(|_| output.to_path_buf());
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let installed = format!("/etc/unconvoy/{name}");
    let page = Page {
        program: name_of(&record.plan.program[0]),
        sentence: with_code(&record.sentence),
        command: quoted(&record.context.command),
        machine: record.context.line(),
        metric: file::metric(record),
        rounds: verdict.map_or(0, |verdict| verdict.rounds),
        interval: interval(record.plan.error_rate),
        warnings: &record.warnings,
        chart_height,
        chart,
        strategy: record.strategy.as_deref(),
        file: quoted(&[path.display().to_string()]),
        installed_for_systemd: for_systemd(std::slice::from_ref(&installed)),
        name_as_json: serde_json::Value::from(&*name).to_string(),
        installed_as_json: serde_json::Value::from(&*installed).to_string(),
        installed: quoted(&[installed]),
        words_for_systemd: for_systemd(&words),
        words: quoted(&words),
        costs: costs.sentence(),
        locks: costs.locks.iter().map(LockRow::of).collect(),
        conds: costs.conds.iter().map(LockRow::of).collect(),
        conds_waited: quantity::seconds(costs.cond_waited_ns as f64 * 1e-9),
        helps: verdict.is_some_and(|verdict| verdict.recommended != LIBC),
        waits_height,
        waits,
        waits_style: flame::STYLE,
        tried: tried(record),
        advice: costs.advice.iter().map(|advice| &*advice.paragraphs).collect(),
        remarks: &costs.remarks,
        version: concat!("unconvoy ", env!("CARGO_PKG_VERSION")),
    };
    Ok(page.render()?)
}

/// The name of an interval that misses with probability `error_rate`: `95 %`, `99.99 %`.
fn interval(error_rate: f64) -> String {
    format!("{} %", (1e4 * (1.0 - error_rate)).round() / 100.0)
}

/// A sentence as HTML, with its backquoted parts as code.
fn with_code(sentence: &str) -> String {
    let parts = sentence.split('`').enumerate();
    let html = parts.map(|(index, part)| match index % 2 {
        0 => flame::escape(part).to_string(),
        _ => format!("<code>{}</code>", flame::escape(part)),
    });
    html.collect()
}

/// Words as systemd splits them in a unit (systemd.service(5)).
fn for_systemd(words: &[String]) -> String {
    let word = |word: &String| {
        let is_plain = |it: char| it.is_alphanumeric() || "_-./:=,+@".contains(it);
        if !word.is_empty() && word.chars().all(is_plain) {
            return word.clone();
        }
        let mut escaped = String::from("\"");
        for character in word.chars() {
            match character {
                '\\' | '"' => escaped.extend(['\\', character]),
                '%' | '$' => escaped.extend([character, character]),
                '\n' => escaped.push_str("\\n"),
                control if control.is_ascii_control() => {
                    let _ = write!(escaped, "\\x{:02x}", u32::from(control));
                }
                other => escaped.push(other),
            }
        }
        escaped + "\""
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn name_of(program: &str) -> String {
    program.rsplit('/').next().unwrap_or_default().to_string()
}

impl LockRow {
    fn of(lock: &LockCost) -> Self {
        let time = |ns: u64| quantity::seconds(ns as f64 * 1e-9);
        let optional = |ns: Option<u64>| ns.map_or_else(|| "–".to_string(), time);
        let places = |places: &[Place]| {
            let shown = places.iter();
            shown.map(|it| format!("{:.0} % {}", 100.0 * it.share, it.place)).collect()
        };
        let count = if lock.locks > 1 { format!("{} × ", lock.locks) } else { String::new() };
        LockRow {
            name: format!("{count}{}", lock.name),
            numbers: vec![
                time(lock.waited_ns),
                format!("{:.0} %", 100.0 * lock.share),
                lock.waits.to_string(),
                optional(lock.wait_p50_ns),
                optional(lock.wait_p99_ns),
                optional(lock.hold_p50_ns),
                optional(lock.hold_p99_ns),
            ],
            waiters: places(&lock.waiters),
            holders: places(&lock.holders),
        }
    }
}

/// The candidates that ran in a stage.
fn ran(record: &Record, stage: Stage) -> Vec<usize> {
    let runs = record.runs.iter().filter(|run| run.stage == stage).map(|run| run.candidate);
    let all =
        runs.chain(record.withdrawn.iter().filter(|it| it.stage == stage).map(|it| it.candidate));
    all.collect::<BTreeSet<usize>>().into_iter().collect()
}

/// The candidates in the order of their trials.
fn tried(record: &Record) -> Vec<TriedRow> {
    let mut rows = Vec::new();
    let stages = [
        (Stage::Process, "whole process"),
        (Stage::Locks, "single locks"),
        (Stage::Combination, "two locks"),
    ];
    for (stage, name) in stages {
        let last = record.rounds(stage);
        let base = record.runs.iter().filter(|run| run.stage == stage).map(|run| run.candidate);
        let Some(base) = base.min() else { continue };
        for (index, candidate) in record.candidates.iter().enumerate() {
            let scores = |of: usize| {
                (1..=last).map(move |round| record.score_of(stage, round, of)).collect::<Vec<_>>()
            };
            let (own, of_base) = (scores(index), scores(base));
            let rounds = own.iter().flatten().count();
            let members = ran(record, stage);
            let is_running =
                record.race(stage, &members).running().iter().any(|&it| members[it] == index);
            let is_out = |it: &&Withdrawn| (it.stage, it.candidate) == (stage, index);
            let withdrawn = record.withdrawn.iter().find(is_out);
            if rounds == 0 && withdrawn.is_none() {
                continue;
            }
            let pairs = own.iter().zip(&of_base).filter_map(|(own, base)| Some((*own)? - (*base)?));
            let differences: Vec<f64> = pairs.collect();
            let fate = match withdrawn {
                Some(it) => it.why.clone(),
                None if record.confirmed == Some(index) => "confirmed".to_string(),
                None if !is_running => format!("worse, after {rounds} rounds"),
                None => "left at the end".to_string(),
            };
            let against = &record.candidates[base].name;
            rows.push(TriedRow {
                name,
                candidate: candidate.name.clone(),
                why: candidate.why.clone(),
                rounds,
                ratio: match differences.is_empty() {
                    true => "–".to_string(),
                    false => format!("{:.2} × {against}", centre(&differences).exp()),
                },
                fate,
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_of_a_small_error_rate_is_not_100_percent() {
        let names = [0.05, 0.1, 0.005, 0.0001].map(interval);
        assert_eq!(names, ["95 %", "90 %", "99.5 %", "99.99 %"]);
    }

    #[test]
    fn systemd_expands_nothing_in_a_word() {
        let words = ["./server", "--format=%d $HOME", "a\"b\\", ""].map(String::from);
        assert_eq!(for_systemd(&words), r#"./server "--format=%%d $$HOME" "a\"b\\" """#);
    }
}
