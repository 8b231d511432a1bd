//! The live screen: a thread that draws the last report, and reads keys.
//!
//! The scheduler waits for nobody: reports that the terminal is too slow for are dropped, and a terminal that takes nothing at all
//! keeps neither the scheduler nor the process's end. The thread sleeps until there is a report, a key, or another size.

use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TermionBackend;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::tcgetwinsize;
use signal_hook::SigId;
use signal_hook::consts::SIGWINCH;

use crate::history::History;
use crate::picture;
use crate::report::Report;
use crate::terminal::{Output, Taken};

/// Reports that may wait for the terminal.
const WAITING: usize = 8;
/// Within this time, the thread of a terminal that is alive ends.
const PATIENCE: Duration = Duration::from_secs(1);

const ESCAPE: u8 = 0x1b;
const CTRL_C: u8 = 3;

/// The screen, which has the terminal until it goes.
#[derive(Debug)]
pub struct Screen {
    /// `None` when no more will come.
    reports: Option<SyncSender<Report>>,
    wake: UnixStream,
    resized: SigId,
    thread: Option<JoinHandle<io::Result<()>>>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    _taken: Taken,
}

impl Screen {
    /// Takes the terminal of standard output.
    ///
    /// # Errors
    ///
    /// It cannot be had.
    pub fn open() -> io::Result<Self> {
        let (wake, wakes) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        wakes.set_nonblocking(true)?;
        let taken = Taken::take()?;
        let output = taken.output()?;
        let (reports, shown) = sync_channel(WAITING);
        let (end, ended) = sync_channel(0);
        let resized = signal_hook::low_level::pipe::register(SIGWINCH, wake.try_clone()?)?;
        let thread = std::thread::Builder::new().name("screen".into()).spawn(move || {
            let _end = end;
            show(&shown, &wakes, output)
        })?;
        Ok(Screen { reports: Some(reports), wake, resized, thread: Some(thread), ended, _taken: taken })
    }

    /// Lines of the terminal: no more tasks are seen.
    pub fn lines(&self) -> usize {
        tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_row.into())
    }

    /// Shows a report.
    ///
    /// # Errors
    ///
    /// The terminal is broken.
    pub fn show(&mut self, report: Report) -> io::Result<()> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            return Err(match thread.join() {
                Ok(Err(error)) => error,
                _ => io::Error::other("the screen's thread has ended"),
            });
        }
        if let Some(reports) = &self.reports {
            let _ = reports.try_send(report);
        }
        self.wake();
        Ok(())
    }

    /// If the pipe is full, the thread will wake up anyway.
    fn wake(&self) {
        let _ = (&self.wake).write(&[0]);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        signal_hook::low_level::unregister(self.resized);
        self.reports = None;
        self.wake();
        if let (Err(RecvTimeoutError::Disconnected), Some(thread)) =
            (self.ended.recv_timeout(PATIENCE), self.thread.take())
        {
            let _ = thread.join();
        }
    }
}

/// The thread: until there are no more reports.
fn show(reports: &Receiver<Report>, mut wakes: &UnixStream, output: Output) -> io::Result<()> {
    let stdin = io::stdin();
    let mut has_keys = stdin.is_terminal();
    let mut terminal = Terminal::new(TermionBackend::new(BufWriter::with_capacity(1 << 16, output)))?;
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
                // Nobody will type any more.
                Err(_) | Ok(0) => has_keys = false,
                // As Ctrl-C does.
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

/// Whether what was typed is a wish to end. A key that is more than a character begins with an escape.
fn ends(typed: &[u8]) -> bool {
    typed.first() != Some(&ESCAPE) && typed.iter().any(|key| matches!(key, b'q' | b'Q' | &CTRL_C))
}

#[cfg(test)]
mod tests;
