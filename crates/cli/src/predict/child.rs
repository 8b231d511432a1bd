//! One run of the program, in the terminal that it would have had: with our standard streams, in our process group.

use std::ffi::c_int;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use unconvoy_measure::interrupt::Interrupts;

/// How long a program may take to end by itself after a signal that the terminal may have sent it, too.
const BY_ITSELF: Duration = Duration::from_millis(500);
/// How long one that was asked to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// How long we sleep at most: a child that ended wakes us.
const NAP: Duration = Duration::from_secs(1);

/// How a run came to its end.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// What the system says.
    pub status: ExitStatus,
    /// From its start.
    pub wall: Duration,
    /// Why we ended it, if we did.
    pub why: Option<Why>,
}

/// Why a run was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// This signal came.
    Interrupted(c_int),
    /// It took too long.
    TimedOut,
}

/// Who is to end.
enum Patience {
    Unlimited,
    /// Whoever does not end until then is sent the signal.
    Until(Instant, Signal),
}

/// Runs the command and waits for its end; ends it when a signal comes, or after the time-out.
///
/// # Errors
///
/// It cannot be started or waited for.
pub fn run(command: &mut Command, timeout: Option<Duration>, interrupts: &Interrupts) -> io::Result<Ended> {
    let start = Instant::now();
    let child = command.spawn()?;
    watch(child, start, timeout, interrupts)
}

fn watch(mut child: Child, start: Instant, timeout: Option<Duration>, interrupts: &Interrupts) -> io::Result<Ended> {
    let id = Pid::from_raw(child.id().cast_signed());
    let mut why = None;
    let mut patience = match timeout {
        Some(timeout) => Patience::Until(start + timeout, Signal::SIGTERM),
        None => Patience::Unlimited,
    };
    loop {
        if let Some(status) = child.try_wait()? {
            // A signal that ended both of us is no failure of the program.
            let late = interrupts.take().map(Why::Interrupted);
            return Ok(Ended { status, wall: start.elapsed(), why: why.or(late) });
        }
        if let Some(number) = interrupts.take() {
            let signal = Signal::try_from(number).unwrap_or(Signal::SIGTERM);
            patience = match why {
                None => Patience::Until(Instant::now() + BY_ITSELF, signal),
                // Asked for a second time: no more patience.
                Some(_) => Patience::Until(Instant::now(), Signal::SIGKILL),
            };
            why = Some(Why::Interrupted(number));
        }
        let mut nap = NAP;
        if let Patience::Until(until, signal) = patience {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // Fails only if it has ended, which the next turn sees.
                let _ = kill(id, signal);
                why.get_or_insert(Why::TimedOut);
                patience = Patience::Until(Instant::now() + GRACE, Signal::SIGKILL);
                continue;
            }
            nap = nap.min(left + Duration::from_millis(1));
        }
        // An interruption is as good as what it waits for.
        let nap = PollTimeout::try_from(nap).unwrap_or(PollTimeout::ZERO);
        let _ = poll(&mut [PollFd::new(interrupts.wake(), PollFlags::POLLIN)], nap);
        interrupts.drain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_run_ends_by_itself_or_is_ended() {
        let interrupts = Interrupts::of_process().unwrap();
        let ended = run(Command::new("sh").args(["-c", "exit 3"]), None, interrupts).unwrap();
        assert_eq!((ended.status.code(), ended.why), (Some(3), None));
        let limit = Some(Duration::from_millis(100));
        let ended = run(Command::new("sleep").arg("60"), limit, interrupts).unwrap();
        assert_eq!((ended.status.signal(), ended.why), (Some(libc::SIGTERM), Some(Why::TimedOut)));
        // One that does not listen.
        let ended = run(Command::new("sh").args(["-c", "trap '' TERM; exec sleep 60"]), limit, interrupts);
        assert_eq!(ended.unwrap().why, Some(Why::TimedOut));
    }
}
