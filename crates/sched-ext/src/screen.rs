//! The live screen: a thread that draws the latest report and reads keys.
//!
//! The scheduler never waits for the terminal, and drops reports that a slow terminal cannot take.
//! The thread sleeps until a report, a key or a change of the terminal's size arrives.

use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use ratatui::Terminal;
use ratatui::backend::TermionBackend;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::tcgetwinsize;
use signal_hook::SigId;
use signal_hook::consts::SIGWINCH;
use unconvoy_terminal::{Output, Taken};

use crate::background::Background;
use crate::history::History;
use crate::picture;
use crate::report::Report;

/// Capacity of the queue of reports.
const WAITING: usize = 8;

const ESCAPE: u8 = 0x1b;
const CTRL_C: u8 = 3;

/// The live screen. Restores the terminal when dropped.
#[derive(Debug)]
pub struct Screen {
    /// `None` after the last report.
    reports: Option<SyncSender<Report>>,
    wake: UnixStream,
    resized: SigId,
    thread: Background,
    _taken: Taken,
}

impl Screen {
    /// Takes the terminal of standard output.
    ///
    /// # Errors
    ///
    /// The terminal does not respond, or the thread cannot be created.
    pub fn open() -> io::Result<Self> {
        let (wake, wakes) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        wakes.set_nonblocking(true)?;
        let taken = Taken::take()?;
        let output = taken.output()?;
        let (reports, shown) = sync_channel(WAITING);
        let resized = signal_hook::low_level::pipe::register(SIGWINCH, wake.try_clone()?)?;
        let thread = Background::start("screen", move || show(&shown, &wakes, output))?;
        Ok(Screen { reports: Some(reports), wake, resized, thread, _taken: taken })
    }

    /// Height of the terminal: an upper limit for the number of visible tasks.
    pub fn lines(&self) -> usize {
        tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_row.into())
    }

    /// Shows a report.
    ///
    /// # Errors
    ///
    /// The screen's thread has ended, because writing to the terminal failed.
    pub fn show(&mut self, report: Report) -> io::Result<()> {
        self.thread.check()?;
        if let Some(reports) = &self.reports {
            let _ = reports.try_send(report);
        }
        self.wake();
        Ok(())
    }

    /// Wakes the thread. A full pipe needs no further byte.
    fn wake(&self) {
        let _ = (&self.wake).write(&[0]);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.resized);
        self.reports = None;
        self.wake();
        self.thread.wait();
    }
}

/// Body of the thread; returns after the last report.
fn show(reports: &Receiver<Report>, mut wakes: &UnixStream, output: Output) -> io::Result<()> {
    let stdin = io::stdin();
    let mut has_keys = stdin.is_terminal();
    let mut terminal =
        Terminal::new(TermionBackend::new(BufWriter::with_capacity(1 << 16, output)))?;
    let mut history = History::default();
    loop {
        let mut sources = vec![PollFd::new(wakes, PollFlags::IN)];
        if has_keys {
            sources.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match poll(&mut sources, None) {
            Err(rustix::io::Errno::INTR) => continue,
            result => result?,
        };
        let is_typed = sources.get(1).is_some_and(|keys| !keys.revents().is_empty());
        let mut bytes = [0; 256];
        if is_typed {
            match rustix::io::read(&stdin, &mut bytes) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                // End of input: stop polling for keys.
                Err(_) | Ok(0) => has_keys = false,
                // Same effect as Ctrl-C.
                Ok(length) if ends(&bytes[..length]) => kill_process(getpid(), Signal::INT)?,
                Ok(_) => {}
            }
        }
        while let Ok(1..) = wakes.read(&mut bytes) {}
        loop {
            match reports.try_recv() {
                Ok(report) => history.add(report),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        if !history.is_empty() {
            terminal.draw(|frame| picture::draw(&history, frame.area(), frame.buffer_mut()))?;
        }
    }
}

/// Whether the typed bytes ask to quit. Keys with several bytes start with an escape and never do.
fn ends(typed: &[u8]) -> bool {
    typed.first() != Some(&ESCAPE) && typed.iter().any(|key| matches!(key, b'q' | b'Q' | &CTRL_C))
}

#[cfg(test)]
mod tests;
