//! `run --watchdog`: a process beside the program that reports a long wait once, and then ends.
//!
//! `run` becomes the program, so nothing in the program could give names to a report. The watching
//! process is no child that the program may wait for. It has a session of its own, out of reach of
//! the terminal's signals, and no open file but standard error.

use std::ffi::c_int;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, getpid, pipe, read, setsid, write};
use unconvoy::primitive::{Clock as _, Native};
use unconvoy_measure::output::complain;

use super::process::Process;
use super::{Seen, describe, long_waits};
use crate::duration;
use crate::live_thread::live_thread;
use crate::messages::inspect as messages;
use crate::process_file;

/// Range of the time, in seconds.
const RANGE: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// Shortest and longest time between two looks at the program.
const LOOK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// How long the program may be without the library, which it loads at its start.
const START: Duration = Duration::from_secs(10);

/// Parses a time in [`RANGE`].
///
/// # Errors
///
/// The text is not such a time, or out of range.
pub fn limit(text: &str) -> Result<Duration, String> {
    let seconds = duration::seconds(text).filter(|seconds| RANGE.contains(seconds));
    let (least, most) = RANGE.into_inner();
    seconds.map(Duration::from_secs_f64).ok_or_else(|| messages::not_a_duration(least, most))
}

/// Starts the process that watches the calling one, which is about to become the program. `report`
/// is the file for the report; `None` means standard error.
///
/// # Errors
///
/// The kernel refuses another process.
pub fn start(limit: Duration, report: Option<&Path>) -> Result<(), String> {
    let failed = |error: nix::Error| error.desc().to_string();
    let pid = getpid().as_raw().cast_unsigned();
    if adopts_orphans() {
        return start_as_silent_child(pid, limit, report);
    }
    let (reader, writer) = pipe().map_err(failed)?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(failed)? {
        ForkResult::Child => {
            let _ = setsid();
            // SAFETY: as above.
            let watcher = match unsafe { fork() } {
                Ok(ForkResult::Child) => {
                    keep_only_standard_error(report.is_some());
                    watch(pid, limit, report)
                }
                Ok(ForkResult::Parent { child }) => child.as_raw(),
                Err(_) => 0,
            };
            let _ = write(&writer, &watcher.to_ne_bytes());
            end(0)
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut watcher = [0; 4];
            let length = read(&reader, &mut watcher);
            let _ = waitpid(child, None);
            let watcher = c_int::from_ne_bytes(watcher);
            if length != Ok(4) || watcher == 0 {
                return Err("the kernel refuses another process".into());
            }
            permit(watcher);
            Ok(())
        }
    }
}

/// Permits the watcher to read this process, where only descendants may be traced (Yama). The
/// permission outlives `exec`. Elsewhere the call fails, and is not needed.
fn permit(watcher: c_int) {
    // SAFETY: the call has no pointers.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, watcher as libc::c_ulong, 0, 0, 0) };
}

/// Whether orphaned descendants become children of this process: it is the first one of a
/// container, or has asked for them.
fn adopts_orphans() -> bool {
    let mut is_reaper: c_int = 0;
    // SAFETY: the kernel writes one number.
    let asked = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut is_reaper, 0, 0, 0) };
    getpid().as_raw() == 1 || asked == 0 && is_reaper != 0
}

/// Starts the watcher as a child that ends without a signal: `wait` passes over such children
/// (clone(2)). An orphan that this process adopts would end with `SIGCHLD`.
fn start_as_silent_child(pid: u32, limit: Duration, report: Option<&Path>) -> Result<(), String> {
    // SAFETY: as `fork`, without a signal at the end; this process has one thread.
    match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } {
        0 => {
            let _ = setsid();
            keep_only_standard_error(report.is_some());
            watch(pid, limit, report)
        }
        watcher if watcher > 0 => {
            permit(watcher as c_int);
            Ok(())
        }
        _ => Err(nix::Error::last().desc().to_string()),
    }
}

/// Ends this process without the exit handlers, which belong to the program's process.
fn end(status: c_int) -> ! {
    // SAFETY: no preconditions.
    unsafe { libc::_exit(status) }
}

