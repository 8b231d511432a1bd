//! Benchmarks that vary one quantity, as in the figures of Johnson, Stoica, Ailamaki and Mowry
//! (ASPLOS 2010).

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::chart::quantity::Unit;
use unconvoy_measure::context::processors;
use unconvoy_measure::record::Record;

use crate::messages;
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

/// With at least this many processors, the paper's loads give distinct thread counts.
const MANY_PROCESSORS: u32 = 16;

/// One point of one line.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The line's name.
    pub line: String,
    /// Threads of the program.
    pub threads: u32,
    /// Position on the horizontal axis, in the axis's unit.
    pub x: f64,
    /// Index of the line, for the measuring closure.
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

/// The drawing's shape. The record's parameters contain it, so a record is enough to draw the
/// figure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shape {
    /// Title of the horizontal axis, with its unit.
    pub across: String,
    /// Title of the vertical axis, with its unit.
    pub up: String,
    /// Name of the measured value to draw.
    pub metric: String,
    /// Names of the lines, in order.
    pub lines: Vec<String>,
    /// Positions on the horizontal axis, in order.
    pub places: Vec<f64>,
}

impl Shape {
    /// The shape stored in a record, if there is one.
    pub fn of(record: &Record) -> Option<Self> {
        serde_json::from_value(record.parameters.get("shape")?.clone()).ok()
    }

    /// Table of medians and ranges: a row per line, a column per position.
    fn table(&self, title: &str, record: &Record) -> Table {
        self.table_of(title, &self.up, &readings(record), |reading| {
            reading.values.get(&self.metric)
        })
    }

    /// Tables of processor time and, where measured, of energy per operation.
    fn costs(&self, title: &str, record: &Record) -> Vec<Table> {
        let readings = readings(record);
        let costs = [
            ("processor time per operation, us", "cpu_ns_per_op", 1e-3),
            ("energy per operation, uJ", energy::PER_OPERATION, 1e6),
        ];
        let is_measured = |name| readings.iter().any(|reading| reading.values.get(name).is_some());
        let measured = costs.into_iter().filter(|(_, name, _)| is_measured(name));
        let table = |(heading, name, unit): (&str, &str, f64)| {
            self.table_of(title, heading, &readings, |reading| {
                Some(reading.values.get(name)? * unit)
            })
        };
        measured.map(table).collect()
    }

    fn table_of(
        &self,
        title: &str,
        up: &str,
        readings: &[Reading],
        of: impl Fn(&Reading) -> Option<f64>,
    ) -> Table {
        let title = format!("{title}: {up}; {} across; median (smallest..largest)", self.across);
        let mut table = Table::across(title, &["line"], &self.places);
        for line in &self.lines {
            let field =
                |&x: &f64| shown(spread(readings, line, x, &of), |value| Unit::Plain.show(value));
            table.line(line, self.places.iter().map(field));
        }
        table
    }
}

/// The workload that stands for the paper's TM-1.
#[derive(Debug, Clone, Args)]
pub struct Subject {
    /// Run `tatp` on the data set in DIR [default: run `counter`]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

impl Subject {
    /// The workload: its program, metric and packages.
    pub fn workload(&self) -> &'static Workload {
        if self.data.is_some() { &TATP } else { &COUNTER }
    }

    /// The program's arguments.
    pub fn words(&self, threads: u32, seconds: f64) -> Vec<String> {
        let data = self
            .data
            .iter()
            .flat_map(|directory| options([("data", directory.display().to_string())]));
        data.chain(options([("threads", threads.to_string()), ("seconds", seconds.to_string())]))
            .collect()
    }

    /// Checks that the data set exists.
    ///
    /// # Errors
    ///
    /// Fails with the command that loads the data set.
    pub fn check(&self) -> anyhow::Result<()> {
        let missing =
            self.data.as_ref().filter(|directory| !crate::databases::is_loaded(directory));
        missing.map_or(Ok(()), |directory| {
            let load = format!("unconvoy bench tatp --load --data {}", directory.display());
            anyhow::bail!(messages::data_set_missing(directory, TATP.name, &load))
        })
    }
}

/// Number of threads for a load in percent of the processors; at least one.
pub fn threads_at(percent: f64) -> u32 {
    ((f64::from(processors()) * percent / 100.0).round() as u32).max(1)
}

/// The paper's loads. On machines with few processors, where two of them would round to the same
/// thread count, the loads are further apart.
pub fn default_loads() -> Vec<f64> {
    if processors() >= MANY_PROCESSORS {
        vec![98.0, 110.0, 150.0]
    } else {
        vec![100.0, 150.0, 200.0, 800.0]
    }
}

/// Parses a load in percent.
pub fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|percent| (1.0..=100_000.0).contains(percent));
    value.ok_or_else(|| messages::expected_number("percent", 1.0, 100_000.0))
}

/// Draws the record's metric over the varied quantity.
pub fn draw(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let shape =
        Shape::of(record).with_context(|| messages::record_lacks("the quantity that it varied"))?;
    let readings = readings(record);
    let line = |line: &String| {
        let at = |&x: &f64| {
            Some((x, spread(&readings, line, x, |reading| reading.values.get(&shape.metric))?))
        };
        (line.clone(), shape.places.iter().filter_map(at).collect())
    };
    let measured = shape.lines.iter().map(line).collect();
    Ok(lines(shape.up.clone(), &shape.across, &shape.places, measured, names))
}

/// Measures all cells. The record gets the shape's table, the tables of `extra`, and the costs.
///
/// # Errors
///
/// Fails as [`Session::run`](unconvoy_measure::session::Session::run) does.
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
    fn load_in_percent_becomes_thread_count() {
        assert_eq!(threads_at(0.001), 1);
        assert_eq!(threads_at(200.0), 2 * processors());
        assert!(percent("0").is_err() && percent("nan").is_err() && percent("98").is_ok());
    }

    #[test]
    fn shape_round_trips_through_record() {
        let shape = Shape {
            across: "x, ms".into(),
            up: "y".into(),
            metric: "ops".into(),
            lines: vec!["a".into(), "b".into()],
            places: vec![0.5, 2.0],
        };
        let mut record = Record::begin("test", 1, json!({ "shape": shape }));
        let run = |x: f64, ops: f64| {
            json!({
                "cell": { "line": "a", "threads": 1, "x": x }, "round": 1,
                "measured": { "ops": ops },
            })
        };
        record.runs = vec![run(0.5, 10.0), run(0.5, 30.0)];
        let table = Shape::of(&record).expect("there").table("t", &record);
        assert_eq!(table.header, ["line", "0.5", "2"]);
        assert_eq!(table.rows, [["a", "20.0 (10.0..30.0)", "-"], ["b", "-", "-"]]);
    }
}
