//! Compiles the BPF program of the `bpf` sensor, which the command embeds and loads.
//!
//! Only the build needs clang. A machine that runs the command does not.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/bpf/runnable.bpf.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let object = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
        .join("runnable.bpf.o");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    // Version 3 of the instruction set (Linux 5.12) has atomic exchange. `-g` emits BTF, with which
    // the loader relocates field accesses for the running kernel.
    let flags = ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"];
    match Command::new(&clang).args(flags).args(["-c", SOURCE, "-o"]).arg(&object).status() {
        Ok(status) => {
            assert!(status.success(), "{}: {SOURCE} cannot be compiled: {status}", clang.display())
        }
        Err(error) => {
            println!(
                "cargo::warning={}: {error}: unconvoy is built without its bpf sensor (apt-get \
                 install clang, then build again)",
                clang.display()
            );
            std::fs::write(&object, []).expect("OUT_DIR can be written");
        }
    }
}
