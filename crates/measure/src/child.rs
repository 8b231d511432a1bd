//! One run of a program: start, watch, end, and account for it.

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

use crate::escaped;
use crate::interrupt::Interrupts;
use crate::messages;

/// Time for a program to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// At least this many bytes are kept from the end of each output stream, for the metric.
const KEPT_OUTPUT: usize = 16 << 20;
/// At least this many bytes are kept from the end of both streams, for a failure's message.
const KEPT_TAIL: usize = 64 << 10;

/// Output of a run.
#[derive(Debug, Default)]
pub struct Output {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// End of both streams, in the order of arrival.
    pub tail: Vec<u8>,
}

/// Resources of a run that ended by itself.
#[derive(Debug)]
pub struct Usage {
    /// Elapsed time, from just before the start.
    pub wall: Duration,
    /// Whether `wall` is too long, because this command was stopped (Ctrl-Z) as the program ended.
    pub is_overslept: bool,
    /// Exit status.
    pub status: ExitStatus,
    /// User-mode processor time of the program and of the children that it reaped.
    pub user: Duration,
    /// Kernel-mode processor time of the same.
    pub system: Duration,
    /// Largest resident set, KiB.
    pub max_rss_kib: i64,
    /// Context switches of threads that blocked.
    pub voluntary_switches: i64,
    /// Context switches of threads that were preempted.
    pub involuntary_switches: i64,
}

/// How a run ended.
#[derive(Debug)]
pub enum Outcome {
    /// The program ended, successfully or not.
    Ended(Usage),
    /// The time-out passed, and the program was ended.
    TimedOut,
    /// The program used the terminal, which stops a background process group, and was ended.
    NeedsTerminal,
    /// This signal arrived, and the program was ended.
    Interrupted(c_int),
}

/// Runs a command in its own process group and returns its output and resources. Descendants that
/// leave the group are killed at its end, too.
///
/// # Errors
///
/// The program cannot be started (execve's error), or cannot be watched.
pub fn measure(
    command: Command,
    timeout: Option<Duration>,
    interrupts: &Interrupts,
) -> io::Result<(Outcome, Output)> {
    Running::started(command, true)?.finish(timeout, interrupts)
}

/// A running program, killed when dropped.
pub struct Running {
    start: Instant,
    group: Group,
    streams: Streams,
}

impl Running {
    /// Starts a command in its own process group.
    ///
    /// # Errors
    ///
    /// As [`measure`].
    pub fn start(command: Command) -> io::Result<Self> {
        Self::started(command, false)
    }

    /// `is_contained`: descendants that leave the group are killed at the end.
    fn started(mut command: Command, is_contained: bool) -> io::Result<Self> {
        // No standard input: a background process group that reads the terminal is stopped.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let (start, mut child) = escaped::spawn(&mut command, is_contained)?;
        let leader = Pid::from_raw(child.id().cast_signed());
        let group = Group { leader, is_contained, reaped: false };
        let streams = Streams::new(child.stdout.take(), child.stderr.take())?;
        Ok(Self { start, group, streams })
    }

    /// The program's process id.
    pub fn id(&self) -> u32 {
        self.group.leader.as_raw().cast_unsigned()
    }

    /// Waits for the program. A signal, or `timeout` after its start, ends it.
    ///
    /// # Errors
    ///
    /// The program cannot be watched.
    pub fn finish(
        self,
        timeout: Option<Duration>,
        interrupts: &Interrupts,
    ) -> io::Result<(Outcome, Output)> {
        self.finish_watched(timeout, interrupts, |_| {})
    }

    /// As [`finish`](Self::finish), and passes all standard output so far to `see` whenever the
    /// output may have grown.
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

