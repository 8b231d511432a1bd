//! Errors and warnings of measurements: one function per message.
//!
//! A message says what failed, why, and what to do next. Library errors follow a message as its
//! cause, after a colon.

use std::fmt::Display;
use std::path::Path;

pub(crate) fn threads_out_of_range() -> &'static str {
    "expected a number from 1 to 4096"
}

pub(crate) fn seconds_out_of_range() -> &'static str {
    "expected a number from 0.01 to 3600"
}

pub(crate) fn timeout_not_a_number() -> &'static str {
    "expected a number of seconds"
}

pub(crate) fn timeout_not_positive() -> &'static str {
    "expected more than 0 seconds"
}

/// Times in nanoseconds; `far` of `count` measurements were nearer to the greatest one.
pub(crate) fn processors_moved(least: u32, greatest: u32, far: usize, count: usize) -> String {
    format!(
        "a cache line moved between two processors in {least} to {greatest} ns, slowly before \
         {far} of {count} runs:\n  the virtual processors moved, and what locks cost changes with \
         that; compare runs of similar transfer_ns"
    )
}

pub(crate) fn timeout_too_long(most: u64) -> String {
    format!("expected at most {most} seconds, which is a year")
}

pub(crate) fn file_too_long(most: u64) -> String {
    format!("it is longer than {} MiB, the most that is read", most >> 20)
}

pub(crate) fn not_utf_8() -> &'static str {
    "it is not UTF-8 text"
}

pub(crate) fn cannot_read(file: &Path) -> String {
    format!("cannot read {}", file.display())
}

pub(crate) fn cannot_write(file: &Path) -> String {
    format!("cannot write {}", file.display())
}

pub(crate) fn cannot_print(error: impl Display) -> String {
    format!("cannot print the results: {error}")
}

pub(crate) fn cannot_make_directory(directory: &Path) -> String {
    format!("cannot make the directory {}", directory.display())
}

pub(crate) fn is_a_directory(path: &Path) -> String {
    format!("{} is a directory: name a file in it", path.display())
}

pub(crate) fn no_directory(file: &Path, directory: &Path) -> String {
    format!("cannot write {}: create the directory {}", file.display(), directory.display())
}

pub(crate) fn path_splits_preload(path: &Path, variable: &str) -> String {
    format!(
        "the dynamic loader splits LD_PRELOAD at spaces and colons and cannot load {}:\n  \
         copy the file to another path and set {variable} to it",
        path.display()
    )
}

fn or_set(variable: Option<&str>) -> String {
    variable.map_or_else(String::new, |variable| format!(" or set {variable} to its path"))
}

pub(crate) fn part_missing(name: &str, places: &str, way: &str, variable: Option<&str>) -> String {
    let or_set = or_set(variable);
    format!("{name} is missing; looked for {places}.\n  {way}{or_set}")
}

pub(crate) fn command_not_located(name: &str, variable: Option<&str>) -> String {
    let or_set = or_set(variable);
    format!("cannot find {name}: /proc/self/exe does not name this command; mount /proc{or_set}")
}

pub(crate) fn build_part(package: &str) -> String {
    format!("Build it (cargo build --release -p {package})")
}

pub(crate) fn install_part(target: &str, prefix: &Path) -> String {
    format!(
        "Install it from a checkout of {} (make {target} PREFIX={})",
        env!("CARGO_PKG_REPOSITORY"),
        prefix.display()
    )
}

pub(crate) fn use_checkout() -> String {
    format!(
        "Use the command of a checkout of {} (cargo build --release --workspace)",
        env!("CARGO_PKG_REPOSITORY")
    )
}

pub(crate) fn install_package(package: &str) -> String {
    format!("Install the package {package}")
}

pub(crate) fn left_processes(count: u32) -> String {
    let processes = if count == 1 { "a process" } else { "processes" };
    format!(
        "warning: the program left {processes} behind, now killed: run it in the foreground, or \
         let it stop what it starts"
    )
}

pub(crate) fn svg_only(why: &str) -> String {
    format!("note: the figure is an SVG only: {why}")
}

pub(crate) fn cannot_run(program: &Path) -> String {
    format!("cannot run {}", program.display())
}

pub(crate) fn program_failed(name: &str, status: impl Display, output: &str) -> String {
    format!("{name} failed ({status}): {output}")
}

pub(crate) fn not_a_record(file: &Path) -> String {
    format!("{} is not a record of `unconvoy bench`", file.display())
}

pub(crate) fn record_complete(file: &Path) -> String {
    format!("{} is complete: there is nothing to resume", file.display())
}

pub(crate) fn record_differs(file: &Path, what: &str, old: &str, new: &str) -> String {
    let is = if what.ends_with('s') { "are" } else { "is" };
    format!(
        "{} cannot be resumed: its {what} {is} {old} and not {new};\n  \
         repeat its options, or start again without --resume",
        file.display()
    )
}

