//! The packages of a workspace, asked from Cargo.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::check::Package;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// Every package of the workspace that holds `manifest`, with its folder. What only tests need is no
/// dependency here.
///
/// # Errors
///
/// Cargo fails, or describes the workspace otherwise than expected.
pub fn packages(manifest: &Path) -> Result<Vec<(PathBuf, Package)>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"]).arg(manifest);
    let output = command.output().context("cargo metadata does not start")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let members: BTreeSet<String> = metadata.packages.iter().map(|package| package.name.clone()).collect();
    metadata.packages.into_iter().map(|described| package(described, &members)).collect()
}

fn package(described: Described, members: &BTreeSet<String>) -> Result<(PathBuf, Package)> {
    let folder = described.manifest_path.parent().context("a manifest is in a folder")?.to_path_buf();
    let mut roots = Vec::new();
    for target in described.targets.iter().filter(|target| target.kind != ["custom-build"]) {
        let root = target.src_path.strip_prefix(&folder).context("a target is outside its package")?;
        roots.push(root.to_str().context("a path is not UTF-8")?.to_string());
    }
    let is_shipped = |dependency: &&Dependency| dependency.kind.as_deref() != Some("dev");
    let needed = described.dependencies.iter().filter(is_shipped).map(|dependency| dependency.name.clone());
    let dependencies: BTreeSet<String> = needed.filter(|name| members.contains(name)).collect();
    Ok((folder, Package { name: described.name, roots, dependencies: dependencies.into_iter().collect() }))
}
