//! Descendants of a measured program that left its process group, such as daemons. They would
//! disturb the runs that follow.
//!
//! This process adopts them when their parents end (`PR_SET_CHILD_SUBREAPER`, prctl(2)). They are
//! its children in any process group but its own and those of the programs that it runs.

use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid, getpgrp};

use crate::messages;
use crate::output::complain;

/// The programs that run. Held while one starts: until it is listed, it looks like a stranger.
static LEADERS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Rounds of killing, each of which may orphan further processes.
const ROUNDS: u32 = 100;

fn leaders() -> MutexGuard<'static, Vec<Pid>> {
    LEADERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a command that leads a process group, and returns it with the time just before.
/// `is_contained`: this process is to adopt its descendants.
///
/// # Errors
///
/// The command cannot be started.
pub fn spawn(command: &mut Command, is_contained: bool) -> io::Result<(Instant, Child)> {
    let mut leaders = leaders();
    if is_contained {
        // Where this fails, the descendants go to another process, as they do without this module.
        let _ = set_child_subreaper(true);
    }
    let start = Instant::now();
    let child = command.spawn()?;
    leaders.push(Pid::from_raw(child.id().cast_signed()));
    Ok((start, child))
}

/// Ends and reaps the descendants of a program that was reaped, with one warning for all programs.
pub fn end(leader: Pid, is_contained: bool) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let mut leaders = leaders();
    leaders.retain(|&it| it != leader);
    if !is_contained {
        return;
    }
    let mut killed = 0;
    for _ in 0..ROUNDS {
        let is_ours = |group: Pid| group == getpgrp() || leaders.contains(&group);
        let orphans: Vec<(Pid, Pid)> = children()
            .filter_map(|child| Some((child, getpgid(Some(child)).ok()?)))
            .filter(|&(_, group)| !is_ours(group))
            .collect();
        if orphans.is_empty() {
            break;
        }
        for (orphan, group) in orphans {
            if !matches!(waitpid(orphan, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive)) {
                continue;
            }
            let _ = kill(orphan, Signal::SIGKILL);
            let _ = waitpid(orphan, None);
            killed += u32::from(group != leader);
        }
    }
    if killed > 0 && !WARNED.swap(true, Ordering::Relaxed) {
        complain(&messages::left_processes(killed));
    }
}

/// Descendants that this process adopts and leaves running.
#[derive(Debug)]
pub struct Adopted {
    /// Children that this process had before.
    before: Vec<Pid>,
}

impl Adopted {
    /// Adopts the descendants of the program that starts next.
    pub fn begin() -> Self {
        // Where this fails, the descendants go to another process.
        let _ = set_child_subreaper(true);
        Adopted { before: children().collect() }
    }

    /// The ids of those that run after the program was reaped.
    pub fn running(&self) -> Vec<u32> {
        let adopted = children().filter(|child| !self.before.contains(child));
        let is_running = |child: &Pid| {
            let state = waitpid(*child, Some(WaitPidFlag::WNOHANG));
            matches!(state, Ok(WaitStatus::StillAlive))
        };
        adopted.filter(is_running).map(|child| child.as_raw().cast_unsigned()).collect()
    }
}

/// The children of all threads of this process; none if the kernel does not list them.
fn children() -> impl Iterator<Item = Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|it| std::fs::read_to_string(it.path().join("children")).ok());
    let ids = lists.flat_map(|list| {
        list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<i32>>()
    });
    ids.map(Pid::from_raw)
}
