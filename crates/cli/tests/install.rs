//! `make install` and `make uninstall`: the files, and a C program that is built with them.

mod stage;

use std::path::Path;
use std::process::Command;

use stage::Stage;

const PROGRAM: &str = "\
#include <stdio.h>
#include <unconvoy.h>

static unconvoy_mutex_t lock = UNCONVOY_MUTEX_INIT;

int main(void)
{
    unconvoy_mutex_lock(&lock);
    puts(unconvoy_mutex_trylock(&lock) ? \"taken twice\" : \"held\");
    unconvoy_mutex_unlock(&lock);
    return 0;
}
";

#[test]
#[ignore = "make test-all: needs the whole build"]
fn installed_files_serve_shells_readers_and_c_programs() {
    let stage = Stage::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let prefix = stage.path("prefix");
    let make = |target: &str| {
        // Root's shell may have a umask that keeps other users out.
        let made = Command::new("sh")
            .args(["-c", "umask 077; exec make \"$@\"", "sh", "--no-print-directory", "-C"])
            .arg(&root)
            .arg(target)
            .arg(format!("PREFIX={}", prefix.display()))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    make("install-files");
    for (file, part) in [
        ("share/bash-completion/completions/unconvoy", "doctor"),
        ("share/zsh/site-functions/_unconvoy", "#compdef unconvoy"),
        ("share/fish/vendor_completions.d/unconvoy.fish", "doctor"),
        ("share/man/man1/unconvoy-profile.1", ".TH"),
    ] {
        let text = std::fs::read_to_string(prefix.join(file)).unwrap();
        assert!(text.contains(part), "{file}");
    }
    let hidden = Command::new("find").arg(&prefix).args(["!", "-perm", "-444"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&hidden.stdout), "", "other users cannot read these");
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "unconvoy"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .unwrap();
    assert!(flags.status.success(), "{}", String::from_utf8_lossy(&flags.stderr));
    let flags = String::from_utf8(flags.stdout).unwrap();
    let source = stage.write("program.c", PROGRAM);
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let program = stage.compile("program", &source, &flags).unwrap();
    let output = Command::new(program).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "held\n");

    built_by_cmake_run(&stage, &prefix);

    // The installed command finds its parts.
    let output = Command::new(prefix.join("bin/unconvoy")).arg("doctor").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!(" yes  {:<16}  ", "library")), "{text}");
    let output = Command::new(prefix.join("bin/unconvoy")).args(["bench", "--help"]).output();
    assert!(output.unwrap().status.success());

    make("uninstall");
    let left = Command::new("find").arg(&prefix).args(["!", "-type", "d"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}

/// make would take the parts of such a path for paths of their own, and remove them.
#[test]
fn path_with_a_space_is_refused_before_anything_is_removed() {
    let stage = Stage::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for variable in ["PREFIX", "DESTDIR"] {
        let other = stage.write("other", "of somebody else");
        let made = Command::new("make")
            .args(["--no-print-directory", "-C"])
            .arg(&root)
            .arg("uninstall")
            .arg(format!("{variable}={} folder", other.display()))
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&made.stderr);
        assert!(other.exists(), "{variable}: {complaint}");
        let refusal = format!("{variable} must be a path without spaces");
        assert!(!made.status.success() && complaint.contains(&refusal), "{complaint}");
    }
}

/// The examples in C and C++ build with CMake, and check themselves.
fn built_by_cmake_run(stage: &Stage, prefix: &Path) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../locks/examples/cmake");
    let build = stage.path("cmake");
    for arguments in [["-S", examples.to_str().unwrap(), "-B"], ["--build", "", ""]] {
        let made = Command::new("cmake")
            .args(arguments.into_iter().filter(|argument| !argument.is_empty()))
            .arg(&build)
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .output()
            .expect("cmake runs (apt-get install cmake)");
        assert!(made.status.success(), "{made:?}");
    }
    for (program, expected) in [("counter", "counted 400000\n"), ("queue", "sum 100010000\n")] {
        let output = Command::new(build.join(program)).output().unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}
