//! The report as JSON, CSV and folded stacks, for other programs.

use serde_json::{Value, json};

use super::report::Report;
use super::rows::{Place, Row, StackSum};

/// The report as JSON.
///
/// # Errors
///
/// None in practice: all keys of the report's maps are strings.
pub fn json(report: &Report) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(report)?;
    for (key, rows) in [("locks", &report.locks), ("classes", &report.classes)] {
        let Some(values) = value[key].as_array_mut() else { continue };
        for (value, row) in values.iter_mut().zip(rows) {
            value["wait"]["histogram"] = histogram(&row.wait_histogram());
            value["hold"]["histogram"] = histogram(&row.hold_histogram());
        }
    }
    Ok(format!("{value:#}\n"))
}

/// Pairs of a bucket's upper bound in nanoseconds and its count.
fn histogram(bounds: &[(u64, u64)]) -> Value {
    json!(bounds)
}

/// The single locks as CSV, one line each.
///
/// # Errors
///
/// None in practice: the text grows in memory.
pub fn csv(report: &Report) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "name",
        "kind",
        "address",
        "waits",
        "waited_ns",
        "longest_ns",
        "wait_p50_ns",
        "wait_p99_ns",
        "hold_p50_ns",
        "hold_p99_ns",
        "holds",
        "timed_out",
        "slept",
        "read_waits",
        "read_waited_ns",
        "acquisitions",
        "waiter",
        "holder",
    ])?;
    for row in &report.locks {
        writer.write_record(cells(row))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// Keeps spreadsheets from evaluating a name of the program as a formula.
fn inert(name: &str) -> String {
    let mark = if name.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("{mark}{name}")
}

fn cells(row: &Row) -> Vec<String> {
    let optional = |ns: Option<u64>| ns.map(|ns| ns.to_string()).unwrap_or_default();
    let first =
        |places: &[Place]| places.first().map(|place| inert(&place.place)).unwrap_or_default();
    vec![
        inert(&row.name),
        row.kind.to_string(),
        row.address.clone().unwrap_or_default(),
        row.waits.to_string(),
        row.waited_ns.to_string(),
        row.longest_ns.to_string(),
        optional(row.wait.p50_ns),
        optional(row.wait.p99_ns),
        optional(row.hold.p50_ns),
        optional(row.hold.p99_ns),
        row.holds.to_string(),
        row.timed_out.to_string(),
        row.slept.to_string(),
        row.read_waits.to_string(),
        row.read_waited_ns.to_string(),
        row.acquisitions.to_string(),
        first(&row.waiters),
        first(&row.holders),
    ]
}

/// Folded stacks, the input of flame graphs (Gregg, FlameGraph). A line has the functions,
/// outermost first, and the lock, separated by semicolons; then the microseconds waited.
pub fn folded(stacks: &[StackSum]) -> String {
    let lines = stacks.iter().filter(|stack| stack.ns >= 500).map(|stack| {
        let frames = stack.frames.iter().chain([&stack.lock]);
        let frames: Vec<String> = frames.map(|frame| frame.replace(';', ",")).collect();
        format!("{} {}\n", frames.join(";"), (stack.ns + 500) / 1000)
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_csv_are_no_formulas() {
        for name in ["=cmd()", "+1", "-1", "@sum(a)", "\t=1", "\r=1"] {
            assert_eq!(inert(name), format!("'{name}"));
        }
        assert_eq!(inert("Cache::mutex_"), "Cache::mutex_");
    }

    #[test]
    fn folded_has_one_line_per_stack() {
        let stack = |frames: &[&str], ns| StackSum {
            frames: frames.iter().map(ToString::to_string).collect(),
            lock: "lock".into(),
            ns,
            waits: 1.0,
        };
        let stacks = [stack(&["main", "f;g"], 1_500_000), stack(&["too short"], 100)];
        assert_eq!(folded(&stacks), "main;f,g;lock 1500\n");
    }
}
