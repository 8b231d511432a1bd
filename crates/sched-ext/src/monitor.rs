//! What `--monitor` shows goes to a screen, where there is one, and into plain lines otherwise.

use std::ffi::{OsStr, OsString};
use std::io::Write;

use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

use crate::report::Report;
use crate::screen::Screen;

/// So many tasks are named in plain lines.
const NAMED: usize = 10;

/// Where reports are shown.
#[derive(Debug)]
pub enum Monitor {
    /// In lines on standard output. These say what happened since the last report.
    Lines(Box<Report>),
    /// On the terminal's screen.
    Screen(Screen),
}

impl Monitor {
    /// Finds out where.
    pub fn open() -> Self {
        match Output::this().is_for_a_screen().then(Screen::open) {
            Some(Ok(screen)) => Monitor::Screen(screen),
            _ => Monitor::Lines(Box::default()),
        }
    }

    /// How many tasks can be seen.
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
    /// It cannot be written.
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

/// A reader that has gone away is no reason to stop scheduling.
fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error)?,
        _ => Ok(()),
    }
}

/// What is known of standard output.
#[derive(Debug, Clone)]
struct Output {
    /// Whether it is the terminal that this process works at; in the background, a process is stopped when it changes the terminal.
    is_our_terminal: bool,
    /// Its lines and columns. A serial line does not know.
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
    fn a_screen_is_for_terminals_that_can_show_one() {
        let good =
            Output { is_our_terminal: true, size: (24, 80), term: Some("xterm-256color".into()), no_color: None };
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
