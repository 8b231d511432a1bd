//! The record of a benchmark: `BASENAME.json`, the same runs as `BASENAME.csv` for programs, and
//! `BASENAME.md` for readers.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cells::Samples;
use crate::context::Context;
use crate::export::{Exporter, Json};
use crate::failure::{Failure, is_violation};
use crate::goal::Judgement;
use crate::interrupt::Interrupted;
use crate::messages;
use crate::output::{self, can_write, with_suffix, write};
use crate::rows::csv_of_runs;
use crate::table::Table;

/// Version of the JSON format.
pub const SCHEMA: &str = "unconvoy-bench-1";

/// One benchmark, finished or not.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// The subcommand.
    pub benchmark: String,
    /// Whether every planned run was measured.
    pub complete: bool,
    /// Why the benchmark is incomplete.
    pub ended_by: Option<String>,
    /// The machine and the time.
    pub context: Context,
    /// Options of the benchmark, such as thread counts and seconds.
    pub parameters: Value,
    /// Goals and their measurements.
    pub judgements: Vec<Judgement>,
    /// The results, formatted.
    pub tables: Vec<Table>,
    /// Remarks that the tables need.
    pub notes: Vec<String>,
    /// Every measurement, in order.
    pub runs: Vec<Value>,
    /// Failed runs.
    #[serde(default)]
    pub failures: Vec<Failure>,
    /// Tables to print if [`tables`](Self::tables) is too long for a terminal.
    #[serde(skip)]
    pub shown: Option<Vec<Table>>,
    /// Whether a violation ended a benchmark that stops at its first failed run, and so has no
    /// [`failures`](Self::failures).
    #[serde(skip)]
    ended_by_violation: bool,
}

/// CSV format: one line per run, if the runs fit in lines.
struct Csv;

impl Exporter<Record> for Csv {
    fn render(&self, record: &Record) -> anyhow::Result<Option<Vec<u8>>> {
        csv_of_runs(&record.runs, &record.failures)
    }
}

/// Markdown format: heading, verdicts, tables and the machine.
struct Markdown;

impl Exporter<Record> for Markdown {
    fn render(&self, record: &Record) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(Some(record.text(&record.tables).into_bytes()))
    }
}

/// Suffixes and formats of the files.
const FORMATS: [(&str, &dyn Exporter<Record>); 3] =
    [(".json", &Json), (".csv", &Csv), (".md", &Markdown)];

impl Record {
    /// Starts a record without measurements, with the current time.
    pub fn begin(benchmark: &str, seed: u64, parameters: Value) -> Self {
        Self {
            schema: SCHEMA.to_string(),
            benchmark: benchmark.to_string(),
            complete: false,
            ended_by: None,
            context: Context::capture(seed),
            parameters,
            judgements: Vec::new(),
            tables: Vec::new(),
            notes: build_notes(),
            runs: Vec::new(),
            failures: Vec::new(),
            shown: None,
            ended_by_violation: false,
        }
    }

    /// Adds the measurements, each with its cell's description.
    pub fn take<C: Serialize, S: Serialize>(
        &mut self,
        cells: &[C],
        samples: &Samples<S>,
    ) -> anyhow::Result<()> {
        for sample in &samples.all {
            let cell = cells.get(sample.cell).context(messages::sample_without_cell())?;
            let mut run = serde_json::json!({
                "cell": cell, "round": sample.round, "transfer_ns": sample.transfer_ns,
                "measured": sample.value,
            });
            if sample.resumed > 0 {
                run["resumed"] = sample.resumed.into();
            }
            self.runs.push(run);
        }
        if let Some(error) = &samples.ended_by {
            self.ended_by_violation = is_violation(error);
            let why = format!("{error:#}");
            let why = if self.ended_by_violation { messages::violation(why) } else { why };
            self.ended_by.get_or_insert(why);
        }
        Ok(())
    }

    /// Closes the record, prints the tables and writes the files, if there is a base name.
    ///
    /// # Errors
    ///
    /// Standard output or a file cannot be written.
    pub fn finish(mut self, out: Option<&Path>) -> anyhow::Result<Self> {
        self.context.close();
        self.complete = self.ended_by.is_none();
        if !self.complete {
            self.void("not all runs were measured");
        }
        self.deliver(out)
    }

    /// Returns whether a program found inconsistent data.
    pub fn has_violation(&self) -> bool {
        self.ended_by_violation || self.failures.iter().any(|failure| failure.is_violation)
    }

    /// Withdraws the verdicts, because an incomplete benchmark must not be quoted as a verdict.
    pub fn void(&mut self, why: &str) {
        let judgements = std::mem::take(&mut self.judgements);
        self.judgements =
            judgements.into_iter().map(|judgement| judgement.without_verdict(why)).collect();
    }

