//! A record as a panel: axes, lines, their colours. Each takes the names of the legend so far, and adds its own.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use unconvoy_measure::arguments::processor_count;
use unconvoy_measure::cells::{Sample, Samples};
use unconvoy_measure::chart::axis::Axis;
use unconvoy_measure::chart::panel::{Panel, Point, Series};
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::chart::{Colour, colour, index_of};
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::Spread;

use crate::grid::matrix::Matrix;
use crate::grid::workload::WORKLOADS;
use crate::readings::{readings, spread};
use crate::run::Values;
use crate::series;
use crate::steadiness;
use crate::sweep::Shape;
use crate::sweep::interference::{fraction, fraction_lines};

/// Lines that a panel shows: as many as there are colours.
const LINES: usize = 7;

/// A line's name and its measured places.
type Measured = (String, Vec<(f64, Spread)>);

/// Lines over places that are positive and evenly spread by ratio.
fn lines(title: String, across_title: &str, places: &[f64], measured: Vec<Measured>, names: &mut Vec<String>) -> Panel {
    let ends = measured.iter().flat_map(|(_, line)| line.iter().flat_map(|(_, spread)| [spread.min, spread.max]));
    let up = Axis::values(&ends.collect::<Vec<_>>(), Unit::Plain);
    let series = measured.into_iter().map(|(name, line)| Series {
        colour: colour(index_of(&name, names)),
        points: line.into_iter().map(|(x, spread)| Point::of(Axis::at(x), &spread, &up)).collect(),
        has_markers: true,
    });
    let series = series.collect();
    Panel { title, across: Axis::at_each(places), across_title: across_title.to_string(), up, series, mark: None }
}

/// One quantity over what was varied.
pub fn sweep(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let shape = Shape::of(record).context("this record does not say what it varied")?;
    let readings = readings(record);
    let line = |line: &String| {
        let at = |&x: &f64| Some((x, spread(&readings, line, x, |reading| reading.values.get(&shape.metric))?));
        (line.clone(), shape.places.iter().filter_map(at).collect())
    };
    let measured = shape.lines.iter().map(line).collect();
    Ok(lines(shape.up.clone(), &shape.across, &shape.places, measured, names))
}

/// What two processes reach, as fractions of what one reaches alone.
pub fn fractions(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let shape = Shape::of(record).context("this record does not say what it varied")?;
    let readings = readings(record);
    let places: Vec<f64> = shape.places.iter().copied().filter(|&x| x > 0.0).collect();
    let line = |(name, other, metric): (String, &str, &str)| {
        let at = |&x: &f64| Some((x, fraction(&readings, other, x, metric)?));
        (name, places.iter().filter_map(at).collect())
    };
    let measured = fraction_lines().into_iter().map(line).collect();
    Ok(lines("fraction of self alone".to_string(), &shape.across, &places, measured, names))
}

/// Configurations over thread counts; of many, libc, the default and the best.
pub fn grid(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let workload = WORKLOADS.iter().find(|workload| workload.name == record.benchmark);
    let workload = workload.with_context(|| {
        let known: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        format!("a record of {} has no throughput over threads; of {} it has", record.benchmark, known.join(", "))
    })?;
    let list = |name: &str| record.parameters.get(name).cloned().unwrap_or_default();
    let rows: Vec<String> = serde_json::from_value(list("configurations")).context("no list of configurations")?;
    // Loads on the kernel are of tasks, be they threads or processes.
    let counted = if record.parameters.get("tasks").is_some() { "tasks" } else { "threads" };
    let threads: Vec<u32> = serde_json::from_value(list(counted)).context("no list of thread counts")?;
    // `counter` may have several think times; its figure is of the first.
    let think = list("think_ns").get(0).cloned();
    let of_think = |cell: &Value| think.is_none() || cell.get("think") == think.as_ref();
    let cell = |row: usize, column: usize| row * threads.len() + column;
    let mut samples: Samples<Values> = Samples { all: Vec::new(), ended_by: None };
    for reading in readings(record).into_iter().filter(|reading| of_think(&reading.cell)) {
        let row = reading.text("configuration").and_then(|name| rows.iter().position(|row| row == name));
        let column =
            reading.number(counted).and_then(|count| threads.iter().position(|&known| f64::from(known) == count));
        if let (Some(row), Some(column)) = (row, column) {
            samples.all.push(Sample { cell: cell(row, column), round: reading.round as u32, value: reading.values });
        }
    }
    let columns = 0..threads.len();
    let matrix = Matrix {
        cells: (0..rows.len()).map(|row| columns.clone().map(|column| Some(cell(row, column))).collect()).collect(),
        rows,
        samples: &samples,
        metric: workload.metric,
        processors: record.context.machine.processors,
        seconds: 0.0,
        threads,
    };
    let always: Vec<usize> = ["libc", "default"].iter().filter_map(|name| matrix.row(name)).collect();
    let others = matrix.ranking().into_iter().filter(|row| !always.contains(row));
    let shown: Vec<usize> = always.iter().copied().chain(others).take(LINES).collect();
    let places: Vec<f64> = matrix.threads.iter().copied().map(f64::from).collect();
    let line = |&row: &usize| {
        let at = |column: usize| Some((places[column], matrix.measured(row, column)?));
        let mut line: Vec<(f64, Spread)> = columns.clone().filter_map(at).collect();
        line.sort_by(|left, right| left.0.total_cmp(&right.0));
        (matrix.rows[row].clone(), line)
    };
    let measured: Vec<Measured> = shown.iter().map(line).collect();
    ensure!(measured.iter().any(|(_, line)| !line.is_empty()), "this record has no run to draw");
    let better = if workload.metric.lower_is_better { " (lower is better)" } else { "" };
    let title = list("title").as_str().unwrap_or(workload.name).to_string();
    let title = format!("{title}: {}{better}", workload.metric.heading);
    let processors = matrix.processors;
    let mark = Some((Axis::at(f64::from(processors)), processor_count(processors)));
    Ok(Panel { mark, ..lines(title, counted, &places, measured, names) })
}

