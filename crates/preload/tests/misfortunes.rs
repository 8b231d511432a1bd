//! Profiles of programs that are hard or dangerous to unwind (`c/misfortunes.c`). Each case runs
//! under the library's locks and under libc's, with nearly every wait sampled, and must behave as
//! it does without the library.

mod support;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Locks, compile, plain, preloaded, profiled, run};
use tempfile::TempDir;
use unconvoy_profile::{Profile, Recorded};

/// Runs one case of the program under the library's locks and then under libc's, and returns the
/// two profiles. `None` if the machine does not support the case.
#[track_caller]
fn profiles(flags: &[&str], arguments: impl Fn(&TempDir) -> Vec<PathBuf>) -> Option<[Recorded; 2]> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "misfortunes.c", flags);
    let arguments = arguments(&directory);
    let without = run(plain(&program).args(&arguments));
    if without.status.code() == Some(4) {
        println!("skipped: {arguments:?}: not on this machine");
        return None;
    }
    let expected = without.success("without the library").text();
    let recorded = [Locks::Own, Locks::Libcs].map(|locks| {
        let file = directory.path().join("locks.profile");
        let mut command = preloaded(&program);
        profiled(&mut command, locks);
        let finished = run(command.args(&arguments).env("UNCONVOY_PROFILE", &file));
        assert_eq!(finished.success("with a profile").text(), expected, "{locks:?}");
        let bytes = std::fs::read(&file).expect("a profile");
        assert_eq!(bytes.len(), size_of::<Profile>(), "the file has its fixed size");
        assert_listed_once(&bytes);
        let recorded = Recorded::parse(&bytes).expect("a valid profile");
        assert!(recorded.has_ended && !recorded.locks.is_empty(), "{locks:?}");
        recorded
    });
    Some(recorded)
}

/// Checks that the list of mapped files has no line twice, unless the mapping was gone in between:
/// a later line ends the mappings whose addresses it has.
#[track_caller]
fn assert_listed_once(profile: &[u8]) {
    let used = std::mem::offset_of!(Profile, header.modules_used);
    let used = u32::from_le_bytes(profile[used..used + 4].try_into().expect("four bytes"));
    let list = &profile[std::mem::offset_of!(Profile, modules)..][..used as usize];
    let list = String::from_utf8_lossy(list);
    let mut present: Vec<(Range<u64>, &str)> = Vec::new();
    for line in list.lines() {
        let number = |digits| u64::from_str_radix(digits, 16).expect("a number");
        let (addresses, _) = line.split_once(' ').expect("a range of addresses");
        let (start, end) = addresses.split_once('-').expect("two addresses");
        let range = number(start)..number(end);
        assert!(!present.contains(&(range.clone(), line)), "listed twice: {line}\n{list}");
        present.retain(|(other, _)| other.end <= range.start || range.end <= other.start);
        present.push((range, line));
    }
}

fn words(words: &[&str]) -> Vec<PathBuf> {
    words.iter().map(PathBuf::from).collect()
}

/// Checks that each profile has a sample whose stack has a frame in a mapped file.
#[track_caller]
fn assert_stacks(profiles: &[Recorded]) {
    for recorded in profiles {
        let is_known = |stack: u32| {
            let frames = recorded.stack(stack).iter();
            frames
                .filter(|&pc| recorded.mappings.iter().any(|map| (map.start..map.end).contains(pc)))
                .count()
                > 0
        };
        assert!(recorded.samples.iter().any(|sample| is_known(sample.waiter)));
    }
}

#[test]
fn handlers_on_short_stacks_may_wait() {
    profiles(&[], |_| words(&["handlers"]));
}

#[test]
fn objects_may_be_unloaded_while_others_wait() {
    let profiles =
        profiles(&[], |directory| vec!["loaded".into(), object(directory, "callback.so")]);
    assert_stacks(&profiles.expect("supported everywhere"));
}

