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

fn run(script: &Path, arguments: &[&str], folder: &Path) -> Output {
    Command::new("sh")
        .arg(script)
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the shell runs")
}

/// An upgrade removes the files of the earlier version's list that the new list lacks.
#[test]
fn upgrade_by_another_path_of_the_prefix_keeps_the_new_files() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let home = directory.path();
    let script = unpack(&home.join("unpacked"));
    symlink(home, home.join("link")).expect("a link");
    for prefix in ["local", "./local/", "unpacked/../local", "link/local"] {
        let installed = run(&script, &["--prefix", prefix], home);
        let complaint = String::from_utf8_lossy(&installed.stderr);
        if complaint.contains("cannot install: this is") {
            println!("skipped: {complaint}");
            return;
        }
        assert!(installed.status.success(), "--prefix {prefix}: {complaint}");
        for file in FILES.into_iter().chain([LIST]) {
            let is_there = home.join("local").join(file).is_file();
            assert!(is_there, "--prefix {prefix}: no {file}");
        }
    }
    let removed = run(&script, &["--prefix", "local", "--uninstall"], home);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    assert!(!home.join("local").exists());
}
