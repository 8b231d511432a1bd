//! The generated blocks of docs/explanation/architecture.md match layers.toml.

#[path = "../../locks/tests/generated/mod.rs"]
mod generated;

use std::collections::BTreeMap;
use std::fs;

use generated::{assert_up_to_date, repository, table};
use serde::Deserialize;

#[derive(Deserialize)]
struct Layers {
    packages: BTreeMap<String, Vec<String>>,
    files: BTreeMap<String, Vec<Vec<String>>>,
}

/// The files of a folder of the library, without `.rs`; empty if `place` is a file.
fn files_of(folder: &str) -> Vec<String> {
    let path = repository().join("crates/locks").join(folder);
    let Ok(entries) = fs::read_dir(&path) else { return Vec::new() };
    let entries = entries.map(|entry| entry.expect("an entry of a directory").path());
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.file_stem()?.to_str()?.to_string();
            (name != "mod").then_some(if entry.is_dir() { format!("{name}/") } else { name })
        })
        .collect();
    names.sort();
    names
}

/// Draws the library's layers, highest first.
fn picture(layers: &[Vec<String>]) -> String {
    const WIDTH: usize = 84;
    let bar = "-".repeat(WIDTH);
    let mut lines = vec!["```text".to_string()];
    for layer in layers.iter().rev() {
        lines.push(bar.clone());
        for folder in layer {
            let mut line = format!("  {:<12}", folder.trim_start_matches("src/"));
            for name in files_of(folder) {
                if line.len() + 1 + name.len() > WIDTH {
                    lines.push(std::mem::replace(&mut line, " ".repeat(14)));
                }
                line = format!("{line} {name}");
            }
            lines.push(line.trim_end().to_string());
        }
    }
    lines.extend([bar, "```\n".to_string()]);
    lines.join("\n")
}

#[test]
fn architecture_page_matches_layers_toml() {
    let path = repository().join("crates/layers/layers.toml");
    let text = fs::read_to_string(path).expect("layers.toml");
    let Layers { packages, files } = toml::from_str(&text).expect("packages and files");
    let packages = packages.iter().map(|(name, others)| {
        let others: Vec<String> = others.iter().map(|other| format!("`{other}`")).collect();
        [format!("`{name}`"), others.join(", ")]
    });
    assert_up_to_date(
        "explanation/architecture.md",
        &[
            ("layers", picture(&files["unconvoy"])),
            ("packages", table(["package", "depends on"], packages)),
        ],
    );
}
