//! The C API of `crates/locks`: the committed header matches the generated one, and a C program can
//! use it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn locks() -> PathBuf {
    package().join("../locks")
}

/// With `UNCONVOY_BLESS=1` the test writes the header instead of comparing it.
#[test]
fn header_matches_capi_source() {
    let config =
        cbindgen::Config::from_file(package().join("cbindgen.toml")).expect("a configuration");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(locks().join("src/capi.rs"))
        .generate()
        .expect("the C API is expressible in C");
    let mut generated = Vec::new();
    bindings.write(&mut generated);
    // Every C function states its requirements, so the heading that Rust needs is dropped. C89 has
    // no `//`.
    let generated = String::from_utf8(generated).expect("UTF-8").replace(" # Safety\n\n", "");
    let generated: String = generated.lines().fold(String::new(), |text, line| {
        let line = match line.split_once("// ") {
            Some((code, comment)) => format!("{} /* {comment} */", code.trim_end()),
            None => line.to_string(),
        };
        text + &line + "\n"
    });
    let path = locks().join("include/unconvoy.h");
    if std::env::var_os("UNCONVOY_BLESS").is_some() {
        std::fs::write(&path, &generated).expect("a file");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, generated, "run `make header`");
}

/// Builds `libunconvoy.a`. Cargo does nothing if `make` has built it.
fn static_library() -> PathBuf {
    let target = package().join("../../target");
    let status = Command::new(env!("CARGO"))
        .args(["rustc", "--quiet", "--release", "-p", "unconvoy", "--lib", "--features", "capi"])
        .args(["--crate-type", "staticlib"])
        .current_dir(package().join("../.."))
        .env("CARGO_TARGET_DIR", &target)
        .status()
        .expect("cargo runs");
    assert!(status.success());
    target.join("release/libunconvoy.a")
}

#[test]
fn library_builds_with_capi_as_its_only_feature() {
    let status = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "-p", "unconvoy", "--lib", "--no-default-features"])
        .args(["--features", "capi"])
        .current_dir(package().join("../.."))
        .env("CARGO_TARGET_DIR", package().join("../../target"))
        .status()
        .expect("cargo runs");
    assert!(status.success());
}

/// Compiles `source` with the headers in `include`, and links the library.
fn compile(compiler: &str, options: &[&str], include: &Path, source: &Path, program: &Path) {
    let compiled = Command::new(compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .args([include, source, Path::new("-o"), program, &static_library()])
        .args(options)
        .args(["-ldl", "-lm"])
        .status()
        .expect("the compiler runs");
    assert!(compiled.success());
}

#[test]
fn c_program_excludes_and_times_out() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = directory.path().join("capi");
    let source = package().join("tests/capi.c");
    compile("cc", &["-std=c11"], &locks().join("include"), &source, &program);
    let output = Command::new(&program).output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A weak reference must not make the program's other calls weak.
#[test]
fn program_has_both_checkpoints_in_every_dialect() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = directory.path().join("checkpoint");
    let source = package().join("tests/checkpoint.c");
    for options in [&["-std=c89", "-pedantic"][..], &["-std=c11"], &["-masm=intel"], &["-no-pie"]] {
        compile("cc", options, &locks().join("include"), &source, &program);
        let status = Command::new(&program).status().expect("the program runs");
        assert!(status.success(), "{options:?}: {status}");
    }
}

/// The workload of `scripts/bench-mutexes.sh`, which needs Abseil.
#[test]
fn workload_of_mutexes_loses_no_increment() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = directory.path().join("cpp_mutex");
    let workloads = package().join("../bench/workloads");
    let source = workloads.join("cpp_mutex.cc");
    compile("g++", &["-std=c++17", "-labsl_synchronization"], &workloads, &source, &program);
    for mutex in ["unconvoy", "absl", "std"] {
        let arguments = ["--mutex", mutex, "--threads", "4", "--seconds", "0.1"];
        let output = Command::new(&program).args(arguments).output().expect("the program runs");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("ops_per_sec"), "{mutex}: {printed}");
    }
}
