//! A failed run: which one, why, and the end of its output.

use std::fmt;

use unconvoy_measure::child::Output;

/// Number of lines of a failed run's output that are shown.
const SHOWN_LINES: usize = 15;

/// A failed run, which ends the comparison.
#[derive(Debug)]
pub struct Failure {
    /// Configuration, threads and round.
    pub which: String,
    /// What went wrong.
    pub why: String,
    /// Last lines of the output.
    lines: Vec<String>,
}

impl Failure {
    /// Describes the failure of run `which` and keeps the last lines of its output.
    pub fn new(which: String, why: String, output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.tail);
        let all: Vec<&str> = text.lines().collect();
        let lines = all[all.len().saturating_sub(SHOWN_LINES)..].iter().map(ToString::to_string);
        Self { which, why, lines: lines.collect() }
    }

    /// Returns the failure in one line, for the record.
    pub fn brief(&self) -> String {
        format!("{}: {}", self.which, self.why)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run failed: {}", self.brief())?;
        if self.lines.is_empty() {
            return write!(f, "\nit printed nothing");
        }
        write!(f, "\nits last lines:")?;
        self.lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_shows_last_lines() {
        let tail: String = (1..=20).map(|number| format!("line {number}\n")).collect();
        let output = Output { tail: tail.into_bytes(), ..Output::default() };
        let text =
            Failure::new("default, 8 threads, round 2".into(), "why".into(), &output).to_string();
        assert!(text.contains("default, 8 threads, round 2: why"));
        assert!(
            text.contains("line 6\n") && text.ends_with("line 20") && !text.contains("line 5\n")
        );
        let silent = Failure::new("libc".into(), "why".into(), &Output::default());
        assert!(silent.to_string().ends_with("printed nothing"));
    }
}
