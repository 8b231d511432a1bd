//! One run of the program in the user's terminal, with this command's standard streams and process
//! group.

use std::ffi::c_int;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use unconvoy_measure::interrupt::Interrupts;

/// Time for a program to end by itself after a signal to this command: the sender may have sent the
/// signal to the program, too.
const BY_ITSELF: Duration = Duration::from_millis(500);
/// Time for a program to end after its time-out before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// Longest sleep of this command. The child's end wakes it earlier.
const NAP: Duration = Duration::from_secs(1);

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub status: ExitStatus,
    /// Time since the start.
    pub wall: Duration,
    /// Why this command ended the run, if it did.
    pub why: Option<Why>,
}

/// Why a run was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// This signal arrived.
    Interrupted(c_int),
    /// The time-out passed.
    TimedOut,
}

/// When to send the program a signal.
enum Deadline {
    Never,
    /// Send the signal at this time.
    At(Instant, Signal),
}

/// Runs the command and waits for it. A signal to this command is passed on, unless the terminal
/// sent it to the program too. The program may take its time to end, as a database does; a second
/// signal kills it. The time-out ends the program, too.
///
/// # Errors
///
/// The command cannot be started or waited for.
pub fn run(
    command: &mut Command,
    timeout: Option<Duration>,
    interrupts: &Interrupts,
) -> io::Result<Ended> {
    run_observed(command, timeout, interrupts, |_| {})
}

/// As [`run`]; calls `started` with the process id.
///
/// # Errors
///
/// As [`run`].
pub fn run_observed(
    command: &mut Command,
    timeout: Option<Duration>,
    interrupts: &Interrupts,
    started: impl FnOnce(u32),
) -> io::Result<Ended> {
    let early = interrupts.take();
    let start = Instant::now();
    let child = command.spawn()?;
    started(child.id());
    watch(child, start, timeout, early, interrupts)
}

/// `early` is a signal that came before the program existed, which therefore did not get it.
fn watch(
    mut child: Child,
    start: Instant,
    timeout: Option<Duration>,
    early: Option<c_int>,
    interrupts: &Interrupts,
) -> io::Result<Ended> {
    let id = Pid::from_raw(child.id().cast_signed());
    let mut why = early.map(Why::Interrupted);
    let mut deadline = match (early, timeout) {
        (Some(number), _) => Deadline::At(start, signal(number)),
        (None, Some(timeout)) => Deadline::At(start + timeout, Signal::SIGTERM),
        (None, None) => Deadline::Never,
    };
    let mut looked = Instant::now();
    interrupts.take_continuation();
    loop {
        // The time during which everything was stopped does not count.
        let stopped = looked.elapsed();
        if let (true, None, Deadline::At(until, _)) =
            (interrupts.take_continuation(), why, &mut deadline)
        {
            *until += stopped;
        }
        looked = Instant::now();
        if let Some(status) = child.try_wait()? {
            // The signal may have ended both processes, which is not a failure of the program.
            let late = interrupts.take().map(Why::Interrupted);
            return Ok(Ended { status, wall: start.elapsed(), why: why.or(late) });
        }
        if let Some(number) = interrupts.take() {
            let signal = signal(number);
            deadline = match why {
                // The program got the signal as well.
                None if interrupts.is_from_terminal() => Deadline::Never,
                None => Deadline::At(Instant::now() + BY_ITSELF, signal),
                // A second signal: kill the program now.
                Some(_) => Deadline::At(Instant::now(), Signal::SIGKILL),
            };
            why = Some(Why::Interrupted(number));
        }
        let mut nap = NAP;
        if let Deadline::At(until, signal) = deadline {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // Fails only if the program has ended. The next iteration sees that.
                let _ = kill(id, signal);
                deadline = match why.get_or_insert(Why::TimedOut) {
                    Why::Interrupted(_) => Deadline::Never,
                    Why::TimedOut => Deadline::At(Instant::now() + GRACE, Signal::SIGKILL),
                };
                continue;
            }
            nap = nap.min(left + Duration::from_millis(1));
        }
        // Ignore EINTR: a signal is what this waits for.
        let nap = PollTimeout::try_from(nap).unwrap_or(PollTimeout::ZERO);
        let _ = poll(&mut [PollFd::new(interrupts.wake(), PollFlags::POLLIN)], nap);
        interrupts.drain();
    }
}

fn signal(number: c_int) -> Signal {
    Signal::try_from(number).unwrap_or(Signal::SIGTERM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn run_returns_exit_or_timeout() {
        let interrupts = Interrupts::of_process().unwrap();
        let ended = run(Command::new("sh").args(["-c", "exit 3"]), None, interrupts).unwrap();
        assert_eq!((ended.status.code(), ended.why), (Some(3), None));
        let limit = Some(Duration::from_millis(100));
        let ended = run(Command::new("sleep").arg("60"), limit, interrupts).unwrap();
        assert_eq!((ended.status.signal(), ended.why), (Some(libc::SIGTERM), Some(Why::TimedOut)));
        // A program that ignores SIGTERM.
        let ended =
            run(Command::new("sh").args(["-c", "trap '' TERM; exec sleep 60"]), limit, interrupts);
        assert_eq!(ended.unwrap().why, Some(Why::TimedOut));
    }
}
