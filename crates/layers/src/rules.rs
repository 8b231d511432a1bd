//! The two lists: `layers.toml`, the allowed dependencies of packages and files, and `known.toml`,
//! the edges that still violate them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::graph::Edge;
use crate::messages;

/// `layers.toml`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    /// The packages that each package may depend on.
    pub packages: BTreeMap<String, Vec<String>>,
    /// By package, from the bottom up: rows of folders or files (without `.rs`).
    #[serde(default)]
    pub files: BTreeMap<String, Vec<Vec<String>>>,
}

/// `known.toml`: by package, `"FROM -> TO"` with the reason. The table `packages` lists
/// dependencies between packages.
#[derive(Debug, Default)]
pub struct Known {
    tables: BTreeMap<String, BTreeMap<String, String>>,
}

/// Parses `layers.toml`.
///
/// # Errors
///
/// The text is not TOML, or does not match [`Layers`].
pub fn layers(text: &str) -> Result<Layers> {
    toml::from_str(text).with_context(|| messages::invalid_list("layers.toml"))
}

impl Known {
    /// Parses `known.toml`.
    ///
    /// # Errors
    ///
    /// The text is not a TOML table of tables of strings.
    pub fn read(text: &str) -> Result<Known> {
        Ok(Known {
            tables: toml::from_str(text).with_context(|| messages::invalid_list("known.toml"))?,
        })
    }

    /// The names of the tables.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// The edges of a table, each with its reason.
    ///
    /// # Errors
    ///
    /// A key is not `FROM -> TO`, or a reason is empty.
    pub fn edges(&self, table: &str) -> Result<BTreeMap<Edge, &str>> {
        let mut edges = BTreeMap::new();
        for (key, reason) in self.tables.get(table).into_iter().flatten() {
            let pair = key.split_once(" -> ").filter(|_| !reason.trim().is_empty());
            let (from, to) = pair.with_context(|| messages::malformed_entry(table, key))?;
            edges.insert((from.to_string(), to.to_string()), reason.as_str());
        }
        Ok(edges)
    }
}

/// Returns `known.toml` without the entries `stale`, by table.
pub fn without(text: &str, stale: &BTreeMap<String, Vec<Edge>>) -> String {
    let mut table = String::new();
    let mut kept = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = name.trim_matches('"').to_string();
        }
        let is_stale = |edge: &Edge| line.starts_with(&format!("\"{} -> {}\"", edge.0, edge.1));
        if !stale.get(&table).is_some_and(|edges| edges.iter().any(is_stale)) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The layer of a file: its number from the bottom, and the entry of the list that covers the file.
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
