//! Disturbs the processes of a group at random moments: stops them and single threads, freezes
//! them, confines them to one processor, takes processor time away, attaches a debugger, and runs
//! busy neighbours.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep, spawn};
use std::time::Duration;

use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::support::group::{
    Group, version_1_quota_parent, version_2_parent, version_2_quota_parent,
};
use crate::support::{Running, compile, members};

/// Longest pause between two disturbances, in milliseconds.
const PAUSE_MS: u64 = 400;
/// Longest stop of a process or thread, in milliseconds.
const STOP_MS: u64 = 200;
/// Longest time with fewer processors, a quota or neighbours, in milliseconds.
const SHORTAGE_MS: u64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    StopProcess,
    StopThread,
    Freeze,
    Confine,
    Quota,
    Neighbours,
    Debugger,
}

const ACTS: [Act; 7] = [
    Act::StopProcess,
    Act::StopThread,
    Act::Freeze,
    Act::Confine,
    Act::Quota,
    Act::Neighbours,
    Act::Debugger,
];

/// Control groups for the disturber, and the program of busy neighbours. Declare this before the
/// processes that the disturber disturbs: the drop removes the groups, which must be empty.
pub struct Means {
    freezer: Option<Group>,
    quota: Option<Quota>,
    neighbour: PathBuf,
    _directory: tempfile::TempDir,
}

struct Quota {
    group: Group,
    file: &'static str,
    /// Half a processor, and no limit.
    half: &'static str,
    all: &'static str,
}

impl Means {
    /// Prints a reason for each control group that cannot be made.
    pub fn make() -> Arc<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let neighbour = compile(directory.path(), "neighbour.c", &[]);
        let reported = |group: Result<Group, String>| {
            group.inspect_err(|why| println!("skipped: a disturbance: {why}")).ok()
        };
        let version_1 = version_1_quota_parent().and_then(|parent| Group::make(&parent));
        let quota = match version_1 {
            Ok(group) => Some(Quota { group, file: "cpu.cfs_quota_us", half: "50000", all: "-1" }),
            Err(_) => reported(version_2_quota_parent().and_then(|parent| Group::make(&parent)))
                .map(|group| Quota {
                    group,
                    file: "cpu.max",
                    half: "50000 100000",
                    all: "max 100000",
                }),
        };
        let freezer = reported(version_2_parent().and_then(|parent| Group::make(&parent)));
        Arc::new(Means { freezer, quota, neighbour, _directory: directory })
    }
}

/// A running disturber; the drop ends it and prints how often it did what.
pub struct Disturber {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<BTreeMap<Act, u32>>>,
}

impl Disturber {
    /// Disturbs the processes of `group` from now on.
    pub fn start(group: i32, means: &Arc<Means>, seed: u64) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let (flag, means) = (Arc::clone(&end), Arc::clone(means));
        let thread = spawn(move || {
            let mut work = Work { group, means: &means, random: Rng::with_seed(seed) };
            let mut counts = BTreeMap::new();
            while !flag.load(Ordering::Relaxed) {
                work.pause(PAUSE_MS);
                let act = ACTS[work.random.usize(..ACTS.len())];
                if work.perform(act) {
                    *counts.entry(act).or_default() += 1;
                }
            }
            counts
        });
        Disturber { end, thread: Some(thread) }
    }
}

impl Drop for Disturber {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        match self.thread.take().expect("only the drop takes it").join() {
            Ok(counts) => println!("disturbances: {counts:?}"),
            Err(panic) if !std::thread::panicking() => std::panic::resume_unwind(panic),
            Err(_) => eprintln!("the disturber failed, too"),
        }
    }
}

struct Work<'a> {
    group: i32,
    means: &'a Means,
    random: Rng,
}

