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

/// Calls `test` for each shell with the shell, an empty home directory and the script of an
/// unpacked tarball in it.
fn for_each_shell(test: impl Fn(&str, &Path, &Path)) {
    for shell in SHELLS {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let home = directory.path().canonicalize().expect("a path");
        let script = unpack(&home.join("unpacked"));
        test(shell, &home, &script);
    }
}

/// As [`for_each_shell`], with `home`/local installed, if the script accepts this machine.
fn for_each_installation(test: impl Fn(&str, &Path, &Path)) {
    for_each_shell(|shell, home, script| {
        if installs(shell, script, "local", home) {
            test(shell, home, script);
        }
    });
}

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
    for_each_shell(|shell, home, script| {
        symlink(home, home.join("link")).expect("a link");
        let absolute = home.join("local").display().to_string();
        let two_slashes = format!("/{absolute}");
        let lists = [
            vec!["local", "./local/", "unpacked/../local", "link/local"],
            vec!["missing/../local", "missing/../local", "missing/./../local"],
            vec![two_slashes.as_str(), absolute.as_str(), two_slashes.as_str()],
        ];
        for prefixes in &lists {
            for prefix in prefixes {
                if !installs(shell, script, prefix, home) {
                    return;
                }
            }
            uninstalls(shell, script, "local", home);
            assert!(!home.join("local").exists(), "{shell}: {prefixes:?}");
        }
    });
}

/// A folder moves after the installation, and a link takes its place.
#[test]
fn upgrade_through_a_link_in_place_of_a_folder_keeps_the_new_files() {
    for moved in ["local", "local/lib"] {
        for_each_shell(|shell, home, script| {
            let of_first_version = home.join("unpacked/files/bin/first");
            std::fs::write(&of_first_version, "").expect("a file");
            if !installs(shell, script, "local", home) {
                return;
            }
            let elsewhere = home.join("elsewhere");
            std::fs::rename(home.join(moved), &elsewhere).expect("a folder");
            symlink(&elsewhere, home.join(moved)).expect("a link");
            std::fs::remove_file(&of_first_version).expect("a file");
            for _ in 0..2 {
                installs(shell, script, "local", home);
                assert!(!home.join("local/bin/first").exists(), "{shell}: {moved}");
            }
            uninstalls(shell, script, "local", home);
            let is_left = |file: &&str| home.join("local").join(file).exists();
            assert_eq!(FILES.into_iter().find(is_left), None, "{shell}: {moved}");
        });
    }
}

fn assert_refused(output: &Output, reasons: &[&str]) {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    for reason in reasons {
        assert!(complaint.contains(reason), "{complaint}");
    }
}

/// The list has paths of the earlier folder, where another installation may be by now.
#[test]
fn uninstall_of_a_moved_folder_is_refused_and_removes_nothing() {
    for_each_installation(|shell, home, script| {
        std::fs::rename(home.join("local"), home.join("moved")).expect("a folder");
        std::fs::write(home.join("moved/bin/other"), "of somebody else").expect("a file");
        let all_there = |folder: &str| {
            let missing = |file: &&str| !home.join(folder).join(file).is_file();
            let missing = FILES.into_iter().chain([LIST]).find(missing);
            assert_eq!(missing, None, "{shell}: {folder}");
        };
        let earlier = home.join("local").display().to_string();
        let uninstall = ["--prefix", "moved", "--uninstall"];
        let refused = run(shell, script, &uninstall, home);
        assert_refused(&refused, &["nothing removed", &earlier, "move them back"]);
        all_there("moved");

        // Neither an uninstallation nor an upgrade touches the other installation.
        let only_there = home.join("local/bin/first");
        installs(shell, script, "local", home);
        std::fs::write(&only_there, "").expect("a file");
        let list = home.join("moved").join(LIST);
        let listed = std::fs::read_to_string(&list).expect("a list");
        let longer = format!("{listed}f {}\n", only_there.display());
        std::fs::write(&list, longer).expect("a list");
        assert_refused(&run(shell, script, &uninstall, home), &["nothing removed", &earlier]);
        all_there("moved");
        let upgraded = run(shell, script, &["--prefix", "moved"], home);
        assert!(upgraded.status.success(), "{shell}: {upgraded:?}");
        assert!(only_there.exists(), "{shell}");
        all_there("local");

        uninstalls(shell, script, "moved", home);
        let left = |file: &&str| home.join("moved").join(file).exists();
        assert_eq!(FILES.into_iter().chain([LIST]).find(left), None, "{shell}");
        assert!(home.join("moved/bin/other").exists(), "{shell}");
        all_there("local");
    });
}

#[test]
fn uninstall_names_a_missing_file_and_removes_the_others() {
    for_each_installation(|shell, home, script| {
        std::fs::rename(home.join("local/bin"), home.join("local/tools")).expect("a folder");
        let incomplete = run(shell, script, &["--prefix", "local", "--uninstall"], home);
        let missing = home.join("local/bin/unconvoy").display().to_string();
        assert_refused(&incomplete, &["1 of its files were missing", &missing]);
        assert!(home.join("local/tools/unconvoy").exists(), "{shell}");
        assert!(!home.join("local/lib").exists(), "{shell}");
    });
}

/// Without its own path in it, nobody knows for which folder the list was written.
#[test]
fn uninstall_by_a_list_without_its_own_path_is_refused() {
    for_each_shell(|shell, home, script| {
        let other = home.join("local/bin/other");
        for file in [&other, &home.join("local").join(LIST)] {
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a directory");
            std::fs::write(file, format!("f {}\n", other.display())).expect("a file");
        }
        for folder in [home.to_path_buf(), home.join("local")] {
            let prefix = home.join("local").display().to_string();
            let refused = run(shell, script, &["--prefix", &prefix, "--uninstall"], &folder);
            assert_refused(&refused, &["nothing removed", "does not name itself"]);
            assert!(other.exists(), "{shell}");
        }
    });
}
