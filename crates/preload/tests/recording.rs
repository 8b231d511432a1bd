//! Waits that a profile once recorded wrongly (`c/recording.c`).

mod support;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use support::{LIMIT, Locks, Running, compile, preloaded, profiled, run};
use tempfile::TempDir;
use unconvoy_profile::Recorded;
use unconvoy_profile::read::WaitedLock;

const BOTH: [Locks; 2] = [Locks::Own, Locks::Libcs];

fn read(file: &Path) -> Option<Recorded> {
    Recorded::parse(&std::fs::read(file).ok()?).ok()
}

/// Runs one case of the program under `locks` with nearly every wait sampled. `None` if the program
/// was compiled without the case.
#[track_caller]
fn record(case: &str, locks: Locks) -> Option<Recorded> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "recording.c", &[]);
    let file = directory.path().join("locks.profile");
    let mut command = preloaded(&program);
    profiled(&mut command, locks);
    let finished = run(command.arg(case).env("UNCONVOY_PROFILE", &file));
    if finished.status.code() == Some(4) {
        println!("skipped: {case}: not with this libc");
        return None;
    }
    finished.success(case);
    Some(read(&file).expect("a valid profile"))
}

#[track_caller]
fn only_lock(recorded: &Recorded) -> &WaitedLock {
    let [lock] = &recorded.locks[..] else { panic!("{:#?}", recorded.locks) };
    lock
}

/// The hold that followed the wait ended at the inner unlock.
#[test]
fn hold_of_recursive_mutex_ends_at_outer_unlock() {
    for locks in BOTH {
        let recorded = record("recursive", locks).expect("supported everywhere");
        assert!(only_lock(&recorded).longest_hold_ns >= 20_000_000, "{locks:?}: {recorded:#?}");
    }
}

/// The hold ended at the call, which did not release the mutex.
#[test]
fn hold_continues_in_wait_that_releases_nothing() {
    // The library's own wait returns at once from a recursive mutex that is locked twice.
    let waits = [("twice", Locks::Libcs), ("deadline", Locks::Libcs), ("deadline", Locks::Own)];
    for (case, locks) in waits {
        let recorded = record(case, locks).expect("supported everywhere");
        let locks_of_case = recorded.locks.iter().map(|lock| lock.longest_hold_ns);
        assert!(locks_of_case.max() >= Some(20_000_000), "{case}, {locks:?}: {recorded:#?}");
    }
}

/// The child went on with its parent's wait, and recorded it into its parent's file.
#[test]
fn child_that_handler_forks_in_wait_leaves_profile_of_parent() {
    for case in ["fork", "_Fork"] {
        for locks in BOTH {
            let Some(recorded) = record(case, locks) else { continue };
            let lock = only_lock(&recorded);
            assert_eq!((lock.waits, lock.timed_out), (1, 1), "{case}, {locks:?}");
        }
    }
}

/// Each wait that timed out kept its request until the release, so none were left for other locks.
#[test]
fn repeated_time_outs_leave_room_for_other_requests() {
    for locks in BOTH {
        let recorded = record("timeouts", locks).expect("supported everywhere");
        let other = recorded.locks.iter().position(|lock| lock.timed_out == 0);
        let other = other.expect("the other lock was waited for");
        let samples = recorded.samples.iter().filter(|sample| sample.lock == other);
        let (mut known, mut all) = (0, 0);
        for sample in samples {
            all += sample.ns;
            known += if sample.holder == 0 { 0 } else { sample.ns };
        }
        assert!(all > 0 && known * 2 > all, "{locks:?}: {known} of {all} ns have a holder");
        let weight: u64 = recorded.samples.iter().map(|sample| sample.ns).sum();
        let waited: u64 = recorded.locks.iter().map(|lock| lock.wait_ns).sum();
        assert!(weight * 2 > waited, "{locks:?}: samples of {weight} of {waited} ns");
    }
}

/// Two processes that follow one symbolic link, which is no file that could be removed.
struct Link {
    directory: TempDir,
    program: PathBuf,
}

impl Link {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let program = compile(directory.path(), "recording.c", &[]);
        let link = Link { directory, program };
        std::os::unix::fs::symlink(link.target(), link.path()).expect("a link");
        link
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("link")
    }

    fn target(&self) -> PathBuf {
        self.directory.path().join("target")
    }

    fn command(&self, case: &str) -> std::process::Command {
        let mut command = preloaded(&self.program);
        command.arg(case).env("UNCONVOY_PROFILE", self.path());
        command
    }
}

/// The second process truncated the file that the first had mapped.
#[test]
fn file_that_process_records_into_is_not_truncated() {
    let link = Link::new();
    let mut first = Running::start(&mut link.command("busy"));
    let deadline = Instant::now() + LIMIT;
    while read(&link.target()).is_none_or(|recorded| recorded.locks.is_empty()) {
        assert!(Instant::now() < deadline && first.poll().is_none(), "no profile");
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = run(&mut link.command("recursive")).success("second");
    assert!(second.stderr.contains("unconvoy: cannot write the profile"), "{}", second.both());
    let recorded = read(&link.target()).expect("a valid profile");
    assert_eq!(recorded.pid as i32, first.id().as_raw_nonzero().get());
    assert!(first.poll().is_none(), "the first process runs");
    first.signal(rustix::process::Signal::KILL);
    first.finish(LIMIT);
    // The file is free now.
    let third = run(&mut link.command("recursive")).success("third");
    assert_eq!(third.stderr, "");
    let recorded = read(&link.target()).expect("a valid profile");
    assert!(recorded.has_ended && recorded.locks.len() == 1, "{recorded:#?}");
}
