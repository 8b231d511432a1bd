//! JSON of a simulated figure's record: indented, but with one line per measurement and per drawn
//! point. A record of five seeds would otherwise have some hundred thousand lines.

use std::io::{Result, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Depth below which values stay on one line: that of `results[].seeds[]` and `lines[].points[]`.
const INDENTED: usize = 4;

/// Renders a record.
///
/// # Errors
///
/// The value has no JSON form.
pub fn json(record: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    record.serialize(&mut Serializer::with_formatter(&mut bytes, Shallow::default()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Indents down to a depth of [`INDENTED`].
#[derive(Default)]
struct Shallow {
    depth: usize,
    has_value: bool,
}

impl Shallow {
    fn begin<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> Result<()> {
        self.depth += 1;
        self.has_value = false;
        writer.write_all(bracket)
    }

    fn end<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> Result<()> {
        let was_indented = self.depth <= INDENTED;
        self.depth -= 1;
        if was_indented && self.has_value {
            self.line(writer)?;
        }
        writer.write_all(bracket)
    }

    fn value<W: ?Sized + Write>(&mut self, writer: &mut W, is_first: bool) -> Result<()> {
        if self.depth <= INDENTED {
            writer.write_all(if is_first { b"" } else { b"," })?;
            self.line(writer)
        } else {
            writer.write_all(if is_first { b"" } else { b", " })
        }
    }

    fn line<W: ?Sized + Write>(&self, writer: &mut W) -> Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"  "))
    }
}

impl Formatter for Shallow {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        self.value(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> Result<()> {
        self.has_value = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        self.value(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> Result<()> {
        self.has_value = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[test]
    fn measurement_is_one_line_and_nothing_is_lost() {
        let record = json!({
            "seeds": [],
            "results": [
                { "x": 1, "seeds": [{ "seed": 1, "a": [1, {}] }, { "seed": 2, "a": [] }] },
            ],
            "lines": [{ "points": [{ "x": 1 }, { "x": 2 }] }],
        });
        let text = String::from_utf8(super::json(&record).expect("written")).expect("text");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("parsed"), record);
        assert!(text.contains("\n        {\"a\": [1, {}], \"seed\": 1},\n"), "{text}");
        assert!(text.contains("\n  \"seeds\": []") && text.ends_with("\n}\n"), "{text}");
        assert!(text.contains("{\"x\": 1},\n        {\"x\": 2}\n      ]"), "{text}");
    }
}
