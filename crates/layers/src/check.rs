//! Compares what is with what may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::Result;

use crate::graph::{self, Arrow};
use crate::resolve::{Arrows, Tie};
use crate::rules::{self, Known, Layers};
use crate::source::Sources;
use crate::{resolve, tree};

/// What the check is about: a package, as Cargo knows it.
#[derive(Debug)]
pub struct Package {
    /// `unconvoy-sim`
    pub name: String,
    /// The root file of each target, relative to the package.
    pub roots: Vec<String>,
    /// The packages of the workspace that it needs, tests apart.
    pub dependencies: Vec<String>,
}

/// What is wrong.
#[derive(Debug, Default)]
pub struct Findings {
    /// One for each fault, ready to print.
    pub faults: Vec<String>,
    /// Lines of `known.toml` that nothing answers to, by table.
    pub stale: BTreeMap<String, Vec<Arrow>>,
}

impl Findings {
    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }

    fn stale(&mut self, table: &str, arrow: &Arrow, why: &str) {
        self.fault(format!("known.toml, [{table}]: \"{} -> {}\" {why}: delete the line", arrow.0, arrow.1));
        self.stale.entry(table.to_string()).or_default().push(arrow.clone());
    }
}

/// The files of a package, and what each takes from others.
#[derive(Debug, Default)]
pub struct Graph {
    /// Relative to the package.
    pub files: BTreeSet<String>,
    /// Between them.
    pub arrows: Arrows,
}

/// The graph of a package, of all its targets together.
///
/// # Errors
///
/// A source file is missing or does not parse.
pub fn graph(sources: &dyn Sources, roots: &[String]) -> Result<Graph> {
    let mut graph = Graph::default();
    for root in roots {
        let tree = tree::read(sources, root)?;
        resolve::arrows(&tree, &mut graph.arrows);
        graph.files.extend(tree.files);
    }
    Ok(graph)
}

/// Checks the files of one package.
///
/// # Errors
///
/// A line of the known arrows is not well formed.
pub fn files(package: &str, graph: &Graph, layers: &Layers, known: &Known, findings: &mut Findings) -> Result<()> {
    let arrows = &graph.arrows;
    let layers = layers.files.get(package).map_or(&[][..], Vec::as_slice);
    let known = known.arrows(package)?;
    let mut against = BTreeMap::new();
    for (arrow, tie) in arrows {
        if let Some(reason) = breaks(layers, arrow) {
            against.insert(arrow, reason.clone());
            if !known.contains_key(arrow) {
                findings.fault(format!("{package}: against the layers:\n{}    {reason}", line(arrow, tie)));
            }
        }
    }
    unused_layers(package, layers, &graph.files, findings);

    let mut left: BTreeSet<Arrow> = arrows.keys().filter(|arrow| !known.contains_key(*arrow)).cloned().collect();
    for circle in graph::circles(&left) {
        findings.fault(circle_report(package, &circle, &left, arrows));
    }
    for arrow in known.keys() {
        if !arrows.contains_key(arrow) {
            findings.stale(package, arrow, "is no import any more");
        } else if !against.contains_key(arrow) && !graph::is_path(&left, &arrow.1, &arrow.0) {
            findings.stale(package, arrow, "closes no circle any more");
            left.insert(arrow.clone());
        }
    }
    Ok(())
}

/// Why an arrow is against the layers. A file that no layer names is above them all.
fn breaks(layers: &[Vec<String>], (from, to): &Arrow) -> Option<String> {
    let (height, folder) = rules::layer(layers, from)?;
    match rules::layer(layers, to) {
        None => Some(format!("{folder} is a layer, and {to} is above the layers")),
        Some((other, _)) if other < height => None,
        Some((other, above)) if other > height => Some(format!("{folder} is below {above}")),
        Some((_, beside)) if beside != folder => Some(format!("{folder} and {beside} lie side by side")),
        Some(_) => None,
    }
}

/// A layer without a file guards nothing: the folder was renamed.
fn unused_layers(package: &str, layers: &[Vec<String>], files: &BTreeSet<String>, findings: &mut Findings) {
    for (number, folder) in layers.iter().enumerate().flat_map(|(number, row)| row.iter().map(move |one| (number, one)))
    {
        if !files.iter().any(|file| rules::layer(layers, file) == Some((number, folder))) {
            findings.fault(format!("layers.toml: {package} has no file in {folder}"));
        }
    }
}

fn line((from, to): &Arrow, tie: &Tie) -> String {
    format!("  \"{from} -> {to}\": line {}, {}\n", tie.line, tie.path)
}

/// The files of a circle, few arrows that break it, and all its arrows.
fn circle_report(package: &str, circle: &BTreeSet<String>, left: &BTreeSet<Arrow>, ties: &Arrows) -> String {
    let files: Vec<&str> = circle.iter().map(String::as_str).collect();
    let within = |arrow: &&Arrow| circle.contains(&arrow.0) && circle.contains(&arrow.1);
    let within: BTreeSet<Arrow> = left.iter().filter(within).cloned().collect();
    let closing = graph::closing(&within);
    let mut text = format!("{package}: a circle of {} files: {}\n", files.len(), files.join(", "));
    text.push_str("  there is none without\n");
    closing.iter().for_each(|arrow| text.push_str(&line(arrow, &ties[arrow])));
    text.push_str("  beside\n");
    within.difference(&closing).for_each(|arrow| text.push_str(&line(arrow, &ties[arrow])));
    text
}

/// Checks what the packages depend on.
///
/// # Errors
///
/// A line of the known arrows is not well formed.
pub fn packages(packages: &[Package], layers: &Layers, known: &Known, findings: &mut Findings) -> Result<()> {
    let known_arrows = known.arrows("packages")?;
    let mut against = BTreeSet::new();
    for package in packages {
        let Some(allowed) = layers.packages.get(&package.name) else {
            findings.fault(format!("layers.toml, [packages]: {} has no line", package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|name| !allowed.contains(name)) {
            let arrow = (package.name.clone(), dependency.clone());
            if !known_arrows.contains_key(&arrow) {
                findings.fault(format!("packages: \"{} -> {dependency}\" is against the layers", package.name));
            }
            against.insert(arrow);
        }
    }
    for arrow in known_arrows.keys().filter(|arrow| !against.contains(*arrow)) {
        findings.stale("packages", arrow, "is no such dependency any more");
    }
    let exists = |name: &str| name == "packages" || packages.iter().any(|package| package.name == name);
    for table in known.tables().filter(|table| !exists(table)) {
        findings.fault(format!("known.toml, [{table}]: there is no such package"));
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
