//! Runs the C programs in `c/`, which check return codes and orderings, with glibc alone and under
//! each pair of lock and load manager. The outputs must be equal, line by line.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::mixed::mixed;
use support::pairs::{Pair, pairs};
use support::{compile, plain, preloaded, run, with_pair};

/// Number of differing lines shown per pair.
const SHOWN: usize = 12;

#[track_caller]
fn conforms(
    source: &str,
    fewest_checks: usize,
    arguments: impl Fn(&tempfile::TempDir) -> Vec<PathBuf>,
) {
    conforms_in(source, fewest_checks, arguments, &pairs(), |program| preloaded(program));
}

/// As [`conforms`], under these pairs, in the environment that `command` sets up.
#[track_caller]
fn conforms_in(
    source: &str,
    fewest_checks: usize,
    arguments: impl Fn(&tempfile::TempDir) -> Vec<PathBuf>,
    pairs: &[Pair],
    command: impl Fn(&Path) -> Command,
) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), source, &[]);
    let arguments = arguments(&directory);

    // The program contains its expectations of glibc. If this fails, the program is wrong, or this
    // glibc behaves differently from the one that it was written for (2.36).
    let without = run(plain(&program).args(&arguments)).success(source);
    let expected = without.text();
    let checks = expected.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(checks >= fewest_checks, "{source} made only {checks} checks");

    let mut differences = String::new();
    for &(lock, load) in pairs {
        let with = run(with_pair(command(&program), lock, load).args(&arguments));
        let got = with.text();
        let mut lines: Vec<String> = expected
            .lines()
            .zip(got.lines())
            .filter(|(expected, got)| expected != got)
            .map(|(expected, got)| format!("    without: {expected}\n    with:    {got}"))
            .collect();
        if got.lines().count() != expected.lines().count() {
            lines.push(format!(
                "    {} lines without, {} with, the last being: {}",
                expected.lines().count(),
                got.lines().count(),
                got.lines().last().unwrap_or("(none)")
            ));
        }
        if with.status != without.status {
            lines.push(format!("    {} without, {} with", without.status, with.status));
        }
        let stderr = with.own_stderr(lock);
        if stderr != without.stderr {
            lines.push(format!("    on stderr: {}", stderr.trim_end()));
        }
        if !lines.is_empty() {
            let more = lines.len().saturating_sub(SHOWN);
            lines.truncate(SHOWN);
            differences += &format!("  {lock} with {load}:\n{}\n", lines.join("\n"));
            if more > 0 {
                differences += &format!("    and {more} more\n");
            }
        }
    }
    assert!(differences.is_empty(), "{source} differs under the library:\n{differences}");
}

fn no_arguments(_: &tempfile::TempDir) -> Vec<PathBuf> {
    Vec::new()
}

#[test]
fn mutexes_match_glibc() {
    conforms("conformance_mutex.c", 400, no_arguments);
}

#[test]
fn condition_variables_match_glibc() {
    conforms("conformance_cond.c", 300, no_arguments);
}

#[test]
fn reader_writer_and_spin_locks_match_glibc() {
    conforms("conformance_rwlock.c", 400, no_arguments);
}

#[test]
fn timed_out_and_cancelled_waiters_match_glibc() {
    conforms("conformance_giveup.c", 120, no_arguments);
}

#[test]
fn mutexes_handed_to_libc_match_glibc() {
    conforms("conformance_handed.c", 1000, no_arguments);
}

#[test]
fn destruction_in_every_state_matches_glibc() {
    conforms("conformance_destroy.c", 1500, no_arguments);
}

#[test]
fn destruction_of_mutexes_in_condition_waits_matches_glibc() {
    conforms("conformance_destroy_waits.c", 1500, no_arguments);
}

#[test]
fn threads_processes_and_loaded_objects_match_glibc() {
    conforms("conformance_process.c", 80, |directory| {
        // A shared object needs its suffix: without it, the file looks like a program.
        let object = compile(directory.path(), "dlopened.c", &["-shared", "-fPIC"]);
        let named = object.with_extension("so");
        std::fs::rename(&object, &named).expect("a rename in one directory");
        vec![named]
    });
}

#[test]
fn process_edge_cases_match_glibc() {
    conforms("conformance_edges.c", 60, no_arguments);
}

#[test]
fn program_with_own_malloc_matches_glibc() {
    conforms("conformance_malloc.c", 6, no_arguments);
}

#[test]
fn locks_of_different_pairs_in_one_process_match_glibc() {
    let default = [("loiter", "control")];
    for (source, fewest_checks) in [
        ("conformance_mutex.c", 400),
        ("conformance_cond.c", 300),
        ("conformance_rwlock.c", 400),
        ("conformance_destroy.c", 1500),
        ("conformance_edges.c", 60),
    ] {
        conforms_in(source, fewest_checks, no_arguments, &default, mixed);
    }
}
