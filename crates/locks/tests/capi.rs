//! The C API: the committed header matches the generated one, and a C program can use it.
#![cfg(not(loom))]

use std::path::{Path, PathBuf};
use std::process::Command;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// With `UNCONVOY_BLESS=1` the test writes the header instead of comparing it.
#[test]
fn header_matches_capi_source() {
    let config =
        cbindgen::Config::from_file(package().join("cbindgen.toml")).expect("a configuration");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(package().join("src/capi.rs"))
        .generate()
        .expect("the C API is expressible in C");
    let mut generated = Vec::new();
    bindings.write(&mut generated);
    // Every C function states its requirements, so the heading that Rust needs is dropped.
    let generated = String::from_utf8(generated).expect("UTF-8").replace(" # Safety\n\n", "");
    let path = package().join("include/unconvoy.h");
    if std::env::var_os("UNCONVOY_BLESS").is_some() {
        std::fs::create_dir_all(package().join("include")).expect("a directory");
        std::fs::write(&path, &generated).expect("a file");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, generated, "run `make header`");
}

/// Builds `libunconvoy.a` in a target directory of its own, so as not to disturb other builds.
fn static_library(target: &Path) -> PathBuf {
    let status = Command::new(env!("CARGO"))
        .args([
            "rustc",
            "--quiet",
            "--release",
            "--lib",
            "--features",
            "capi",
            "--crate-type",
            "staticlib",
        ])
        .current_dir(package())
        .env("CARGO_TARGET_DIR", target)
        .status()
        .expect("cargo runs");
    assert!(status.success());
    target.join("release/libunconvoy.a")
}

#[test]
fn c_program_excludes_and_times_out() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Kept between runs, because the library takes long to build.
    let target = package().join("../../target/capi");
    let library = static_library(&target);
    let program = directory.path().join("capi");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(package().join("include"))
        .arg(package().join("tests/capi.c"))
        .arg("-o")
        .arg(&program)
        .arg(&library)
        .args(["-ldl", "-lm"])
        .status()
        .expect("cc runs");
    assert!(compiled.success());
    let output = Command::new(&program).output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
