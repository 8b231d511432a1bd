//! `pair`: cost of an uncontended lock/unlock pair.
//!
//! glibc takes a shortcut until a process creates its second thread, so both states are measured.

use clap::Args;
use serde_json::json;
use unconvoy_measure::goal::{Goal, Judgement};
use unconvoy_measure::record::Record;

use crate::goals;
use crate::options::{Common, Places};
use crate::versus::{Benchmark, Case, Metric, Versus};

/// Kinds of locks, as the workload program names them.
const KINDS: [&str; 7] =
    ["normal", "recursive", "errorcheck", "adaptive", "spin", "rwlock-write", "rwlock-read"];

const PAIR: Benchmark = Benchmark {
    program: "pair",
    metric: Metric { name: "ns_per_pair", heading: "ns per pair" },
    title: "Uncontended lock/unlock pair; each run is the median of its batches of 10 000 pairs",
};

/// Options of `pair`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    places: Places,
    /// Kinds of locks
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = KINDS,
          value_parser = clap::builder::PossibleValuesParser::new(KINDS))]
    kinds: Vec<String>,
}

fn case(kind: &str, threaded: bool) -> Case {
    let mut options = vec!["--kind".to_string(), kind.to_string()];
    options.extend(threaded.then(|| "--threaded".to_string()));
    Case { name: name(kind, threaded), options }
}

fn name(kind: &str, threaded: bool) -> String {
    format!("{kind}, {}", if threaded { "beside a sleeping thread" } else { "single-threaded" })
}

/// Measures, prints and writes the record.
pub fn run(options: &Options) -> anyhow::Result<Record> {
    let cases: Vec<Case> = [false, true]
        .iter()
        .flat_map(|&threaded| options.kinds.iter().map(move |kind| case(kind, threaded)))
        .collect();
    let parameters = json!({ "kinds": options.kinds });
    PAIR.run(&cases, parameters, &options.common, &options.places, |versus| {
        vec![judge(versus, &goals::PAIR_SINGLE, false), judge(versus, &goals::PAIR_THREADED, true)]
    })
}

fn judge(versus: &Versus, goal: &Goal, threaded: bool) -> Judgement {
    match versus.ratio(&name("normal", threaded)) {
        Some(ratio) => goal.judge(ratio.median, "normal mutex"),
        None => goal.not_judged("needs --kinds normal"),
    }
}