impl Work<'_> {
    fn pause(&mut self, longest_ms: u64) {
        sleep(Duration::from_millis(self.random.u64(1..=longest_ms)));
    }

    /// One of the group's processes. `None` if all have ended.
    fn process(&mut self) -> Option<Pid> {
        let members = members(self.group);
        self.random.choice(&members).copied()
    }

    /// Returns whether the disturbance took place: processes and threads may end at any time.
    fn perform(&mut self, act: Act) -> bool {
        let means = self.means;
        match act {
            Act::StopProcess => self.process().is_some_and(|pid| {
                let stopped = kill_process(pid, Signal::STOP).is_ok();
                self.pause(STOP_MS);
                stopped && kill_process(pid, Signal::CONT).is_ok()
            }),
            Act::StopThread => self.stop_thread(),
            Act::Freeze => means.freezer.as_ref().is_some_and(|group| {
                self.enter(group);
                group.write("cgroup.freeze", "1");
                self.pause(STOP_MS);
                group.write("cgroup.freeze", "0");
                true
            }),
            Act::Quota => means.quota.as_ref().is_some_and(|quota| {
                self.enter(&quota.group);
                quota.group.write(quota.file, quota.half);
                self.pause(SHORTAGE_MS);
                quota.group.write(quota.file, quota.all);
                true
            }),
            Act::Confine => self.confine(),
            Act::Neighbours => {
                let mut child = Command::new(&means.neighbour)
                    .args(["--spin", "4", "--seconds", "60"])
                    .stderr(std::process::Stdio::null())
                    .spawn()
                    .expect("the neighbours start");
                self.pause(SHORTAGE_MS);
                child.kill().and_then(|()| child.wait()).expect("our own child");
                true
            }
            Act::Debugger => self.process().is_some_and(|pid| {
                let pid = pid.as_raw_nonzero().to_string();
                Command::new("timeout")
                    .args([
                        "60",
                        "gdb",
                        "-nx",
                        "-batch",
                        "-iex",
                        "set auto-solib-add off",
                        "-p",
                        &pid,
                    ])
                    .env_remove("LD_PRELOAD")
                    .output()
                    .expect("gdb runs")
                    .status
                    .success()
            }),
        }
    }

    fn enter(&self, group: &Group) {
        for pid in members(self.group) {
            // The process may have ended.
            let _ = group.add(pid);
        }
    }

    fn threads(&self) -> Vec<Pid> {
        let folders = members(self.group);
        let tasks = folders
            .iter()
            .filter_map(|pid| fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok());
        let names = tasks.flatten().flatten().map(|entry| entry.file_name());
        names.filter_map(|name| Pid::from_raw(name.to_str()?.parse().ok()?)).collect()
    }

    /// Stops one thread as a debugger would; `SIGSTOP` would stop all threads of its process. The
    /// group's leader is left out: whoever waits for this child's end would see the stop.
    fn stop_thread(&mut self) -> bool {
        let mut threads = self.threads();
        threads.retain(|thread| thread.as_raw_nonzero().get() != self.group);
        let Some(thread) = self.random.choice(&threads) else { return false };
        let thread = thread.as_raw_nonzero().get();
        let none = std::ptr::null_mut::<libc::c_void>();
        let mut status = 0;
        // SAFETY: these requests access no memory of this process, and `status` is a valid place
        // for the result.
        let waited = unsafe {
            libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) == 0 && {
                libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none);
                libc::waitpid(thread, &mut status, libc::__WALL) == thread
            }
        };
        if !waited || !libc::WIFSTOPPED(status) {
            return false; // it has ended
        }
        self.pause(STOP_MS);
        // A signal may have stopped the thread before the request did; the thread still gets it.
        let is_signal = status >> 16 == 0;
        let signal = if is_signal { libc::WSTOPSIG(status) as usize } else { 0 };
        // SAFETY: as above.
        unsafe {
            libc::ptrace(libc::PTRACE_DETACH, thread, none, signal) == 0 || {
                // It has been killed. Its process ends only after somebody has waited for it.
                libc::waitpid(thread, &mut status, libc::__WALL);
                false
            }
        }
    }

    fn confine(&mut self) -> bool {
        let all = sched_getaffinity(None).expect("our own set");
        let mut one = CpuSet::new();
        let first = (0..CpuSet::MAX_CPU).find(|processor| all.is_set(*processor));
        one.set(first.expect("a thread runs on some processor"));
        // A thread may end at any time, and a new one inherits the set of its creator.
        let give = |work: &Self, set: &CpuSet| {
            let threads = work.threads();
            threads.into_iter().filter(|pid| sched_setaffinity(Some(*pid), set).is_ok()).count()
        };
        give(self, &one);
        self.pause(SHORTAGE_MS);
        give(self, &all) + give(self, &all) > 0
    }
}

#[test]
fn process_may_end_while_one_of_its_threads_is_stopped() {
    let means = Means::make();
    for _ in 0..8 {
        let mut command = Command::new(&means.neighbour);
        let running = Running::start(command.args(["--threads", "8", "--seconds", "60"]));
        let group = running.id().as_raw_nonzero().get();
        let mut work = Work { group, means: &means, random: Rng::new() };
        while work.threads().len() < 9 {
            sleep(Duration::from_millis(1));
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(STOP_MS / 8));
                running.signal(Signal::KILL);
            });
            work.stop_thread();
        });
        assert_eq!(running.finish(Duration::from_secs(60)).status.signal(), Some(libc::SIGKILL));
    }
}
