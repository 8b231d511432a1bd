//! What is made of a record: each format behind one trait, each file complete or not there.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::output::replace;

/// One format of records of the kind `R`.
pub trait Exporter<R> {
    /// The whole file; `None` if such a record has none in this format.
    ///
    /// # Errors
    ///
    /// The record has nothing yet that this format can show.
    fn render(&self, record: &R) -> anyhow::Result<Option<Vec<u8>>>;
}

/// The whole record as JSON.
pub struct Json;

impl<R: Serialize> Exporter<R> for Json {
    fn render(&self, record: &R) -> anyhow::Result<Option<Vec<u8>>> {
        json(record).map(Some)
    }
}

/// A value as indented JSON and a newline.
///
/// # Errors
///
/// It cannot be JSON: a map whose keys are no text.
pub fn json(value: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// A format and the file it goes to.
pub struct Destination<R> {
    exporter: Box<dyn Exporter<R>>,
    path: PathBuf,
}

impl<R> Destination<R> {
    /// The record in `path`, as `exporter` has it.
    pub fn new(exporter: impl Exporter<R> + 'static, path: impl Into<PathBuf>) -> Self {
        Self { exporter: Box::new(exporter), path: path.into() }
    }

    /// Looks for what would only be noticed after all the runs.
    ///
    /// # Errors
    ///
    /// Why the file cannot be written: its directory is not there, or it is one itself.
    pub fn check(&self) -> Result<(), String> {
        let directory = match self.path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let problem = if self.path.is_dir() {
            "is a directory, name a file in it".to_string()
        } else if !directory.is_dir() {
            format!("cannot be written: there is no directory {}", directory.display())
        } else {
            return Ok(());
        };
        Err(format!("{} {problem}", self.path.display()))
    }

    /// Renders and writes. A reader never sees half a file: it appears under its name when it is
    /// complete.
    ///
    /// # Errors
    ///
    /// The format has nothing to show, or the file cannot be written.
    pub fn write(&self, record: &R) -> anyhow::Result<()> {
        let shown = self.path.display();
        match self.exporter.render(record).with_context(|| format!("no {shown}"))? {
            Some(bytes) => replace(&self.path, &bytes).with_context(|| format!("cannot write {shown}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_without_a_directory_is_noticed_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let to = |path: &Path| Destination::<u32>::new(Json, path);
        assert!(to(directory.path()).check().is_err_and(|why| why.contains("is a directory")));
        assert!(to(&directory.path().join("nosuch/file")).check().is_err_and(|why| why.contains("no directory")));
        let file = directory.path().join("file");
        assert_eq!(to(&file).check(), Ok(()));
        to(&file).write(&7).expect("written");
        assert_eq!(std::fs::read_to_string(&file).expect("there"), "7\n");
    }
}
