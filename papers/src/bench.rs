//! `unconvoy bench`: the benchmarks of our own goals and of the papers' figures.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};
use unconvoy_bench::grid::{Grid, GridOptions};
use unconvoy_bench::{cli, ended, status};
use unconvoy_measure::failure::{EXIT_INCONSISTENT, Failed};
use unconvoy_measure::interrupt::Interrupted;
use unconvoy_measure::record::Record;

use crate::asplos::{bump, contention, interference, interval, steadiness};
use crate::databases;
use crate::messages;
use crate::taco::contention_aware;
use crate::taco::loads::{self, load, options::LoadOptions};
use crate::workloads::{RAYTRACE, SPLASH};

/// `unconvoy bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Goal(cli::Command),
    #[command(flatten)]
    Paper(Paper),
}

/// The papers' benchmarks.
#[derive(Debug, Subcommand)]
enum Paper {
    /// Run TATP (TM-1): very small transactions on a database that `--load` makes
    Tatp(databases::TatpOptions),
    /// Run TPC-C: large transactions on a database that `--load` makes
    Tpcc(databases::TpccOptions),
    /// Run the packaged ray tracer tachyon on a fixed scene
    Raytrace(GridOptions),
    /// Run a ray tracer modelled on SPLASH-2's, with locked work queues
    Splash(GridOptions),
    /// Map one file from many processes, and read a byte of each page (Cui et al., TACO 2013)
    Mmapbench(LoadOptions<load::MmapbenchOptions>),
    /// Open and close sockets in processes (Cui et al.)
    Sockbench(LoadOptions<load::SockbenchOptions>),
    /// Create, delete, read and append to small files in threads (Cui et al.)
    Postmark(LoadOptions<load::PostmarkOptions>),
    /// Run find in processes, each in its own tree (Cui et al.)
    Find(LoadOptions<load::FindOptions>),
    /// Run grep in processes, on shared files (Cui et al.)
    Grep(LoadOptions<load::GrepOptions>),
    /// Compile sources in processes; stands in for Cui et al.'s kernbench
    Compile(LoadOptions<load::CompileOptions>),
    /// Compare remedies for one contended lock (Cui et al., Figure 3)
    ContentionAware(contention_aware::Options),
    /// Vary the controller's interval (Johnson et al., ASPLOS 2010, Figure 10)
    Interval(interval::Options),
    /// Vary the time between two acquires, at 95 % and 150 % load (Johnson et al., Figure 9)
    Contention(contention::Options),
    /// Run two processes that compete for the processors (Johnson et al., Figure 12)
    Interference(interference::Options),
    /// Measure how fast threads follow a new sleep target (Johnson et al., Figure 8)
    Bump(bump::Options),
    /// Measure how steadily threads keep a fixed target (Johnson et al., Figure 5)
    Steadiness(steadiness::Options),
}

const EXAMPLES: &str = "\
Runs are interleaved: each round visits all cells in random order. Numbers are medians, with the \
smallest and the largest value.

Exit status: 0 if everything was measured, whether or not a goal was met; 1 if something failed; \
2 for wrong options; 3 if a program found its data inconsistent (do not use that lock); 130 \
after Ctrl-C.

Examples:
  unconvoy bench counter --locks ttas+none --latency --out results/counter
  unconvoy bench hashtable --locks all --out r/table
  unconvoy bench hashtable --locks all --out r/table --resume r/table.json
  unconvoy bench tatp --load --data ~/tatp
  unconvoy bench tatp --data ~/tatp --out results/tatp
  unconvoy bench postmark --files 10000 --tasks 1,2,4 --out results/postmark
  unconvoy bench interval --data ~/tatp --out results/interval
  unconvoy papers run asplos-10 --from results/interval.json
  unconvoy bench report results > results/report.md";

/// Runs one benchmark; returns the exit status (see [`status`]).
pub fn bench(args: &BenchArgs) -> u8 {
    status(match &args.command {
        Command::Goal(command) => cli::run(command),
        Command::Paper(command) => run(command).map(Some),
    })
}

