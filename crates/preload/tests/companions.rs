//! Preloaded together with other libraries that change what a program stands on: other mallocs, a faked
//! clock, sanitizers and valgrind's race detectors. Each run is compared with one that has the
//! companion and not this library.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Finished, LIMIT, Running, compile, compile_file, installed, library, plain, preloaded, run};

struct Program {
    directory: tempfile::TempDir,
    path: PathBuf,
}

fn program() -> Program {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = compile(directory.path(), "companions.c", &[]);
    Program { directory, path }
}

/// Where Debian's shared library `name` is, or the reason why the test that asked ends here.
fn shared_library(name: &str, package: &str) -> Option<PathBuf> {
    let multiarch = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let found = Path::new(&multiarch).join(name);
    if !found.is_file() {
        println!("missing: {} not installed (apt-get install {package})", found.display());
        return None;
    }
    Some(found)
}

/// `companion` and this library in `LD_PRELOAD`, in both orders.
fn both_orders(companion: &Path) -> [String; 2] {
    let (companion, own) = (companion.display(), library().display());
    [format!("{companion}:{own}"), format!("{own}:{companion}")]
}

/* ---- mallocs ---- */

/// The allocator takes locks of this library, and is called with such locks held, in threads that come
/// and go and in the children of a `fork`.
#[track_caller]
fn with_malloc(name: &str, package: &str) {
    let Some(malloc) = shared_library(name, package) else {
        return;
    };
    let program = program();
    let without = run(plain(&program.path).arg("heap").env("LD_PRELOAD", &malloc)).success(name);
    assert!(without.text().ends_with(" bytes, 0 left\n"), "{}", without.both());
    // The loader says on standard error if it cannot preload something.
    assert_eq!(without.stderr, "");
    for preload in both_orders(&malloc) {
        let with = run(plain(&program.path).arg("heap").env("LD_PRELOAD", &preload)).success(&preload);
        assert_eq!(with.text(), without.text(), "{preload}");
        assert_eq!(with.stderr, "", "{preload}");
    }
    let stress = compile(program.directory.path(), "stress.c", &[]);
    for preload in both_orders(&malloc) {
        let finished = run(plain(&stress).args(["--seconds", "1"]).env("LD_PRELOAD", &preload)).success(&preload);
        assert_eq!(finished.stderr, "", "{preload}");
    }
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn jemalloc() {
    with_malloc("libjemalloc.so.2", "libjemalloc2");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn tcmalloc() {
    with_malloc("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn mimalloc() {
    with_malloc("libmimalloc.so.2.0", "libmimalloc2.0");
}

/* ---- libfaketime ---- */

const FAKETIME: &str = "faketime/libfaketimeMT.so.1";

/// libfaketime corrects the ends of condition waits for the clock that it fakes, and of nothing else.
/// A wait whose end was computed with another clock than it is compared with may take days: a hang.
#[track_caller]
fn with_faked_time(time: &str) {
    let Some(faketime) = shared_library(FAKETIME, "libfaketime") else {
        return;
    };
    let program = program();
    let outcome = |preload: &str| {
        let mut command = plain(&program.path);
        command.arg("clocks").env("LD_PRELOAD", preload).env("FAKETIME", time);
        Running::start(&mut command).finish(LIMIT).success(preload)
    };
    let without = outcome(faketime.to_str().expect("UTF-8"));
    let expected = "condition, realtime: timed out, in time\ncondition, monotonic: timed out, in time\n";
    assert_eq!(without.text(), expected);
    // The second order is the one that the command `faketime` makes of an LD_PRELOAD that is set already.
    for preload in both_orders(&faketime) {
        let with = outcome(&preload);
        assert_eq!(with.text(), expected, "FAKETIME={time} LD_PRELOAD={preload}");
        assert_eq!(with.stderr, without.stderr, "FAKETIME={time} LD_PRELOAD={preload}");
    }
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn faketime_at_the_true_time() {
    with_faked_time("+0");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn faketime_ahead() {
    with_faked_time("+10d");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn faketime_behind() {
    with_faked_time("-10d");
}

/* ---- sanitizers ---- */

/// What a sanitizer's runtime does to `LD_PRELOAD`, and what the library then does.
struct Sanitizer {
    flags: &'static [&'static str],
    /// The runtime that must come first, by the name that the loader finds it by.
    runtime: Option<&'static str>,
    /// Whether the library leaves the program alone, and says so.
    declines: bool,
}

#[track_caller]
fn under_sanitizer(compiler: &str, sanitizer: &Sanitizer) {
    let Some(compiler) = installed(compiler, compiler) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/companions.c");
    let program = directory.path().join("companions");
    let built = run(plain(&compiler)
        .args(["-std=c11", "-O1", "-g", "-pthread"])
        .args(sanitizer.flags)
        .arg("-o")
        .arg(&program)
        .arg(source));
    if !built.status.success() {
        println!(
            "skipped: {} {:?}: {}",
            compiler.display(),
            sanitizer.flags,
            built.stderr.lines().next().unwrap_or("")
        );
        return;
    }
    let without = run(plain(&program).arg("count")).success("without the library");
    assert_eq!(without.text(), "counted 16000, wrote 2000, 400 turns\n");
    assert_eq!(without.stderr, "");
    let own = library().display();
    let preload = sanitizer.runtime.map_or_else(|| own.to_string(), |runtime| format!("{runtime}:{own}"));
    // A few times: address space layouts differ, and so do the runtimes' races with a thread that they do not know.
    for _ in 0..4 {
        let with = run(plain(&program).arg("count").env("LD_PRELOAD", &preload)).success(&preload);
        assert_eq!(with.text(), without.text(), "{preload}");
        said(&with, sanitizer.declines);
    }
}

/// One line that says that nothing is replaced, or no line at all.
#[track_caller]
fn said(finished: &Finished, declines: bool) {
    let lines: Vec<&str> = finished.stderr.lines().collect();
    if declines {
        assert_eq!(lines.len(), 1, "{}", finished.stderr);
        assert!(lines[0].starts_with("unconvoy: ") && lines[0].ends_with("nothing is replaced"), "{}", lines[0]);
    } else {
        assert_eq!(finished.stderr, "");
    }
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn address_sanitizer() {
    let flags = &["-fsanitize=address"];
    under_sanitizer("gcc", &Sanitizer { flags, runtime: Some("libasan.so.8"), declines: true });
}

/// Without the runtime in front, ASan ends the program unless it is told not to look.
#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn address_sanitizer_that_does_not_come_first() {
    let program = program();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/companions.c");
    let path = compile_file(program.directory.path(), &source, &["-fsanitize=address"]);
    let refused = run(preloaded(&path).arg("count"));
    assert!(!refused.status.success(), "{}", refused.both());
    assert!(refused.stderr.contains("ASan runtime does not come first"), "{}", refused.stderr);
    let told = run(preloaded(&path).arg("count").env("ASAN_OPTIONS", "verify_asan_link_order=0")).success("told");
    assert_eq!(told.text(), "counted 16000, wrote 2000, 400 turns\n");
    said(&told, true);
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn thread_sanitizer() {
    under_sanitizer("gcc", &Sanitizer { flags: &["-fsanitize=thread"], runtime: None, declines: true });
}

/// The runtime is part of the program and exports its interceptors, but not its own names.
#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn thread_sanitizer_linked_statically() {
    let flags = &["-fsanitize=thread", "-static-libtsan"];
    under_sanitizer("gcc", &Sanitizer { flags, runtime: None, declines: true });
}

/// These two watch no locks.
#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn leak_and_undefined_behaviour_sanitizers() {
    for flags in [&["-fsanitize=leak"], &["-fsanitize=undefined"]] {
        under_sanitizer("gcc", &Sanitizer { flags, runtime: None, declines: false });
    }
}

/// Clang links its runtimes statically.
#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn clangs_sanitizers() {
    for flags in [&["-fsanitize=address"], &["-fsanitize=thread"], &["-fsanitize=memory"]] {
        under_sanitizer("clang", &Sanitizer { flags, runtime: None, declines: true });
    }
    under_sanitizer("clang", &Sanitizer { flags: &["-fsanitize=undefined"], runtime: None, declines: false });
}

/* ---- valgrind ---- */

/// They learn of locks by wrapping libc's functions; where these are not called, every access to
/// shared data looks like a race.
#[track_caller]
fn under_race_detector(tool: &str) {
    let Some(valgrind) = installed("valgrind", "valgrind") else {
        return;
    };
    let program = program();
    let outcome = |mut command: Command| {
        command.arg(format!("--tool={tool}")).arg("--error-limit=yes").arg(&program.path).arg("brief");
        Running::start(&mut command).finish(LIMIT).success(tool)
    };
    let without = outcome(plain(&valgrind));
    assert!(without.stderr.contains("ERROR SUMMARY: 0 errors"), "{}", without.stderr);
    let with = outcome(preloaded(&valgrind));
    assert_eq!(with.text(), without.text(), "{tool}");
    let summary = with.stderr.lines().find(|line| line.contains("ERROR SUMMARY:")).unwrap_or("no summary");
    assert!(summary.contains("ERROR SUMMARY: 0 errors"), "{tool}: {summary}");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn helgrind() {
    under_race_detector("helgrind");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn drd() {
    under_race_detector("drd");
}
