//! Errors and warnings of benchmarks: one function per message.
//!
//! A message says what failed, why, and what to do next. Library errors follow a message as its
//! cause, after a colon.

use std::fmt::Display;
use std::path::Path;

pub(crate) fn program_missing(paths: &str, packages: &[&str]) -> String {
    let install = match packages {
        [] => String::new(),
        some => format!(" after `apt-get install {}`", some.join(" ")),
    };
    format!(
        "{paths} is missing:\n  \
         build it with `make workloads`{install}, or name its directory with --workloads DIR"
    )
}

pub(crate) fn file_missing(workload: &str, file: &str, packages: &[&str]) -> String {
    format!("{workload} needs {file}: apt-get install {}", packages.join(" "))
}

pub(crate) fn not_installed(program: &str, package: &str) -> String {
    format!("{program} is not installed: apt-get install {package}")
}

pub(crate) fn cannot_start(program: &Path) -> String {
    format!("cannot start {}", program.display())
}

pub(crate) fn killed_after(seconds: f64) -> String {
    format!("was killed {seconds} s after its start")
}

pub(crate) fn failed_with(status: impl Display, output: &str) -> String {
    format!("failed with {status}: {output}")
}

pub(crate) fn printed_nothing() -> &'static str {
    "no output"
}

pub(crate) fn printed_on_stderr(text: &str) -> String {
    format!("printed on standard error: {text}")
}

pub(crate) fn metric_missing(program: &str, metric: &str) -> String {
    format!("the output of {program} has no {metric}")
}

pub(crate) fn not_a_pair(example: &str) -> String {
    format!("expected LOCK+LOAD, such as {example}")
}

pub(crate) fn unknown_name(name: &str, known: &str) -> String {
    format!("unknown name {name}: expected one of {known}")
}

pub(crate) fn unknown_choice(why: &str) -> String {
    format!("{why}; or libc, libc-adaptive, default, default@POLICY, default@SENSOR, all")
}

pub(crate) fn lock_not_available(lock: &str, reason: &str) -> String {
    format!("{lock} is not available on this machine: {reason}")
}

pub(crate) fn no_option_for_kind() -> &'static str {
    "libc-adaptive: this program has no option for the kind of mutex"
}

pub(crate) fn lock_reduced(lock: &str, reason: &str) -> String {
    format!("{lock} has reduced function: {reason}")
}

pub(crate) fn lock_skipped(lock: &str, reason: &str) -> String {
    format!("{lock} skipped: {reason}")
}

pub(crate) fn unknown_sensor() -> &'static str {
    "unknown sensor: see `unconvoy locks`"
}

pub(crate) fn sensor_not_available(cause: &str) -> String {
    format!("{cause}: leave it out of --sensors")
}

pub(crate) fn nothing_to_read() -> &'static str {
    "the sensor has nothing to read: is /proc mounted?"
}

pub(crate) fn invalid_count_setting(variable: &str, value: &str) -> String {
    format!("{variable}={value} is not PROCESS:FIRST:COUNT")
}

pub(crate) fn no_controller(seconds: u64, threads: u32) -> String {
    format!("no controller started within {seconds} s of contention between {threads} threads")
}

pub(crate) fn controller_exited() -> &'static str {
    "the controller exited during contention"
}

pub(crate) fn controller_stayed(seconds: u64) -> String {
    format!("the controller was still running {seconds} s after the contention")
}

pub(crate) fn cannot_start_thread() -> &'static str {
    "cannot start a thread"
}

pub(crate) fn cannot_read(file: impl Display) -> String {
    format!("cannot read {file}")
}

pub(crate) fn cannot_read_directory(directory: &Path) -> String {
    format!("cannot read the directory {}", directory.display())
}

pub(crate) fn field_missing(file: &str) -> String {
    format!("{file} has no Rss or Private_Dirty")
}

pub(crate) fn no_sample() -> &'static str {
    "the program ended before its memory was read; use longer --seconds"
}

pub(crate) fn incomplete_record(file: &Path) -> String {
    format!("{} is not a complete record", file.display())
}

pub(crate) fn not_a_benchmark(file: &Path) -> String {
    format!("skipping {}: not a record of a benchmark", file.display())
}

pub(crate) fn no_records(directory: &Path) -> String {
    let directory = directory.display();
    format!("{directory} holds no record: run a benchmark with --out {directory}/NAME")
}

pub(crate) fn cannot_read_free_space(directory: &Path) -> String {
    format!("cannot read the free space of {}", directory.display())
}

/// `needed` and `free` are in MiB.
pub(crate) fn no_space(directory: &Path, needed: u64, free: u64) -> String {
    format!(
        "no space: {needed} MB needed in {}, {free} free:\n  \
         name another --directory, or use fewer --tasks or smaller options",
        directory.display()
    )
}

pub(crate) fn cannot_create_directory(parent: &Path) -> String {
    let parent = parent.display();
    format!("cannot create a directory in {parent}: name another with --directory")
}

pub(crate) fn no_such_directory(path: &Path) -> String {
    format!("{} does not exist", path.display())
}

pub(crate) fn unreadable(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}

pub(crate) fn not_a_number(path: &Path) -> String {
    format!("{}: not a number", path.display())
}

pub(crate) fn no_energy_counter(directory: &Path) -> String {
    format!("no energy counter of a processor in {}", directory.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints every message with sample arguments, and checks its form.
    #[test]
    fn every_message() {
        let (file, directory) = (Path::new("results/pair.json"), Path::new("/dev/shm"));
        let powercap = Path::new("/sys/class/powercap");
        let reason = "the processor commits no transactions";
        let all: Vec<String> = vec![
            program_missing("/usr/lib/workloads/leveldb_bench", &["libleveldb-dev"]),
            file_missing("raytrace", "/usr/bin/tachyon", &["tachyon"]),
            not_installed("find", "findutils"),
            cannot_start(Path::new("/usr/lib/workloads/counter")),
            killed_after(61.0),
            failed_with("exit status 1", printed_nothing()),
            printed_nothing().into(),
            printed_on_stderr("ld.so: object cannot be preloaded"),
            metric_missing("counter", "ops_per_sec"),
            not_a_pair("tpmcs+control"),
            unknown_name("mutex", "loiter, tpmcs, mcs"),
            unknown_choice("unknown name mutex: expected one of loiter, tpmcs"),
            lock_not_available("elided", reason),
            no_option_for_kind().into(),
            lock_reduced("tpmcs-slice", "the kernel has no time-slice extension"),
            lock_skipped("elided", reason),
            unknown_sensor().into(),
            sensor_not_available("psi: the kernel has no pressure stall information"),
            nothing_to_read().into(),
            invalid_count_setting("UNCONVOY_BPF", "1:x"),
            no_controller(5, 64),
            controller_exited().into(),
            controller_stayed(5),
            cannot_start_thread().into(),
            cannot_read(file.display()),
            cannot_read_directory(Path::new("results")),
            field_missing("/proc/7/smaps_rollup"),
            no_sample().into(),
            incomplete_record(file),
            not_a_benchmark(file),
            no_records(Path::new("results")),
            cannot_read_free_space(directory),
            no_space(directory, 900, 64),
            cannot_create_directory(directory),
            no_such_directory(powercap),
            unreadable(powercap, "Permission denied (os error 13)"),
            not_a_number(powercap),
            no_energy_counter(powercap),
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
