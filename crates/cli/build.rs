//! Compiles the BPF programs, which the command embeds and loads.
//!
//! Only the build needs clang. A machine that runs the command does not.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// The BPF programs, and the architecture that each is for, if not for all.
const SOURCES: [(&str, Option<&str>); 3] =
    [("runnable", None), ("waits", Some("x86_64")), ("contention", Some("x86_64"))];

fn main() {
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    // Version 3 of the instruction set (Linux 5.12) has atomic exchange. `-g` emits BTF, with which
    // the loader relocates field accesses for the running kernel.
    let mut flags = ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]
        .map(OsString::from)
        .to_vec();
    // The same bytes from every folder.
    let mut mapped = OsString::from("-fdebug-prefix-map=");
    mapped.push(std::env::current_dir().expect("cargo sets the package's folder"));
    mapped.push("=.");
    flags.push(mapped);
    let mut built = Vec::new();
    let mut missing = None;
    for (name, only) in SOURCES {
        let source = format!("src/bpf/{name}.bpf.c");
        let object = folder.join(format!("{name}.bpf.o"));
        if only.is_some_and(|only| only != architecture) {
            std::fs::write(&object, []).expect("OUT_DIR can be written");
            continue;
        }
        match Command::new(&clang).args(&flags).args(["-c", &source, "-o"]).arg(&object).status() {
            Ok(status) => {
                assert!(
                    status.success(),
                    "{}: {source} cannot be compiled: {status}",
                    clang.display()
                );
                built.push(name);
            }
            Err(error) => {
                std::fs::write(&object, []).expect("OUT_DIR can be written");
                missing = Some(error);
            }
        }
    }
    if let Some(error) = missing {
        println!(
            "cargo::warning={}: {error}: unconvoy is built without its BPF programs (apt-get \
             install clang, then build again)",
            clang.display()
        );
        rerun_once_installed();
    }
    let built = if built.is_empty() { "none".to_string() } else { built.join(", ") };
    println!("cargo::rustc-env=BUILD_BPF={built}");
    let environment = std::env::var("CARGO_CFG_TARGET_ENV").expect("cargo sets it");
    println!("cargo::rustc-env=BUILD_TARGET={architecture}-linux-{environment}");
}

/// Has cargo run this script again once a program has been installed: that changes the time of its
/// folder.
fn rerun_once_installed() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for folder in std::env::split_paths(&path).filter(|folder| folder.is_dir()) {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
}
