//! Output of `--monitor`: a live screen where possible, plain lines otherwise.

use std::ffi::{OsStr, OsString};
use std::io::Write;

use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

use crate::report::Report;
use crate::screen::Screen;

/// Number of tasks named in plain lines.
const NAMED: usize = 10;

#[derive(Debug)]
pub enum Monitor {
    /// Plain lines on standard output. Rates are relative to the last report, kept here.
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
                print(&report.lines(last))?;
                **last = report;
                Ok(())
            }
            Monitor::Screen(screen) => Ok(screen.show(report)?),
        }
    }
}

/// Prints to standard output. A closed pipe does not end the scheduler.
fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error)?,
        _ => Ok(()),
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
