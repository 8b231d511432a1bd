//! Errors and warnings of the simulator, one function each.

use core::fmt::Display;
use std::path::Path;

use unconvoy_measure::arguments::counted;

/// Longest line of a list.
const COLUMNS: usize = 110;

/// Appends `names` to `text`, and breaks lines that would be too long.
fn list(text: &str, names: &[&str]) -> String {
    let (mut text, mut column) = (text.to_string(), text.len());
    for (number, name) in names.iter().enumerate() {
        let item = format!("{name}{}", if number + 1 < names.len() { "," } else { "" });
        column += 1 + item.len();
        let is_full = column > COLUMNS;
        if is_full {
            column = item.len();
        }
        text.push(if is_full { '\n' } else { ' ' });
        text.push_str(&item);
    }
    text
}

// Files and names.

pub(crate) fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

pub(crate) fn unknown_machine(name: &str, presets: &[&str]) -> String {
    list(&format!("unknown machine {name}; use a machine file, or a preset:"), presets)
}

pub(crate) fn unknown_workload(name: &str, workloads: &[&str]) -> String {
    list(&format!("unknown workload {name}; use"), workloads)
}

pub(crate) fn unknown_lock(name: &str) -> String {
    format!(
        "unknown lock {name}; use CONTENTION+LOAD with names from `unconvoy locks`, as in \
         tpmcs+control"
    )
}

pub(crate) fn no_shared_lock(lock: &str) -> String {
    format!("{lock} has no reader-writer lock; use default, libc, or a pair from `unconvoy locks`")
}

pub(crate) fn option_of_counter(workload: &str) -> String {
    format!("--think and --section need the workload counter, not {workload}")
}

// Machine files.

pub(crate) fn invalid_machine_file(name: &str, why: &str) -> String {
    format!("{name} is not a machine file: {why}")
}

pub(crate) fn count_of_zero() -> &'static str {
    "a machine has at least one of these"
}

pub(crate) fn count_too_large(most: u32) -> String {
    format!("at most {most} can be simulated")
}

pub(crate) fn too_many_contexts(contexts: usize, most: u32) -> String {
    format!("[topology]: {contexts} contexts; at most {most} can be simulated")
}

pub(crate) fn time_of_zero(line: usize, table: &str, key: &str) -> String {
    format!("line {line}: {table}.{key} is 0; use at least 1")
}

pub(crate) fn value_too_large(line: usize, table: &str, key: &str, most: i64) -> String {
    format!("line {line}: {table}.{key} is too large; use at most {most}")
}

pub(crate) fn mwait_exit_too_long(line: usize, most: u64) -> String {
    format!("line {line}: memory.mwait_exit_ns is too long; use at most {most} (1 ms)")
}

pub(crate) fn columns_of_dispatch() -> &'static str {
    "scheduler.dispatch: rows of quantum in milliseconds, tqexp, slpret, maxwait in seconds, lwait"
}

pub(crate) fn dispatch_range(column: &str, value: u64, from: u64, to: u64) -> String {
    format!("scheduler.dispatch: {column} is {value}; use {from} to {to}")
}

pub(crate) fn dispatch_levels(count: usize, levels: usize) -> String {
    format!("scheduler.dispatch has {count} rows; use {levels}")
}

pub(crate) fn dispatch_without_time_sharing(line: usize) -> String {
    format!("line {line}: scheduler.dispatch needs scheduler.order = \"time-sharing\"")
}

pub(crate) fn unsorted_quantiles() -> &'static str {
    "quantiles must not decrease"
}

pub(crate) fn uneven_ways(line: usize, ways: u32, lines: u32) -> String {
    format!(
        "line {line}: transactions.write_ways ({ways}) does not divide transactions.write_lines \
         ({lines})"
    )
}

pub(crate) fn backoff_limit_too_short(line: usize) -> String {
    format!(
        "line {line}: transactions.backoff_limit_ns is shorter than transactions.backoff_first_ns"
    )
}

// Calibration.

/// `why` may have several lines, like all errors of the TOML parser.
pub(crate) fn invalid_calibration(path: &Path, why: &str) -> String {
    format!(
        "cannot parse {}; calibrate again with `unconvoy sim --calibrate`\n{why}",
        path.display()
    )
}

pub(crate) fn unreadable_calibration(path: &Path, why: &dyn Display) -> String {
    format!("cannot read {}, the calibration of this machine: {why}", path.display())
}

