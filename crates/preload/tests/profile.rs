//! The profile of a program whose waits, holds and places are known (`c/profile.c`), under the
//! library's locks and under libc's.

mod support;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};
use rustix::process::Signal;
use support::{compile, preloaded, run};
use tempfile::TempDir;
use unconvoy_profile::read::{Damage, SampledWaits, WaitedLock};
use unconvoy_profile::{Kind, Recorded, histogram};

/// The test's program, and the directory of its profiles.
struct Stage {
    directory: TempDir,
    program: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let program = compile(directory.path(), "profile.c", &[]);
        Stage { directory, program }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("locks.profile")
    }

    fn command(&self, settings: &[(&str, &str)]) -> Command {
        let mut command = preloaded(&self.program);
        command.envs(settings.iter().copied()).env("UNCONVOY_PROFILE", self.file());
        command
    }

    fn profile(&self) -> Profile {
        Profile::read(&self.file(), &self.program)
    }
}

/// A profile, and the symbols of its program.
struct Profile {
    recorded: Recorded,
    symbols: Vec<(u64, u64, String)>,
}

impl Profile {
    #[track_caller]
    fn read(file: &Path, program: &Path) -> Self {
        let recorded = Recorded::parse(&std::fs::read(file).expect("a profile")).expect("valid");
        let program = program.canonicalize().expect("the program is there");
        let mapped = recorded.mappings.iter().find(|one| one.path == program && one.offset == 0);
        let base = mapped.expect("the program is mapped").start;
        let bytes = std::fs::read(&program).expect("the program is readable");
        let elf = object::File::parse(&*bytes).expect("an ELF file");
        let symbols = elf.symbols().filter(|symbol| symbol.size() > 0).map(|symbol| {
            let start = base + symbol.address();
            (start, start + symbol.size(), symbol.name().expect("a name").to_string())
        });
        let symbols = symbols.collect();
        Profile { recorded, symbols }
    }

    fn symbol(&self, address: u64) -> Option<&str> {
        let found = self.symbols.iter().find(|(start, end, _)| (*start..*end).contains(&address));
        found.map(|(_, _, name)| &name[..])
    }

    /// Whether a function is on a stack.
    fn is_on_stack(&self, function: &str, stack: u32) -> bool {
        let mut frames = self.recorded.stack(stack).iter();
        frames.any(|pc| self.symbol(pc - 1) == Some(function))
    }

    /// The lock that a part of the program used.
    fn lock(&self, part: &str) -> Option<(usize, &WaitedLock)> {
        let static_name = match part {
            "written_rwlock" | "read_rwlock" => "static_rwlock",
            other => other,
        };
        let mut initialised: Vec<(usize, &WaitedLock)> = Vec::new();
        for (index, lock) in self.recorded.locks.iter().enumerate() {
            if self.symbol(lock.address) == Some(static_name) {
                return Some((index, lock));
            }
            if self.is_on_stack("new_mutex", lock.origin) {
                initialised.push((index, lock));
            }
        }
        initialised.sort_by_key(|(_, lock)| lock.address);
        let number = ["inheriting_mutex", "heap_mutex"].iter().position(|name| *name == part)?;
        initialised.get(number).copied()
    }
}

/// The parts of the program in which all threads take the lock in the same way.
const SINGLE: [&str; 7] = [
    "recursive_mutex",
    "checking_mutex",
    "adaptive_mutex",
    "robust_mutex",
    "inheriting_mutex",
    "heap_mutex",
    "static_spin",
];

/// Selects the waiter's stack of sampled waits, or the holder's.
type Which = fn(&SampledWaits) -> u32;

/// The times and numbers that the program printed, by part of the program and quantity.
fn printed(text: &str) -> HashMap<(String, String), (f64, u64)> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let key = (words[0].to_string(), words[1].to_string());
        (key, (words[2].parse().expect("a time"), words[3].parse().expect("a number")))
    };
    text.lines().map(line).collect()
}

/// Checks that two times differ by at most the share `most` of the expected one.
fn close(what: &str, found: f64, expected: f64, most: f64) -> Result<(), String> {
    let is_close = (found - expected).abs() <= most * expected;
    if is_close { Ok(()) } else { Err(format!("{what}: {found} instead of {expected}")) }
}

