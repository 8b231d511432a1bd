//! `cargo install` of the command, from the packages that a release would publish.

mod published;

use std::path::Path;
use std::process::{Command, Output};

use published::{PUBLISHED, package, repository};

fn checked(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Unpacks the packages into `folder`, with the repository's choice of versions.
fn unpack(folder: &Path) {
    for file in package(&["--no-verify"], &PUBLISHED) {
        checked(Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(folder));
    }
    let command = folder.join(concat!("unconvoy-cli-", env!("CARGO_PKG_VERSION")));
    std::fs::copy(repository().join("Cargo.lock"), command.join("Cargo.lock")).expect("a copy");
}

/// Runs cargo on the unpacked command, with the unpacked packages in place of those on crates.io.
fn cargo(folder: &Path, arguments: &[&str]) {
    let version = env!("CARGO_PKG_VERSION");
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).arg("--offline").current_dir(folder);
    for name in PUBLISHED.iter().filter(|name| **name != "unconvoy-cli") {
        let path = folder.join(format!("{name}-{version}"));
        let patch = format!("patch.crates-io.{name}.path={:?}", path.display().to_string());
        command.arg("--config").arg(patch);
    }
    checked(&mut command);
}

fn run(command: &Path, program: &[&str]) -> Output {
    Command::new(command)
        .args(["run", "--"])
        .args(program)
        .env_remove("UNCONVOY_LIBRARY")
        .output()
        .expect("the command runs")
}

/// The command is compiled without optimization, which takes less time.
#[test]
fn installed_command_names_the_way_to_its_library() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let directory = directory.path().canonicalize().expect("a path");
    let (folder, prefix) = (directory.join("packages"), directory.join("prefix"));
    std::fs::create_dir(&folder).expect("a directory");
    unpack(&folder);
    let package = format!("unconvoy-cli-{}", env!("CARGO_PKG_VERSION"));
    let manifest = format!("{package}/Cargo.toml");
    // Removes what the command does not need from the copy of Cargo.lock. Without the filter, cargo
    // wants the sources of other platforms' packages, which a build does not download.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let filter = ["--filter-platform", &platform, "--manifest-path", &manifest];
    cargo(&folder, &[&["metadata", "--format-version", "1"], &filter[..]].concat());
    let target = repository().join("target/published/install");
    let root = prefix.to_str().expect("a path of text");
    let target = target.to_str().expect("a path of text");
    cargo(
        &folder,
        &["install", "--quiet", "--locked", "--debug", "--no-track", "--path", &package, "--root"]
            .into_iter()
            .chain([root, "--target-dir", target])
            .collect::<Vec<_>>(),
    );

    let command = prefix.join("bin/unconvoy");
    let output = run(&command, &["true"]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{complaint}");
    assert_eq!(complaint.trim_end().lines().count(), 2, "{complaint}");
    let way = format!("make install-library PREFIX={root}");
    assert!(complaint.contains(&format!("({way})")), "{complaint}");
    assert!(complaint.contains(env!("CARGO_PKG_REPOSITORY")), "{complaint}");

    let mut shell = Command::new("sh");
    // The options of `make test-all` are not for this one. A user's choice of another folder for
    // builds must not matter.
    shell.env_remove("MAKEFLAGS").env("CARGO_BUILD_TARGET_DIR", "/dev/null/elsewhere");
    checked(shell.args(["-c", &way]).current_dir(repository()));
    let output = run(&command, &["cat", "/proc/self/maps"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let library = prefix.join("lib/unconvoy/libunconvoy.so");
    let maps = String::from_utf8_lossy(&output.stdout);
    assert!(maps.contains(library.to_str().expect("a path of text")), "{maps}");
}
