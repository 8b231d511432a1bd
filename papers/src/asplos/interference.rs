//! `interference`: two processes that compete for the processors; Johnson et al. (ASPLOS 2010),
//! section 5.5 and Figure 12.
//!
//! The process *self* has as many threads as there are processors, under the default lock. The
//! process *other* starts at the same moment with a growing number of threads. It runs the same
//! program without load control, the same program with load control, or a program that only spins.
//! Throughputs are relative to self's throughput alone in the same round.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;
use unconvoy::catalogue::LOAD;
use unconvoy_measure::context::processors;
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::{Spread, short, shown};
use unconvoy_measure::table::Table;

use super::sweep::{Cell, Shape, Subject, measure_lines, threads_at};
use crate::messages;
use unconvoy_bench::options::SessionOptions;
use unconvoy_bench::readings::{Reading, readings};
use unconvoy_bench::run::{Job, Running, Values};
use unconvoy_bench::setup::{Pair, Setup};

/// The adversary, which only burns processor time.
const SPINNER: &str = "spin";
/// The line without a second process.
const ALONE: &str = "alone";
/// The paper's lock, without load control.
const WITHOUT: Pair = Pair { lock: "tpmcs", load: "none" };

/// Options of `interference`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    session: SessionOptions,
    #[command(flatten)]
    subject: Subject,
    /// Threads of the other process, in percent of the processors
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_value = "50,100,150,200,300,400", value_parser = super::sweep::percent)]
    others: Vec<f64>,
}

/// The process beside self.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Other {
    Absent,
    Same(Setup),
    Spinner,
}

const OTHERS: [(Other, &str); 4] = [
    (Other::Absent, ALONE),
    (Other::Same(Setup::Named(WITHOUT)), "other without load control"),
    (Other::Same(Setup::Default), "other with load control"),
    (Other::Spinner, "other only spins"),
];

/// Runs `interference`: measures, prints and writes the record.
///
/// # Errors
///
/// Fails if a program or the data set is missing, the record to resume has another plan, or the
/// results cannot be written.
pub fn interference(options: &Options) -> anyhow::Result<Record> {
    let (common, subject) = (&options.session.common, &options.subject);
    let workload = subject.workload();
    subject.check()?;
    let programs = options.session.places.find(&[workload.program, SPINNER], workload.packages)?;
    let mut cells = vec![Cell { line: ALONE.to_string(), threads: processors(), x: 0.0, index: 0 }];
    for (index, (_, line)) in OTHERS.iter().enumerate().skip(1) {
        cells.extend(options.others.iter().map(|&x| Cell {
            line: line.to_string(),
            threads: processors(),
            x,
            index,
        }));
    }
    let shape = Shape {
        across: "threads of the other process, % of the processors".to_string(),
        up: format!("self's {} ({})", workload.metric.heading, workload.name),
        metric: "self_per_sec".to_string(),
        lines: OTHERS.iter().map(|(_, line)| line.to_string()).collect(),
        places: std::iter::once(0.0).chain(options.others.iter().copied()).collect(),
    };
    let parameters = json!({
        "workload": workload.name, "without_load_control": WITHOUT.name(), "with": LOAD[0].name,
    });
    let measure = |cell: &Cell| {
        let limit = options.session.time_limit();
        let begin = |program: &str, words: Vec<String>, setup: Setup, process: &str| {
            let mut job = Job::new(program, words, setup, limit);
            job.name.insert_str(0, &format!("{process}: "));
            job.start(&programs)
        };
        let same = |threads, setup, process: &str| {
            begin(workload.program, subject.words(threads, common.seconds), setup, process)
        };
        let own = same(cell.threads, Setup::Default, "self")?;
        let threads = threads_at(cell.x);
        let other = match OTHERS[cell.index].0 {
            Other::Absent => None,
            Other::Same(setup) => Some(same(threads, setup, "other")?),
            Other::Spinner => {
                let words = Subject { data: None }.words(threads, common.seconds);
                Some(begin(SPINNER, words, Setup::Libc, "other")?)
            }
        };
        let own = own.finish()?;
        let other = other.map(Running::finish).transpose()?;
        both(workload.metric.name, &own, other.as_ref())
    };
    measure_lines("interference", &shape, &cells, &options.session, parameters, measure, |record| {
        vec![table(record)]
    })
}