/// Compares a profile with what the program printed.
fn compare(profile: &Profile, text: &str) -> Result<(), String> {
    let printed = printed(text);
    let get = |part: &str, what: &str| printed[&(part.to_string(), what.to_string())];
    for part in SINGLE {
        let (index, lock) = profile.lock(part).ok_or(format!("no {part}"))?;
        let (waited, waits) = get(part, "waits");
        if lock.waits != waits {
            return Err(format!("{part}: {} waits instead of {waits}", lock.waits));
        }
        close(part, lock.wait_ns as f64, waited, 0.05)?;
        let longest = get(part, "longest").0;
        close(&format!("{part}'s longest"), lock.longest_ns as f64, longest, 0.05)?;
        let holds: Vec<u64> = lock.hold_counts.iter().map(|&count| count.into()).collect();
        let hold = histogram::quantile(&holds, lock.longest_hold_ns, 0.5);
        let hold = hold.ok_or(format!("{part}: no hold"))?;
        let (shortest, longest) = (get(part, "shortest_hold").0, get(part, "longest_hold").0);
        let nearest = (hold as f64).clamp(shortest, longest);
        close(&format!("{part}'s hold"), hold as f64, nearest, 0.05 + histogram::ERROR)?;
        let share = |function: &str, which: Which| {
            let samples = profile.recorded.samples.iter().filter(|sample| sample.lock == index);
            let (mut found, mut all) = (0.0, 0.0);
            for sample in samples {
                all += sample.ns as f64;
                if profile.is_on_stack(function, which(sample)) {
                    found += sample.ns as f64;
                }
            }
            found / all
        };
        for (function, which) in [
            ("wait_rarely", (|sample: &SampledWaits| sample.waiter) as Which),
            ("hold_briefly", |sample| sample.holder),
        ] {
            let expected = get(part, function).0 / waited;
            let found = share(function, which);
            if (found - expected).abs() > 0.02 {
                return Err(format!("{part}: share {found} of {function} instead of {expected}"));
            }
        }
        let known = share("hold_long", |sample| sample.holder)
            + share("hold_briefly", |sample| sample.holder);
        close(&format!("{part}'s known holders"), known, 1.0, 0.02)?;
    }
    let (_, lock) = profile.lock("static_rwlock").ok_or("no static_rwlock")?;
    let (read, reads) = get("read_rwlock", "waits");
    let (written, writes) = get("written_rwlock", "waits");
    close("readers", lock.read_wait_ns as f64, read, 0.05)?;
    close("readers and writers", lock.wait_ns as f64, read + written, 0.05)?;
    if (lock.read_waits, lock.waits) != (reads, reads + writes) {
        return Err(format!("rwlock: {} and {} waits", lock.read_waits, lock.waits));
    }
    let (_, lock) = profile.lock("static_cond").ok_or("no static_cond")?;
    close("signal", lock.wait_ns as f64, get("static_cond", "waits").0, 0.05)?;
    let (_, lock) = profile.lock("static_mutex").ok_or("no static_mutex")?;
    let timed_out = get("static_mutex", "waits").0 + get("timed_out", "waits").0;
    close("static_mutex", lock.wait_ns as f64, timed_out, 0.05)?;
    match (lock.timed_out, profile.lock("uncontended")) {
        (1, None) => Ok(()),
        found => Err(format!("expected one time-out and no uncontended lock: {found:?}")),
    }
}

/// Runs the program until the times of a run agree, five times at most. In a run that disagrees,
/// another process may have delayed a thread between the program's reading of the clock and the
/// library's.
#[track_caller]
fn assert_profile_is_true(settings: &[(&str, &str)]) {
    let stage = Stage::new();
    let mut faults = Vec::new();
    for _ in 0..5 {
        let text = run(&mut stage.command(settings)).success("profile").text();
        let profile = stage.profile();
        assert!(profile.recorded.has_ended && profile.recorded.unwinds);
        match compare(&profile, &text) {
            Ok(()) => return,
            Err(fault) => faults.push(fault),
        }
    }
    panic!("{faults:#?}");
}

#[test]
fn profile_of_default_locks_is_true() {
    assert_profile_is_true(&[]);
}

