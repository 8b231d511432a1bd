//! `unconvoy tune`: from a slow program to a remedy, lock by lock, with nothing rebuilt.
//!
//! [`search`] runs a program until a strategy is proven; [`tune`] itself advises by records.

mod budget;
mod candidates;
mod chart;
mod costs;
#[cfg(test)]
mod evaluation;
mod file;
mod known;
pub mod options;
mod page;
mod phases;
mod preparation;
mod race;
mod record;
mod records;
mod search;
mod session;
mod verdict;

use options::TuneArgs;
use serde_json::json;
use unconvoy_measure::output::{print_all, replace};

use crate::messages::predict::cannot_write;
use crate::messages::tune as messages;
use crate::paragraph::{columns_of_report, wrapped};
use crate::profile;
use crate::refusal::Refusal;
use anyhow::Context as _;
use records::Records;

/// The schema of `--json`.
const SCHEMA: &str = "unconvoy-advice-1";

/// Searches a strategy for a program, or advises by records. Returns the exit status.
///
/// # Errors
///
/// A record that cannot be read (1) or is of another kind or version (2), or an output that cannot
/// be written (1). As [`search::search`].
pub fn tune(args: &TuneArgs) -> anyhow::Result<u8> {
    if !args.program.is_empty() {
        return search::search(args);
    }
    let Records { profiles, predictions } = records::sort(&args.advise)?;
    if profiles.is_empty() {
        return Err(Refusal::usage(messages::no_profile()).into());
    }
    let mut programs = Vec::new();
    let mut text = String::new();
    let columns = columns_of_report();
    for file in profiles {
        let report = profile::report_of(file, &predictions)?;
        let heading = profile::text::heading(&report);
        text += &(wrapped(&heading, columns) + &profile::text::advice(&report.advice, columns));
        programs
            .push(json!({ "profile": file, "program": report.program, "advice": report.advice }));
    }
    if let Some(file) = &args.json {
        let record = json!({ "schema": SCHEMA, "programs": programs });
        replace(file, format!("{record:#}\n").as_bytes()).with_context(|| cannot_write(file))?;
    }
    print_all(text)?;
    Ok(0)
}