pub(crate) fn no_home() -> &'static str {
    "no home directory for the machine file; name a file, as in --calibrate mine.toml"
}

pub(crate) fn calibration_progress(done: u64, all: usize, seconds: u64) -> String {
    format!("measurement {done} of {all} after {seconds} s")
}

pub(crate) fn measured_while_busy(others: f64) -> String {
    format!(
        "The machine was busy: other programs used {:.0} % of its processors.\n\
         Times may be too long; calibrate again when it is idle.",
        100.0 * others
    )
}

pub(crate) fn perhaps_shared_core(slowdown: u32) -> String {
    format!(
        "Two processors slow each other down by {} %; they may be unreported contexts \
         of one core.\n\
         If they are, set contexts_per_core = 2 in the file, and halve cores_per_cache.",
        slowdown / 10
    )
}

pub(crate) fn not_measured(keys: &[&str]) -> String {
    list("Not measured, for the reasons in the file:", keys)
}

// Validation.

pub(crate) fn no_records() -> &'static str {
    "--validate needs a record of this machine; make one with\n  \
     unconvoy bench counter --locks all --threads 1,2,4,8,16,32 --out counter"
}

pub(crate) fn not_calibrated() -> &'static str {
    "the machine is not calibrated: its costs are typical ones; run unconvoy sim --calibrate first"
}

pub(crate) fn calibrated_while_busy() -> &'static str {
    "the machine was busy during its calibration; calibrate it again when it is idle"
}

pub(crate) fn other_machine(file: &str, processors: u32, contexts: usize) -> String {
    format!("{file} is from a machine with {processors} processors, and this one has {contexts}")
}

pub(crate) fn not_a_benchmark_record(path: &Path) -> String {
    format!(
        "{} is not a benchmark record; make one with `unconvoy bench counter --locks all --out \
         BASENAME`",
        path.display()
    )
}

pub(crate) fn unknown_schema(path: &Path, found: &str, supported: &str) -> String {
    format!("{} has the format {found}; only {supported} is supported", path.display())
}

pub(crate) fn unsupported_benchmark(path: &Path, benchmark: &str) -> String {
    format!(
        "{} records the benchmark {benchmark}; counter, hashtable, nested and interference \
         (with\n  counter) can be simulated",
        path.display()
    )
}

pub(crate) fn measured_with_latency(path: &Path) -> String {
    format!(
        "{} was measured with --latency, which adds two clock reads to each operation\n\
         measure again without it",
        path.display()
    )
}

pub(crate) fn measured_with_options(path: &Path, options: &[String]) -> String {
    format!(
        "{} was measured with {}, which the simulator does not support; measure again without it",
        path.display(),
        options.join(" ")
    )
}

pub(crate) fn no_throughput(path: &Path) -> String {
    format!("{}: a run has no ops_per_sec", path.display())
}

// Profiles.

pub(crate) fn not_a_lock_record(path: &Path) -> String {
    format!(
        "{} is not a record of locks; make one with `unconvoy run --stats FILE -- PROGRAM`",
        path.display()
    )
}

pub(crate) fn no_acquired_lock(path: &Path) -> String {
    format!("{} has no acquired lock: record a program that uses pthread locks", path.display())
}

pub(crate) fn more_waiting_than_threads(path: &Path, threads: u32) -> String {
    format!(
        "{}: its threads waited for longer than {} could: give --recorded-threads",
        path.display(),
        counted(threads.into(), "thread")
    )
}

// Simulations.

pub(crate) fn other_thread_counts() -> &'static str {
    "rows with other thread counts than those of --threads"
}

pub(crate) fn no_memory() -> &'static str {
    "not enough memory for the simulated machine"
}

pub(crate) fn not_transactional(workload: &str) -> String {
    format!("the sections of {workload} cannot run as transactions; use another lock")
}

pub(crate) fn no_transactions(machine: &str) -> String {
    format!("{machine} has no transactions; add a table [transactions] to its machine file")
}

/// Threads that the message of a hang lists.
const LISTED_THREADS: usize = 8;

/// `threads` has a line for each thread.
pub(crate) fn hang(at_ns: u64, threads: &str) -> String {
    let listed = threads.lines().take(LISTED_THREADS).collect::<Vec<_>>().join("\n");
    let rest = match threads.lines().count().saturating_sub(LISTED_THREADS) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    format!("the simulated program hangs at {at_ns} ns:\n{listed}{rest}")
}

