//! Progress on standard error: a bar on a terminal, a few lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::complain;

/// Without a terminal, a line at the end of a round, but no more often than this.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Where a measurement stands, for whoever waits.
pub struct Progress {
    /// Hidden when standard error is no terminal.
    bar: ProgressBar,
    quiet: bool,
    started: Instant,
    last_line: Option<Instant>,
    /// What is counted.
    what: &'static str,
    total: u64,
}

impl Progress {
    /// Of `total` runs.
    pub fn new(total: u64, quiet: bool) -> Self {
        Self::of("run", total, quiet)
    }

    /// Of `total` of what `what` names.
    pub fn of(what: &'static str, total: u64, quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(total) };
        // No steady tick: its thread would run while the program is measured.
        let template =
            format!("{{bar:30.cyan/dim}} {what} {{pos}} of {{len}}, {{elapsed}} gone, {{eta}} to go  {{msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self { bar, quiet, started: Instant::now(), last_line: None, what, total }
    }

    /// A run begins.
    pub fn begin(&self, what: &str) {
        self.bar.set_message(what.to_string());
    }

    /// A run has ended.
    pub fn end(&self) {
        self.bar.inc(1);
    }

    /// So much is done, whatever order it is done in.
    pub fn at(&self, done: u64) {
        self.bar.set_position(self.bar.position().max(done));
        self.bar.tick();
    }

    /// A round has ended: without a terminal, a line after the first, after the last and now and
    /// then.
    pub fn round(&mut self, done: u64) {
        if self.last_line.is_none() || done == self.total {
            self.line(done);
        } else {
            self.now_and_then(done);
        }
    }

    /// Without a terminal, a line if the last one is some time ago.
    pub fn now_and_then(&mut self, done: u64) {
        if self.last_line.unwrap_or(self.started).elapsed() >= LINE_INTERVAL {
            self.line(done);
        }
    }

    fn line(&mut self, done: u64) {
        if self.quiet || !self.bar.is_hidden() {
            return;
        }
        self.last_line = Some(Instant::now());
        let elapsed = self.started.elapsed().as_secs_f64();
        let left = elapsed / done.max(1) as f64 * (self.total - done) as f64;
        let Self { what, total, .. } = self;
        complain(&format!("{what} {done} of {total}, {elapsed:.0} s gone, {left:.0} s to go"));
    }

    /// A line that stays.
    pub fn note(&self, line: &str) {
        self.bar.suspend(|| complain(line));
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
