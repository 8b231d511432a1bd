//! The runs of a record that consist of plain numbers.

use serde_json::Value;
use unconvoy_measure::record::Record;
use unconvoy_measure::statistics::Spread;

use crate::run::Values;

/// A run of plain numbers.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Description of the cell.
    pub cell: Value,
    /// Round, from 1.
    pub round: u64,
    /// Measured values.
    pub values: Values,
}

impl Reading {
    /// Returns a text member of the cell's description.
    pub fn text(&self, member: &str) -> Option<&str> {
        self.cell.get(member)?.as_str()
    }

    /// Returns a number member of the cell's description.
    pub fn number(&self, member: &str) -> Option<f64> {
        self.cell.get(member)?.as_f64()
    }
}

/// Returns a record's runs that consist of plain numbers by name.
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

/// Returns the spread of a value over the rounds of one line at one `x`.
pub fn spread(
    readings: &[Reading],
    line: &str,
    x: f64,
    of: impl Fn(&Reading) -> Option<f64>,
) -> Option<Spread> {
    let here = readings
        .iter()
        .filter(|reading| reading.text("line") == Some(line) && reading.number("x") == Some(x));
    Spread::of(here.filter_map(of))
}
