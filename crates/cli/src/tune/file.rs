//! The result as text: the strategy file, the sentence, and a table.

use std::path::{Path, PathBuf};

use comfy_table::{Cell, CellAlignment, Table, presets};
use unconvoy_measure::arguments::thread_count;
use unconvoy_measure::chart::quantity::seconds;
use unconvoy_measure::output::with_suffix;
use unconvoy_measure::resume::quoted;
use unconvoy_measure::sequential::centre;

use super::budget::{ASSUMED_OVERHEAD, round_seconds};
use super::candidates::{Candidate, DEFAULT, LIBC, Stage};
use super::record::Record;
use super::verdict::{Comparison, Verdict};
use crate::messages::search as messages;
use crate::paragraph::commented;

/// Shortest run of which its start and end are a small part, in seconds.
const SHORT_S: f64 = 0.05;

/// First line of the files that this command writes, and may replace.
const OPENING: &str = "# Written by `unconvoy tune`";

/// The file that keeps an unfinished search: `server-tune.json` beside `server.toml`.
pub fn state(output: &Path) -> PathBuf {
    with_suffix(&output.with_extension(""), "-tune.json")
}

/// Whether a file does not exist, or was written by this command.
pub fn may_replace(output: &Path) -> bool {
    match std::fs::read(output) {
        Ok(bytes) => bytes.starts_with(OPENING.as_bytes()),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// The recommended candidate.
fn recommended(record: &Record) -> Option<&Candidate> {
    record.candidates.get(record.verdict.as_ref()?.recommended)
}

/// What was found, in one sentence.
pub fn sentence(record: &Record, file: &str) -> String {
    let costs = record.costs.clone().unwrap_or_default();
    let name = |index: usize| record.candidates[index].name.clone();
    match (&record.verdict, recommended(record)) {
        (Some(verdict), Some(candidate)) => match verdict.gain() {
            // Only a whole confirmation is worth a file.
            Some(gain) if !record.complete => messages::leads_afresh(
                &name(gain.candidate),
                &gain.whole.times(&name(gain.against)),
                verdict.rounds,
            ),
            _ => {
                let threads = &record.plan.threads;
                verdict.sentence(file, threads, &costs.sentence(), &candidate.remedy, name)
            }
        },
        _ => so_far(record),
    }
}

/// What the trials show without a confirmation.
fn so_far(record: &Record) -> String {
    let stage = Stage::Process;
    let rounds = record.rounds(stage);
    let left = (0..record.candidates.len())
        .filter(|&index| record.score_of(stage, rounds, index).is_some());
    let against_libc = |index: usize| {
        let score = |round, it| record.score_of(stage, round, it);
        let pairs =
            (1..=rounds).filter_map(|round| Some(score(round, index)? - score(round, LIBC)?));
        centre(&pairs.collect::<Vec<_>>())
    };
    let best = left.map(|index| (index, against_libc(index)));
    match best.max_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((best, gain)) => messages::leads(&record.candidates[best].name, rounds, gain.exp()),
        None => messages::nothing_yet().to_string(),
    }
}

/// Adds a warning if the metric varies too much for a decision. Returns whether it does not.
pub fn remark_on_noise(record: &mut Record) -> bool {
    let Some(verdict) = &record.verdict else { return record.ended_by.is_some() };
    let Some(open) = &verdict.undecided else { return true };
    if open.is_partial() {
        // With a partial gain, nothing else is recommended.
        if record.complete {
            record.remark(messages::varies_at_one_count());
        }
        return false;
    }
    let rounds = open.rounds_for_worth;
    let members = if open.candidate > DEFAULT { 3 } else { 2 };
    let time = round_seconds(record, LIBC, ASSUMED_OVERHEAD) * (rounds * members) as f64;
    let is_decided = verdict.recommended != LIBC;
    let half = 100.0 * ((open.whole.high / open.whole.low).sqrt() - 1.0);
    if record.complete {
        record.remark(messages::varies(half, rounds, &seconds(time)));
    }
    is_decided
}

/// Adds a warning if nothing is recommended, and the trials left candidates that may still gain.
pub fn remark_on_open_trials(record: &mut Record) {
    let is_libc = record.verdict.as_ref().is_some_and(|it| it.recommended == LIBC);
    if record.complete && record.is_open && is_libc {
        record.remark(messages::trials_open());
    }
}

/// Adds a warning if the first run was so short that a gain is hard to see.
pub fn remark_on_short_runs(record: &mut Record) {
    let shortest = record.round(Stage::First, 1).map(|run| run.wall_s).min_by(f64::total_cmp);
    if let Some(run) = shortest.filter(|&run| run < SHORT_S) {
        record.remark(messages::short_runs(&seconds(run)));
    }
}

/// The strategy file.
pub fn strategy(record: &Record) -> String {
    let Some(candidate) = recommended(record) else { return String::new() };
    let date = record.context.date.split(' ').next().unwrap_or_default();
    let mut text = String::new();
    let mut comment = |line: &str| {
        text += &if line.is_empty() { "#\n".to_string() } else { commented("# ", line) };
    };
    comment(&format!(
        "Written by `unconvoy tune` on {date}, for: {}",
        quoted(&record.plan.program)
    ));
    comment(&record.context.machine.line());
    comment("");
    comment(&format!("{}.", record.sentence));
    let verdict = record.verdict.as_ref();
    for it in verdict.iter().flat_map(|verdict| &verdict.comparisons) {
        comment(&format!(
            "{}: {}, in {} fresh runs of each.",
            record.candidates[it.candidate].name,
            it.whole.times(&record.candidates[it.against].name),
            verdict.map_or(0, |verdict| verdict.rounds)
        ));
    }
    if let Some(costs) = record.costs.as_ref().filter(|costs| costs.is_known) {
        comment(&format!("Under libc, {} ({}).", costs.sentence(), metric(record)));
    }
    format!("{text}\n{}", candidate.toml())
}

pub fn metric(record: &Record) -> String {
    let metric = &record.plan.metric;
    let better = if metric.lower_is_better { "lower" } else { "higher" };
    format!("the metric is {}, {better} is better", metric.name)
}

/// The result for a terminal.
pub fn text(record: &Record, quiet: bool) -> String {
    let mut text = String::new();
    let is_shown = |verdict: &&Verdict| !quiet && !verdict.comparisons.is_empty();
    if let Some(verdict) = record.verdict.as_ref().filter(is_shown) {
        let mut table = Table::new();
        let header = ["", "fresh runs", "times as good", "interval"];
        table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header);
        for it in &verdict.comparisons {
            for row in rows(record, it) {
                let mut row = row.into_iter();
                let first = Cell::new(row.next().unwrap_or_default());
                let count = Cell::new(verdict.rounds.to_string());
                let others = row.map(Cell::new);
                let cells = std::iter::once(count).chain(others);
                let right = cells.map(|cell| cell.set_alignment(CellAlignment::Right));
                table.add_row(std::iter::once(first).chain(right));
            }
        }
        text += &format!("{table}\n{}, seed {}\n", record.context.line(), record.plan.seed);
        // Without a gain, the sentence has the costs.
        if let Some(costs) = record.costs.as_ref().filter(|_| verdict.gain().is_some()) {
            text += &format!("Under libc, {}.\n", costs.sentence());
        }
    }
    text + &format!("{}\n", record.sentence)
}

