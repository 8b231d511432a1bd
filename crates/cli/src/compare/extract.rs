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
/// No match, or the captured text is not a finite number, or only the beginning of one.
pub fn number(regex: &Regex, output: &Output) -> Result<f64, String> {
    let captured = [&output.stdout, &output.stderr].into_iter().find_map(|stream| {
        let text = String::from_utf8_lossy(stream);
        // A group that does not take part in a match, as in `a|(b)`, captures nothing.
        let groups =
            regex.captures_iter(&text).filter_map(|it| Some((it.get(1)?, it.get(0)?.end())));
        let (group, end) = groups.last()?;
        // A match that ends later names what follows the number.
        let rest = if group.end() == end { rest_of_number(&text[end..]) } else { "" };
        Some((group.as_str().to_string(), rest.to_string()))
    });
    let Some((text, rest)) = captured else {
        return Err(messages::no_match(regex));
    };
    if !rest.is_empty() {
        return Err(messages::number_goes_on(regex, &text, &rest));
    }
    match text.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value),
        _ => Err(messages::not_a_number(regex, &text)),
    }
}

/// The beginning of `text`, if it continues a number: more digits, an exponent, or a group of
/// thousands.
fn rest_of_number(text: &str) -> &str {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let length = match text.as_bytes() {
        [b'e' | b'E', b'+' | b'-', ..] if digits(2) > 0 => 2 + digits(2),
        [b'e' | b'E' | b'.', ..] if digits(1) > 0 => 1 + digits(1),
        [b',' | b'_' | b'\'', ..] if digits(1) == 3 => 4,
        _ => digits(0),
    };
    &text[..length]
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
    fn beginning_of_a_number_is_none() {
        for printed in ["ops 1.02e+06\n", "ops 1.02E6", "ops 1.5.1", "ops 1,020,000", "ops 1_020"] {
            let why = extract("ops ([0-9.]{1,3}|[0-9.]+)", printed, "").unwrap_err();
            assert!(why.contains("only the beginning"), "{printed}: {why}");
        }
        for (regex, printed) in [
            ("ops ([0-9]+)", "ops 12, ops/s"),
            ("ops ([0-9]+)", "ops 12."),
            ("ops ([0-9]+)", "ops 12e"),
        ] {
            assert_eq!(extract(regex, printed, ""), Ok(12.0), "{printed}");
        }
        assert_eq!(extract("ops ([0-9]+)[.][0-9]+", "ops 12.5", ""), Ok(12.0), "as asked");
    }

    #[test]
    fn number_without_match_names_cause() {
        assert!(extract("ops ([0-9]+)", "op 1", "").unwrap_err().contains("matches 'ops"));
        assert!(extract("ops ([a-z]+)", "ops many", "").unwrap_err().contains("'many'"));
        assert!(extract("ops ([a-z]+)", "ops inf", "").is_err());
    }
}