/// Compiles `callback.c` as an object of this name.
fn object(directory: &TempDir, name: &str) -> PathBuf {
    let object = compile(directory.path(), "callback.c", &["-shared", "-fPIC"]);
    let named = directory.path().join(name);
    std::fs::rename(&object, &named).expect("a rename in one directory");
    named
}

/// The second object's frames were named after the first one.
#[test]
fn object_keeps_its_frames_after_another_took_its_addresses() {
    let profiles = profiles(&[], |directory| {
        let [first, second] = ["first.so", "second.so"].map(|name| object(directory, name));
        vec!["replaced".into(), first, second]
    });
    for recorded in profiles.into_iter().flatten() {
        for name in ["first.so", "second.so"] {
            let is_in = |pc: &u64| {
                let mut mappings = recorded.mappings.iter();
                mappings.any(|map| map.path.ends_with(name) && (map.start..map.end).contains(pc))
            };
            let samples = recorded.samples.iter();
            let samples = samples.filter(|one| recorded.stack(one.waiter).iter().any(is_in));
            assert!(samples.count() > 0, "no sample in {name}: {:#x?}", recorded.mappings);
        }
    }
}

/// Each reading of the kernel's list added all mappings beyond the 512th.
#[test]
fn many_mappings_are_listed_once() {
    let profiles = profiles(&[], |directory| vec!["mapped".into(), object(directory, "object.so")]);
    for recorded in profiles.into_iter().flatten() {
        let objects = recorded.mappings.iter().filter(|map| map.path.ends_with("object.so"));
        assert!(objects.count() >= 600);
    }
}

/// This program hung: a waiter for the mutex of `malloc` unwound its stack and waited for libgcc's
/// mutex, whose holder waited for the mutex of `malloc`.
#[test]
fn registered_code_does_not_deadlock_unwinder() {
    if let Some(profiles) = profiles(&[], |_| words(&["generated"])) {
        assert!(profiles.iter().all(|recorded| recorded.has_registered));
    }
}

/// This program hung: the statistics unwound at the first acquisition of the mutex of `malloc`,
/// which libgcc had called with its own mutex locked.
#[test]
fn statistics_do_not_unwind_within_the_unwinder() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "misfortunes.c", &[]);
    let file = directory.path().join("statistics.json");
    let finished = run(preloaded(&program).arg("first-use").env("UNCONVOY_STATS", file));
    match finished.status.code() {
        Some(4) => println!("skipped: first-use: not on this machine"),
        _ => drop(finished.success("first-use")),
    }
}

#[test]
fn coroutines_are_unwound_to_their_ends() {
    let profiles = profiles(&[], |_| words(&["coroutines"]));
    assert_stacks(&profiles.expect("supported everywhere"));
}

#[test]
fn stripped_program_is_unwound() {
    let profiles = profiles(&["-s"], |_| words(&["once"]));
    assert_stacks(&profiles.expect("supported everywhere"));
}

#[test]
fn executed_program_replaces_profile() {
    profiles(&[], |_| words(&["exec"]));
}

#[test]
fn full_disk_does_not_disturb_program() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "misfortunes.c", &[]);
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).expect("a directory");
    // The mount is in a namespace of its own, which ends with the program.
    let mount = format!(
        "mount -t tmpfs -o size=1m none '{0}' || exit 4; \
         LD_PRELOAD='{1}' UNCONVOY_PROFILE='{0}/locks.profile' '{2}' once; \
         echo $? $(stat -c %s '{0}/locks.profile')",
        disk.display(),
        support::library().display(),
        program.display()
    );
    let mut command: Command = plain(Path::new("unshare"));
    command.args(["--map-root-user", "--mount", "sh", "-c", &mount]);
    let finished = run(&mut command);
    if finished.status.code() != Some(0) {
        println!("skipped: cannot mount a file system: {}", finished.both());
        return;
    }
    assert_eq!(finished.text(), "once 12000\n0 0\n", "{}", finished.both());
    assert!(finished.stderr.contains("unconvoy: cannot"), "{}", finished.both());
}
