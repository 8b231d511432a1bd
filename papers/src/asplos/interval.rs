//! `interval`: throughput as a function of the interval at which the controller reads the load;
//! Johnson et al. (ASPLOS 2010), section 5.3 and Figure 10.

use clap::Args;
use serde_json::json;
use unconvoy_measure::arguments::thread_count;
use unconvoy_measure::record::Record;

use super::sweep::{Cell, Shape, Subject, default_loads, measure_lines, percent, threads_at};
use crate::messages;
use unconvoy::catalogue::environment;
use unconvoy_bench::options::SessionOptions;
use unconvoy_bench::run::Job;
use unconvoy_bench::setup::Setup;

/// Options of `interval`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    session: SessionOptions,
    #[command(flatten)]
    subject: Subject,
    /// Intervals of the controller, in milliseconds
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_value = "0.5,1,2,3,5,7,10,20,50,100", value_parser = milliseconds)]
    intervals: Vec<f64>,
    /// Loads, in percent of the processors [default: 98,110,150; below 16 processors
    /// 100,150,200,800]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = percent)]
    loads: Vec<f64>,
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|ms| (0.1..=1000.0).contains(ms));
    value.ok_or_else(|| messages::expected_number("milliseconds", 0.1, 1000.0))
}

/// Runs `interval`: measures, prints and writes the record.
///
/// # Errors
///
/// Fails if a program or the data set is missing, the record to resume has another plan, or the
/// results cannot be written.
pub fn interval(options: &Options) -> anyhow::Result<Record> {
    let (common, subject) = (&options.session.common, &options.subject);
    let workload = subject.workload();
    subject.check()?;
    let programs = options.session.places.find(&[workload.program], workload.packages)?;
    let loads = if options.loads.is_empty() { default_loads() } else { options.loads.clone() };
    let line = |load: f64| format!("{load} % load, {}", thread_count(threads_at(load)));
    let cell = |(index, load): (usize, f64), x: f64| Cell {
        line: line(load),
        threads: threads_at(load),
        x,
        index,
    };
    let lines = || loads.iter().copied().enumerate();
    let cells: Vec<Cell> = lines()
        .flat_map(|load| options.intervals.iter().map(move |&x| (load, x)))
        .map(|(load, x)| cell(load, x))
        .collect();
    let shape = Shape {
        across: "controller's interval, ms".to_string(),
        up: format!("{} of {} under the default lock", workload.metric.heading, workload.name),
        metric: workload.metric.name.to_string(),
        lines: loads.iter().map(|&load| line(load)).collect(),
        places: options.intervals.clone(),
    };
    let parameters = json!({ "workload": workload.name });
    let measure = |cell: &Cell| {
        let words = subject.words(cell.threads, common.seconds);
        let mut job =
            Job::new(workload.program, words, Setup::Default, options.session.time_limit());
        job.environment.push((environment::INTERVAL.name, cell.x.to_string()));
        job.name.push_str(&format!(" with an interval of {} ms", cell.x));
        job.run(&programs)
    };
    measure_lines("interval", &shape, &cells, &options.session, parameters, measure, |_| Vec::new())
}
