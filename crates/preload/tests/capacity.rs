//! Load control follows changes in the number of processors that a running program may use.

mod support;

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use support::contend::{Contend, alone};
use support::group::{Group, version_1_quota_parent, version_2_quota_parent};
use support::{Running, installed, room};

/// Run times in seconds. The shortest leaves time for two reads of the capacity, which happen once
/// a second. A busy machine may delay the reads, so a run whose last read came too early is
/// repeated with the next, longer time.
const SECONDS: [&str; 3] = ["4", "16", "64"];

/// Runs the program, calls `change` after its start, and returns the last capacity seen:
/// `expected`, or the result of the longest run.
#[track_caller]
fn capacity_after(expected: impl Fn(f64) -> bool, mut change: impl FnMut(&Running)) -> f64 {
    let contend = Contend::new();
    let mut last = f64::NAN;
    for seconds in SECONDS {
        let saw = contend.run(&mut contend.command(&["4", seconds]), |running| {
            sleep(Duration::from_millis(300)); // for a first read before the change
            change(running);
        });
        last = saw.capacity;
        if expected(last) {
            break;
        }
        println!("{last} processors after {seconds} s");
    }
    last
}

fn is(expected: f64) -> impl Fn(f64) -> bool {
    move |capacity| capacity == expected
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[test]
fn capacity_without_change_is_within_processors() {
    let _alone = alone();
    let is_possible = |capacity: f64| capacity > 0.0 && capacity <= processors() as f64;
    let capacity = capacity_after(is_possible, |_| {});
    assert!(is_possible(capacity), "{capacity}");
}

#[test]
fn capacity_follows_taskset_on_all_threads() {
    let _alone = alone();
    let Some(taskset) = installed("taskset", "util-linux") else { return };
    if processors() < 2 {
        println!("skipped: there is one processor");
        return;
    }
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("a mask")
        .trim();
    let first = list.split([',', '-']).next().expect("a processor").to_owned();
    let capacity = capacity_after(is(1.0), |running| {
        let pid = running.id().as_raw_nonzero().to_string();
        let mut command = Command::new(&taskset);
        let output =
            room::output(command.args(["-a", "-p", "-c", &first, &pid])).expect("taskset runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
    assert_eq!(capacity, 1.0);
}

/// Checks that the capacity falls to half a processor, by a quota that is set while the program
/// runs in the group.
#[track_caller]
fn follows_quota(group: Result<Group, String>, file: &str, quota: &str) {
    let group = match group {
        Ok(group) => group,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let capacity = capacity_after(is(0.5), |running| {
        group.add(running.id()).expect("the child is ours");
        sleep(Duration::from_millis(300));
        group.write(file, quota);
    });
    assert_eq!(capacity, 0.5);
}

#[test]
fn capacity_follows_version_1_quota() {
    let _alone = alone();
    let group = version_1_quota_parent().and_then(|parent| Group::make(&parent));
    follows_quota(group, "cpu.cfs_quota_us", "50000");
}

#[test]
fn capacity_follows_version_2_quota() {
    let _alone = alone();
    let group = version_2_quota_parent().and_then(|parent| Group::make(&parent));
    follows_quota(group, "cpu.max", "50000 100000");
}

/// Waits for the end of its input, then switches the processor `$0` on.
const GUARD: &str = "trap '' HUP INT TERM
    cat
    for _ in 1 2 3 4 5 6 7 8 9 10; do echo 1 > \"$0\" && exit; sleep .1; done
    exit 1";

/// A processor that stays offline until this value is dropped or the test is killed.
struct Offline {
    switch: &'static Path,
    guard: Child,
}

impl Offline {
    fn new(switch: &'static Path) -> Self {
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD]).arg(switch).stdin(Stdio::piped());
        Offline { switch, guard: guard.spawn().expect("sh runs") }
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let online = self.guard.wait().is_ok_and(|status| status.success());
        assert!(online || std::thread::panicking(), "{} does not take 1", self.switch.display());
    }
}

#[test]
#[ignore = "make test-all: takes a processor from the whole machine"]
fn capacity_follows_processor_offline_and_back() {
    let _alone = alone();
    let switch = Path::new("/sys/devices/system/cpu/cpu1/online");
    if fs::read_to_string(switch).map_or(true, |text| text.trim() != "1") {
        println!("skipped: processor 1 has no switch, or is off");
        return;
    }
    if !rustix::thread::sched_getaffinity(None).is_ok_and(|mask| mask.is_set(1)) {
        println!("skipped: this process may not use processor 1");
        return;
    }
    if let Err(error) = fs::write(switch, "1") {
        println!("skipped: {}: {error}", switch.display());
        return;
    }
    let before = processors() as f64;
    let refused = RefCell::new(None);
    let mut offline = None;
    let is_away = |capacity: f64| capacity == before - 1.0 || refused.borrow().is_some();
    let away = capacity_after(is_away, |_| {
        offline = Some(Offline::new(switch));
        *refused.borrow_mut() = fs::write(switch, "0").err();
    });
    let back = capacity_after(is(before), |_| {
        sleep(Duration::from_millis(1200)); // for a read without the processor
        offline = None;
    });
    if let Some(error) = refused.into_inner() {
        println!("skipped: {} does not take 0: {error}", switch.display());
        return;
    }
    assert_eq!((away, back), (before - 1.0, before));
}