pub(crate) fn stopped() -> &'static str {
    "stopped"
}

pub(crate) fn corrupt_tree(why: &str) -> String {
    format!("the tree of RB-Tree is corrupt: {why}")
}

pub(crate) fn no_section_recorded() -> &'static str {
    "no critical section was recorded"
}

pub(crate) fn no_estimate() -> &'static str {
    "the model has no estimate for the lock"
}

pub(crate) fn too_many_lines(lines: usize, most: usize) -> String {
    format!("the recorded sections touch {lines} cache lines; a simulation has room for {most}")
}

pub(crate) fn cell_failed(panel: &str, series: &str, x: f64, why: &anyhow::Error) -> String {
    format!("{panel} {series} at {x}: {why:#}")
}

pub(crate) fn more_failures(first: &str, others: usize) -> String {
    format!("{first}\n{others} more points failed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{presets, workload};

    #[test]
    fn every_message() {
        let record = Path::new("results/counter.json");
        let calibration = Path::new("/home/user/.config/unconvoy/host.toml");
        let names = |table: &[(&'static str, &str)]| -> Vec<&'static str> {
            table.iter().map(|&(name, _)| name).collect()
        };
        let why = "line 3: scheduler.tick_ns is 0; use at least 1";
        let messages: Vec<String> = vec![
            cannot_read(record),
            unknown_machine("laptop", &names(presets::PRESETS)),
            unknown_workload("sort", &names(workload::WORKLOADS)),
            unknown_lock("mcs+sleep"),
            option_of_counter("tm1"),
            invalid_machine_file("mine.toml", why),
            count_of_zero().into(),
            count_too_large(4096),
            too_many_contexts(65_536, 4096),
            time_of_zero(3, "scheduler", "tick_ns"),
            value_too_large(17, "memory", "memory_ns", 3_600_000_000_000),
            mwait_exit_too_long(19, 1_000_000),
            columns_of_dispatch().into(),
            dispatch_range("tqexp", 60, 0, 59),
            dispatch_levels(59, 60),
            dispatch_without_time_sharing(31),
            unsorted_quantiles().into(),
            uneven_ways(70, 7, 512),
            backoff_limit_too_short(72),
            invalid_calibration(calibration, why),
            unreadable_calibration(calibration, &"permission denied"),
            no_home().into(),
            calibration_progress(120, 341, 25),
            measured_while_busy(0.12),
            perhaps_shared_core(480),
            not_measured(&["same_socket_ns", "other_socket_ns", "sensor_thread_ns"]),
            no_records().into(),
            not_calibrated().into(),
            calibrated_while_busy().into(),
            other_machine("counter.json", 2, 128),
            not_a_benchmark_record(record),
            unknown_schema(record, "unconvoy-bench-9", "unconvoy-bench-1"),
            unsupported_benchmark(record, "leveldb"),
            measured_with_latency(record),
            measured_with_options(record, &["--nested".to_string()]),
            no_throughput(record),
            not_a_lock_record(Path::new("stats.json")),
            no_acquired_lock(Path::new("stats.json")),
            more_waiting_than_threads(Path::new("stats.json"), 2),
            other_thread_counts().into(),
            no_memory().into(),
            no_transactions("niagara2-64"),
            not_transactional("hashtable"),
            no_shared_lock("solaris"),
            hang(1_000_000, "  worker: Wait, Blocked on 0x40, context 3, Work(0)"),
            stopped().into(),
            corrupt_tree("the root, 7, is red"),
            no_section_recorded().into(),
            no_estimate().into(),
            too_many_lines(2_000_000, 1_000_000),
            cell_failed("counter", "mcs+none", 64.0, &anyhow::anyhow!(no_memory())),
            more_failures(&cell_failed("tm1", "tas+none", 8.0, &anyhow::anyhow!("stopped")), 4),
        ];
        for message in &messages {
            println!("unconvoy: {message}");
            assert!(message.lines().all(|line| line.chars().count() <= 120), "{message}");
            assert!(message.lines().count() <= 2, "{message}");
            let sentences = message.matches(". ").count() + message.matches(".\n").count() + 1;
            assert!(!message.ends_with('.') || sentences > 1, "{message}");
        }
        let source = include_str!("messages.rs").split("#[cfg(test)]").next().unwrap_or_default();
        let functions = source.matches("\npub(crate) fn ").count();
        assert_eq!(messages.len(), functions, "every message function is listed above");
    }
}