fn run(command: &Paper) -> anyhow::Result<Record> {
    match command {
        Paper::Tatp(options) => databases::tatp(options),
        Paper::Tpcc(options) => databases::tpcc(options),
        Paper::Raytrace(options) => Grid::of(&RAYTRACE).run(options),
        Paper::Splash(options) => Grid::of(&SPLASH).run(options),
        Paper::Mmapbench(options) => loads::run(options),
        Paper::Sockbench(options) => loads::run(options),
        Paper::Postmark(options) => loads::run(options),
        Paper::Find(options) => loads::run(options),
        Paper::Grep(options) => loads::run(options),
        Paper::Compile(options) => loads::run(options),
        Paper::ContentionAware(options) => contention_aware::run(options),
        Paper::Interval(options) => interval::interval(options),
        Paper::Contention(options) => contention::contention(options),
        Paper::Interference(options) => interference::interference(options),
        Paper::Bump(options) => bump::run(options),
        Paper::Steadiness(options) => steadiness::run(options),
    }
}

/// A benchmark's command line without `unconvoy bench`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Words {
    #[command(subcommand)]
    command: Command,
}

/// Runs the benchmark named by the words after `unconvoy bench`; returns its record.
///
/// # Errors
///
/// Fails if the words are wrong, the benchmark fails, or the record is incomplete. A program that
/// found inconsistent data is a violation
/// ([`is_violation`](unconvoy_measure::failure::is_violation)).
pub fn measure(words: impl IntoIterator<Item = OsString>) -> anyhow::Result<Record> {
    let record = match &Words::try_parse_from(words)?.command {
        Command::Goal(command) => cli::run(command)?,
        Command::Paper(command) => Some(run(command)?),
    };
    whole(record.ok_or_else(|| anyhow::anyhow!(messages::report_measures_nothing()))?)
}

/// Returns the record if it is complete. Only an interrupt takes precedence over inconsistent data,
/// as in [`status`].
fn whole(record: Record) -> anyhow::Result<Record> {
    let has_violation = record.has_violation();
    let why = messages::data_inconsistent(&record.benchmark);
    let result = ended(record);
    let is_interrupted = result.as_ref().is_err_and(|error| error.is::<Interrupted>());
    if has_violation && !is_interrupted {
        return Err(Failed { why, status: Some(EXIT_INCONSISTENT) }.into());
    }
    result
}

/// Whether the benchmark has `--resume`.
pub fn can_resume(benchmark: &str) -> bool {
    let all = <Words as clap::CommandFactory>::command();
    let found = all.find_subcommand(benchmark);
    found.is_some_and(|command| {
        command.get_arguments().any(|argument| argument.get_id() == "resume")
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use serde_json::{Value, json};
    use unconvoy_bench::grid::workload;
    use unconvoy_measure::failure::{Failure, is_violation};

    use super::*;
    use crate::workloads;

    /// The record of a session that ended with `ended_by`, after a program found inconsistent data.
    fn violated(ended_by: &str) -> Record {
        let mut record = Record::begin("tatp", 1, json!({}));
        record.ended_by = Some(ended_by.to_string());
        record.failures.push(Failure {
            cell: Value::Null,
            round: 1,
            why: "mcs+none, 2 threads".to_string(),
            is_violation: true,
        });
        record
    }

    #[test]
    fn inconsistent_data_is_a_violation_unless_interrupted() {
        let error = whole(violated("1 of 2 cells")).expect_err("not complete");
        assert!(is_violation(&error) && error.to_string().contains("tatp"), "{error}");
        let error = whole(violated(&Interrupted.to_string())).expect_err("not complete");
        assert!(error.is::<Interrupted>(), "{error}");
        let mut failed = violated("1 of 2 cells");
        failed.failures.clear();
        assert!(!is_violation(&whole(failed).expect_err("not complete")));
    }

    #[test]
    fn every_workload_is_a_subcommand_with_a_page() {
        let pages = [
            include_str!("../../docs/reference/benchmarks.md"),
            include_str!("../../docs/reference/kernel-workloads.md"),
        ];
        let all = Words::command();
        for workload in workload::WORKLOADS.iter().chain(workloads::WORKLOADS) {
            let name = workload.name;
            assert!(all.find_subcommand(name).is_some(), "no `unconvoy bench {name}`");
            let has_page = pages.iter().any(|page| page.contains(&format!("`{name}`")));
            assert!(has_page, "no row for {name} in docs/reference/benchmarks.md");
        }
    }
}
