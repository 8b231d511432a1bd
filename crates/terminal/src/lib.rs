//! Takes the terminal for a screen, and restores it however this process ends, except by SIGKILL.
//!
//! Between [`take`](Taken::take) and [`give_back`], output goes to the alternate screen, and input
//! arrives unbuffered and without echo. Ctrl-C still sends a signal, so it works even if this
//! process hangs. Ctrl-Z and Ctrl-\ are disabled: a stopped or killed process could not restore the
//! terminal.

use std::fs::File;
use std::io::{self, Stdout, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, Once, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

/// Save the cursor, switch to the alternate screen and clear it.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[2J";
/// Reset colours, show the cursor, switch back.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
/// `_POSIX_VDISABLE` on Linux: disables a special character.
const NO_KEY: u8 = 0;
/// Time limit for writing [`LEAVE`] to a blocked terminal.
const WRITE_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// The terminal's original modes.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal of standard output. Dropping this restores it.
#[derive(Debug)]
pub struct Taken(Stdout);

impl Taken {
    /// Takes the terminal. A panic hook restores it before the panic message appears.
    ///
    /// # Errors
    ///
    /// Standard output is not a terminal, or does not respond.
    pub fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let others = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                others(panic);
            }));
        });
        let stdout = io::stdout();
        let before = tcgetattr(&stdout)?;
        let mut modes = before.clone();
        modes.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        // Ctrl-S would block the screen until Ctrl-Q.
        modes.input_modes &= !InputModes::IXON;
        modes.special_codes[SpecialCodeIndex::VSUSP] = NO_KEY;
        modes.special_codes[SpecialCodeIndex::VQUIT] = NO_KEY;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        IS_TAKEN.store(true, Relaxed);
        let taken = Taken(stdout);
        tcsetattr(&taken.0, OptionalActions::Now, &modes)?;
        taken.output()?.write_all(ENTER)?;
        Ok(taken)
    }

    /// A writer to the terminal.
    ///
    /// # Errors
    ///
    /// No descriptor is free.
    pub fn output(&self) -> io::Result<Output> {
        Ok(Output(File::from(self.0.as_fd().try_clone_to_owned()?)))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal if it is taken, without waiting for threads that write to it.
fn give_back() {
    if !IS_TAKEN.swap(false, Relaxed) {
        return;
    }
    let stdout = io::stdout();
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcsetattr(&stdout, OptionalActions::Now, &before);
    }
    if let Ok(1..) = poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], Some(&WRITE_TIMEOUT)) {
        let _ = rustix::io::write(&stdout, LEAVE);
    }
}

/// A writer that discards output once the terminal is restored.
#[derive(Debug)]
pub struct Output(File);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if IS_TAKEN.load(Relaxed) { self.0.write(bytes) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
