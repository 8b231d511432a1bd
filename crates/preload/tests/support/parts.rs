//! The parts under test: the library, and programs without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The path of `libunconvoy.so`: `UNCONVOY_LIBRARY` if set. Otherwise this function builds the
/// library, since cargo does not build a cdylib for the integration tests of its own package.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| match std::env::var_os("UNCONVOY_LIBRARY") {
        Some(path) => fs::canonicalize(&path)
            .unwrap_or_else(|error| panic!("UNCONVOY_LIBRARY={}: {error}", path.display())),
        None => built("unconvoy-preload", "--lib", "libunconvoy.so"),
    })
}

/// Builds a part of a package, and returns the path of its file `name`.
pub fn built(package: &str, part: &str, name: &str) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", package, part])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo build of {name}: {}", output.status);
    // The messages name the file in whatever target directory is configured.
    let artefact = String::from_utf8(output.stdout)
        .expect("cargo writes UTF-8")
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(PathBuf::from))
        .find(|path| path.file_name().is_some_and(|found| found == name))
        .expect("cargo names the file among its artefacts");
    fs::canonicalize(artefact).expect("the file exists after the build")
}

/// A command without the library and its settings, even if the caller's environment has them.
pub fn plain(program: impl AsRef<Path>) -> Command {
    let mut command = Command::new(program.as_ref());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("UNCONVOY_") {
            command.env_remove(name);
        }
    }
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}
