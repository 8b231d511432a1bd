//! Renders a comparison's record: table, JSON, CSV and figure, each behind one trait.

mod csv;
mod json;
mod plot;
pub mod table;

use std::path::{Path, PathBuf};

use anyhow::Context;

use unconvoy_bench::output::{replace, with_suffix};

use crate::cli::CompareArgs;
use crate::compare::record::Record;
use crate::refusal::Refusal;

/// One format.
pub trait Exporter {
    /// The whole file.
    ///
    /// # Errors
    ///
    /// The record has nothing that this format can show.
    fn render(&self, record: &Record) -> anyhow::Result<Vec<u8>>;
}

/// A format and the file it goes to.
pub struct Destination {
    exporter: Box<dyn Exporter>,
    path: PathBuf,
}

/// The files that the options ask for.
pub fn destinations(args: &CompareArgs) -> Vec<Destination> {
    let mut destinations = Vec::new();
    let mut add = |exporter: Box<dyn Exporter>, path: PathBuf| {
        destinations.push(Destination { exporter, path });
    };
    if let Some(path) = &args.json {
        add(Box::new(json::Json), path.clone());
    }
    if let Some(path) = &args.csv {
        add(Box::new(csv::Csv), path.clone());
    }
    if let Some(basename) = &args.plot {
        add(Box::new(plot::Svg), with_suffix(basename, ".svg"));
        add(Box::new(plot::Png), with_suffix(basename, ".png"));
    }
    destinations
}

impl Destination {
    /// The JSON record in `path`.
    pub fn json(path: &Path) -> Self {
        Self { exporter: Box::new(json::Json), path: path.to_path_buf() }
    }

    /// Looks for what would only be noticed after all the runs.
    ///
    /// # Errors
    ///
    /// The directory is not there (status 2).
    pub fn check(&self) -> Result<(), Refusal> {
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
        Err(Refusal::usage(format!("{} {problem}", self.path.display())))
    }

    /// Renders and writes. A reader never sees half a file: it appears under its name when it
    /// is complete.
    ///
    /// # Errors
    ///
    /// The format has nothing to show, or the file cannot be written.
    pub fn write(&self, record: &Record) -> anyhow::Result<()> {
        let shown = self.path.display();
        let bytes = self.exporter.render(record).with_context(|| format!("no {shown}"))?;
        replace(&self.path, &bytes).with_context(|| format!("cannot write {shown}"))
    }
}
