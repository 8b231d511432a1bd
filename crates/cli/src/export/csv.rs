//! Every run as a line of CSV, for spreadsheets and data frames.

use anyhow::bail;

use super::Exporter;
use crate::compare::record::Record;

/// A header line, then the runs in the order of measuring.
pub struct Csv;

impl Exporter for Csv {
    fn render(&self, record: &Record) -> anyhow::Result<Vec<u8>> {
        if record.runs.is_empty() {
            bail!("no run was finished, so it would be empty");
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        for run in &record.runs {
            writer.serialize(run)?;
        }
        Ok(writer.into_inner()?)
    }
}
