//! Random programs of pthread calls, under glibc and under the library. A model states what each
//! call may do (`differential/model.rs`); a difference is shrunk to few calls.
//!
//! `UNCONVOY_DIFFERENTIAL_SECONDS` sets the time for each pair of a lock and a load manager, and
//! `UNCONVOY_SUITE_SEED` the random choices.

#[path = "differential/calls.rs"]
mod calls;
#[path = "differential/defined.rs"]
mod defined;
#[path = "differential/model.rs"]
mod model;
#[path = "differential/random.rs"]
mod random;
#[path = "differential/subject.rs"]
mod subject;
mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use calls::Line;
use fastrand::Rng;
use subject::{Failure, Subject};
use support::pairs::pairs;
use support::{compile, plain, preloaded_with};

/// Number of calls of a program.
const LENGTH: usize = 120;

/// Makes random calls until `end`; returns them, and what went wrong.
fn run_random(command: Command, random: &mut Rng, end: Instant) -> (Vec<Line>, Option<Failure>) {
    let mut lines = Vec::new();
    let mut subject = match Subject::start(command) {
        Ok(subject) => subject,
        Err(failure) => return (lines, Some(failure)),
    };
    while lines.len() < LENGTH && Instant::now() < end {
        let Some(line) = random::next_line(random, &subject) else { break };
        lines.push(line);
        if let Err(failure) = subject.make(line) {
            return (lines, Some(failure));
        }
    }
    (lines, subject.settle().err())
}

/// Makes these calls, without those that are not defined then.
fn run_lines(command: Command, lines: &[Line]) -> Option<Failure> {
    let mut subject = match Subject::start(command) {
        Ok(subject) => subject,
        Err(failure) => return Some(failure),
    };
    for &line in lines {
        if subject.may_call(line.thread, line.call)
            && let Err(failure) = subject.make(line)
        {
            return Some(failure);
        }
    }
    subject.settle().err()
}

/// Whether these calls fail in the same way, and how then.
fn fails_again(
    command: &dyn Fn() -> Command,
    lines: &[Line],
    failure: &Failure,
) -> Option<Failure> {
    // A failure that depends on timing does not appear each time.
    let found = (0..3).find_map(|_| run_lines(command(), lines));
    found.filter(|found| found.kind == failure.kind)
}

/// A short program that fails in the same way, and how.
fn shrink(
    command: &dyn Fn() -> Command,
    mut lines: Vec<Line>,
    mut failure: Failure,
) -> (Vec<Line>, Failure) {
    let end = Instant::now() + Duration::from_secs(120);
    // A failure that needs no two calls at once appears each time without them.
    let in_turn: Vec<Line> = lines.iter().map(|&line| Line { settles: true, ..line }).collect();
    if let Some(found) = fails_again(command, &in_turn, &failure) {
        (lines, failure) = (in_turn, found);
    }
    let mut size = lines.len() / 2;
    while size > 0 && Instant::now() < end {
        let mut at = 0;
        while at < lines.len() && Instant::now() < end {
            let mut fewer = lines.clone();
            fewer.drain(at..(at + size).min(lines.len()));
            match fails_again(command, &fewer, &failure) {
                Some(found) => (lines, failure) = (fewer, found),
                None => at += size,
            }
        }
        size /= 2;
    }
    (lines, failure)
}

fn seconds() -> Duration {
    let text = std::env::var("UNCONVOY_DIFFERENTIAL_SECONDS");
    Duration::from_secs(text.map_or(3, |text| text.parse().expect("a number of seconds")))
}

fn seed() -> u64 {
    let text = std::env::var("UNCONVOY_SUITE_SEED");
    text.map_or_else(|_| fastrand::u64(..1_000_000), |text| text.parse().expect("a number"))
}

/// Runs random programs for some time; describes the first that fails.
fn search(command: &dyn Fn() -> Command, time: Duration) -> Result<usize, String> {
    let seed = seed();
    let end = Instant::now() + time;
    let (mut programs, mut calls) = (0, 0);
    while Instant::now() < end {
        let mut random = Rng::with_seed(seed << 20 | programs);
        let (lines, failure) = run_random(command(), &mut random, end);
        calls += lines.len();
        if let Some(first) = failure {
            let text = first.text.clone();
            let (lines, failure) = shrink(command, lines, first);
            let listed: Vec<String> = lines.iter().map(|line| format!("  {line}")).collect();
            return Err(format!(
                "seed {seed}, program {programs}: {text}\nshrunk to {} calls:\n{}\n{}",
                lines.len(),
                listed.join("\n"),
                failure.text
            ));
        }
        programs += 1;
    }
    println!("seed {seed}: {programs} programs, {calls} calls");
    Ok(calls)
}

#[test]
fn random_programs_under_glibc_do_what_the_model_allows() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "differential.c", &[]);
    let calls = search(&|| plain(&program), seconds()).unwrap_or_else(|text| panic!("{text}"));
    assert!(calls > 0);
}

#[test]
fn random_programs_under_the_library_do_what_the_model_allows() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "differential.c", &[]);
    let mut differences = String::new();
    for (lock, load) in pairs() {
        if let Err(text) = search(&|| preloaded_with(&program, lock, load), seconds()) {
            differences += &format!("{lock}+{load}: {text}\n");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn planted_fault_is_found_and_shrunk() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "differential.c", &[]);
    let with_fault = || {
        let mut command = plain(&program);
        command.arg("--fault");
        command
    };
    let difference = search(&with_fault, Duration::from_secs(60)).expect_err("a difference");
    println!("{difference}");
    let calls = difference.lines().filter(|line| line.starts_with("  ")).count();
    assert!(difference.contains("returned 0; allowed: ") && calls <= 6, "{difference}");
}
