//! `report`: prints the JSON records of a directory as one Markdown page.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::Value;
use unconvoy::catalogue::{CONTENTION, LOAD};
use unconvoy_measure::goal::{Goal, Judgement, Verdict};
use unconvoy_measure::output::{self, complain};
use unconvoy_measure::record::{Record, SCHEMA};
use unconvoy_measure::table::Table;

use crate::goals::{self, GOALS};
use crate::messages;
use crate::setup::Pair;

const COMPARE_SCHEMA: &str = "unconvoy-compare-1";

/// Options of `report`.
#[derive(Debug, Args)]
pub struct Options {
    /// Directory with JSON records of this command and of `unconvoy compare`
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints the page.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut records = Vec::new();
    let mut compared = Vec::new();
    for path in json_files(&options.directory)? {
        let text =
            fs::read_to_string(&path).with_context(|| messages::cannot_read(path.display()))?;
        let value: Value =
            serde_json::from_str(&text).with_context(|| messages::incomplete_record(&path))?;
        match value.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => {
                let record = serde_json::from_value(value)
                    .with_context(|| messages::incomplete_record(&path))?;
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                records.push((name.into_owned(), record));
            }
            Some(COMPARE_SCHEMA) => compared.extend(leveldb(&value)),
            _ => complain(&messages::not_a_benchmark(&path)),
        }
    }
    ensure!(!records.is_empty() || !compared.is_empty(), messages::no_records(&options.directory));
    Ok(output::print(&page(&records, &compared))?)
}

fn json_files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(directory).with_context(|| messages::cannot_read_directory(directory))?;
    let paths: Result<Vec<PathBuf>, _> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths: Vec<PathBuf> = paths?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    paths.sort();
    Ok(paths)
}

/// Judges a comparison of LevelDB runs, recognised by its title and command line. The ratio of the
/// default lock to libc decides, which must be the first configuration.
fn leveldb(compared: &Value) -> Option<Judgement> {
    let words = [compared.get("title")?, compared.get("context")?.get("command")?]
        .map(Value::to_string)
        .concat();
    let goal = [("readrandom", &goals::READRANDOM), ("fillrandom", &goals::FILLRANDOM)]
        .into_iter()
        .find(|(word, _)| words.contains(word))?
        .1;
    let rows = compared.get("summary")?.as_array()?;
    let configuration = |row: &Value| Some(row.get("configuration")?.as_str()?.to_string());
    if rows.first().and_then(configuration).as_deref() != Some("libc") {
        return Some(goal.not_judged("compared with another configuration than libc"));
    }
    let pair = Pair { lock: CONTENTION[0].name, load: LOAD[0].name }.name();
    let ratio = |row: &Value| {
        let name = configuration(row)?;
        (name == "default" || name == pair).then_some(())?;
        Some((row.get("ratio")?.as_f64()?, format!("{} threads", row.get("threads")?)))
    };
    let judgement = goal.judge_worst(rows.iter().filter_map(ratio));
    let is_complete = compared.get("complete").and_then(Value::as_bool) == Some(true);
    Some(if is_complete {
        judgement
    } else {
        judgement.without_verdict("not all runs were measured")
    })
}

/// The page of named records.
fn page(records: &[(String, Record)], compared: &[Judgement]) -> String {
    let all: Vec<&Judgement> =
        records.iter().flat_map(|(_, record)| &record.judgements).chain(compared).collect();
    let mut table = Table::new(
        "Every goal, and the worst number measured",
        ["", "goal", "measured", "limit", "note"],
    );
    for goal in GOALS {
        for judgement in of_goal(goal, &all) {
            table.row([
                judgement.verdict.name(),
                goal.text,
                &judgement.measured_text(),
                &judgement.limit,
                &judgement.note,
            ]);
        }
    }
    let mut page = format!("# Measurements\n\n{}\n", table.markdown());
    for (name, record) in records {
        page.push_str(&format!("## {name}\n\n"));
        if let Some(why) = &record.ended_by {
            page.push_str(&format!("**Not complete:** {why}\n\n"));
        }
        page.push_str(&format!("{}\n", record.figures()));
    }
    page
}

/// Returns a goal's judgements: all with a verdict; if there are none, one without; if there is no
/// judgement at all, one that names the benchmark to run.
fn of_goal(goal: &Goal, all: &[&Judgement]) -> Vec<Judgement> {
    let of_goal: Vec<Judgement> = all
        .iter()
        .filter(|judgement| judgement.goal == goal.id)
        .map(|&judgement| judgement.clone())
        .collect();
    let judged: Vec<Judgement> = of_goal
        .iter()
        .filter(|judgement| judgement.verdict != Verdict::NotJudged)
        .cloned()
        .collect();
    if !judged.is_empty() {
        judged
    } else if let Some(first) = of_goal.into_iter().next() {
        vec![first]
    } else {
        let how = if goal.measured_by == "unconvoy compare" {
            "`unconvoy compare`".to_string()
        } else {
            format!("`unconvoy bench {}`", goal.measured_by)
        };
        vec![goal.not_judged(format!("not measured: run {how}"))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn leveldb_comparison_is_judged() {
        let row = |configuration: &str, threads: u32, ratio: Option<f64>| {
            json!({
                "configuration": configuration, "threads": threads, "ratio": ratio,
            })
        };
        let mut compared = json!({
            "schema": COMPARE_SCHEMA, "complete": true, "title": "LevelDB readrandom",
            "context": { "command": [] },
            "summary": [
                row("libc", 4, None), row("loiter+control", 4, Some(0.9)),
                row("mcs+none", 4, Some(0.1)),
            ],
        });
        let judgement = leveldb(&compared).expect("a LevelDB comparison");
        assert_eq!(
            (judgement.goal.as_str(), judgement.measured, judgement.verdict),
            ("leveldb-readrandom", Some(0.9), Verdict::Miss)
        );
        compared["title"] = json!("something else");
        assert!(leveldb(&compared).is_none());
    }

    #[test]
    fn leveldb_goal_is_about_the_default_against_libc_only() {
        let judged = |base: &str, other: &str| {
            let row = |name: &str| json!({ "configuration": name, "threads": 4, "ratio": 1.5 });
            let compared = json!({
                "complete": true, "title": "LevelDB fillrandom", "context": { "command": [] },
                "summary": [row(base), row(other)],
            });
            leveldb(&compared).expect("a LevelDB comparison").verdict
        };
        assert_eq!(judged("libc", "default"), Verdict::Pass);
        assert_eq!(judged("libc", "loiter+control"), Verdict::Pass);
        assert_eq!(judged("libc", "loiter+park"), Verdict::NotJudged);
        assert_eq!(judged("mcs+none", "default"), Verdict::NotJudged);
    }

    #[test]
    fn page_lists_every_goal_once() {
        let missed = goals::CPU.judge(2.0, "worst: 4 threads");
        let unsure = goals::CPU.not_judged("no");
        let page = page(&[], &[unsure, missed]);
        assert!(GOALS.iter().all(|goal| page.contains(goal.text)));
        assert_eq!(page.matches(goals::CPU.text).count(), 1);
        assert!(page.contains("MISS") && page.contains("run `unconvoy bench idle`"));
    }
}
