//! Exporters of records: formats behind one trait, and files that are written atomically.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::messages;
use crate::output::{check, is_replaceable, replace};

/// One format for records of type `R`.
pub trait Exporter<R> {
    /// Renders the whole file; `None` if this format does not apply to the record.
    ///
    /// # Errors
    ///
    /// The record has no data for this format yet.
    fn render(&self, record: &R) -> anyhow::Result<Option<Vec<u8>>>;
}

/// The whole record as JSON.
pub struct Json;

impl<R: Serialize> Exporter<R> for Json {
    fn render(&self, record: &R) -> anyhow::Result<Option<Vec<u8>>> {
        json(record).map(Some)
    }
}

/// Renders a value as indented JSON with a final newline.
///
/// # Errors
///
/// The value has no JSON form, such as a map with keys that are not text.
pub fn json(value: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A format and its file.
pub struct Destination<R> {
    exporter: Box<dyn Exporter<R>>,
    path: PathBuf,
}

impl<R> Destination<R> {
    /// Creates a destination that writes `exporter`'s format to `path`.
    pub fn new(exporter: impl Exporter<R> + 'static, path: impl Into<PathBuf>) -> Self {
        Self { exporter: Box::new(exporter), path: path.into() }
    }

    /// Checks the path before the runs, which may take hours.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or is a directory.
    pub fn check(&self) -> Result<(), String> {
        let directory = match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        if self.path.is_dir() {
            Err(messages::is_a_directory(&self.path))
        } else if !directory.is_dir() {
            Err(messages::no_directory(&self.path, directory))
        } else {
            check(&self.path)
                .map_err(|error| format!("{}: {error}", messages::cannot_write(&self.path)))
        }
    }

    /// Writes a record that a later one will replace, unless the reader of the file would get both.
    /// Ignores a failure: space may be free again for the final record.
    pub fn keep(&self, record: &R) {
        if is_replaceable(&self.path) {
            let _ = self.write(record);
        }
    }

    /// Renders the record and writes the file. The file appears under its name only once complete.
    ///
    /// # Errors
    ///
    /// The format has no data, or the file cannot be written.
    pub fn write(&self, record: &R) -> anyhow::Result<()> {
        let context = || messages::cannot_write(&self.path);
        match self.exporter.render(record).with_context(context)? {
            Some(bytes) => replace(&self.path, &bytes).with_context(context),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_rejects_directory_and_missing_parent() {
        let directory = tempfile::tempdir().expect("a directory");
        let to = |path: &Path| Destination::<u32>::new(Json, path);
        assert!(to(directory.path()).check().is_err_and(|why| why.contains("is a directory")));
        assert!(
            to(&directory.path().join("nosuch/file"))
                .check()
                .is_err_and(|why| why.contains("create the directory"))
        );
        let file = directory.path().join("file");
        assert_eq!(to(&file).check(), Ok(()));
        to(&file).write(&7).expect("written");
        assert_eq!(std::fs::read_to_string(&file).expect("there"), "7\n");
    }
}