/// The relevant values of both programs, renamed to tell the programs apart.
fn both(metric: &str, own: &Values, other: Option<&Values>) -> anyhow::Result<Values> {
    let mut values = Values::default();
    let rate =
        own.get(metric).ok_or_else(|| anyhow::anyhow!(messages::no_metric("self", metric)))?;
    values.supply("self_per_sec", rate);
    // The spinner reports the iterations of its loop. They are recorded, but are not a throughput.
    if let Some(rate) = other.and_then(|other| other.get(metric)) {
        values.supply("other_per_sec", rate);
    }
    let cpu = |values: &Values| values.get("process_cpu_seconds");
    for (name, value) in
        [("self_cpu_seconds", cpu(own)), ("other_cpu_seconds", other.and_then(cpu))]
    {
        if let Some(value) = value {
            values.supply(name, value);
        }
    }
    Ok(values)
}

/// The figure's lines: name, other process, metric.
pub fn fraction_lines() -> Vec<(String, &'static str, &'static str)> {
    let own =
        OTHERS[1..].iter().map(|&(_, other)| (format!("self, {other}"), other, "self_per_sec"));
    let same = OTHERS[1..3].iter().map(|&(_, other)| (other.to_string(), other, "other_per_sec"));
    own.chain(same).collect()
}

/// Throughput at `x` beside `other`, relative to self's throughput alone in the same round.
pub fn fraction(readings: &[Reading], other: &str, x: f64, metric: &str) -> Option<Spread> {
    let alone = readings.iter().filter(|reading| reading.text("line") == Some(ALONE));
    let alone: BTreeMap<u64, f64> = alone
        .filter_map(|reading| Some((reading.round, reading.values.get("self_per_sec")?)))
        .collect();
    let base = |round: u64| alone.get(&round).copied().filter(|&base| base > 0.0);
    unconvoy_bench::readings::spread(readings, other, x, |reading| {
        Some(reading.values.get(metric)? / base(reading.round)?)
    })
}

fn table(record: &Record) -> Table {
    let readings = readings(record);
    let places = Shape::of(record).map_or_else(Vec::new, |shape| shape.places);
    let places: Vec<f64> = places.into_iter().filter(|&x| x > 0.0).collect();
    let mut table = Table::across(
        "Throughput relative to self's alone in the same round; threads of the other process in % \
            of the processors across; median (smallest..largest)",
        &["process, beside"],
        &places,
    );
    for (name, other, metric) in fraction_lines() {
        let field = |&x: &f64| shown(fraction(&readings, other, x, metric), short);
        table.line(&name, places.iter().map(field));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fraction_divides_by_alone_of_same_round() {
        let run = |line: &str, x: f64, round: u64, own: f64| {
            json!({
                "cell": { "line": line, "x": x }, "round": round,
                "measured": { "self_per_sec": own, "other_per_sec": 2.0 },
            })
        };
        let mut record = Record::begin("interference", 1, json!({}));
        let line = OTHERS[1].1;
        record.runs = vec![
            run(ALONE, 0.0, 1, 10.0),
            run(ALONE, 0.0, 2, 20.0),
            run(line, 50.0, 1, 5.0),
            run(line, 50.0, 2, 5.0),
        ];
        let readings = readings(&record);
        let own = fraction(&readings, line, 50.0, "self_per_sec").expect("measured");
        assert_eq!((own.min, own.max), (0.25, 0.5));
        let other = fraction(&readings, line, 50.0, "other_per_sec").expect("measured");
        assert_eq!((other.min, other.max), (0.1, 0.2));
        assert!(fraction(&readings, line, 100.0, "self_per_sec").is_none());
    }

    #[test]
    fn compared_lock_is_in_catalogue() {
        assert_eq!(WITHOUT.name().parse(), Ok(WITHOUT));
    }
}
