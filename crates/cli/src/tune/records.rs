//! The records that advice is based on, by kind.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use unconvoy_measure::input;
use unconvoy_profile::layout::MAGIC;
use unconvoy_syncchar::Report as Prediction;
use unconvoy_syncchar::report::SCHEMA;

use crate::messages::command::cannot_read;
use crate::messages::tune as messages;
use crate::refusal::Refusal;

/// Records by kind.
pub struct Records<'a> {
    pub profiles: Vec<&'a Path>,
    pub predictions: Vec<Prediction>,
}

/// Tells profiles from predictions by the files' content.
///
/// # Errors
///
/// A file cannot be read (1), or is neither (2).
pub fn sort(files: &[PathBuf]) -> anyhow::Result<Records<'_>> {
    let mut records = Records { profiles: Vec::new(), predictions: Vec::new() };
    for file in files {
        let bytes = input::read(file, input::RECORD).with_context(|| cannot_read(file))?;
        if bytes.starts_with(&MAGIC.to_le_bytes()) {
            records.profiles.push(file);
        } else {
            records.predictions.push(prediction(file, &bytes)?);
        }
    }
    Ok(records)
}

fn prediction(file: &Path, bytes: &[u8]) -> Result<Prediction, Refusal> {
    let value: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
    match value["schema"].as_str() {
        Some(SCHEMA) => serde_json::from_value(value)
            .map_err(|error| Refusal::usage(messages::damaged_record(file, error))),
        Some(other) => Err(Refusal::usage(messages::other_record(file, other, SCHEMA))),
        None => Err(Refusal::usage(messages::not_a_record(file))),
    }
}
