//! The stream's last record: the stream's own keys, and what only one collector knows.

use std::fmt::Write as _;
use std::sync::Mutex;
use unconvoy_trace_stream::{End, append_string};

/// The most notes that are kept.
const NOTES: usize = 32;

/// What could not be seen, in words, for whoever reads the report.
#[derive(Default)]
pub struct Notes(Mutex<Vec<String>>);

impl Notes {
    /// No notes yet.
    pub const fn new() -> Self {
        Notes(Mutex::new(Vec::new()))
    }

    /// Remembers one, once, unless there are too many.
    pub fn add(&self, what: String) {
        let mut notes = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if notes.len() < NOTES && !notes.contains(&what) {
            notes.push(what);
        }
    }

    /// Those so far.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

/// The JSON of an end record, while keys are added.
pub struct EndJson(String);

impl EndJson {
    /// With the stream's own keys.
    pub fn new(end: End) -> Self {
        let mut json = end.json();
        json.pop();
        EndJson(json)
    }

    /// A key whose value is a number.
    pub fn number(mut self, key: &str, value: u64) -> Self {
        let _ = write!(self.0, ",\"{key}\":{value}");
        self
    }

    /// A key whose value is an object of numbers.
    pub fn numbers(mut self, key: &str, values: &[(&str, u64)]) -> Self {
        let _ = write!(self.0, ",\"{key}\":{{");
        for (index, (name, value)) in values.iter().enumerate() {
            let separator = if index > 0 { "," } else { "" };
            let _ = write!(self.0, "{separator}\"{name}\":{value}");
        }
        self.0.push('}');
        self
    }

    /// A key whose value is a list of strings.
    pub fn list(mut self, key: &str, values: impl IntoIterator<Item = String>) -> Self {
        let json = &mut self.0;
        let _ = write!(json, ",\"{key}\":[");
        for (index, value) in values.into_iter().enumerate() {
            if index > 0 {
                json.push(',');
            }
            append_string(json, &value);
        }
        json.push(']');
        self
    }

    /// The payload.
    pub fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
