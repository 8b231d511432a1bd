//! One run of the program: start it, watch it, end it if need be, and say what it used.

use std::ffi::c_int;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::interrupt::Interrupts;

/// How long a program that was asked to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// At least this much of the end of each output stream is kept for the metric.
const KEPT_OUTPUT: usize = 16 << 20;
/// At least this much of both together is kept to show when the run fails.
const KEPT_TAIL: usize = 64 << 10;

/// What a run printed.
#[derive(Debug, Default)]
pub struct Output {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// The end of both, in the order of arrival.
    pub tail: Vec<u8>,
}

/// What a run that ended by itself used.
#[derive(Debug)]
pub struct Usage {
    /// From just before the start to the end.
    pub wall: Duration,
    /// How it ended.
    pub status: ExitStatus,
    /// Processor time in user mode, of the program and those it waited for.
    pub user: Duration,
    /// The same in the kernel.
    pub system: Duration,
    /// Largest resident set, KiB.
    pub max_rss_kib: i64,
    /// Context switches because a thread waited.
    pub voluntary_switches: i64,
    /// Context switches because a thread was preempted.
    pub involuntary_switches: i64,
}

/// How a run came to its end.
#[derive(Debug)]
pub enum Outcome {
    /// By itself, well or not.
    Ended(Usage),
    /// Ended by us, after the time-out.
    TimedOut,
    /// Ended by us, because this signal came.
    Interrupted(c_int),
}

/// Runs a command in a process group of its own and collects what it prints and uses.
///
/// # Errors
///
/// The program cannot be started (its own error), or the system refuses to watch it.
pub fn measure(command: Command, timeout: Option<Duration>, interrupts: &Interrupts) -> io::Result<(Outcome, Output)> {
    Running::start(command)?.finish(timeout, interrupts)
}

/// A program that runs. Dropped before its end, it is killed.
pub struct Running {
    start: Instant,
    group: Group,
    streams: Streams,
}

impl Running {
    /// Starts a command in a process group of its own.
    ///
    /// # Errors
    ///
    /// As [`measure`].
    pub fn start(mut command: Command) -> io::Result<Self> {
        // Nothing to read: a program in a group of its own would be stopped by reading the terminal.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let start = Instant::now();
        let mut child = command.spawn()?;
        let group = Group { leader: Pid::from_raw(child.id().cast_signed()), reaped: false };
        let streams = Streams::new(child.stdout.take(), child.stderr.take())?;
        Ok(Self { start, group, streams })
    }

    /// The program's process id.
    pub fn id(&self) -> u32 {
        self.group.leader.as_raw().cast_unsigned()
    }

    /// Waits for the program's end; ends it `timeout` after its start, or when a signal asks for it.
    ///
    /// # Errors
    ///
    /// The system refuses to watch it.
    pub fn finish(self, timeout: Option<Duration>, interrupts: &Interrupts) -> io::Result<(Outcome, Output)> {
        self.finish_watched(timeout, interrupts, |_| {})
    }

    /// As [`finish`](Self::finish); `see` is shown what is on standard output so far, each time that there may be more.
    ///
    /// # Errors
    ///
    /// As [`measure`].
    pub fn finish_watched(
        self,
        timeout: Option<Duration>,
        interrupts: &Interrupts,
        mut see: impl FnMut(&[u8]),
    ) -> io::Result<(Outcome, Output)> {
        let Self { start, mut group, mut streams } = self;
        let mut deadline = timeout.map(|timeout| start + timeout);
        let mut ended_by_us: Option<Outcome> = None;

        let wall = loop {
            streams.wait(interrupts, deadline)?;
            see(&streams.output.stdout);
            if let Some(number) = interrupts.take() {
                // A second Ctrl-C, or a time-out before it: no more patience.
                let signal = match ended_by_us {
                    Some(_) => Signal::SIGKILL,
                    None => Signal::try_from(number).unwrap_or(Signal::SIGTERM),
                };
                group.signal(signal);
                ended_by_us = Some(Outcome::Interrupted(number));
                deadline = Some(Instant::now() + GRACE);
            } else if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let signal = if ended_by_us.is_some() { Signal::SIGKILL } else { Signal::SIGTERM };
                group.signal(signal);
                ended_by_us.get_or_insert(Outcome::TimedOut);
                deadline = Some(Instant::now() + GRACE);
            }
            if group.leader_has_ended()? {
                break start.elapsed();
            }
        };
        let usage = group.reap(wall)?;
        streams.drain()?;
        Ok((ended_by_us.unwrap_or(Outcome::Ended(usage)), streams.output))
    }
}

