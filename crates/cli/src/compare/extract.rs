//! Extraction of numbers from a program's output.

use regex::Regex;
use unconvoy_measure::child::Output;

use crate::messages::compare as messages;

/// Expressions for the numbers that a program prints.
#[derive(Debug)]
pub struct Printed {
    pub metric: Option<Regex>,
    /// Number of operations.
    pub operations: Option<Regex>,
    /// Jain's fairness index.
    pub fairness: Option<Regex>,
}

impl Printed {
    /// Returns one run's metric, operations and fairness. A number without an expression is `None`.
    ///
    /// # Errors
    ///
    /// As [`number`], with the option's name; or a number out of range.
    pub fn values(&self, output: &Output) -> Result<[Option<f64>; 3], String> {
        let read = |option: &str, regex: &Option<Regex>| {
            let Some(regex) = regex else { return Ok(None) };
            number(regex, output).map(Some).map_err(|why| format!("{option}: {why}"))
        };
        let operations = read("--ops", &self.operations)?;
        if let Some(count) = operations.filter(|count| *count <= 0.0) {
            return Err(messages::count_not_positive(count));
        }
        let fairness = read("--fairness", &self.fairness)?;
        if let Some(index) = fairness.filter(|index| !(0.0..=1.0).contains(index)) {
            return Err(messages::fairness_out_of_range(index));
        }
        Ok([read("--metric", &self.metric)?, operations, fairness])
    }
}

/// Returns the number that `regex` captures in its last match on standard output, else on standard
/// error. The last match counts because programs print progress first and the result last.
///
/// # Errors
///
/// No match, or the captured text is not a finite number.
pub fn number(regex: &Regex, output: &Output) -> Result<f64, String> {
    let captured = [&output.stdout, &output.stderr].into_iter().find_map(|stream| {
        let text = String::from_utf8_lossy(stream);
        // A group that does not take part in a match, as in `a|(b)`, captures nothing.
        let last = regex.captures_iter(&text).filter_map(|captures| captures.get(1)).last();
        last.map(|group| group.as_str().to_string())
    });
    let Some(text) = captured else {
        return Err(messages::no_match(regex));
    };
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(messages::not_a_number(regex, &text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extract(regex: &str, stdout: &str, stderr: &str) -> Result<f64, String> {
        let output = Output { stdout: stdout.into(), stderr: stderr.into(), tail: Vec::new() };
        number(&Regex::new(regex).unwrap(), &output)
    }

    #[test]
    fn number_takes_last_match_on_stdout() {
        assert_eq!(extract("ops ([0-9.]+)", "ops 1\nops 2.5\n", "ops 9\n"), Ok(2.5));
        assert_eq!(extract("ops ([0-9.e+]+)", "nothing\n", "ops 1.5e+3\n"), Ok(1500.0));
    }

    #[test]
    fn number_without_match_names_cause() {
        assert!(extract("ops ([0-9]+)", "op 1", "").unwrap_err().contains("matches 'ops"));
        assert!(extract("ops ([a-z]+)", "ops many", "").unwrap_err().contains("'many'"));
        assert!(extract("ops ([a-z]+)", "ops inf", "").is_err());
    }
}
