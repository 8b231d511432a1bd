//! The whole record as JSON.

use super::Exporter;
use crate::compare::record::Record;

/// Context, warnings, summary and every run.
pub struct Json;

impl Exporter for Json {
    fn render(&self, record: &Record) -> anyhow::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(record)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}
