//! Output of `--monitor`: a live screen where possible, plain lines otherwise.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

use crate::report::Report;
use crate::screen::Screen;

/// Number of tasks named in plain lines.
const NAMED: usize = 10;

#[derive(Debug)]
pub enum Monitor {
    /// Plain lines on standard output. Rates are relative to the last report printed, kept here.
    Lines(Box<Report>),
    Screen(Screen),
}

impl Monitor {
    /// Opens a live screen, or falls back to lines.
    pub fn open() -> Self {
        match Output::this().is_for_a_screen().then(Screen::open) {
            Some(Ok(screen)) => Monitor::Screen(screen),
            _ => Monitor::Lines(Box::default()),
        }
    }

    pub fn room(&self) -> usize {
        match self {
            Monitor::Lines(_) => NAMED,
            Monitor::Screen(screen) => screen.lines(),
        }
    }

    pub fn show(&mut self, report: Report) -> anyhow::Result<()> {
        match self {
            Monitor::Lines(last) => {
                if print(&mut std::io::stdout(), &report.lines(last))? {
                    **last = report;
                }
                Ok(())
            }
            Monitor::Screen(screen) => Ok(screen.show(report)?),
        }
    }
}

/// Prints a text of less than a page. Returns false if `output` has no room for it: a full pipe, or
/// a terminal stopped with Ctrl-S. A blocked write would stop the policy, and no signal but SIGKILL
/// would end it. A closed pipe does not end the scheduler.
fn print(output: &mut (impl Write + AsFd), text: &str) -> anyhow::Result<bool> {
    let mut room = [PollFd::new(&*output, PollFlags::OUT)];
    match poll(&mut room, Some(&Timespec::default())) {
        Ok(0) | Err(Errno::INTR) => return Ok(false),
        result => result?,
    };
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error)?,
        _ => Ok(true),
    }
}

/// Properties of standard output.
#[derive(Debug, Clone)]
struct Output {
    /// Whether standard output is the controlling terminal with this process in the foreground. A
    /// background process that changes the terminal's modes gets stopped.
    is_our_terminal: bool,
    /// Number of lines and columns; 0 on a serial line, which has no known size.
    size: (u16, u16),
    term: Option<OsString>,
    no_color: Option<OsString>,
}

impl Output {
    fn this() -> Self {
        let stdout = std::io::stdout();
        Output {
            is_our_terminal: tcgetpgrp(&stdout).is_ok_and(|foreground| foreground == getpgrp()),
            size: tcgetwinsize(&stdout).map_or((0, 0), |size| (size.ws_row, size.ws_col)),
            term: std::env::var_os("TERM"),
            no_color: std::env::var_os("NO_COLOR"),
        }
    }

    fn is_for_a_screen(&self) -> bool {
        let is_able = |term: &OsStr| !term.is_empty() && term != "dumb";
        self.is_our_terminal
            && self.size.0 > 0
            && self.size.1 > 0
            && self.term.as_deref().is_some_and(is_able)
            && self.no_color.as_deref().is_none_or(OsStr::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn report_that_a_full_pipe_cannot_take_is_dropped() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let line = "x".repeat(999) + "\n";
        let mut print_line = || print(&mut writer, &line).unwrap();
        let fits = (0..10_000).take_while(|_| print_line()).count();
        assert!((1..10_000).contains(&fits), "{fits}");
        assert_ne!(reader.read(&mut [0; 1 << 15]).unwrap(), 0);
        assert!(print_line(), "there is room again");
        drop(reader);
        assert!(print_line(), "a closed pipe is not an error");
    }

    #[test]
    fn screen_requires_a_capable_foreground_terminal() {
        let good = Output {
            is_our_terminal: true,
            size: (24, 80),
            term: Some("xterm-256color".into()),
            no_color: None,
        };
        assert!(good.is_for_a_screen());
        assert!(Output { no_color: Some("".into()), ..good.clone() }.is_for_a_screen());
        let others = [
            Output { is_our_terminal: false, ..good.clone() },
            Output { size: (0, 0), ..good.clone() },
            Output { term: None, ..good.clone() },
            Output { term: Some("".into()), ..good.clone() },
            Output { term: Some("dumb".into()), ..good.clone() },
            Output { no_color: Some("1".into()), ..good },
        ];
        for other in others {
            assert!(!other.is_for_a_screen(), "{other:?}");
        }
    }
}
