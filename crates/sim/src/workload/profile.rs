//! A program whose locks `unconvoy run --stats` has counted, as a workload.
//!
//! The record has each lock's acquisitions and the time that it was held. What it does not have is assumed, and
//! [said](Profile::assumptions):
//!
//! - A turn of a thread is one acquisition of the lock that is acquired most; it takes each other lock with the
//!   probability that the record has of it per such acquisition, one after the other and never inside one another.
//! - Times in critical sections and between them are exponentially distributed about their means.
//! - Between sections the threads computed for the rest of the processors' time: with at least as many processors as
//!   threads, for what they neither held a lock nor waited; with fewer, for what they did not hold a lock, since
//!   others ran while they waited.
//! - A section writes one line of shared data.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Deserialize;

use super::step::{Step, Workload};

/// The format of records that is understood.
const SCHEMA: &str = "unconvoy-stats-1";

/// Locks that are simulated: those that are acquired most.
const MOST: usize = 32;

#[derive(Deserialize)]
struct Record {
    schema: String,
    program: String,
    wall_ns: u64,
    #[serde(default)]
    processors: u32,
    #[serde(default)]
    locks: Vec<Lock>,
}

#[derive(Deserialize)]
struct Lock {
    kind: String,
    acquisitions: u64,
    wait_ns: u64,
    hold_ns: u64,
}

/// A workload, and what is behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The program.
    pub workload: Workload,
    /// What the record does not say, in sentences.
    pub assumptions: Vec<String>,
}

/// Reads the record that a program left which ran with `threads` threads.
///
/// # Errors
///
/// It cannot be read, is no such record, or has no lock that was acquired.
pub fn read(path: &Path, threads: Option<u32>) -> anyhow::Result<Profile> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let hint = "a record is what `unconvoy run --stats FILE -- PROGRAM` writes";
    let record: Record =
        serde_json::from_str(&text).with_context(|| format!("{name} is no record of locks; {hint}"))?;
    if record.schema != SCHEMA {
        bail!("{name} is a record of the format {}, and {SCHEMA} is understood", record.schema);
    }
    if record.locks.iter().all(|lock| lock.acquisitions == 0) || record.wall_ns == 0 {
        bail!("{name} has no lock that was acquired");
    }
    Ok(profile(record, threads))
}

fn profile(mut record: Record, threads: Option<u32>) -> Profile {
    record.locks.retain(|lock| lock.acquisitions > 0);
    record.locks.sort_by_key(|lock| std::cmp::Reverse(lock.acquisitions));
    let all = record.locks.len();
    let left_out: u64 = record.locks.iter().skip(MOST).map(|lock| lock.acquisitions).sum();
    let (turns, total) = (record.locks[0].acquisitions, record.locks.iter().map(|lock| lock.acquisitions).sum::<u64>());
    let others = record.locks.iter().filter(|lock| lock.kind != "mutex").count();

    let processors = record.processors.max(1);
    let ran_with = threads.unwrap_or(processors);
    let sum = |of: fn(&Lock) -> u64| record.locks.iter().map(of).sum::<u64>();
    let available = record.wall_ns.saturating_mul(u64::from(ran_with.min(processors)));
    let waited = if ran_with <= processors { sum(|lock| lock.wait_ns) } else { 0 };
    let outside = available.saturating_sub(sum(|lock| lock.hold_ns) + waited);
    let mut assumptions = Vec::new();
    if threads.is_none() {
        assumptions.push(format!(
            "the program ran with {ran_with} threads, one for each processor (--recorded-threads says how many)"
        ));
    }
    let nobody = if ran_with <= processors { "neither held a lock nor waited" } else { "did not hold a lock" };
    assumptions.push(format!(
        "its threads computed whenever they {nobody}: {} ns between two sections on average",
        outside / total
    ));
    assumptions.push(
        "times vary exponentially about their means; no section is inside another; each writes one line".to_string(),
    );
    if others > 0 {
        assumptions.push(format!("{others} reader-writer and spin locks are mutexes"));
    }
    if all > MOST {
        let part = 100.0 * left_out as f64 / total as f64;
        assumptions.push(format!("{} locks with {part:.1} % of the acquisitions are left out", all - MOST));
    }

    record.locks.truncate(MOST);
    // What is left out is time outside.
    let between = outside / turns / record.locks.len() as u64;
    let mut steps = Vec::new();
    for (group, lock) in record.locks.iter().enumerate() {
        let per_million = (lock.acquisitions as f64 / turns as f64 * 1e6).round().max(1.0) as u32;
        steps.push(Step::Varying { ns: between });
        steps.push(Step::Perhaps { group, per_million, ns: lock.hold_ns / lock.acquisitions, lines: 1 });
    }
    let program = Path::new(&record.program)
        .file_name()
        .map_or(record.program.clone(), |name| name.to_string_lossy().into_owned());
    let workload =
        Workload { name: format!("profile of {program}"), locks: vec![1; record.locks.len()], steps, in_kernel: false };
    Profile { workload, assumptions }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(acquisitions: u64, wait_ns: u64, hold_ns: u64) -> Lock {
        Lock { kind: "mutex".to_string(), acquisitions, wait_ns, hold_ns }
    }

    fn record(processors: u32, locks: Vec<Lock>) -> Record {
        Record { schema: SCHEMA.to_string(), program: "/bin/a".to_string(), wall_ns: 1_000_000, processors, locks }
    }

    #[test]
    fn a_turn_is_an_acquisition_of_the_busiest_lock() {
        let locks = vec![lock(250, 0, 50_000), lock(1_000, 100_000, 200_000), lock(0, 0, 0)];
        let Profile { workload, assumptions } = profile(record(2, locks), Some(2));
        assert_eq!((workload.name.as_str(), workload.locks.len()), ("profile of a", 2));
        // 2 ms of processors, less 0.25 ms held and 0.1 ms waited, in 1000 turns of two sections.
        let expected = [
            Step::Varying { ns: 825 },
            Step::Perhaps { group: 0, per_million: 1_000_000, ns: 200, lines: 1 },
            Step::Varying { ns: 825 },
            Step::Perhaps { group: 1, per_million: 250_000, ns: 200, lines: 1 },
        ];
        assert_eq!(workload.steps, expected);
        assert_eq!(assumptions.len(), 2, "{assumptions:?}");
    }

    #[test]
    fn waiters_of_an_overloaded_program_leave_their_processor_to_others() {
        let locks = || vec![lock(1_000, 900_000, 200_000)];
        let between = |threads| match profile(record(2, locks()), threads).workload.steps[0] {
            Step::Varying { ns } => ns,
            ref step => panic!("{step:?}"),
        };
        assert_eq!((between(Some(2)), between(Some(8)), between(Some(1))), (900, 1_800, 0));
        assert!(profile(record(2, locks()), None).assumptions[0].contains("2 threads"));
    }

    #[test]
    fn rare_locks_beyond_the_most_are_said_to_be_left_out() {
        let locks = (0..40).map(|number| lock(1_000 - number, 0, 10)).collect();
        let Profile { workload, assumptions } = profile(record(1, locks), Some(1));
        assert_eq!(workload.locks.len(), MOST);
        assert!(assumptions.iter().any(|line| line.contains("8 locks")), "{assumptions:?}");
    }
}
