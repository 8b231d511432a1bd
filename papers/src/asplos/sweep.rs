//! Benchmarks that vary one quantity: lines over places, as in the figures of Johnson, Stoica, Ailamaki and Mowry (ASPLOS 2010).

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::context::processors;
use unconvoy_measure::record::Record;

use crate::record_view::lines;
use unconvoy_measure::session::Field;
use unconvoy_measure::statistics::shown;
use unconvoy_measure::table::Table;

use crate::workloads::TATP;
use unconvoy_bench::energy;
use unconvoy_bench::grid::workload::{COUNTER, Workload};
use unconvoy_bench::options::SessionOptions;
use unconvoy_bench::readings::{Reading, readings, spread};
use unconvoy_bench::run::{Values, options};

/// From so many processors on, the paper's loads give thread counts that differ.
const MANY_PROCESSORS: u32 = 16;

/// One line of the figure at one place.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The line's name.
    pub line: String,
    /// Threads of the program.
    pub threads: u32,
    /// On the horizontal axis, in its unit.
    pub x: f64,
    /// Index of the line, for whoever measures.
    #[serde(skip)]
    pub index: usize,
}

impl Field for Cell {
    fn name(&self) -> String {
        format!("{}, at {}", self.line, self.x)
    }

    fn row(&self) -> &str {
        &self.line
    }
}

/// What is drawn: in a record's parameters, so that the record alone makes the figure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shape {
    /// The horizontal axis, with its unit.
    pub across: String,
    /// The vertical axis, with its unit.
    pub up: String,
    /// Name of what is drawn among what was measured.
    pub metric: String,
    /// Names, in order.
    pub lines: Vec<String>,
    /// On the horizontal axis, in order.
    pub places: Vec<f64>,
}

impl Shape {
    /// Of a record, if it has one.
    pub fn of(record: &Record) -> Option<Self> {
        serde_json::from_value(record.parameters.get("shape")?.clone()).ok()
    }

    /// Median and range of what is drawn, lines down, places across.
    fn table(&self, title: &str, record: &Record) -> Table {
        self.table_of(title, &self.up, &readings(record), |reading| reading.values.get(&self.metric))
    }

    /// What an operation takes; energy only where it is measured.
    fn costs(&self, title: &str, record: &Record) -> Vec<Table> {
        let readings = readings(record);
        let costs = [
            ("processor time per operation, us", "cpu_ns_per_op", 1e-3),
            ("energy per operation, uJ", energy::PER_OPERATION, 1e6),
        ];
        let is_measured = |name| readings.iter().any(|reading| reading.values.get(name).is_some());
        let measured = costs.into_iter().filter(|(_, name, _)| is_measured(name));
        let table = |(heading, name, unit): (&str, &str, f64)| {
            self.table_of(title, heading, &readings, |reading| Some(reading.values.get(name)? * unit))
        };
        measured.map(table).collect()
    }

    fn table_of(&self, title: &str, up: &str, readings: &[Reading], of: impl Fn(&Reading) -> Option<f64>) -> Table {
        let title = format!("{title}: {up}; {} across; median (smallest..largest)", self.across);
        let mut table = Table::across(title, &["line"], &self.places);
        for line in &self.lines {
            let field = |&x: &f64| shown(spread(readings, line, x, &of), |value| Unit::Plain.show(value));
            table.line(line, self.places.iter().map(field));
        }
        table
    }
}

/// What runs where the paper had TM-1.
#[derive(Debug, Clone, Args)]
pub struct Subject {
    /// Run `tatp` on the data set in DIR; without it `counter` runs
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

impl Subject {
    /// The program, what it prints and what it needs.
    pub fn workload(&self) -> &'static Workload {
        if self.data.is_some() { &TATP } else { &COUNTER }
    }

    /// Its command line.
    pub fn words(&self, threads: u32, seconds: f64) -> Vec<String> {
        let data = self.data.iter().flat_map(|directory| options([("data", directory.display().to_string())]));
        data.chain(options([("threads", threads.to_string()), ("seconds", seconds.to_string())])).collect()
    }