        let (wall, is_overslept) = loop {
            streams.wait(interrupts, deadline)?;
            see(&streams.output.stdout);
            // This command may have been stopped meanwhile, so look before judging by the time.
            let was_stopped = interrupts.take_continuation();
            let state = group.leader_state()?;
            let has_ended = state == State::Ended;
            if let Some(number) = interrupts.take() {
                // Kill at once on a second signal, or a signal after the time-out.
                let signal = match ended_by_us {
                    Some(_) => Signal::SIGKILL,
                    None => Signal::try_from(number).unwrap_or(Signal::SIGTERM),
                };
                group.signal(signal);
                ended_by_us = Some(Outcome::Interrupted(number));
                deadline = Some(Instant::now() + GRACE);
            } else if state == State::NeedsTerminal && ended_by_us.is_none() {
                // Nobody would continue it.
                group.signal(Signal::SIGKILL);
                ended_by_us = Some(Outcome::NeedsTerminal);
            } else if !has_ended && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                let signal = if ended_by_us.is_some() { Signal::SIGKILL } else { Signal::SIGTERM };
                group.signal(signal);
                ended_by_us.get_or_insert(Outcome::TimedOut);
                deadline = Some(Instant::now() + GRACE);
            }
            if has_ended || group.leader_state()? == State::Ended {
                break (start.elapsed(), was_stopped || interrupts.take_continuation());
            }
        };
        let usage = Usage { is_overslept, ..group.reap(wall)? };
        // A descendant may still write.
        streams.drain(LAST_READS)?;
        Ok((ended_by_us.unwrap_or(Outcome::Ended(usage)), streams.output))
    }
}

/// Describes an unsuccessful exit status.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => messages::exit_status(code),
        (None, Some(number)) => {
            let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
            messages::ended_by_signal(number, name, status.core_dumped())
        }
        (None, None) => status.to_string(),
    }
}

/// Describes [`Outcome::NeedsTerminal`].
pub fn needs_terminal() -> &'static str {
    messages::needs_terminal()
}

/// State of a group's leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// Stopped, because it used the terminal.
    NeedsTerminal,
    Ended,
}

/// The program and its descendants, unless they left the process group. See [`escaped`].
struct Group {
    leader: Pid,
    is_contained: bool,
    reaped: bool,
}

impl Group {
    fn signal(&self, signal: Signal) {
        // Fails only if the group is empty already.
        let _ = killpg(self.leader, signal);
    }

