//! CSV exporter: one line per run.

use anyhow::bail;
use unconvoy_measure::export::Exporter;

use super::super::record::Record;
use crate::messages::compare as messages;

/// A header line, then the runs in the order of measurement.
pub struct Csv;

impl Exporter<Record> for Csv {
    fn render(&self, record: &Record) -> anyhow::Result<Option<Vec<u8>>> {
        if record.runs.is_empty() {
            bail!(messages::nothing_to_list());
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        for run in &record.runs {
            writer.serialize(run)?;
        }
        Ok(Some(writer.into_inner()?))
    }
}
