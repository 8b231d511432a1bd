//! `contention`: throughput against the time that threads spend between two acquires of one lock; Johnson et al. (ASPLOS 2010), section 5.2 and Figure 9.
//!
//! A long time to think means little contention. One line has less load than processors; in the others the processors are overloaded, without and with load control.

use clap::Args;
use serde_json::json;
use unconvoy::catalogue::{CONTENTION, LOAD};
use unconvoy_measure::arguments::thread_count;
use unconvoy_measure::record::Record;

use super::sweep::{Cell, Shape, measure_lines, threads_at};
use unconvoy_bench::grid::workload::COUNTER;
use unconvoy_bench::options::SessionOptions;
use unconvoy_bench::run::{self, Job};
use unconvoy_bench::setup::{Pair, Setup};

/// The paper's section is one call of `gethrtime`, 40 to 80 ns (section 4).
const SECTION_NS: &str = "60";
/// The paper's loads, percent of the processors.
const BELOW: f64 = 95.0;
const ABOVE: f64 = 150.0;

/// Options of `contention`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    session: SessionOptions,
    /// Time between two acquires, in microseconds
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.1,0.2,0.5,1,2,5,10,20,50,100", value_parser = microseconds)]
    think: Vec<f64>,
    /// The contention manager of all lines but the last, which is the default
    #[arg(long, value_name = "LOCK", default_value = "tpmcs", value_parser = lock)]
    lock: &'static str,
}

fn microseconds(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|us| (0.001..=1e6).contains(us));
    value.ok_or_else(|| "expected a number of microseconds from 0.001 to 1000000".to_string())
}

fn lock(text: &str) -> Result<&'static str, String> {
    let pair: Pair = format!("{text}+{}", LOAD[0].name).parse()?;
    Ok(pair.lock)
}

/// Measures, prints and writes.
///
/// # Errors
///
/// A program is missing, the record to continue is another's, or the results cannot be written.
pub fn contention(options: &Options) -> anyhow::Result<Record> {
    let common = &options.session.common;
    let programs = options.session.places.find(&[COUNTER.program], &[])?;
    let lock = options.lock;
    let pair = |load: &'static str| Setup::Named(Pair { lock, load });
    let mut lines = vec![(BELOW, pair("none")), (ABOVE, pair("none")), (ABOVE, pair(LOAD[0].name))];
    if lock != CONTENTION[0].name {
        lines.push((ABOVE, Setup::Default));
    }
    let name =
        |&(load, setup): &(f64, Setup)| format!("{load} % load, {}, {}", thread_count(threads_at(load)), setup.name());
    let cells: Vec<Cell> = lines
        .iter()
        .enumerate()
        .flat_map(|(index, line)| {
            options.think.iter().map(move |&x| Cell { line: name(line), threads: threads_at(line.0), x, index })
        })
        .collect();
    let shape = Shape {
        across: "time between two acquires, us".to_string(),
        up: COUNTER.metric.heading.to_string(),
        metric: COUNTER.metric.name.to_string(),
        lines: lines.iter().map(name).collect(),
        places: options.think.clone(),
    };
    let parameters = json!({ "workload": COUNTER.name, "section_ns": SECTION_NS });
    let measure = |cell: &Cell| {
        let words = run::options([
            ("threads", cell.threads.to_string()),
            ("cs", SECTION_NS.to_string()),
            ("think", (cell.x * 1e3).to_string()),
            ("seconds", common.seconds.to_string()),
        ]);
        let (_, setup) = lines[cell.index];
        Job::new(COUNTER.program, words, setup, options.session.patience()).run(&programs)
    };
    measure_lines("contention", &shape, &cells, &options.session, parameters, measure, |_| Vec::new())
}
