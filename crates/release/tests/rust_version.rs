//! The oldest Rust that `rust-version` states compiles what a release publishes.
//!
//! clippy's `incompatible_msrv`, in `make test-lint`, finds functions of the standard library that
//! are newer. Only the old compiler finds newer parts of the language.

use std::path::Path;
use std::process::Command;

/// The first release of the workspace's `rust-version`.
fn oldest() -> String {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let text = std::fs::read_to_string(manifest).expect("a manifest");
    let manifest: toml::Table = toml::from_str(&text).expect("TOML");
    let version = manifest["workspace"]["package"]["rust-version"].as_str();
    format!("{}.0", version.expect("a version"))
}

/// cargo of the toolchain `version`.
fn cargo(version: &str) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", version, "cargo"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env("CARGO_TARGET_DIR", "target/oldest");
    command
}

#[test]
fn published_packages_compile_with_the_oldest_rust() {
    let version = oldest();
    match cargo(&version).arg("--version").output() {
        Err(_) => {
            println!("skipped: Rust does not come from rustup, so that {version} is not at hand");
            return;
        }
        Ok(output) if !output.status.success() => {
            println!(
                "skipped: Rust {version} is not installed \
                 (rustup toolchain install --profile minimal {version})"
            );
            return;
        }
        Ok(_) => {}
    }
    for arguments in [
        ["-p", "unconvoy", "--all-features"].as_slice(),
        &["-p", "unconvoy", "--no-default-features"],
        &["-p", "unconvoy-preload", "-p", "unconvoy-cli"],
    ] {
        let checked = cargo(&version)
            .args(["check", "--quiet", "--locked"])
            .args(arguments)
            .output()
            .expect("rustup runs");
        let complaint = String::from_utf8_lossy(&checked.stderr);
        assert!(
            checked.status.success(),
            "Rust {version} does not compile {arguments:?}; use older means, or raise \
             `rust-version` in Cargo.toml:\n{complaint}"
        );
    }
}
