//! Progress on standard error: a bar on a terminal, a few lines elsewhere.

use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Without a terminal, a line at the end of a round, but no more often than this.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Where a measurement stands, for whoever waits.
pub struct Progress {
    /// Hidden when standard error is no terminal.
    bar: ProgressBar,
    quiet: bool,
    started: Instant,
    last_line: Option<Instant>,
    total: u64,
}

impl Progress {
    /// Of `total` runs.
    pub fn new(total: u64, quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(total) };
        // No steady tick: its thread would run while the program is measured.
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30.cyan/dim} run {pos} of {len}, {elapsed} gone, {eta} to go  {msg}")
        {
            bar.set_style(style);
        }
        Self { bar, quiet, started: Instant::now(), last_line: None, total }
    }

    /// A run begins.
    pub fn begin(&self, what: &str) {
        self.bar.set_message(what.to_string());
    }

    /// A run has ended.
    pub fn end(&self) {
        self.bar.inc(1);
    }

    /// A round has ended.
    pub fn round(&mut self, done: u64) {
        let due = self.last_line.is_none_or(|last| last.elapsed() >= LINE_INTERVAL);
        if self.quiet || !self.bar.is_hidden() || !(due || done == self.total) {
            return;
        }
        self.last_line = Some(Instant::now());
        let elapsed = self.started.elapsed().as_secs_f64();
        let left = elapsed / done.max(1) as f64 * (self.total - done) as f64;
        say(&format!("run {done} of {}, {elapsed:.0} s gone, {left:.0} s to go", self.total));
    }

    /// A line that stays.
    pub fn note(&self, line: &str) {
        self.bar.suspend(|| say(line));
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Standard error may be closed, which is no reason to stop measuring.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "unconvoy: {line}");
}