/// One row for the whole comparison, and one for each of several thread counts.
fn rows(record: &Record, it: &Comparison) -> Vec<[String; 3]> {
    let name = |index: usize| &record.candidates[index].name;
    let pair = format!("{} against {}", name(it.candidate), name(it.against));
    let counts = record.plan.threads.iter().copied().flatten();
    let each = counts.zip(&it.by_threads).filter(|_| it.by_threads.len() > 1);
    let whole = std::iter::once((pair, &it.whole));
    let all = whole.chain(each.map(|(count, ratio)| (format!("  {}", thread_count(count)), ratio)));
    all.map(|(what, ratio)| {
        [what, format!("{:.3}", ratio.ratio), format!("{:.3} to {:.3}", ratio.low, ratio.high)]
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search whose default gains in three fresh rounds.
    fn record(complete: bool) -> Record {
        let mut record = Record::of_a_server();
        let logarithms = [1.6_f64, 1.61, 1.59].map(f64::ln).to_vec();
        let gain = Comparison::of([DEFAULT, LIBC], &[logarithms], 0.05).unwrap();
        record.verdict = Some(Verdict::of(DEFAULT, 3, vec![gain]));
        record.complete = complete;
        record
    }

    #[test]
    fn interrupted_confirmation_promises_no_file() {
        let [part, whole] =
            [false, true].map(|complete| sentence(&record(complete), "server.toml"));
        assert!(whole.starts_with("With server.toml: 1.60 times libc ("), "{whole}");
        assert!(part.starts_with("So far, not confirmed: default, 1.60 times libc ("), "{part}");
        assert!(part.ends_with(") in 3 fresh rounds"), "{part}");
    }
}
