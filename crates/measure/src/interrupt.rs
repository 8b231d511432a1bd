//! Ctrl-C while something is being measured.
//!
//! Handlers only leave a note and a byte in a pipe; the loop that watches a running program
//! ([`crate::child`]) sees the byte, ends the program and hands back what there is. The same pipe tells
//! of ended children, so that watching needs neither a thread nor polling, which would disturb
//! what is measured.

use std::ffi::c_int;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGPIPE, SIGTERM};

/// The signals that end a measurement.
const ENDING: [c_int; 3] = [SIGINT, SIGTERM, SIGHUP];

/// That a signal asked to end. Displayed as the reason in a record.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Installed handlers, for the rest of the process's life.
pub struct Interrupts {
    pending: Arc<AtomicUsize>,
    wake: UnixStream,
}

impl Interrupts {
    /// Installs the handlers. Programs started later do not inherit them: `exec` resets them.
    ///
    /// # Errors
    ///
    /// The process is out of file descriptors.
    pub fn install() -> io::Result<Self> {
        let (wake, write_end) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let pending = Arc::new(AtomicUsize::new(0));
        for signal in ENDING {
            // The note first: whoever reads the byte finds it.
            signal_hook::flag::register_usize(signal, Arc::clone(&pending), signal as usize)?;
            signal_hook::low_level::pipe::register(signal, write_end.try_clone()?)?;
        }
        signal_hook::low_level::pipe::register(SIGCHLD, write_end)?;
        // A reader of our output that has gone (`compare | head`) must not cost finished runs.
        // A flag nobody reads instead of "ignore", which programs would inherit.
        signal_hook::flag::register_usize(SIGPIPE, Arc::new(AtomicUsize::new(0)), 0)?;
        Ok(Self { pending, wake })
    }

    /// The handlers of this process, installed by the first call.
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

    /// Fails with [`Interrupted`] once a signal has come that nobody has [taken](Self::take).
    ///
    /// # Errors
    ///
    /// A signal has come.
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.pending.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Interrupted) }
    }

    /// The signal that asked to end since the last call, if any.
    pub fn take(&self) -> Option<c_int> {
        match self.pending.swap(0, Ordering::Relaxed) {
            0 => None,
            signal => Some(signal as c_int),
        }
    }

    /// Becomes readable when a signal has come or a child has ended.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Empties the pipe.
    pub fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.wake).read(&mut bytes), Ok(count) if count > 0) {}
    }
}
