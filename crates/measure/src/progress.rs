//! Progress on standard error: a bar on a terminal, occasional lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::complain;

/// Shortest interval between two progress lines. Lines are printed only if there is no
/// terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Progress of a measurement.
pub struct Progress {
    /// Hidden if standard error is not a terminal.
    bar: ProgressBar,
    quiet: bool,
    started: Instant,
    last_line: Option<Instant>,
    /// Noun for the counted items; `None` for seconds of a budget.
    what: Option<&'static str>,
    total: u64,
}

impl Progress {
    /// Creates the progress of `total` runs.
    pub fn new(total: u64, quiet: bool) -> Self {
        Self::of("run", total, quiet)
    }

    /// Creates the progress of `total` items, named by `what`.
    pub fn of(what: &'static str, total: u64, quiet: bool) -> Self {
        let counts = format!("{what} {{pos}} of {{len}}, {{elapsed}} elapsed, {{eta}} left");
        Self::with(Some(what), &counts, total, quiet)
    }

    /// Creates the progress of a measurement that takes at most `budget` seconds.
    pub fn within(budget: u64, quiet: bool) -> Self {
        Self::with(None, "{pos} s of at most {len} s", budget, quiet)
    }

    fn with(what: Option<&'static str>, counts: &str, total: u64, quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(total) };
        // No steady tick, because its thread would run during the measurement.
        let template = format!("{{bar:30.cyan/dim}} {counts}  {{msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self { bar, quiet, started: Instant::now(), last_line: None, what, total }
    }

    /// Shows the run that begins.
    pub fn begin(&self, what: &str) {
        self.bar.set_message(what.to_string());
    }

    /// Counts a finished run.
    pub fn end(&self) {
        self.bar.inc(1);
    }

    /// Advances to `done` items, but never back: items may finish in any order.
    pub fn at(&self, done: u64) {
        self.bar.set_position(self.bar.position().max(done));
        self.bar.tick();
    }

    /// Ends a round. Without a terminal, prints a line after the first and the last round, and at
    /// most every [`LINE_INTERVAL`] in between.
    pub fn round(&mut self, done: u64) {
        if self.last_line.is_none() || done == self.total {
            self.line(done);
        } else {
            self.now_and_then(done);
        }
    }

    /// Without a terminal, prints a line if the last one is [`LINE_INTERVAL`] old.
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
        let total = self.total;
        let Some(what) = self.what else {
            let left = total.saturating_sub(done);
            return complain(&format!("{done} s elapsed, at most {left} s left"));
        };
        let elapsed = self.started.elapsed().as_secs_f64();
        let left = elapsed / done.max(1) as f64 * (total - done) as f64;
        complain(&format!("{what} {done} of {total}, {elapsed:.0} s elapsed, {left:.0} s left"));
    }

    /// Prints a permanent line.
    pub fn note(&self, line: &str) {
        self.bar.suspend(|| complain(line));
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_beyond_the_budget_is_no_error() {
        let mut progress = Progress::within(6, false);
        progress.line(9);
        progress.at(9);
        assert_eq!(progress.bar.position(), 9);
    }
}
