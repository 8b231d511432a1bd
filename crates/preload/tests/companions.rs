//! The library preloaded together with others that replace parts of libc: mallocs, a faked clock,
//! sanitizers, valgrind's race detectors. Each run is compared with a run in which only the other
//! library is preloaded.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{
    Finished, LIMIT, Running, compile, compile_file, installed, library, plain, preloaded, run,
};

struct Program {
    directory: tempfile::TempDir,
    path: PathBuf,
}

fn program() -> Program {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = compile(directory.path(), "companions.c", &[]);
    Program { directory, path }
}

/// The path of Debian's shared library `name`. If it is missing, prints why the test is skipped.
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

/// The allocator takes this library's locks, and the program calls it with such locks held, in
/// short-lived threads and in the children of a `fork`.
#[track_caller]
fn with_malloc(name: &str, package: &str) {
    let Some(malloc) = shared_library(name, package) else {
        return;
    };
    let program = program();
    let without = run(plain(&program.path).arg("heap").env("LD_PRELOAD", &malloc)).success(name);
    assert!(without.text().ends_with(" bytes, 0 left\n"), "{}", without.both());
    // The loader reports a failed preload on standard error.
    assert_eq!(without.stderr, "");
    for preload in both_orders(&malloc) {
        let with =
            run(plain(&program.path).arg("heap").env("LD_PRELOAD", &preload)).success(&preload);
        assert_eq!(with.text(), without.text(), "{preload}");
        assert_eq!(with.stderr, "", "{preload}");
    }
    let stress = compile(program.directory.path(), "stress.c", &[]);
    for preload in both_orders(&malloc) {
        let finished = run(plain(&stress).args(["--seconds", "1"]).env("LD_PRELOAD", &preload))
            .success(&preload);
        assert_eq!(finished.stderr, "", "{preload}");
    }
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn jemalloc_and_library_give_same_result() {
    with_malloc("libjemalloc.so.2", "libjemalloc2");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn tcmalloc_and_library_give_same_result() {
    with_malloc("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn mimalloc_and_library_give_same_result() {
    with_malloc("libmimalloc.so.2.0", "libmimalloc2.0");
}

/* ---- libfaketime ---- */

const FAKETIME: &str = "faketime/libfaketimeMT.so.1";

/// libfaketime adjusts the deadlines of condition waits to its faked clock, and no other deadlines.
/// If a deadline is compared with the wrong clock, it may lie days away, and the wait hangs.
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
    let expected =
        "condition, realtime: timed out, in time\ncondition, monotonic: timed out, in time\n";
    assert_eq!(without.text(), expected);
    // The command `faketime` produces the second order if `LD_PRELOAD` is already set.
    let [before, after] = both_orders(&faketime).map(|preload| {
        let with = outcome(&preload);
        assert_eq!(with.text(), expected, "FAKETIME={time} LD_PRELOAD={preload}");
        with
    });
    // libfaketime's functions call libc's, whatever is loaded between the two.
    assert_declined(&before, true);
    assert_eq!(after.stderr, without.stderr, "FAKETIME={time}");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn faketime_at_true_time_keeps_deadlines() {
    with_faked_time("+0");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn faketime_ahead_keeps_deadlines() {
    with_faked_time("+10d");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn faketime_behind_keeps_deadlines() {
    with_faked_time("-10d");
}

/* ---- sanitizers ---- */

/// A sanitizer's runtime, and how the library reacts to it.
struct Sanitizer {
    flags: &'static [&'static str],
    /// The runtime that must be preloaded first, by its library name.
    runtime: Option<&'static str>,
    /// Whether the library declines to serve the program, with a message.
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
            "missing: {} {:?}: {}",
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
    let preload =
        sanitizer.runtime.map_or_else(|| own.to_string(), |runtime| format!("{runtime}:{own}"));
    // Four runs: address-space layouts differ, and so do the races between a runtime and a thread
    // that it does not know.
    for _ in 0..4 {
        let with = run(plain(&program).arg("count").env("LD_PRELOAD", &preload)).success(&preload);
        assert_eq!(with.text(), without.text(), "{preload}");
        assert_declined(&with, sanitizer.declines);
    }
}

/// Checks for one line that says that nothing is replaced, or for no line at all.
#[track_caller]
fn assert_declined(finished: &Finished, declines: bool) {
    let lines: Vec<&str> = finished.stderr.lines().collect();
    if declines {
        assert_eq!(lines.len(), 1, "{}", finished.stderr);
        assert!(
            lines[0].starts_with("unconvoy: ") && lines[0].ends_with("nothing is replaced"),
            "{}",
            lines[0]
        );
    } else {
        assert_eq!(finished.stderr, "");
    }
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn address_sanitizer_makes_library_decline() {
    let flags = &["-fsanitize=address"];
    under_sanitizer("gcc", &Sanitizer { flags, runtime: Some("libasan.so.8"), declines: true });
}

/// ASan ends the program if its runtime is not first, unless `verify_asan_link_order` is off.
#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn address_sanitizer_not_first_ends_program_or_library_declines() {
    let program = program();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/companions.c");
    let path = compile_file(program.directory.path(), &source, &["-fsanitize=address"]);
    let refused = run(preloaded(&path).arg("count"));
    assert!(!refused.status.success(), "{}", refused.both());
    assert!(refused.stderr.contains("ASan runtime does not come first"), "{}", refused.stderr);
    let allowed =
        run(preloaded(&path).arg("count").env("ASAN_OPTIONS", "verify_asan_link_order=0"))
            .success("without the order check");
    assert_eq!(allowed.text(), "counted 16000, wrote 2000, 400 turns\n");
    assert_declined(&allowed, true);
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn thread_sanitizer_makes_library_decline() {
    under_sanitizer(
        "gcc",
        &Sanitizer { flags: &["-fsanitize=thread"], runtime: None, declines: true },
    );
}

/// The runtime is part of the program, which exports the interceptors but not the runtime's own
/// names.
#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn static_thread_sanitizer_makes_library_decline() {
    let flags = &["-fsanitize=thread", "-static-libtsan"];
    under_sanitizer("gcc", &Sanitizer { flags, runtime: None, declines: true });
}

/// These two sanitizers do not watch locks.
#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn leak_and_undefined_behaviour_sanitizers_leave_library_active() {
    for flags in [&["-fsanitize=leak"], &["-fsanitize=undefined"]] {
        under_sanitizer("gcc", &Sanitizer { flags, runtime: None, declines: false });
    }
}

/// Clang links its runtimes statically.
#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn clang_sanitizers_that_watch_locks_make_library_decline() {
    for flags in [&["-fsanitize=address"], &["-fsanitize=thread"], &["-fsanitize=memory"]] {
        under_sanitizer("clang", &Sanitizer { flags, runtime: None, declines: true });
    }
    under_sanitizer(
        "clang",
        &Sanitizer { flags: &["-fsanitize=undefined"], runtime: None, declines: false },
    );
}

/* ---- valgrind ---- */

/// The detectors learn of locks by wrapping libc's functions. If the program's calls reach other
/// functions, every access to shared data looks like a race.
#[track_caller]
fn under_race_detector(tool: &str) {
    let Some(valgrind) = installed("valgrind", "valgrind") else {
        return;
    };
    let program = program();
    let outcome = |mut command: Command| {
        command
            .arg(format!("--tool={tool}"))
            .arg("--error-limit=yes")
            .arg(&program.path)
            .arg("brief");
        Running::start(&mut command).finish(LIMIT).success(tool)
    };
    let without = outcome(plain(&valgrind));
    assert!(without.stderr.contains("ERROR SUMMARY: 0 errors"), "{}", without.stderr);
    let with = outcome(preloaded(&valgrind));
    assert_eq!(with.text(), without.text(), "{tool}");
    let summary =
        with.stderr.lines().find(|line| line.contains("ERROR SUMMARY:")).unwrap_or("no summary");
    assert!(summary.contains("ERROR SUMMARY: 0 errors"), "{tool}: {summary}");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn helgrind_reports_no_false_races() {
    under_race_detector("helgrind");
}

#[test]
#[ignore = "make test-all: needs other preloaded libraries"]
fn drd_reports_no_false_races() {
    under_race_detector("drd");
}
