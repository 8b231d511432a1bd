//! Output of `--monitor`: a live screen where possible, plain lines otherwise.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;

use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

use crate::lines::Lines;
use crate::report::Report;
use crate::screen::Screen;

/// Number of tasks named in plain lines.
const NAMED: usize = 10;

/// Output from a thread of its own: a blocked write here would stop the policy, and no signal but
/// SIGKILL would end it.
#[derive(Debug)]
pub enum Monitor {
    /// Plain lines on standard output.
    Lines(Lines),
    Screen(Screen),
}

impl Monitor {
    /// Opens a live screen, or falls back to lines.
    ///
    /// # Errors
    ///
    /// No descriptor is free, or the thread cannot be created.
    pub fn open() -> io::Result<Self> {
        if let Some(Ok(screen)) = Output::this().is_for_a_screen().then(Screen::open) {
            return Ok(Monitor::Screen(screen));
        }
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Monitor::Lines(Lines::open(output.into())?))
    }

    pub fn room(&self) -> usize {
        match self {
            Monitor::Lines(_) => NAMED,
            Monitor::Screen(screen) => screen.lines(),
        }
    }

    /// Shows a report.
    ///
    /// # Errors
    ///
    /// The thread has ended, because a write failed.
    pub fn show(&mut self, report: Report) -> io::Result<()> {
        match self {
            Monitor::Lines(lines) => lines.show(report),
            Monitor::Screen(screen) => screen.show(report),
        }
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
        let stdout = io::stdout();
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
    use super::*;

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