    /// Fails unless the data set is there.
    ///
    /// # Errors
    ///
    /// Says how to load it.
    pub fn check(&self) -> anyhow::Result<()> {
        let missing = self.data.as_ref().filter(|directory| !crate::databases::is_loaded(directory));
        missing.map_or(Ok(()), |directory| {
            let shown = directory.display();
            anyhow::bail!("{shown} holds no data set: `unconvoy bench tatp --load --data {shown}` makes one")
        })
    }
}

/// Threads for a load in percent of the processors, at least one.
pub fn threads_at(percent: f64) -> u32 {
    ((f64::from(processors()) * percent / 100.0).round() as u32).max(1)
}

/// The paper's loads, or others where those would be the same few threads.
pub fn default_loads() -> Vec<f64> {
    if processors() >= MANY_PROCESSORS { vec![98.0, 110.0, 150.0] } else { vec![100.0, 150.0, 200.0, 800.0] }
}

/// A load in percent.
pub fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|percent| (1.0..=100_000.0).contains(percent));
    value.ok_or_else(|| "expected a number of percent from 1 to 100000".to_string())
}

/// One quantity over what was varied.
pub fn draw(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let shape = Shape::of(record).context("this record does not say what it varied")?;
    let readings = readings(record);
    let line = |line: &String| {
        let at = |&x: &f64| Some((x, spread(&readings, line, x, |reading| reading.values.get(&shape.metric))?));
        (line.clone(), shape.places.iter().filter_map(at).collect())
    };
    let measured = shape.lines.iter().map(line).collect();
    Ok(lines(shape.up.clone(), &shape.across, &shape.places, measured, names))
}

/// Measures all cells, with one table of what the shape draws and whatever `extra` makes of the record.
///
/// # Errors
///
/// As [`Session::run`](unconvoy_measure::session::Session::run).
pub fn measure_lines(
    name: &str,
    shape: &Shape,
    cells: &[Cell],
    session: &SessionOptions,
    parameters: Value,
    measure: impl FnMut(&Cell) -> anyhow::Result<Values>,
    extra: impl Fn(&Record) -> Vec<Table>,
) -> anyhow::Result<Record> {
    let common = &session.common;
    let mut all = json!({ "shape": shape, "seconds": common.seconds, "runs": common.runs() });
    if let (Some(all), Value::Object(parameters)) = (all.as_object_mut(), parameters) {
        all.extend(parameters);
    }
    let mut record = Record::begin(name, common.seed, all);
    record.notes.push(energy::note());
    session.session(cells).run(record, measure, |record, _| {
        record.tables = vec![shape.table(name, record)];
        record.tables.extend(extra(record));
        record.tables.extend(shape.costs(name, record));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_threads() {
        assert_eq!(threads_at(0.001), 1);
        assert_eq!(threads_at(200.0), 2 * processors());
        assert!(percent("0").is_err() && percent("nan").is_err() && percent("98").is_ok());
    }

    #[test]
    fn a_record_has_its_shape() {
        let shape = Shape {
            across: "x, ms".into(),
            up: "y".into(),
            metric: "ops".into(),
            lines: vec!["a".into(), "b".into()],
            places: vec![0.5, 2.0],
        };
        let mut record = Record::begin("test", 1, json!({ "shape": shape }));
        let run = |x: f64, ops: f64| json!({ "cell": { "line": "a", "threads": 1, "x": x }, "round": 1, "measured": { "ops": ops } });
        record.runs = vec![run(0.5, 10.0), run(0.5, 30.0)];
        let table = Shape::of(&record).expect("there").table("t", &record);
        assert_eq!(table.header, ["line", "0.5", "2"]);
        assert_eq!(table.rows, [["a", "20.0 (10.0..30.0)", "-"], ["b", "-", "-"]]);
    }
}
