//! Messages of `inspect` and `run --watchdog`.

use std::fmt::Display;
use std::path::Path;

pub(crate) fn no_library(what: &str) -> String {
    format!("no libunconvoy.so in {what}: run the program under `unconvoy run`")
}

pub(crate) fn not_permitted(pid: u32) -> String {
    format!(
        "no permission to look into process {pid}: use its own user, or root; where \
         kernel.yama.ptrace_scope is not 0, root"
    )
}

pub(crate) fn other_version(what: &str, theirs: u32, ours: u32) -> String {
    format!(
        "{what} has a library of another version: tables of version {theirs}, not {ours}; use the \
         `unconvoy` of that library"
    )
}

pub(crate) fn unreadable_tables(what: &str) -> String {
    format!(
        "cannot read libunconvoy.so in {what}: the process has ended or changed, or the core is \
         cut off"
    )
}

pub(crate) fn no_core(path: &Path) -> String {
    format!("{} is no core dump of a 64-bit program: name a process id or a core", path.display())
}

pub(crate) fn other_machine(path: &Path) -> String {
    format!("{} is of another machine: inspect reads x86-64 core dumps only", path.display())
}

pub(crate) fn truncated_at_start(path: &Path) -> String {
    format!("{} is cut off before its list of threads: check `ulimit -c`", path.display())
}

pub(crate) fn truncated(bytes: u64) -> String {
    format!("The core is cut off: {bytes} bytes are missing. Check `ulimit -c`.")
}

pub(crate) fn no_folder(path: &Path) -> String {
    format!("--files {}: no such folder", path.display())
}

pub(crate) fn missing_file(path: &Path) -> String {
    let path = path.display();
    format!("Missing: {path}. Its code is shown by offset: give the folder of a copy with --files.")
}

pub(crate) fn other_build(path: &Path) -> String {
    let path = path.display();
    format!("Another build: {path}. Give the folder of the core's own file with --files.")
}

pub(crate) fn no_watchdog(why: impl Display) -> String {
    format!("running without a watchdog: {why}")
}

pub(crate) fn watchdog_blind(why: impl Display) -> String {
    format!("the watchdog ends: {why}")
}

pub(crate) fn watchdog_report(limit: &str) -> String {
    format!("watchdog: a thread has waited for a lock for more than {limit}")
}

pub(crate) fn cannot_write_report(file: &Path, error: impl Display) -> String {
    format!("the watchdog cannot write {}: {error}; its report follows", file.display())
}

pub(crate) fn not_a_duration(least: f64, most: f64) -> String {
    format!("expected a time such as 10s, 500ms or 2min, from {least} to {most} seconds")
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    let (core, process) = (Path::new("core.4711"), "process 4711 (/usr/bin/server)");
    vec![
        no_library(process),
        not_permitted(4711),
        other_version("process 4711", 2, 1),
        unreadable_tables(process),
        no_core(core),
        other_machine(core),
        truncated_at_start(core),
        truncated(4096),
        no_folder(Path::new("copies")),
        missing_file(Path::new("/usr/lib/libserver.so")),
        other_build(Path::new("/usr/lib/libserver.so")),
        no_watchdog("cannot create a process"),
        watchdog_blind(no_library(process)),
        watchdog_report("10 s"),
        cannot_write_report(Path::new("hang.txt"), "No space left on device (os error 28)"),
        not_a_duration(0.1, 86_400.0),
    ]
}
