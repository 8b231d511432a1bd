//! Compiles the kernel's side and generates the loader's view of it.

use std::path::PathBuf;
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

const DIRECTORY: &str = "src/bpf";

fn main() {
    println!("cargo::rerun-if-changed={DIRECTORY}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let skeleton = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("main.skel.rs");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    if let Err(error) = Command::new(&clang).arg("--version").output() {
        println!(
            "cargo::error=the kernel's side of `unconvoy sched` is compiled by clang, and {} cannot be executed ({error}): apt-get install clang, or set CLANG",
            clang.display()
        );
        return;
    }
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
    if let Err(error) = builder.build_and_generate(&skeleton) {
        panic!("{DIRECTORY}/main.bpf.c: {error:#} (Debian: apt-get install clang libelf-dev zlib1g-dev pkg-config)");
    }
}
