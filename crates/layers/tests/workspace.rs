//! Checks this workspace's sources against `layers.toml` and `known.toml`. `UNCONVOY_BLESS=1`
//! deletes obsolete entries of `known.toml`; it adds none.

use std::path::Path;

use unconvoy_layers::check::{self, Findings};
use unconvoy_layers::rules::{self, Known};
use unconvoy_layers::source::Disk;
use unconvoy_layers::workspace;

fn findings() -> anyhow::Result<Findings> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let layers = rules::layers(&std::fs::read_to_string(here.join("layers.toml"))?)?;
    let known = Known::read(&std::fs::read_to_string(here.join("known.toml"))?)?;
    let (folders, packages): (Vec<_>, Vec<_>) =
        workspace::packages(&here.join("Cargo.toml"))?.into_iter().unzip();
    let mut findings = Findings::default();
    check::packages(&packages, &layers, &known, &mut findings)?;
    for (root, package) in folders.into_iter().zip(&packages) {
        let graph = check::graph(&Disk { root }, &package.roots)?;
        check::files(&package.name, &graph, &layers, &known, &mut findings)?;
    }
    Ok(findings)
}

fn bless(findings: &Findings) -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("known.toml");
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(&path, rules::without(&text, &findings.stale))?;
    Ok(())
}

#[test]
fn workspace_imports_follow_the_layers_without_cycles() -> anyhow::Result<()> {
    let mut found = findings()?;
    if std::env::var_os("UNCONVOY_BLESS").is_some() && !found.stale.is_empty() {
        bless(&found)?;
        found = findings()?;
    }
    let report = check::report(&found);
    assert!(
        found.faults.is_empty(),
        "{report}\n{} faults. Break the cycle or remove the import. If an edge must stay \
         for now, list it in crates/layers/known.toml: \"FROM -> TO\" = \"REASON\".",
        found.faults.len()
    );
    Ok(())
}