/// Closes all files but standard error. A reader of the program's output must see its end.
fn keep_only_standard_error(closes_it_too: bool) {
    let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") else {
        end(1)
    };
    let last = if closes_it_too { 2 } else { 1 };
    for standard in (0..=last).filter(|&standard| standard != 2 || closes_it_too) {
        // SAFETY: both are descriptors of this process.
        unsafe { libc::dup2(null.as_raw_fd(), standard) };
    }
    std::mem::forget(null);
    // SAFETY: nothing in this process owns these descriptors from here on.
    unsafe { libc::syscall(libc::SYS_close_range, 3, c_int::MAX, 0) };
}

/// Looks at the program until a thread has waited for `limit`; then writes the report and ends.
fn watch(pid: u32, limit: Duration, report: Option<&Path>) -> ! {
    let every = (limit / 8).clamp(LOOK.0, LOOK.1);
    let mut last_seen = Instant::now();
    let mut seen = None;
    // Waits do not count while the program is stopped, by Ctrl-Z or a debugger.
    let mut from = 0;
    loop {
        if matches!(state(live_thread(pid)), Some('T' | 't')) {
            from = Native::now();
        }
        match look(pid, limit, from, &mut seen) {
            Ok(Some(text)) => {
                write_report(limit, report, &text, seen.as_ref().map(|(process, _)| process));
                end(0);
            }
            Ok(None) => last_seen = Instant::now(),
            // Before `exec`, and after one of the program itself, there is no library yet.
            Err(_) if last_seen.elapsed() < START => {}
            Err(error) => {
                complain(&messages::watchdog_blind(format_args!("{error:#}")));
                end(1);
            }
        }
        if !sleep(pid, seen.as_ref().map(|(process, _)| process), every) {
            end(0);
        }
    }
}

/// The kernel's letter for the state of a process (proc(5)); `None` if it does not exist.
fn state(pid: u32) -> Option<char> {
    let stat = process_file::text(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

/// Sleeps; returns false if the program has ended.
fn sleep(pid: u32, process: Option<&Process>, time: Duration) -> bool {
    let Some(process) = process else {
        std::thread::sleep(time.min(LOOK.0));
        return !matches!(state(pid), None | Some('Z' | 'X'));
    };
    let mut wanted = [PollFd::new(process.handle(), PollFlags::POLLIN)];
    let time = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
    let _ = poll(&mut wanted, time);
    wanted[0].revents().is_none_or(|events| events.is_empty())
}

/// Returns the report if a thread has waited for `limit`.
fn look(pid: u32, limit: Duration, from: u64, seen: &mut Seen) -> anyhow::Result<Option<String>> {
    if long_waits(pid, limit, from, seen)? == 0 {
        return Ok(None);
    }
    describe(&Process::open(pid)?).map(Some)
}

fn write_report(limit: Duration, report: Option<&Path>, text: &str, process: Option<&Process>) {
    let seconds = limit.as_secs_f64();
    let text = format!("unconvoy: {}\n{text}", messages::watchdog_report(&format!("{seconds} s")));
    let Some(file) = report else {
        // One call, so that other lines do not come between.
        let _ = write(std::io::stderr(), text.as_bytes());
        return;
    };
    let Err(error) = unconvoy_measure::output::replace(file, text.as_bytes()) else { return };
    // This process has closed its own standard error. The program's may be open.
    if let Some(program_error) = process.and_then(standard_error) {
        let why = messages::cannot_write_report(file, error);
        let _ = write(program_error, format!("unconvoy: {why}\n{text}").as_bytes());
    }
}

/// A descriptor of the process's standard error.
fn standard_error(process: &Process) -> Option<OwnedFd> {
    let handle = process.handle().as_raw_fd();
    // SAFETY: the call has no pointers.
    let error = unsafe { libc::syscall(libc::SYS_pidfd_getfd, handle, libc::STDERR_FILENO, 0) };
    // SAFETY: the descriptor is new, and nothing else owns it.
    (error >= 0).then(|| unsafe { OwnedFd::from_raw_fd(error as c_int) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_accepts_units() {
        assert_eq!(limit("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(limit("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(limit("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(limit("1.5"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "s", "0s", "-1s", "99ms", "1d", "inf", "2e9min"] {
            assert!(limit(wrong).is_err_and(|why| why.contains("10s")), "{wrong}");
        }
    }
}
