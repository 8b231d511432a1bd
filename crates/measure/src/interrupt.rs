//! Signals such as Ctrl-C during a measurement.
//!
//! A handler only stores the signal's number and writes a byte to a pipe. The loop that watches a
//! running program ([`crate::child`]) polls the pipe, ends the program and returns the results so
//! far. SIGCHLD uses the same pipe. Watching thus needs neither a thread nor a timer, which would
//! disturb the measurement.

use std::ffi::c_int;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};
use signal_hook::low_level::pipe;
use signal_hook_registry::register_sigaction;

/// Signals that end a measurement.
const ENDING: [c_int; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// A signal asked the command to end. Displays as the reason in a record.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Installed handlers, which stay for the rest of the process's life.
pub struct Interrupts {
    pending: Arc<AtomicUsize>,
    is_from_terminal: Arc<AtomicBool>,
    is_continued: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Interrupts {
    /// Installs the handlers. Child programs do not inherit them, because `exec` resets handlers.
    /// A signal that this process ignores, as under `nohup`, stays ignored.
    ///
    /// # Errors
    ///
    /// No file descriptors are left.
    pub fn install() -> io::Result<Self> {
        let (wake, write_end) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let pending = Arc::new(AtomicUsize::new(0));
        let is_from_terminal = Arc::new(AtomicBool::new(false));
        for signal in ENDING.into_iter().filter(|&signal| !is_ignored(signal)) {
            // Register the number before the byte: handlers run in this order, so a reader of the
            // byte finds the number.
            let (number, sender) = (Arc::clone(&pending), Arc::clone(&is_from_terminal));
            let record = move |info: &libc::siginfo_t| {
                sender.store(info.si_code == libc::SI_KERNEL, Ordering::Relaxed);
                number.store(signal as usize, Ordering::Release);
            };
            // SAFETY: stores to atomics may be made in a signal handler.
            unsafe { register_sigaction(signal, record) }?;
            pipe::register(signal, write_end.try_clone()?)?;
        }
        pipe::register(SIGCHLD, write_end)?;
        let is_continued = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGCONT, Arc::clone(&is_continued))?;
        // Standard output may be closed early (`compare | head`), which must not lose finished
        // runs. A handler with an unused flag serves instead of "ignore", which child programs
        // would inherit.
        signal_hook::flag::register_usize(SIGPIPE, Arc::new(AtomicUsize::new(0)), 0)?;
        Ok(Self { pending, is_from_terminal, is_continued, wake })
    }

    /// Returns this process's handlers, which the first call installs.
    ///
    /// # Errors
    ///
    /// As [`install`](Self::install).
    pub fn of_process() -> io::Result<&'static Self> {
        static INSTALLED: OnceLock<Interrupts> = OnceLock::new();
        match INSTALLED.get() {
            Some(installed) => Ok(installed),
            None => {
                let installed = Self::install()?;
                Ok(INSTALLED.get_or_init(|| installed))
            }
        }
    }

    /// Returns [`Interrupted`] if a signal arrived and was not [taken](Self::take).
    ///
    /// # Errors
    ///
    /// A signal arrived.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.pending.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Interrupted) }
    }

    /// Sleeps.
    ///
    /// # Errors
    ///
    /// A signal arrived, before or meanwhile.
    pub fn sleep(&self, time: Duration) -> Result<(), Interrupted> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            // Up to a millisecond longer, and not shorter.
            let left = left.as_millis().saturating_add(1).min(i32::MAX as u128) as i32;
            let mut wanted = [PollFd::new(self.wake(), PollFlags::POLLIN)];
            let _ = poll(&mut wanted, PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO));
            self.drain();
        }
    }

    /// Returns and clears the last signal since the previous call.
    pub fn take(&self) -> Option<c_int> {
        match self.pending.swap(0, Ordering::Acquire) {
            0 => None,
            signal => Some(signal as c_int),
        }
    }

    /// Whether the terminal sent the last signal, and so sent it to the whole foreground process
    /// group.
    pub fn is_from_terminal(&self) -> bool {
        self.is_from_terminal.load(Ordering::Relaxed)
    }

    /// Returns whether this process was stopped and continued since the previous call.
    pub fn take_continuation(&self) -> bool {
        self.is_continued.swap(false, Ordering::Relaxed)
    }

    /// Returns a descriptor that becomes readable when a signal arrives or a child ends.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Empties the pipe.
    pub fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.wake).read(&mut bytes), Ok(count) if count > 0) {}
    }
}

/// Whether this process ignores a signal.
fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all-zero bytes are a `sigaction`, and without a new action the call only reads the
    // present one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let result = libc::sigaction(signal, std::ptr::null(), &mut action);
        result == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}