    /// Withdraws the verdicts that `row`, of which a run failed, might change.
    pub fn void_passes(&mut self, row: &str, why: &str) {
        let judgements = std::mem::take(&mut self.judgements);
        self.judgements =
            judgements.into_iter().map(|judgement| judgement.without_pass(row, why)).collect();
    }

    /// Prints the tables and writes the files. A record that ended before its first run replaces
    /// no earlier one.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn deliver(self, out: Option<&Path>) -> anyhow::Result<Self> {
        let is_interrupted = self.ended_by == Some(Interrupted.to_string());
        let is_empty = self.ended_by.is_some() && self.runs.is_empty() && self.failures.is_empty();
        let has_earlier = |out: &Path| with_suffix(out, ".json").exists();
        let out = out.filter(|out| !(is_empty && (is_interrupted || has_earlier(out))));
        // Write the files first, so that a full or closed standard output does not lose them.
        let written = out.map_or(Ok(()), |out| self.write(out));
        output::print(&self.text(self.shown.as_ref().unwrap_or(&self.tables)))?;
        written?;
        Ok(self)
    }

    /// Checks that the files can be written.
    ///
    /// # Errors
    ///
    /// One of them cannot.
    pub fn can_write(out: &Path) -> anyhow::Result<()> {
        FORMATS.iter().try_for_each(|(suffix, _)| can_write(&with_suffix(out, suffix)))
    }

    /// Writes the files.
    ///
    /// # Errors
    ///
    /// A file cannot be written.
    pub fn write(&self, out: &Path) -> anyhow::Result<()> {
        for (suffix, format) in FORMATS {
            if let Some(bytes) = format.render(self)? {
                write(&with_suffix(out, suffix), bytes)?;
            }
        }
        Ok(())
    }

    /// Renders heading, verdicts, tables, notes and the machine.
    fn text(&self, tables: &[Table]) -> String {
        let mut text = format!("# unconvoy bench {}\n\n", self.benchmark);
        if let Some(why) = &self.ended_by {
            let _ = writeln!(text, "**Not complete:** {why}\n");
        }
        for failure in &self.failures {
            let what = if failure.is_violation { messages::VIOLATION } else { "Failed" };
            // The cause of a violation begins with that word.
            let why = failure.why.strip_prefix(messages::VIOLATION).unwrap_or(&failure.why);
            let _ = writeln!(text, "**{what}:** {}\n", why.trim_start_matches(": "));
        }
        if !self.judgements.is_empty() {
            text.push_str(&judgements(&self.judgements).markdown());
            text.push('\n');
        }
        text.push_str(&self.figures_of(tables));
        text
    }

    /// Renders tables, notes and the machine.
    pub fn figures(&self) -> String {
        self.figures_of(&self.tables)
    }

    fn figures_of(&self, tables: &[Table]) -> String {
        let mut text = String::new();
        for table in tables {
            let _ = writeln!(text, "{}", table.markdown());
        }
        for note in &self.notes {
            let _ = writeln!(text, "- {note}");
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
        let _ =
            writeln!(text, "{}\n\n`{}`", self.context.line(), repeatable(&self.context.command));
        text
    }
}

/// Returns a command in its present form: old records name the former program `unconvoy-bench`.
fn repeatable(command: &[String]) -> String {
    let command = command.join(" ");
    match command.split_once("unconvoy-bench ") {
        Some((directory, words)) if !directory.contains(' ') => {
            format!("{directory}unconvoy bench {words}")
        }
        _ => command,
    }
}

/// Returns notes about effects of this command's build on the results.
fn build_notes() -> Vec<String> {
    let slow = "This command was built without optimisation, so its own measurements are too slow: \
                build it with --release.";
    if cfg!(debug_assertions) { vec![slow.to_string()] } else { Vec::new() }
}

fn judgements(judgements: &[Judgement]) -> Table {
    let mut table = Table::new("Goals", ["", "goal", "measured", "limit", "note"]);
    for judgement in judgements {
        let Judgement { text, limit, note, .. } = judgement;
        table.row([judgement.verdict.name(), text, &judgement.measured_text(), limit, note]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeatable_updates_commands_of_old_records() {
        let words = |line: &str| line.split(' ').map(str::to_string).collect::<Vec<_>>();
        assert_eq!(
            repeatable(&words("target/release/unconvoy-bench idle --out a")),
            "target/release/unconvoy bench idle --out a"
        );
        let today = "unconvoy bench idle --out unconvoy-bench --seed 1";
        assert_eq!(repeatable(&words(today)), today);
    }
}
