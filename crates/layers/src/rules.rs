//! The two lists: `layers.toml`, how the packages and the files in them may depend on one another,
//! and `known.toml`, the arrows that do not keep to it yet.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::graph::Arrow;

/// `layers.toml`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    /// The packages that each package may depend on.
    pub packages: BTreeMap<String, Vec<String>>,
    /// By package, from the bottom up: folders or files (without `.rs`), those of one line side by side.
    #[serde(default)]
    pub files: BTreeMap<String, Vec<Vec<String>>>,
}

/// `known.toml`: by package, `"FROM -> TO"` and the reason. The table `packages` is about packages.
#[derive(Debug, Default)]
pub struct Known {
    tables: BTreeMap<String, BTreeMap<String, String>>,
}

/// Reads `layers.toml`.
///
/// # Errors
///
/// The text is not what this module's types say.
pub fn layers(text: &str) -> Result<Layers> {
    toml::from_str(text).context("layers.toml")
}

impl Known {
    /// Reads `known.toml`.
    ///
    /// # Errors
    ///
    /// The text is no table of tables of strings.
    pub fn read(text: &str) -> Result<Known> {
        Ok(Known { tables: toml::from_str(text).context("known.toml")? })
    }

    /// The packages that it has a table of.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// The arrows of a table, each with its reason.
    ///
    /// # Errors
    ///
    /// A key is no arrow, or a reason is empty.
    pub fn arrows(&self, table: &str) -> Result<BTreeMap<Arrow, &str>> {
        let mut arrows = BTreeMap::new();
        for (key, reason) in self.tables.get(table).into_iter().flatten() {
            let pair = key.split_once(" -> ").filter(|_| !reason.trim().is_empty());
            let (from, to) =
                pair.with_context(|| format!("known.toml, [{table}], {key:?}: a line is \"FROM -> TO\" = \"REASON\""))?;
            arrows.insert((from.to_string(), to.to_string()), reason.as_str());
        }
        Ok(arrows)
    }
}

/// `known.toml` without the lines of these arrows, by table.
pub fn without(text: &str, stale: &BTreeMap<String, Vec<Arrow>>) -> String {
    let mut table = String::new();
    let mut kept = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = name.trim_matches('"').to_string();
        }
        let is_stale = |arrow: &Arrow| line.starts_with(&format!("\"{} -> {}\"", arrow.0, arrow.1));
        if !stale.get(&table).is_some_and(|arrows| arrows.iter().any(is_stale)) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// A file's layer: its number from the bottom, and the folder or file of the list.
pub fn layer<'a>(layers: &'a [Vec<String>], file: &str) -> Option<(usize, &'a str)> {
    let covers = |prefix: &str| {
        let rest = file.strip_prefix(prefix);
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    layers.iter().enumerate().find_map(|(number, folders)| {
        let folder = folders.iter().find(|folder| covers(folder))?;
        Some((number, folder.as_str()))
    })
}
