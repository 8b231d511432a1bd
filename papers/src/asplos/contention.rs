//! `contention`: throughput as a function of the think time, which is the time between two
//! acquisitions of one lock; Johnson et al. (ASPLOS 2010), section 5.2 and Figure 9.
//!
//! Longer think times mean less contention. One line has fewer threads than processors. The others
//! overload the processors, without and with load control.

use clap::Args;
use serde_json::json;
use unconvoy::catalogue::{CONTENTION, LOAD};
use unconvoy_measure::arguments::thread_count;
use unconvoy_measure::record::Record;

use super::sweep::{Cell, Shape, measure_lines, threads_at};
use crate::messages;
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
    /// Times between two acquires, in microseconds
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_value = "0.1,0.2,0.5,1,2,5,10,20,50,100", value_parser = microseconds)]
    think: Vec<f64>,
    /// Contention manager of every line but the last, which has the default lock
    #[arg(long, value_name = "LOCK", default_value = "tpmcs", value_parser = lock)]
    lock: &'static str,
}

fn microseconds(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|us| (0.001..=1e6).contains(us));
    value.ok_or_else(|| messages::expected_number("microseconds", 0.001, 1e6))
}

fn lock(text: &str) -> Result<&'static str, String> {
    let pair: Pair = format!("{text}+{}", LOAD[0].name).parse()?;
    Ok(pair.lock)
}

/// Runs `contention`: measures, prints and writes the record.
///
/// # Errors
///
/// Fails if a program is missing, the record to resume has another plan, or the results cannot be
/// written.
pub fn contention(options: &Options) -> anyhow::Result<Record> {
    let common = &options.session.common;
    let programs = options.session.places.find(&[COUNTER.program], &[])?;
    let lock = options.lock;
    let pair = |load: &'static str| Setup::Named(Pair { lock, load });
    let mut lines = vec![(BELOW, pair("none")), (ABOVE, pair("none")), (ABOVE, pair(LOAD[0].name))];
    if lock != CONTENTION[0].name {
        lines.push((ABOVE, Setup::Default));
    }
    let name = |&(load, setup): &(f64, Setup)| {
        format!("{load} % load, {}, {}", thread_count(threads_at(load)), setup.name())
    };
    let cells: Vec<Cell> = lines
        .iter()
        .enumerate()
        .flat_map(|(index, line)| {
            options.think.iter().map(move |&x| Cell {
                line: name(line),
                threads: threads_at(line.0),
                x,
                index,
            })
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
        Job::new(COUNTER.program, words, setup, options.session.time_limit()).run(&programs)
    };
    measure_lines("contention", &shape, &cells, &options.session, parameters, measure, |_| {
        Vec::new()
    })
}
