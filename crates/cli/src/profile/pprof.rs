//! The report in the format of pprof (github.com/google/pprof, `profile.proto`). As in Go's mutex
//! profiles, the values are contentions and delay, here by the waiters' stacks and with the lock as
//! a label.

use std::collections::HashMap;

use prost::Message;

use super::report::Report;
use super::rows::StackSum;

/// `perftools.profiles.Profile`, with the fields that are used here.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

/// `ValueType`: two indices into the table of strings.
#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

/// `Sample`: locations, innermost first, and one value for each type.
#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

/// `Label`: two indices into the table of strings.
#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// A profile under construction. Strings, functions and locations are numbered in the order in
/// which they appear.
struct Builder {
    profile: Profile,
    texts: HashMap<String, i64>,
    functions: HashMap<(String, String), u64>,
    locations: HashMap<String, u64>,
}

/// Encodes the waits by the waiters' stacks. All samples have the labels.
pub fn encode(report: &Report, labels: &[(&str, String)]) -> Vec<u8> {
    let mut builder = Builder {
        profile: Profile::default(),
        texts: HashMap::new(),
        functions: HashMap::new(),
        locations: HashMap::new(),
    };
    builder.text(""); // the format requires that the first string is empty
    let types = [("contentions", "count"), ("delay", "nanoseconds")];
    let types = types.map(|(name, unit)| builder.value_type(name, unit));
    builder.profile.sample_type = types.to_vec();
    builder.profile.period_type = Some(types[1]);
    builder.profile.period = report.period_ns.cast_signed();
    builder.profile.default_sample_type = types[1].r#type;
    builder.profile.time_nanos = report.begin_unix_ns.cast_signed();
    builder.profile.duration_nanos = (report.seconds * 1e9) as i64;
    let labels: Vec<Label> = labels.iter().map(|(key, value)| builder.label(key, value)).collect();
    for stack in &report.waiter_stacks {
        let mut sample = builder.sample(stack);
        sample.label.extend(&labels);
        builder.profile.sample.push(sample);
    }
    builder.profile.encode_to_vec()
}

impl Builder {
    fn text(&mut self, text: &str) -> i64 {
        let next = self.texts.len() as i64;
        let table = &mut self.profile.string_table;
        *self.texts.entry(text.to_string()).or_insert_with(|| {
            table.push(text.to_string());
            next
        })
    }

    fn value_type(&mut self, name: &str, unit: &str) -> ValueType {
        ValueType { r#type: self.text(name), unit: self.text(unit) }
    }

    fn label(&mut self, key: &str, value: &str) -> Label {
        Label { key: self.text(key), str: self.text(value) }
    }

    fn sample(&mut self, stack: &StackSum) -> Sample {
        let label = self.label("lock", &stack.lock);
        Sample {
            location_id: stack.frames.iter().rev().map(|frame| self.location(frame)).collect(),
            value: vec![stack.waits.round() as i64, stack.ns.cast_signed()],
            label: vec![label],
        }
    }

    fn location(&mut self, frame: &str) -> u64 {
        if let Some(&known) = self.locations.get(frame) {
            return known;
        }
        let (function, file, line) = parts(frame);
        let line = Line { function_id: self.function(function, file), line };
        let id = self.locations.len() as u64 + 1;
        self.profile.location.push(Location { id, line: vec![line] });
        self.locations.insert(frame.to_string(), id);
        id
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let key = (name.to_string(), file.to_string());
        if let Some(&known) = self.functions.get(&key) {
            return known;
        }
        let id = self.functions.len() as u64 + 1;
        let (name, filename) = (self.text(name), self.text(file));
        self.profile.function.push(Function { id, name, system_name: name, filename });
        self.functions.insert(key, id);
        id
    }
}

/// Splits a frame's name, `function (file:line)` or a function alone, into function, file and line.
fn parts(frame: &str) -> (&str, &str, i64) {
    let with_line = || {
        let (function, place) = frame.strip_suffix(')')?.rsplit_once(" (")?;
        let (file, line) = place.rsplit_once(':')?;
        Some((function, file, line.parse().ok()?))
    };
    with_line().unwrap_or((frame, "", 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_splits_names_with_lines() {
        assert_eq!(parts("take (queue.c:41)"), ("take", "queue.c", 41));
        assert_eq!(parts("f in libc.so.6"), ("f in libc.so.6", "", 0));
        assert_eq!(parts("operator() (x)"), ("operator() (x)", "", 0));
    }
}