/// What an exit status other than success means.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(number)) => {
            let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
            let dumped = if status.core_dumped() { ", core dumped" } else { "" };
            format!("ended by signal {number} ({name}{dumped})")
        }
        (None, None) => status.to_string(),
    }
}

/// The program and whatever it started, as far as it stayed in its process group.
struct Group {
    leader: Pid,
    reaped: bool,
}

impl Group {
    fn signal(&self, signal: Signal) {
        // Fails only when the group is empty, which is what is wanted.
        let _ = killpg(self.leader, signal);
    }

    /// Looks without reaping, so that the id stays taken until [`Self::reap`].
    fn leader_has_ended(&self) -> io::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        match waitid(Id::Pid(self.leader), flags) {
            Ok(status) => Ok(status != WaitStatus::StillAlive),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills what the leader left behind, which would disturb the next run, and reaps the leader.
    fn reap(&mut self, wall: Duration) -> io::Result<Usage> {
        self.signal(Signal::SIGKILL);
        let mut status: c_int = 0;
        // SAFETY: all-zero bytes are a valid `rusage`, a struct of integers only.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: both pointers are to live, writable locals of the types that wait4(2) asks for.
            let result = unsafe { libc::wait4(self.leader.as_raw(), &mut status, 0, &mut usage) };
            if result != -1 {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        self.reaped = true;
        Ok(Usage {
            wall,
            status: ExitStatus::from_raw(status),
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            max_rss_kib: usage.ru_maxrss,
            voluntary_switches: usage.ru_nvcsw,
            involuntary_switches: usage.ru_nivcsw,
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Only on an error of ours in between: no program may outlive its measurement.
        if !self.reaped {
            self.signal(Signal::SIGKILL);
        }
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), (time.tv_usec.unsigned_abs() as u32) * 1000)
}

/// The read ends of the program's output, `None` once closed.
struct Streams {
    stdout: Option<std::process::ChildStdout>,
    stderr: Option<std::process::ChildStderr>,
    output: Output,
}

impl Streams {
    fn new(stdout: Option<std::process::ChildStdout>, stderr: Option<std::process::ChildStderr>) -> io::Result<Self> {
        // Only our ends: the program's are file descriptions of their own.
        for end in stdout.iter().map(AsFd::as_fd).chain(stderr.iter().map(AsFd::as_fd)) {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(Self { stdout, stderr, output: Output::default() })
    }

    /// Sleeps until there is output, a signal, an ended child or the deadline; reads the output.
    fn wait(&mut self, interrupts: &Interrupts, deadline: Option<Instant>) -> io::Result<()> {
        let mut fds = vec![PollFd::new(interrupts.wake(), PollFlags::POLLIN)];
        fds.extend(self.stdout.iter().map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN)));
        fds.extend(self.stderr.iter().map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN)));
        let timeout = match deadline {
            None => PollTimeout::NONE,
            // One millisecond more, for poll rounds down and would spin through the last one.
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        interrupts.drain();
        self.drain()
    }

    /// Reads what is there.
    fn drain(&mut self) -> io::Result<()> {
        let Output { stdout, stderr, tail } = &mut self.output;
        read_available(&mut self.stdout, stdout, tail)?;
        read_available(&mut self.stderr, stderr, tail)
    }
}

/// Moves what a pipe holds into `kept` and `tail`; closes it at its end.
fn read_available(pipe: &mut Option<impl Read>, kept: &mut Vec<u8>, tail: &mut Vec<u8>) -> io::Result<()> {
    let mut bytes = [0; 16 << 10];
    while let Some(end) = pipe {
        match end.read(&mut bytes) {
            Ok(0) => *pipe = None,
            Ok(count) => {
                keep(kept, &bytes[..count], KEPT_OUTPUT);
                keep(tail, &bytes[..count], KEPT_TAIL);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Appends, and forgets the beginning when more than twice `limit` has come together.
fn keep(kept: &mut Vec<u8>, bytes: &[u8], limit: usize) {
    kept.extend_from_slice(bytes);
    if kept.len() > 2 * limit {
        kept.drain(..kept.len() - limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_keeps_its_end() {
        let mut kept = Vec::new();
        for number in 0..1000_u32 {
            keep(&mut kept, &number.to_be_bytes(), 100);
        }
        assert!(kept.len() >= 100 && kept.len() <= 200);
        assert!(kept.ends_with(&999_u32.to_be_bytes()));
    }

    #[test]
    fn statuses_have_words() {
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "exit status 3");
        assert_eq!(describe(ExitStatus::from_raw(9)), "ended by signal 9 (SIGKILL)");
    }
}