pub(crate) fn run_not_in_plan(file: &Path) -> String {
    format!("{} cannot be resumed: it has a run that is not in the plan", file.display())
}

pub(crate) fn duplicate_run(file: &Path) -> String {
    format!("{} cannot be resumed: it has a duplicate run", file.display())
}

pub(crate) fn sample_without_cell() -> &'static str {
    "the benchmark measured a cell that is not in its plan"
}

pub(crate) fn no_standard_input() -> &'static str {
    "the program has no standard input"
}

pub(crate) fn needs_terminal() -> &'static str {
    "uses the terminal, which a measured program cannot: give it options or files instead"
}

pub(crate) fn cells_failed(failed: usize, cells: usize) -> String {
    format!("{failed} of {cells} cells failed: see their reasons")
}

pub(crate) fn run_failed(cell: &str) -> String {
    format!("a run failed: {cell}")
}

pub(crate) fn failed_before(why: &str) -> String {
    format!(
        "a run failed before this record was continued: {why}\n  \
         so the other runs of its cell came later than other cells', and count in no ratio to them"
    )
}

pub(crate) fn measured_later(cell: &str) -> String {
    format!("measured later than the others, after --resume: {cell}; start again without it")
}

/// Begins the cause of a violation.
pub(crate) const VIOLATION: &str = "CONSISTENCY VIOLATION";

pub(crate) fn violation(why: impl Display) -> String {
    format!("{VIOLATION}: {why}")
}

pub(crate) fn cells_violated(violated: usize, cells: usize) -> String {
    format!("{VIOLATION} in {violated} of {cells} cells: do not use these locks")
}

pub(crate) fn runs_saved(count: usize, command: &str) -> String {
    format!("{count} runs saved; to resume: {command}")
}

pub(crate) fn exit_status(code: i32) -> String {
    format!("exit status {code}")
}

pub(crate) fn ended_by_signal(number: i32, name: &str, dumped_core: bool) -> String {
    let dumped = if dumped_core { ", core dumped" } else { "" };
    format!("ended by signal {number} ({name}{dumped})")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints every message with sample arguments, and checks its form.
    #[test]
    fn every_message() {
        let file = Path::new("results/counter.json");
        let all: Vec<String> = vec![
            threads_out_of_range().into(),
            seconds_out_of_range().into(),
            timeout_not_a_number().into(),
            timeout_not_positive().into(),
            timeout_too_long(31_536_000),
            file_too_long(64 << 20),
            not_utf_8().into(),
            processors_moved(30, 220, 2, 5),
            cannot_read(file),
            cannot_write(file),
            cannot_print("No space left on device (os error 28)"),
            cannot_make_directory(Path::new("results")),
            is_a_directory(Path::new("results")),
            no_directory(file, Path::new("results")),
            path_splits_preload(Path::new("/home/a user/libunconvoy.so"), "UNCONVOY_LIBRARY"),
            part_missing("unconvoy-png", "/usr/bin/unconvoy-png", "Build it", None),
            command_not_located("libunconvoy.so", Some("UNCONVOY_LIBRARY")),
            build_part("unconvoy-png"),
            install_part("install-library", Path::new("/home/user/.cargo")),
            use_checkout(),
            install_package("unconvoy-predict"),
            left_processes(2),
            svg_only("unconvoy-png is missing"),
            cannot_run(Path::new("/usr/bin/unconvoy-png")),
            program_failed("unconvoy-png", "exit status: 1", "cannot parse the SVG"),
            not_a_record(file),
            record_complete(file),
            record_differs(file, "threads", "[1]", "[1,2]"),
            run_not_in_plan(file),
            duplicate_run(file),
            sample_without_cell().into(),
            no_standard_input().into(),
            needs_terminal().into(),
            cells_failed(2, 12),
            run_failed("tpmcs+none, 64 threads"),
            failed_before("tpmcs+none, 64 threads, round 2: was killed 61 s after its start"),
            measured_later("tpmcs+none, 64 threads"),
            violation("tpcc, round 2: a warehouse has a wrong sum"),
            cells_violated(1, 12),
            runs_saved(7, "unconvoy bench counter --resume results/counter.json"),
            exit_status(3),
            ended_by_signal(11, "SIGSEGV", true),
        ];
        for message in &all {
            println!("{message}");
            assert!(message.lines().all(|line| line.len() <= 120), "too long: {message}");
            assert!(!message.ends_with('.') || message.contains(". "), "full stop: {message}");
        }
        let functions = include_str!("messages.rs").matches("\npub(crate) fn ").count();
        assert_eq!(all.len(), functions, "a message has no sample");
    }
}
