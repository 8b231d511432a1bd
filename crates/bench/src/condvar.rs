//! `condvar`: condition variables in the patterns of real programs.

use clap::Args;
use serde_json::json;
use unconvoy_measure::arguments::threads;
use unconvoy_measure::record::Record;

use crate::goals;
use crate::options::{Common, Places};
use crate::versus::{Benchmark, Case, Metric};

const CONDVAR: Benchmark = Benchmark {
    program: "condvar",
    metric: Metric { name: "ops_per_sec", heading: "operations/s" },
    title: "Condition variables; an operation is a round trip, a broadcast acknowledged by all \
        waiters, or an item taken",
};

/// Options of `condvar`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    places: Places,
    /// Numbers of pingpong threads (even ones only) and of queue producers
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,16",
          value_parser = threads)]
    threads: Vec<u32>,
    /// Number of threads that a broadcast wakes
    #[arg(long, value_name = "N", default_value = "64", value_parser = threads)]
    waiters: u32,
}

fn name(mode: &str, count: u32, what: &str) -> String {
    format!("{mode}, {count} {what}")
}

fn case(mode: &str, option: &str, count: u32, what: &str) -> Case {
    let options = ["--mode", mode, option, &count.to_string()].map(str::to_string).to_vec();
    Case { name: name(mode, count, what), options }
}

fn cases(threads: &[u32], waiters: u32) -> Vec<Case> {
    let even = threads.iter().filter(|&&count| count % 2 == 0);
    let mut cases: Vec<Case> =
        even.map(|&count| case("pingpong", "--threads", count, "threads")).collect();
    cases.push(case("broadcast", "--waiters", waiters, "waiters"));
    cases.extend(
        threads
            .iter()
            .map(|&count| case("queue", "--threads", count, "producers and consumers each")),
    );
    cases
}

/// Measures, prints and writes the record.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let cases = cases(&options.threads, options.waiters);
    let parameters = json!({ "threads": options.threads, "waiters": options.waiters });
    CONDVAR.run(&cases, parameters, &options.common, &options.places, |versus| {
        vec![
            versus.judge_worst(&goals::PINGPONG, [name("pingpong", 2, "threads")]),
            versus.judge_worst(&goals::BROADCAST, [name("broadcast", 64, "waiters")]),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pingpong_skips_odd_counts() {
        let names: Vec<String> = cases(&[2, 3], 8).into_iter().map(|case| case.name).collect();
        assert_eq!(names.len(), 4);
        assert!(!names.contains(&"pingpong, 3 threads".to_string()));
    }
}
