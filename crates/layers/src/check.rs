//! Compares the graph with the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::Result;

use crate::graph::{self, Edge};
use crate::resolve::{Edges, Site};
use crate::rules::{self, Known, Layers};
use crate::source::Sources;
use crate::{messages, resolve, tree};

/// A package to check, as described by Cargo.
#[derive(Debug)]
pub struct Package {
    /// For example `unconvoy-sim`.
    pub name: String,
    /// The root file of each target, relative to the package.
    pub roots: Vec<String>,
    /// The workspace packages that it depends on, dev-dependencies excluded.
    pub dependencies: Vec<String>,
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct Findings {
    /// One text per fault, ready to print.
    pub faults: Vec<String>,
    /// Entries of `known.toml` that match no violation, by table.
    pub stale: BTreeMap<String, Vec<Edge>>,
}

impl Findings {
    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }

    fn stale(&mut self, table: &str, edge: &Edge, why: &str) {
        self.fault(messages::stale_entry(table, &edge.0, &edge.1, why));
        self.stale.entry(table.to_string()).or_default().push(edge.clone());
    }
}

/// The files of a package and the imports between them.
#[derive(Debug, Default)]
pub struct Graph {
    /// Relative to the package.
    pub files: BTreeSet<String>,
    /// Imports between the files.
    pub edges: Edges,
}

/// Builds the graph of a package from all its targets.
///
/// # Errors
///
/// A source file is missing or does not parse.
pub fn graph(sources: &dyn Sources, roots: &[String]) -> Result<Graph> {
    let mut graph = Graph::default();
    for root in roots {
        let tree = tree::read(sources, root)?;
        resolve::edges(&tree, &mut graph.edges);
        graph.files.extend(tree.files);
    }
    Ok(graph)
}

/// Checks the files of one package.
///
/// # Errors
///
/// An entry of `known.toml` is malformed.
pub fn files(
    package: &str,
    graph: &Graph,
    layers: &Layers,
    known: &Known,
    findings: &mut Findings,
) -> Result<()> {
    let edges = &graph.edges;
    let layers = layers.files.get(package).map_or(&[][..], Vec::as_slice);
    let known = known.edges(package)?;
    let mut against = BTreeMap::new();
    for (edge, site) in edges {
        if let Some(reason) = layer_violation(layers, edge) {
            against.insert(edge, reason.clone());
            if !known.contains_key(edge) {
                findings.fault(messages::layer_violated(package, &line(edge, site), &reason));
            }
        }
    }
    unused_layers(package, layers, &graph.files, findings);

    let mut left: BTreeSet<Edge> =
        edges.keys().filter(|edge| !known.contains_key(*edge)).cloned().collect();
    for cycle in graph::cycles(&left) {
        findings.fault(cycle_report(package, &cycle, &left, edges));
    }
    for edge in known.keys() {
        if !edges.contains_key(edge) {
            findings.stale(package, edge, "is not an import");
        } else if !against.contains_key(edge) && !graph::is_reachable(&left, &edge.1, &edge.0) {
            findings.stale(package, edge, "closes no cycle");
            left.insert(edge.clone());
        }
    }
    Ok(())
}

/// Explains how an edge violates the layers; `None` if it does not. A file that no layer names is
/// above all layers.
fn layer_violation(layers: &[Vec<String>], (from, to): &Edge) -> Option<String> {
    let (height, folder) = rules::layer(layers, from)?;
    match rules::layer(layers, to) {
        None => Some(messages::import_of_unlayered_file(folder, to)),
        Some((other, _)) if other < height => None,
        Some((other, above)) if other > height => {
            Some(messages::import_of_higher_layer(folder, above))
        }
        Some((_, beside)) if beside != folder => Some(messages::import_within_row(folder, beside)),
        Some(_) => None,
    }
}

/// Reports layers without a file. The folder was probably renamed, and the layer now guards
/// nothing.
fn unused_layers(
    package: &str,
    layers: &[Vec<String>],
    files: &BTreeSet<String>,
    findings: &mut Findings,
) {
    for (number, folder) in
        layers.iter().enumerate().flat_map(|(number, row)| row.iter().map(move |one| (number, one)))
    {
        if !files.iter().any(|file| rules::layer(layers, file) == Some((number, folder))) {
            findings.fault(messages::layer_without_file(package, folder));
        }
    }
}

fn line((from, to): &Edge, site: &Site) -> String {
    messages::site(from, to, site.line, &site.path)
}

/// Describes a cycle: its files, a set of edges whose removal breaks it, and its other edges.
fn cycle_report(
    package: &str,
    cycle: &BTreeSet<String>,
    left: &BTreeSet<Edge>,
    sites: &Edges,
) -> String {
    let files: Vec<&str> = cycle.iter().map(String::as_str).collect();
    let within = |edge: &&Edge| cycle.contains(&edge.0) && cycle.contains(&edge.1);
    let within: BTreeSet<Edge> = left.iter().filter(within).cloned().collect();
    let cut = graph::feedback_edges(&within);
    let lines = |edges: Vec<&Edge>| -> String {
        edges.into_iter().map(|edge| line(edge, &sites[edge])).collect()
    };
    let (cut, rest) = (cut.iter().collect(), within.difference(&cut).collect());
    messages::cycle(package, &files, &lines(cut), &lines(rest))
}

/// Checks the dependencies between packages.
///
/// # Errors
///
/// An entry of `known.toml` is malformed.
pub fn packages(
    packages: &[Package],
    layers: &Layers,
    known: &Known,
    findings: &mut Findings,
) -> Result<()> {
    let known_edges = known.edges("packages")?;
    let mut against = BTreeSet::new();
    for package in packages {
        let Some(allowed) = layers.packages.get(&package.name) else {
            findings.fault(messages::unlisted_package(&package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|name| !allowed.contains(name)) {
            let edge = (package.name.clone(), dependency.clone());
            if !known_edges.contains_key(&edge) {
                findings.fault(messages::package_dependency(&package.name, dependency));
            }
            against.insert(edge);
        }
    }
    for edge in known_edges.keys().filter(|edge| !against.contains(*edge)) {
        findings.stale("packages", edge, "is not a dependency");
    }
    let exists =
        |name: &str| name == "packages" || packages.iter().any(|package| package.name == name);
    for table in known.tables().filter(|table| !exists(table)) {
        findings.fault(messages::unknown_table(table));
    }
    Ok(())
}

/// All faults as one text.
pub fn report(findings: &Findings) -> String {
    let mut text = String::new();
    for fault in &findings.faults {
        let _ = writeln!(text, "{}", fault.trim_end());
    }
    text
}
