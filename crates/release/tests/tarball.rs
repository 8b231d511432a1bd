//! `install.sh` of the tarball, with a few files in place of the built ones. `make test-tarball`
//! tries the whole tarball.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Files of the stand-in for the tarball.
const FILES: [&str; 3] =
    ["bin/unconvoy", "lib/pkgconfig/unconvoy.pc", "lib/unconvoy/libunconvoy.so"];
/// The list that the script adds.
const LIST: &str = "lib/unconvoy/installed.txt";

/// Makes an unpacked tarball in `folder`, and returns its script.
fn unpack(folder: &Path) -> PathBuf {
    for file in FILES {
        let path = folder.join("files").join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a directory");
        std::fs::write(path, "prefix=\n").expect("a file");
    }
    let script = folder.join("install.sh");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/tarball/install.sh");
    std::fs::copy(source, &script).expect("a copy");
    script
}

/// The shells that a user may have as `sh`.
const SHELLS: [&str; 2] = ["sh", "bash"];

fn run(shell: &str, script: &Path, arguments: &[&str], folder: &Path) -> Output {
    Command::new(shell)
        .arg(script)
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the shell runs")
}

/// Installs with `prefix`, which means `home`/local, and checks the files there. Returns false if
/// the script rejects this machine.
fn installs(shell: &str, script: &Path, prefix: &str, home: &Path) -> bool {
    let installed = run(shell, script, &["--prefix", prefix], home);
    let complaint = String::from_utf8_lossy(&installed.stderr);
    if complaint.contains("cannot install: this is") {
        println!("skipped: {complaint}");
        return false;
    }
    assert!(installed.status.success(), "{shell}, --prefix {prefix}: {complaint}");
    for file in FILES.into_iter().chain([LIST]) {
        let is_there = home.join("local").join(file).is_file();
        assert!(is_there, "{shell}, --prefix {prefix}: no {file}");
    }
    true
}

fn uninstalls(shell: &str, script: &Path, prefix: &str, home: &Path) {
    let removed = run(shell, script, &["--prefix", prefix, "--uninstall"], home);
    assert!(removed.status.success(), "{shell}: {}", String::from_utf8_lossy(&removed.stderr));
}

/// An upgrade removes the files of the earlier version's list that the new list lacks.
#[test]
fn upgrade_by_another_path_of_the_prefix_keeps_the_new_files() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let home = directory.path();
    let script = unpack(&home.join("unpacked"));
    symlink(home, home.join("link")).expect("a link");
    let absolute = home.join("local").display().to_string();
    let two_slashes = format!("/{absolute}");
    let lists = [
        vec!["local", "./local/", "unpacked/../local", "link/local"],
        vec!["missing/../local", "missing/../local", "missing/./../local"],
        vec![two_slashes.as_str(), absolute.as_str(), two_slashes.as_str()],
    ];
    for shell in SHELLS {
        for prefixes in &lists {
            for prefix in prefixes {
                if !installs(shell, &script, prefix, home) {
                    return;
                }
            }
            uninstalls(shell, &script, "local", home);
            assert!(!home.join("local").exists(), "{shell}: {prefixes:?}");
        }
    }
}

/// A folder moves after the installation, and a link takes its place.
#[test]
fn upgrade_through_a_link_in_place_of_a_folder_keeps_the_new_files() {
    for shell in SHELLS {
        for moved in ["local", "local/lib"] {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let home = directory.path();
            let script = unpack(&home.join("unpacked"));
            let of_first_version = home.join("unpacked/files/bin/first");
            std::fs::write(&of_first_version, "").expect("a file");
            if !installs(shell, &script, "local", home) {
                return;
            }
            let elsewhere = home.join("elsewhere");
            std::fs::rename(home.join(moved), &elsewhere).expect("a folder");
            symlink(&elsewhere, home.join(moved)).expect("a link");
            std::fs::remove_file(&of_first_version).expect("a file");
            for _ in 0..2 {
                installs(shell, &script, "local", home);
                assert!(!home.join("local/bin/first").exists(), "{shell}: {moved}");
            }
            uninstalls(shell, &script, "local", home);
            let is_left = |file: &&str| home.join("local").join(file).exists();
            assert_eq!(FILES.into_iter().find(is_left), None, "{shell}: {moved}");
        }
    }
}
