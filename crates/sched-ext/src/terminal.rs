//! The terminal, taken for a screen, and given back as it was, however this process ends (but for SIGKILL).
//!
//! Between [`take`](Taken::take) and [`give_back`], what is written is on the terminal's other screen, and what is typed comes at once and
//! unseen. Ctrl-C remains a signal, so that it works whatever this process does; Ctrl-Z and Ctrl-\ are nothing, for what they
//! stop or kill could not give the terminal back.

use std::fs::File;
use std::io::{self, Stdout, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, Once, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

/// Save the cursor and go to the other screen; nothing is there.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[2J";
/// No colours, a cursor that is seen, and back.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
/// `_POSIX_VDISABLE` on Linux: no key.
const NO_KEY: u8 = 0;
/// A terminal that takes nothing for so long is left as it is.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// How it was.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal of standard output, which is given back when this goes.
#[derive(Debug)]
pub struct Taken(Stdout);

impl Taken {
    /// Takes it. Panics give it back before they say why.
    ///
    /// # Errors
    ///
    /// Standard output is no terminal, or a broken one.
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
        // Ctrl-S would stop the screen for good.
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

    /// Where to write.
    pub fn output(&self) -> io::Result<Output> {
        Ok(Output(File::from(self.0.as_fd().try_clone_to_owned()?)))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back if it is taken. Waits for no lock and no thread that writes to it.
fn give_back() {
    if !IS_TAKEN.swap(false, Relaxed) {
        return;
    }
    let stdout = io::stdout();
    if let Some(before) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = tcsetattr(&stdout, OptionalActions::Now, &before);
    }
    if let Ok(1..) = poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], Some(&PATIENCE)) {
        let _ = rustix::io::write(&stdout, LEAVE);
    }
}

/// The terminal while it is taken; after that, nowhere.
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
