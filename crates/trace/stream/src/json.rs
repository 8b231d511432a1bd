//! The two JSON records, written without a dependency because plug-ins link this crate. Readers
//! bring their own parser, which must skip unknown keys and give missing keys the defaults below.

use crate::sampling::Sampling;
use std::fmt::{self, Display, Write};

/// A JSON object under construction.
#[derive(Default)]
pub struct Json(String);

impl Json {
    /// Adds a key. The value is written as displayed: a number, or JSON.
    pub fn value(mut self, key: &str, value: impl Display) -> Self {
        let separator = if self.0.is_empty() { '{' } else { ',' };
        let _ = write!(self.0, "{separator}\"{key}\":{value}");
        self
    }

    /// Adds a key with a string value.
    pub fn text(self, key: &str, value: &str) -> Self {
        self.value(key, Quoted(value))
    }

    /// Adds a key with a list of strings.
    pub fn list(self, key: &str, values: impl IntoIterator<Item: AsRef<str>>) -> Self {
        let values: Vec<String> =
            values.into_iter().map(|value| Quoted(value.as_ref()).to_string()).collect();
        self.value(key, format_args!("[{}]", values.join(",")))
    }

    /// Closes the object, which must have at least one key.
    pub fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A quoted JSON string.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(to, "\\{character}")?,
                control if (control as u32) < 0x20 => write!(to, "\\u{:04x}", control as u32)?,
                other => to.write_char(other)?,
            }
        }
        to.write_char('"')
    }
}

/// What ran, and how it was sampled.
#[derive(Clone, Debug, Default)]
pub struct Context<'a> {
    /// The kind of collector: `qemu-user`, `qemu-system` or `sim`.
    pub source: &'a str,
    /// The program and its arguments. The caller replaces bytes that are not UTF-8.
    pub program: &'a [String],
    /// N: 1 section in N is sampled, at random. 1 samples all, 10 the paper's 10 % (section 4.2).
    pub rate: u32,
    /// How these sections are drawn.
    pub sampling: Sampling,
    /// Processors of the machine or guest that ran the program.
    pub processors: u32,
    /// Bytes of a page.
    pub page_size: u32,
    /// Seed of the random draws.
    pub seed: u64,
    /// Version of the collector.
    pub version: &'a str,
}

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// Sections sampled and written.
    pub sections: u64,
    /// Sections seen, sampled or not.
    pub seen: u64,
    /// Records that could not be written because memory or disk space ran out.
    pub lost: u64,
    /// The program's exit status, if known, as a shell reports it: 128 plus the number of a fatal
    /// signal.
    pub exit_status: Option<i32>,
}

impl Context<'_> {
    /// The payload of a context record.
    pub fn json(&self) -> String {
        let json = Json::default()
            .text("source", self.source)
            .list("program", self.program)
            .value("rate", self.rate)
            .text("sampling", self.sampling.name());
        let json = json.value("processors", self.processors).value("page_size", self.page_size);
        json.value("seed", self.seed).text("version", self.version).finish()
    }
}

impl End {
    /// The payload of an end record.
    pub fn json(&self) -> String {
        self.open_json().finish()
    }

    /// The payload without its closing brace, for collectors that add keys.
    pub fn open_json(&self) -> Json {
        let json = Json::default()
            .value("sections", self.sections)
            .value("seen", self.seen)
            .value("lost", self.lost);
        match self.exit_status {
            Some(status) => json.value("exit_status", status),
            None => json,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_with_special_characters_is_escaped_json() {
        let program = ["a \"b\"\\".to_string(), "\n".to_string()];
        let context = Context {
            source: "sim",
            program: &program,
            rate: 10,
            seed: u64::MAX,
            version: "1",
            ..Context::default()
        };
        assert_eq!(
            context.json(),
            concat!(
                r#"{"source":"sim","program":["a \"b\"\\","\u000a"],"rate":10,"#,
                r#""sampling":"bursts","processors":0,"page_size":0,"#,
                r#""seed":18446744073709551615,"version":"1"}"#
            )
        );
    }

    #[test]
    fn end_omits_unknown_exit_status() {
        let end = End { sections: 1, seen: 10, lost: 0, exit_status: None };
        assert_eq!(end.json(), r#"{"sections":1,"seen":10,"lost":0}"#);
        assert_eq!(
            End { exit_status: Some(139), ..end }.json(),
            r#"{"sections":1,"seen":10,"lost":0,"exit_status":139}"#
        );
    }
}