#[test]
fn profile_of_libcs_locks_is_true() {
    assert_profile_is_true(&[("UNCONVOY_REPLACE", "0")]);
}

#[test]
fn profile_of_chosen_locks_is_true() {
    for (lock, load) in [("futex", "none"), ("mcs", "park"), ("ticket", "control")] {
        assert_profile_is_true(&[("UNCONVOY_LOCK", lock), ("UNCONVOY_LOAD", load)]);
    }
}

#[test]
fn profile_beside_statistics_is_true() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("stats.json");
    assert_profile_is_true(&[("UNCONVOY_STATS", file.to_str().expect("a path in UTF-8"))]);
    assert!(file.exists());
}

#[test]
fn killed_program_leaves_its_waits() {
    let stage = Stage::new();
    let finished = run(stage.command(&[]).args(["4", "kill"]));
    assert_eq!(finished.status.code(), None, "{}", finished.both());
    let profile = stage.profile();
    assert!(!profile.recorded.has_ended);
    let (_, lock) = profile.lock("static_mutex").expect("its lock");
    assert_eq!(lock.waits, 4);
}

#[test]
fn program_without_contention_has_valid_empty_profile() {
    let stage = Stage::new();
    let mut command = preloaded("/bin/true");
    run(command.env("UNCONVOY_PROFILE", stage.file())).success("true");
    let recorded = Recorded::parse(&std::fs::read(stage.file()).expect("a profile"));
    let recorded = recorded.expect("a valid profile");
    assert!(recorded.locks.is_empty() && recorded.has_ended);
    assert!(recorded.program.ends_with("true"), "{:?}", recorded.program);
}

#[test]
fn child_of_fork_writes_its_own_file() {
    let stage = Stage::new();
    run(stage.command(&[]).args(["4", "fork"])).success("profile");
    let waits = |profile: &Profile| profile.lock("static_mutex").map_or(0, |(_, lock)| lock.waits);
    let parent = stage.profile();
    assert_eq!(waits(&parent), 4);
    let files = std::fs::read_dir(stage.directory.path()).expect("the directory");
    let children: Vec<PathBuf> = files
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().contains("locks.profile."))
        .collect();
    let [child] = &children[..] else { panic!("{children:?}") };
    let child = Profile::read(child, &stage.program);
    assert_eq!(waits(&child), 4);
    assert_ne!(child.recorded.pid, parent.recorded.pid);
}

#[test]
fn program_runs_without_profile_that_cannot_be_created() {
    let stage = Stage::new();
    let full = stage.file();
    let limited = format!("ulimit -f 100; exec '{}' 1", stage.program.display());
    for (file, arguments) in [(Path::new("/no/such/directory/file"), None), (&*full, Some(limited))]
    {
        let mut command = match &arguments {
            None => preloaded(&stage.program),
            Some(_) => preloaded("/bin/sh"),
        };
        match &arguments {
            None => command.arg("1"),
            Some(script) => command.args(["-c", script]),
        };
        let finished = run(command.env("UNCONVOY_PROFILE", file)).success("profile");
        let messages = finished.stderr.matches("unconvoy: cannot").count();
        assert!((1..=2).contains(&messages), "{}", finished.stderr);
    }
    assert_eq!(
        Recorded::parse(&std::fs::read(&full).unwrap_or_default()).unwrap_err(),
        Damage::NotAProfile
    );
}

#[test]
fn signals_end_profile_at_any_time() {
    let stage = Stage::new();
    let mut running = support::Running::start(stage.command(&[]).arg("1000"));
    let deadline = std::time::Instant::now() + support::LIMIT;
    let waits = || {
        let bytes = std::fs::read(stage.file()).unwrap_or_default();
        let recorded = Recorded::parse(&bytes).ok();
        recorded.map_or(0, |recorded| recorded.locks.iter().map(|lock| lock.waits).sum::<u64>())
    };
    while waits() < 5 && running.poll().is_none() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    running.signal(Signal::TERM);
    let finished = running.finish(support::LIMIT);
    assert_eq!(finished.status.code(), None, "{}", finished.both());
    let profile = stage.profile();
    let (_, lock) = profile.lock("static_mutex").expect("its lock");
    assert!(lock.waits >= 5 && lock.kind == Kind::Mutex);
}
