//! `unconvoy doctor`: which parts of unconvoy work on this machine, and whether a program's locks
//! can be replaced.
//!
//! Each check tries the thing itself where that is cheap and has no effect on others: it preloads
//! the library, loads a BPF program, starts a transaction, asks QEMU for its options.

mod machine;
mod program;

use std::ffi::OsString;

use clap::{Args, ValueHint};
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use unconvoy_measure::context::Machine;
use unconvoy_measure::output::print_all;

use machine::Check;
use program::Subject;

/// `unconvoy doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Program to examine, which is not started.
    #[arg(last = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// Text below the options in `--help`.
pub const EXAMPLES: &str = "\
Every line that says no ends with the remedy. With a program, doctor also shows which of its \
libraries lock through pthread functions, which unconvoy replaces, and which have locks of their \
own. It does not see libraries that the program loads later (dlopen).

Exit status: 0, whatever is missing. 2: wrong options. 127: program not found. 126: the file \
cannot be read, or is not a program.

Examples:
  unconvoy doctor
  unconvoy doctor -- ./server --threads 64
  sudo unconvoy doctor --json";

/// What `--json` prints.
#[derive(Serialize)]
struct Findings {
    machine: Machine,
    checks: Vec<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<Subject>,
}

/// Prints the checks' results.
///
/// # Errors
///
/// The program is not found (status 127) or cannot be examined (126), or standard output cannot be
/// written.
pub fn doctor(args: &DoctorArgs) -> anyhow::Result<()> {
    let program = args.program.first().map(program::examine).transpose()?;
    let findings = Findings { machine: Machine::capture(), checks: machine::checks(), program };
    if args.json {
        print_all(serde_json::to_string_pretty(&findings)? + "\n")?;
    } else {
        print_all(text(&findings))?;
    }
    Ok(())
}

fn text(findings: &Findings) -> String {
    let rows = findings.checks.iter().map(|check| {
        let answer = if check.works { "yes" } else { "no" };
        [answer, check.name, &check.detail]
    });
    let mut text = format!("{}\n{}\n", findings.machine.line(), table(rows));
    if let Some(program) = &findings.program {
        text += &format!("\n{}\n{}\n", program.verdict, table(program.rows()));
    }
    text
}

/// Aligns three columns without lines and wraps the last one at the terminal's width.
fn table<T: ToString>(rows: impl Iterator<Item = [T; 3]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(console::Term::stdout().size_checked().map_or(100, |(_, columns)| columns));
    rows.for_each(|row| {
        table.add_row(row);
    });
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_string()).collect();
    lines.join("\n")
}
