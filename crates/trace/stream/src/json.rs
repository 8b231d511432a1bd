//! The two records that are JSON, written without a dependency: a plug-in has to link this. Whoever
//! reads them has a JSON parser of their own; keys that they do not know are to be skipped, keys
//! that are missing have the defaults given here.

use std::fmt::Write;

/// What ran, and how it was sampled.
#[derive(Clone, Debug, Default)]
pub struct Context<'a> {
    /// Who collected: `qemu-user`, `qemu-system` or `sim`.
    pub source: &'a str,
    /// The program and its arguments; bytes that are not UTF-8 are to be replaced before.
    pub program: &'a [String],
    /// One in so many sections is sampled, at random; 1 for all, 10 for the paper's 10 % (section
    /// 4.2).
    pub rate: u32,
    /// Processors of the machine or guest that ran it.
    pub processors: u32,
    /// Bytes of a page.
    pub page_size: u32,
    /// What the draws started from.
    pub seed: u64,
    /// Version of the collector.
    pub version: &'a str,
}

/// What was seen in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// Sections sampled and written.
    pub sections: u64,
    /// Sections seen, sampled or not.
    pub seen: u64,
    /// Records that could not be written, for want of memory or of space.
    pub lost: u64,
    /// The program's exit status, if known: as a shell has it, 128 and a signal's number included.
    pub exit_status: Option<i32>,
}

impl Context<'_> {
    /// The payload of a context record.
    pub fn json(&self) -> String {
        let mut out = String::from("{\"source\":");
        append_string(&mut out, self.source);
        out.push_str(",\"program\":[");
        for (index, argument) in self.program.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            append_string(&mut out, argument);
        }
        let Context { rate, processors, page_size, seed, .. } = self;
        let _ = write!(
            out,
            "],\"rate\":{rate},\"processors\":{processors},\"page_size\":{page_size},\"seed\":{seed},\"version\":"
        );
        append_string(&mut out, self.version);
        out.push('}');
        out
    }
}

impl End {
    /// The payload of an end record.
    pub fn json(&self) -> String {
        let End { sections, seen, lost, exit_status } = self;
        let mut out = format!("{{\"sections\":{sections},\"seen\":{seen},\"lost\":{lost}");
        if let Some(status) = exit_status {
            let _ = write!(out, ",\"exit_status\":{status}");
        }
        out.push('}');
        out
    }
}

/// Appends text to JSON, as a string.
pub fn append_string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if (control as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_is_json() {
        let program = ["a \"b\"\\".to_string(), "\n".to_string()];
        let context =
            Context { source: "sim", program: &program, rate: 10, seed: u64::MAX, version: "1", ..Context::default() };
        assert_eq!(
            context.json(),
            r#"{"source":"sim","program":["a \"b\"\\","\u000a"],"rate":10,"processors":0,"page_size":0,"seed":18446744073709551615,"version":"1"}"#
        );
    }

    #[test]
    fn end_is_json() {
        let end = End { sections: 1, seen: 10, lost: 0, exit_status: None };
        assert_eq!(end.json(), r#"{"sections":1,"seen":10,"lost":0}"#);
        assert_eq!(
            End { exit_status: Some(139), ..end }.json(),
            r#"{"sections":1,"seen":10,"lost":0,"exit_status":139}"#
        );
    }
}
