//! A workload made from a record of `unconvoy run --stats`.
//!
//! The record has the acquisitions and the hold time of each lock. Everything else is assumed, and
//! [listed](Profile::assumptions):
//!
//! - A turn of a thread is one acquisition of the most acquired lock. The turn takes each other
//!   lock with the probability that the record gives per such acquisition. Sections follow each
//!   other and never nest.
//! - Times in critical sections and between them are exponentially distributed about their means.
//! - Between sections the threads computed for the rest of the processors' time. With at least as
//!   many processors as threads, the rest is the time in which the threads neither held a lock nor
//!   waited. With fewer processors, it is the time in which they held no lock, because other
//!   threads ran while they waited.
//! - A section writes one line of shared data.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use unconvoy_measure::failure::Usage;
use unconvoy_measure::input;

use super::step::{Step, Workload};
use crate::messages;

const SCHEMA: &str = "unconvoy-stats-1";

/// Most locks that are simulated: the most acquired ones.
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

/// A workload and its assumptions.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The simulated program.
    pub workload: Workload,
    /// Assumptions about facts that the record lacks.
    pub assumptions: Vec<String>,
}

/// Reads the record of a program that ran with `threads` threads.
///
/// # Errors
///
/// The file cannot be read, is not such a record, has no acquired lock, or has more waiting than
/// `threads` can have done, by default one per processor.
pub fn read(path: &Path, threads: Option<u32>) -> anyhow::Result<Profile> {
    let text =
        input::read_text(path, input::RECORD).with_context(|| messages::cannot_read(path))?;
    let record: Record =
        serde_json::from_str(&text).with_context(|| messages::not_a_lock_record(path))?;
    if record.schema != SCHEMA {
        bail!(messages::unknown_schema(path, &record.schema, SCHEMA));
    }
    if record.locks.iter().all(|lock| lock.acquisitions == 0) || record.wall_ns == 0 {
        bail!(messages::no_acquired_lock(path));
    }
    let waited: u64 = record.locks.iter().map(|lock| lock.wait_ns).sum();
    let ran_with = threads.unwrap_or(record.processors.max(1));
    if waited > record.wall_ns.saturating_mul(ran_with.into()) {
        return Err(Usage::text(messages::more_waiting_than_threads(path, ran_with)));
    }
    Ok(profile(record, threads))
}

