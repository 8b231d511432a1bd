//! The runs of a record that hold plain numbers, however long ago they were written.

use serde_json::Value;
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::Spread;

use crate::run::Values;

/// One run.
#[derive(Debug, Clone)]
pub struct Reading {
    /// What describes its cell.
    pub cell: Value,
    /// Round, from 1.
    pub round: u64,
    /// What was measured.
    pub values: Values,
}

impl Reading {
    /// A text that describes the cell.
    pub fn text(&self, member: &str) -> Option<&str> {
        self.cell.get(member)?.as_str()
    }

    /// A number that describes the cell.
    pub fn number(&self, member: &str) -> Option<f64> {
        self.cell.get(member)?.as_f64()
    }
}

/// All runs of a record that are plain numbers by name.
pub fn readings(record: &Record) -> Vec<Reading> {
    let reading = |run: &Value| {
        Some(Reading {
            cell: run.get("cell")?.clone(),
            round: run.get("round")?.as_u64()?,
            values: serde_json::from_value(run.get("measured")?.clone()).ok()?,
        })
    };
    record.runs.iter().filter_map(reading).collect()
}

/// Some number of the readings of one line at one place, over the rounds.
pub fn spread(readings: &[Reading], line: &str, x: f64, of: impl Fn(&Reading) -> Option<f64>) -> Option<Spread> {
    let here = readings.iter().filter(|reading| reading.text("line") == Some(line) && reading.number("x") == Some(x));
    Spread::of(here.filter_map(of))
}
