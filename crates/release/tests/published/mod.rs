//! The packages that a release publishes on crates.io.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::Value;

/// The library and the command, after the packages that they need.
pub const PUBLISHED: [&str; 6] = [
    "unconvoy",
    "unconvoy-measure",
    "unconvoy-profile",
    "unconvoy-trace-stream",
    "unconvoy-syncchar",
    "unconvoy-cli",
];

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs cargo in the repository, and returns what it prints.
pub fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(repository())
        .output()
        .expect("cargo runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {complaint}");
    String::from_utf8(output.stdout).expect("cargo writes text")
}

pub fn metadata() -> Value {
    let text = cargo(&["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    serde_json::from_str(&text).expect("cargo writes JSON")
}

/// Makes the packages `names`, and returns their files. Does not ask crates.io.
pub fn package(options: &[&str], names: &[&str]) -> Vec<PathBuf> {
    // Two runs at a time would write the same files.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let mut arguments = vec!["package", "--quiet", "--offline", "--allow-dirty"];
    arguments.extend(["--target-dir", "target/published"]);
    arguments.extend(options);
    arguments.extend(names.iter().flat_map(|name| ["-p", name]));
    cargo(&arguments);
    let version = env!("CARGO_PKG_VERSION");
    let folder = repository().join("target/published/package");
    names.iter().map(|name| folder.join(format!("{name}-{version}.crate"))).collect()
}