fn profile(mut record: Record, threads: Option<u32>) -> Profile {
    record.locks.retain(|lock| lock.acquisitions > 0);
    record.locks.sort_by_key(|lock| std::cmp::Reverse(lock.acquisitions));
    let all = record.locks.len();
    let left_out: u64 = record.locks.iter().skip(MOST).map(|lock| lock.acquisitions).sum();
    let (turns, total) = (
        record.locks[0].acquisitions,
        record.locks.iter().map(|lock| lock.acquisitions).sum::<u64>(),
    );
    let others = record.locks.iter().filter(|lock| lock.kind != "mutex").count();

    let processors = record.processors.max(1);
    let ran_with = threads.unwrap_or(processors);
    // Time under the locks that are left out counts as time between sections.
    let sum = |of: fn(&Lock) -> u64| record.locks.iter().take(MOST).map(of).sum::<u64>();
    let available = record.wall_ns.saturating_mul(u64::from(ran_with.min(processors)));
    let waited = if ran_with <= processors { sum(|lock| lock.wait_ns) } else { 0 };
    let outside = available.saturating_sub(sum(|lock| lock.hold_ns) + waited);
    let mut assumptions = Vec::new();
    if threads.is_none() {
        assumptions.push(format!(
            "the program ran with {ran_with} threads, one per processor (override with \
             --recorded-threads)"
        ));
    }
    let condition = if ran_with <= processors {
        "neither held a lock nor waited"
    } else {
        "did not hold a lock"
    };
    assumptions.push(format!(
        "its threads computed whenever they {condition}: {} ns between two sections on average",
        outside / (total - left_out)
    ));
    assumptions.push(
        "times are exponentially distributed and include the calls of the recorded locks; sections \
         do not nest; each section writes one line"
            .to_string(),
    );
    if others > 0 {
        assumptions.push(format!("{others} reader-writer and spin locks behave like mutexes"));
    }
    if all > MOST {
        let part = 100.0 * left_out as f64 / total as f64;
        assumptions.push(format!(
            "{} locks with {part:.1} % of the acquisitions are left out",
            all - MOST
        ));
    }

    record.locks.truncate(MOST);
    let count = record.locks.len();
    // The parts have the sum of the whole, to a nanosecond.
    let until = |part: usize| (outside as f64 / turns as f64 * part as f64 / count as f64) as u64;
    let mut steps = Vec::new();
    for (group, lock) in record.locks.iter().enumerate() {
        let per_million = (lock.acquisitions as f64 / turns as f64 * 1e6).round().max(1.0) as u32;
        let held = lock.hold_ns as f64 / lock.acquisitions as f64;
        steps.push(Step::Varying { ns: until(group + 1) - until(group) });
        steps.push(Step::Perhaps { group, per_million, ns: held.round() as u64, lines: 1 });
    }
    let program = Path::new(&record.program)
        .file_name()
        .map_or(record.program.clone(), |name| name.to_string_lossy().into_owned());
    let workload = Workload {
        name: format!("profile of {program}"),
        locks: vec![1; record.locks.len()],
        steps,
        others: Vec::new(),
        in_kernel: false,
        checkpoints: false,
    };
    Profile { workload, assumptions }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(acquisitions: u64, wait_ns: u64, hold_ns: u64) -> Lock {
        Lock { kind: "mutex".to_string(), acquisitions, wait_ns, hold_ns }
    }

    fn record(processors: u32, locks: Vec<Lock>) -> Record {
        Record {
            schema: SCHEMA.to_string(),
            program: "/bin/a".to_string(),
            wall_ns: 1_000_000,
            processors,
            locks,
        }
    }

    #[test]
    fn turn_is_one_acquisition_of_the_busiest_lock() {
        let locks = vec![lock(250, 0, 50_000), lock(1_000, 100_000, 200_000), lock(0, 0, 0)];
        let Profile { workload, assumptions } = profile(record(2, locks), Some(2));
        assert_eq!((workload.name.as_str(), workload.locks.len()), ("profile of a", 2));
        // 2 ms of processor time, less 0.25 ms held and 0.1 ms waited, in 1000 turns of two
        // sections.
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
    fn time_under_locks_left_out_is_between_sections() {
        let kept = (0..MOST).map(|_| lock(1_000, 0, 10));
        let locks = kept.chain([lock(999, 0, 500_000)]).collect();
        let Profile { workload, .. } = profile(record(1, locks), Some(1));
        // 1 ms, less 320 ns, in 1000 turns of 32 sections.
        assert_eq!(workload.steps[0], Step::Varying { ns: 31 });
    }

    #[test]
    fn overloaded_program_computes_while_others_wait() {
        let locks = || vec![lock(1_000, 900_000, 200_000)];
        let between = |threads| match profile(record(2, locks()), threads).workload.steps[0] {
            Step::Varying { ns } => ns,
            ref step => panic!("{step:?}"),
        };
        assert_eq!((between(Some(2)), between(Some(8)), between(Some(1))), (900, 1_800, 0));
        assert!(profile(record(2, locks()), None).assumptions[0].contains("2 threads"));
    }

    #[test]
    fn rare_locks_are_reported_as_left_out() {
        let locks = (0..40).map(|number| lock(1_000 - number, 0, 10)).collect();
        let Profile { workload, assumptions } = profile(record(1, locks), Some(1));
        assert_eq!(workload.locks.len(), MOST);
        assert!(assumptions.iter().any(|line| line.contains("8 locks")), "{assumptions:?}");
    }
}
