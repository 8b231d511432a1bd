//! Every run as a line of CSV, for spreadsheets and data frames.

use anyhow::bail;
use unconvoy_measure::export::Exporter;

use super::super::record::Record;

/// A header line, then the runs in the order of measuring.
pub struct Csv;

impl Exporter<Record> for Csv {
    fn render(&self, record: &Record) -> anyhow::Result<Option<Vec<u8>>> {
        if record.runs.is_empty() {
            bail!("no run was finished, so it would be empty");
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        for run in &record.runs {
            writer.serialize(run)?;
        }
        Ok(Some(writer.into_inner()?))
    }
}
