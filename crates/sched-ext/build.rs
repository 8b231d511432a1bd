//! Compiles the BPF programs and generates their skeleton for the loader.
//!
//! If libbpf's own dependencies (headers of libelf and zlib) are missing, the build of libbpf-sys
//! fails before this script runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

const DIRECTORY: &str = "src/bpf";

fn main() {
    // Makes Cargo watch every file in this directory.
    println!("cargo::rerun-if-changed={DIRECTORY}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let skeleton = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
        .join("main.skel.rs");
    let clang =
        std::env::var_os("CLANG").filter(|name| !name.is_empty()).unwrap_or_else(|| "clang".into());
    match check_clang(&clang) {
        // Cargo stops the build and prints only this line.
        Err(lack) => println!("cargo::error={lack}"),
        Ok(()) => compile(clang, &skeleton),
    }
}

/// Checks that `clang` can compile for BPF.
fn check_clang(clang: &OsString) -> Result<(), String> {
    let wanted = "`unconvoy sched` needs clang to compile its BPF programs";
    let (name, remedy) =
        (clang.display(), "install clang (Debian: apt-get install clang), or set CLANG");
    let output = Command::new(clang)
        .arg("-print-targets")
        .output()
        .map_err(|error| format!("{wanted}, but {name} cannot run ({error}): {remedy}"))?;
    let knows = |target: &str| {
        String::from_utf8_lossy(&output.stdout).lines().any(|line| line.trim().starts_with(target))
    };
    if knows("bpf ") {
        Ok(())
    } else {
        Err(format!("{wanted}, but {name} does not support BPF: {remedy}"))
    }
}

fn compile(clang: OsString, skeleton: &Path) {
    let mut builder = SkeletonBuilder::new();
    builder.clang(clang);
    // Version 3 of the instruction set (Linux 5.12) has atomic additions that return the old value.
    builder.source(format!("{DIRECTORY}/main.bpf.c")).clang_args([
        "-mcpu=v3",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
    ]);
    if let Err(error) = builder.build_and_generate(skeleton) {
        eprintln!("{error:#}");
        std::process::exit(1);
    }
}
