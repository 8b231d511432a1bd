//! Compiles the kernel's side and generates the loader's view of it.
//!
//! What libbpf itself takes (libelf's and zlib's headers) is missed before this runs, where libbpf-sys is built.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

const DIRECTORY: &str = "src/bpf";

fn main() {
    // Of a directory, all that is in it.
    println!("cargo::rerun-if-changed={DIRECTORY}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let skeleton = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("main.skel.rs");
    let clang = std::env::var_os("CLANG").filter(|name| !name.is_empty()).unwrap_or_else(|| "clang".into());
    match look_at(&clang) {
        // Cargo fails, and prints this line only.
        Err(lack) => println!("cargo::error={lack}"),
        Ok(()) => compile(clang, &skeleton),
    }
}

/// Whether it is one that compiles for the kernel.
fn look_at(clang: &OsString) -> Result<(), String> {
    let wanted = "the kernel's side of `unconvoy sched` is compiled by clang";
    let (name, remedy) = (clang.display(), "install it (Debian: apt-get install clang), or set CLANG to one");
    let output = Command::new(clang)
        .arg("-print-targets")
        .output()
        .map_err(|error| format!("{wanted}, and {name} cannot be executed ({error}): {remedy}"))?;
    let knows =
        |target: &str| String::from_utf8_lossy(&output.stdout).lines().any(|line| line.trim().starts_with(target));
    if knows("bpf ") { Ok(()) } else { Err(format!("{wanted}, and {name} does not compile for BPF: {remedy}")) }
}

fn compile(clang: OsString, skeleton: &Path) {
    let mut builder = SkeletonBuilder::new();
    builder.clang(clang);
    // Of the third version of the instruction set (Linux 5.12): it has atomic additions that return the old value.
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
