//! The runs of a record as CSV: one line each, with the union of the runs' columns.
//!
//! JSON objects are spread over columns, so that `cell` and `measured` become plain values. A list
//! of numbers is one field, separated by spaces. Runs with richer contents, such as time series,
//! do not fit in lines, and their benchmark writes its own CSV.

use serde_json::Value;

use crate::failure::Failure;

/// Columns and values, in order.
type Line = Vec<(String, String)>;

/// Renders a header and one line per run, failed runs last with their cause; `None` if the runs do
/// not fit in lines.
///
/// # Errors
///
/// The CSV writer failed.
pub fn csv_of_runs(runs: &[Value], failures: &[Failure]) -> anyhow::Result<Option<Vec<u8>>> {
    let mut lines = Vec::new();
    for run in runs {
        let Some(line) = line(run) else { return Ok(None) };
        lines.push(line);
    }
    for failure in failures {
        let what = if failure.is_violation { "violation" } else { "failure" };
        let run =
            serde_json::json!({ "cell": failure.cell, "round": failure.round, what: failure.why });
        lines.extend(line(&run));
    }
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in lines.iter().flatten() {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&columns)?;
    for line in &lines {
        let field = |column: &&str| {
            line.iter().find(|(name, _)| name == column).map_or("", |(_, value)| value)
        };
        writer.write_record(columns.iter().map(field))?;
    }
    Ok(Some(writer.into_inner()?))
}

fn line(run: &Value) -> Option<Line> {
    let mut line = Line::new();
    for part in ["round", "resumed", "transfer_ns", "cell", "failure", "violation", "measured"] {
        if let Some(value) = run.get(part) {
            // Members of objects keep their own names, unless those collide.
            let prefix = if value.is_object() { "" } else { part };
            let mut fields = Line::new();
            spread(prefix, value, &mut fields)?;
            for (name, value) in fields {
                let is_taken = line.iter().any(|(taken, _)| *taken == name);
                line.push((if is_taken { format!("{part}.{name}") } else { name }, value));
            }
        }
    }
    Some(line)
}

fn spread(name: &str, value: &Value, line: &mut Line) -> Option<()> {
    let text = match value {
        Value::Object(members) => {
            for (member, value) in members {
                let name =
                    if name.is_empty() { member.clone() } else { format!("{name}.{member}") };
                spread(&name, value, line)?;
            }
            return Some(());
        }
        // An empty list may be a time series without events.
        Value::Array(values) if values.is_empty() => return None,
        Value::Array(values) => {
            let numbers: Option<Vec<String>> =
                values.iter().map(|value| value.is_number().then(|| value.to_string())).collect();
            numbers?.join(" ")
        }
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    };
    line.push((name.to_string(), text));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(runs: &[Value], failures: &[Failure]) -> Option<String> {
        csv_of_runs(runs, failures)
            .expect("written")
            .map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    #[test]
    fn csv_has_one_line_per_run() {
        let runs = [
            json!({
                "cell": { "lock": "a,b", "threads": 2 }, "round": 1, "measured": { "ops": 1.5 },
            }),
            json!({
                "cell": { "lock": "c", "threads": 2 }, "round": 1,
                "measured": { "ops": 2.0, "threads": 3 },
            }),
        ];
        let failure = Failure {
            cell: json!({ "lock": "d" }),
            round: 2,
            why: "full".into(),
            is_violation: false,
        };
        assert_eq!(
            text(&runs, &[failure]).expect("the runs fit"),
            "round,lock,threads,ops,measured.threads,failure\n1,\"a,b\",2,1.5,,\n1,c,2,2.0,3,\n\
             2,d,,,,full\n"
        );
    }

    #[test]
    fn csv_holds_lists_of_numbers_but_not_series() {
        let list = json!({ "cell": "x", "round": 1, "measured": [1, 2.5] });
        assert_eq!(text(&[list], &[]).expect("the list fits"), "round,cell,measured\n1,x,1 2.5\n");
        let series = json!({ "cell": "x", "round": 1, "measured": { "points": [{ "ns": 1 }] } });
        assert!(text(&[series], &[]).is_none());
    }
}
