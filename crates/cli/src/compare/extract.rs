//! Numbers out of what a program printed.

use regex::Regex;
use unconvoy_measure::child::Output;

/// Where a program prints numbers of its own.
#[derive(Debug)]
pub struct Printed {
    /// What is compared.
    pub metric: Option<Regex>,
    /// How many operations it did.
    pub operations: Option<Regex>,
    /// Jain's fairness index.
    pub fairness: Option<Regex>,
}

impl Printed {
    /// The numbers of one run, as far as they were asked for: metric, operations, fairness.
    ///
    /// # Errors
    ///
    /// As [`number`], naming the option; or a number that cannot be what it is said to be.
    pub fn values(&self, output: &Output) -> Result<[Option<f64>; 3], String> {
        let read = |option: &str, regex: &Option<Regex>| {
            let Some(regex) = regex else { return Ok(None) };
            number(regex, output).map(Some).map_err(|why| format!("{option}: {why}"))
        };
        let operations = read("--ops", &self.operations)?;
        if let Some(count) = operations.filter(|count| *count <= 0.0) {
            return Err(format!("--ops: {count} operations, which is no count to divide by"));
        }
        let fairness = read("--fairness", &self.fairness)?;
        if let Some(index) = fairness.filter(|index| !(0.0..=1.0).contains(index)) {
            return Err(format!("--fairness: {index} is no fairness index, which is from 0 to 1"));
        }
        Ok([read("--metric", &self.metric)?, operations, fairness])
    }
}

/// The number that `regex` captures, in its last match on standard output, else on standard
/// error: programs print progress first and the result last.
///
/// # Errors
///
/// Nothing matches, or what is captured is no finite number.
fn number(regex: &Regex, output: &Output) -> Result<f64, String> {
    let captured = [&output.stdout, &output.stderr].into_iter().find_map(|stream| {
        let text = String::from_utf8_lossy(stream);
        // A group that takes no part in a match, as in `a|(b)`, captures nothing.
        let last = regex.captures_iter(&text).filter_map(|captures| captures.get(1)).last();
        last.map(|group| group.as_str().to_string())
    });
    let Some(text) = captured else {
        return Err(format!("no line of its output matches '{regex}'"));
    };
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(format!("'{regex}' captures '{text}', which is not a number")),
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
    fn the_last_match_on_stdout_wins() {
        assert_eq!(extract("ops ([0-9.]+)", "ops 1\nops 2.5\n", "ops 9\n"), Ok(2.5));
        assert_eq!(extract("ops ([0-9.e+]+)", "nothing\n", "ops 1.5e+3\n"), Ok(1500.0));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(extract("ops ([0-9]+)", "op 1", "").unwrap_err().contains("matches 'ops"));
        assert!(extract("ops ([a-z]+)", "ops many", "").unwrap_err().contains("'many'"));
        assert!(extract("ops ([a-z]+)", "ops inf", "").is_err());
    }
}