/// Counts over time, without marks or bands.
fn stepped(colour: Colour, counts: Vec<(f64, u32)>) -> Series {
    let point = |(at, count): (f64, u32)| Point::single(at, f64::from(count));
    Series { colour, points: counts.into_iter().map(point).collect(), has_markers: false }
}

/// The threads awake over time in the first round, under each load manager.
pub fn steadiness(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let mut series = Vec::new();
    let (mut end, mut most) = (0.0_f64, 0);
    for run in first_round(record) {
        let manager = run.get("cell").and_then(Value::as_str).context("a run of no load manager")?;
        let measured = run.get("measured").cloned().context("a run without a measurement")?;
        let counted: steadiness::Series = serde_json::from_value(measured).context("a run without counts")?;
        let ms = |ns: u64| ns as f64 / 1e6;
        let counts: Vec<(f64, u32)> = counted.counts.iter().map(|count| (ms(count.ns), count.awake)).collect();
        end = counts.iter().fold(end, |end, &(at, _)| end.max(at));
        most = counts.iter().fold(most, |most, &(_, count)| most.max(count));
        if series.is_empty() {
            series.push(stepped(colour(index_of("target", names)), vec![(0.0, counted.target), (end, counted.target)]));
        }
        series.push(stepped(colour(index_of(manager, names)), counts));
    }
    ensure!(!series.is_empty(), "this record has no time series");
    Ok(over_time("threads awake", "ms", end, most, series))
}

/// The threads that are not asleep in the first round, one change after the other, and what was asked for.
pub fn series(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let measured = first_round(record).filter_map(|run| run.get("measured").cloned());
    let changes: Vec<series::Series> = measured.filter_map(|measured| serde_json::from_value(measured).ok()).collect();
    ensure!(!changes.is_empty(), "this record has no time series");
    let (mut asked, mut awake, mut begin) = (Vec::new(), Vec::new(), 0);
    for change in &changes {
        let ms = |ns: u64| (begin + ns) as f64 / 1e6;
        asked.extend([(ms(0), change.expected), (ms(change.end_ns), change.expected)]);
        let mut last = change.before;
        awake.push((ms(0), last));
        for step in &change.points {
            // Level until the moment of the change.
            awake.extend([(ms(step.ns), last), (ms(step.ns), step.awake)]);
            last = step.awake;
        }
        awake.push((ms(change.end_ns), last));
        begin += change.end_ns;
    }
    let most = asked.iter().chain(&awake).map(|&(_, count)| count).max().unwrap_or(1);
    let mut line = |name: &str, counts| stepped(colour(index_of(name, names)), counts);
    let series = vec![line("asked for", asked), line("not asleep", awake)];
    let across = "ms sampled, the rests between the changes left out";
    Ok(over_time("threads", across, begin as f64 / 1e6, most, series))
}

fn first_round(record: &Record) -> impl Iterator<Item = &Value> {
    record.runs.iter().filter(|run| run.get("round").and_then(Value::as_u64) == Some(1))
}

/// Counts up to `most` until `end`.
fn over_time(title: &str, across_title: &str, end: f64, most: u32, series: Vec<Series>) -> Panel {
    let (title, across_title) = (title.to_string(), across_title.to_string());
    let across = Axis { range: 0.0..end, ..Axis::up_to(end, Unit::Plain) };
    Panel { title, across, across_title, up: Axis::up_to(f64::from(most), Unit::Plain), series, mark: None }
}
