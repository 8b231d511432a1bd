//! The packages of a workspace, from `cargo metadata`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::check::Package;
use crate::messages;

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

/// Every package of the workspace that contains `manifest`, with its folder. Dev-dependencies are
/// left out.
///
/// # Errors
///
/// Cargo fails, or its output has an unexpected form.
pub fn packages(manifest: &Path) -> Result<Vec<(PathBuf, Package)>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(manifest);
    let output = command.output().with_context(messages::cargo_not_started)?;
    ensure!(
        output.status.success(),
        messages::cargo_failed(&String::from_utf8_lossy(&output.stderr))
    );
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).with_context(messages::unexpected_metadata)?;
    let members: BTreeSet<String> =
        metadata.packages.iter().map(|package| package.name.clone()).collect();
    metadata.packages.into_iter().map(|described| package(described, &members)).collect()
}

fn package(described: Described, members: &BTreeSet<String>) -> Result<(PathBuf, Package)> {
    let manifest = &described.manifest_path;
    let folder = manifest
        .parent()
        .with_context(|| messages::manifest_without_folder(&manifest.to_string_lossy()))?
        .to_path_buf();
    let mut roots = Vec::new();
    for target in described.targets.iter().filter(|target| target.kind != ["custom-build"]) {
        let path = target.src_path.to_string_lossy();
        let root = target
            .src_path
            .strip_prefix(&folder)
            .with_context(|| messages::target_outside_package(&path))?;
        roots.push(root.to_str().with_context(|| messages::path_not_utf8(&path))?.to_string());
    }
    let is_shipped = |dependency: &&Dependency| dependency.kind.as_deref() != Some("dev");
    let needed =
        described.dependencies.iter().filter(is_shipped).map(|dependency| dependency.name.clone());
    let dependencies: BTreeSet<String> = needed.filter(|name| members.contains(name)).collect();
    Ok((
        folder,
        Package { name: described.name, roots, dependencies: dependencies.into_iter().collect() },
    ))
}
