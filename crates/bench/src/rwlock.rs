//! `rwlock`: readers and writers of a table under one reader-writer lock.

use clap::Args;
use serde_json::json;
use unconvoy_measure::arguments::threads;
use unconvoy_measure::record::Record;

use crate::goals;
use crate::options::{Common, Places};
use crate::versus::{Benchmark, Case, Metric};

const RWLOCK: Benchmark = Benchmark {
    program: "rwlock",
    metric: Metric { name: "ops_per_sec", heading: "operations/s" },
    title: "A table of 256 entries under one reader-writer lock; an operation is a lookup or a \
        change",
};

/// Writes per million operations: none, few, and as many as lookups.
const WRITES: [u32; 3] = [0, 10_000, 500_000];

/// Thread count of the goal.
const READERS: u32 = 2;

/// Options of `rwlock`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    places: Places,
    /// Numbers of threads that use the table
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,8",
          value_parser = threads)]
    threads: Vec<u32>,
}

fn name(threads: u32, writes: u32) -> String {
    format!("{threads} threads, {} % changes", f64::from(writes) / 1e4)
}

fn cases(threads: &[u32]) -> Vec<Case> {
    let options = |threads: u32, writes: u32| {
        ["--threads", &threads.to_string(), "--writes", &writes.to_string()]
            .map(str::to_string)
            .to_vec()
    };
    let case =
        |threads, writes| Case { name: name(threads, writes), options: options(threads, writes) };
    threads.iter().flat_map(|&threads| WRITES.map(|writes| case(threads, writes))).collect()
}

/// Measures, prints and writes the record.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let parameters = json!({ "threads": options.threads });
    RWLOCK.run(&cases(&options.threads), parameters, &options.common, &options.places, |versus| {
        let readers = WRITES[..2].iter().map(|&writes| name(READERS, writes));
        vec![versus.judge_worst(&goals::READERS, readers)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judged_cases_are_measured_by_default() {
        let names: Vec<String> = cases(&[1, 2, 8]).into_iter().map(|case| case.name).collect();
        assert_eq!(names.len(), 9);
        assert!(
            names.contains(&name(READERS, WRITES[0]))
                && names.contains(&"2 threads, 1 % changes".to_string())
        );
    }
}