    /// Checks without reaping, so that the process id stays reserved until [`Self::reap`].
    fn leader_state(&self) -> io::Result<State> {
        let events = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED;
        let flags = events | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        match waitid(Id::Pid(self.leader), flags) {
            Ok(WaitStatus::Stopped(_, Signal::SIGTTIN | Signal::SIGTTOU)) => {
                Ok(State::NeedsTerminal)
            }
            Ok(WaitStatus::StillAlive | WaitStatus::Stopped(..)) | Err(Errno::EINTR) => {
                Ok(State::Running)
            }
            // The status of a program that a real-time signal ended, which nix cannot name.
            Ok(_) | Err(Errno::EINVAL) => Ok(State::Ended),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills the leader's descendants, which would disturb the next run, and reaps them all.
    fn reap(&mut self, wall: Duration) -> io::Result<Usage> {
        self.signal(Signal::SIGKILL);
        let mut status: c_int = 0;
        // SAFETY: `rusage` is a struct of integers, so all-zero bytes are a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: both pointers refer to live, writable locals of wait4(2)'s types.
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
        escaped::end(self.leader, self.is_contained);
        Ok(Usage {
            wall,
            is_overslept: false,
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
        // Reached only after an error: no program may outlive its measurement.
        if !self.reaped {
            self.signal(Signal::SIGKILL);
        }
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), (time.tv_usec.unsigned_abs() as u32) * 1000)
}

/// Reading ends of the program's output; `None` once closed.
struct Streams {
    stdout: Option<std::process::ChildStdout>,
    stderr: Option<std::process::ChildStderr>,
    output: Output,
}

impl Streams {
    fn new(
        stdout: Option<std::process::ChildStdout>,
        stderr: Option<std::process::ChildStderr>,
    ) -> io::Result<Self> {
        // Affects the reading ends only. The program's ends are separate file descriptions.
        for end in stdout.iter().map(AsFd::as_fd).chain(stderr.iter().map(AsFd::as_fd)) {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(Self { stdout, stderr, output: Output::default() })
    }

    /// Sleeps until output, a signal, a child's end or the deadline, and reads the output.
    fn wait(&mut self, interrupts: &Interrupts, deadline: Option<Instant>) -> io::Result<()> {
        let mut fds = vec![PollFd::new(interrupts.wake(), PollFlags::POLLIN)];
        fds.extend(self.stdout.iter().map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN)));
        fds.extend(self.stderr.iter().map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN)));
        let timeout = match deadline {
            None => PollTimeout::NONE,
            // Add a millisecond: poll rounds down, and would spin through the last millisecond.
            Some(deadline) => {
                let left =
                    deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        interrupts.drain();
        self.drain(READS)
    }

    /// Reads the available output, in at most this number of reads of each stream.
    fn drain(&mut self, reads: u32) -> io::Result<()> {
        let Output { stdout, stderr, tail } = &mut self.output;
        read_available(&mut self.stdout, reads, stdout, tail)?;
        read_available(&mut self.stderr, reads, stderr, tail)
    }
}

/// Bytes of one read.
const READ: usize = 16 << 10;
/// Reads between two looks at the deadline and the signals: a program may write faster than this
/// command reads.
const READS: u32 = 4;
/// Reads after the program's end, for what a pipe holds at most (`pipe-max-size`, pipe(7)).
const LAST_READS: u32 = 64;

/// Moves a pipe's contents to `kept` and `tail`, and closes the pipe at its end.
fn read_available(
    pipe: &mut Option<impl Read>,
    reads: u32,
    kept: &mut Vec<u8>,
    tail: &mut Vec<u8>,
) -> io::Result<()> {
    let mut bytes = [0; READ];
    for _ in 0..reads {
        let Some(end) = pipe else { break };
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

/// Appends bytes, and drops the oldest once more than twice `limit` have accumulated.
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
    fn keep_retains_end_of_long_output() {
        let mut kept = Vec::new();
        for number in 0..1000_u32 {
            keep(&mut kept, &number.to_be_bytes(), 100);
        }
        assert!(kept.len() >= 100 && kept.len() <= 200);
        assert!(kept.ends_with(&999_u32.to_be_bytes()));
    }

    /// A program that writes without pause used to hide its time-out and Ctrl-C.
    #[test]
    fn endless_output_is_read_in_parts() {
        let (mut kept, mut tail) = (Vec::new(), Vec::new());
        read_available(&mut Some(io::repeat(7)), 2, &mut kept, &mut tail).unwrap();
        assert_eq!(kept.len(), 2 * READ);
    }

    /// The daemon disturbed the runs that followed.
    #[test]
    fn daemon_is_killed_with_the_program() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("id");
        let mut command = Command::new("sh");
        let daemon = "setsid sh -c 'echo $$ >\"$0\"; exec sleep 600' \"$0\" >/dev/null 2>&1 &";
        command.args(["-c", &format!("{daemon} until [ -s \"$0\" ]; do sleep .01; done")]);
        command.arg(&file);
        let (outcome, _) = measure(command, None, Interrupts::of_process().unwrap()).unwrap();
        assert!(matches!(outcome, Outcome::Ended(usage) if usage.status.success()));
        let id = std::fs::read_to_string(file).expect("the daemon has started");
        assert!(!std::path::Path::new("/proc").join(id.trim()).exists(), "{id}");
    }

    #[test]
    fn program_killed_by_a_real_time_signal_has_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "kill -34 $$"]);
        let (outcome, _) = measure(command, None, Interrupts::of_process().unwrap()).unwrap();
        let Outcome::Ended(usage) = outcome else { panic!("it has not ended by itself") };
        assert_eq!(describe(usage.status), "ended by signal 34 (unknown)");
    }

    #[test]
    fn describe_names_status_and_signal() {
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "exit status 3");
        assert_eq!(describe(ExitStatus::from_raw(9)), "ended by signal 9 (SIGKILL)");
    }
}
