//! Progress on standard error: one changing line on a terminal, now and then a line elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Without a terminal, no more often than this.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Where a benchmark stands.
pub struct Progress {
    total: usize,
    done: usize,
    started: Instant,
    last_line: Option<Instant>,
    terminal: bool,
}

impl Progress {
    /// Of `total` runs.
    pub fn new(total: usize) -> Self {
        Self { total, done: 0, started: Instant::now(), last_line: None, terminal: std::io::stderr().is_terminal() }
    }

    /// A run begins.
    pub fn begin(&mut self, what: &str) {
        self.done += 1;
        let due = self.last_line.is_none_or(|last| last.elapsed() >= LINE_INTERVAL);
        if !self.terminal && !due {
            return;
        }
        self.last_line = Some(Instant::now());
        let line = format!("run {} of {}, {} s gone: {what}", self.done, self.total, self.started.elapsed().as_secs());
        // Standard error may be closed; the measurement goes on.
        let _ = if self.terminal {
            write!(std::io::stderr(), "\r\x1b[K{line}")
        } else {
            writeln!(std::io::stderr(), "{line}")
        };
    }

    /// All runs have ended.
    pub fn end(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
