//! The table of `unconvoy stats`, as wide as the terminal.

use comfy_table::{CellAlignment, Table, TableStyle, presets};

use crate::paragraph::cut;

/// A lock's counts and its place.
pub type Row = ([String; 8], String);

/// Headings of the counts.
const COUNTS: [&str; 8] =
    ["lock", "kind", "taken", "contended", "waited", "longest", "held", "slept"];

/// Least room for the places in the table. With less, each has a line of its own.
const LEAST_PLACE: usize = 24;

/// The locks in a table of at most `columns`, if there is a limit.
pub fn render(rows: &[Row], columns: Option<usize>) -> String {
    let whole = boxed(rows, usize::MAX);
    let width = whole.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let Some(columns) = columns.filter(|&columns| columns < width) else { return whole };
    let longest = rows.iter().map(|(_, place)| place.chars().count()).max().unwrap_or(0);
    match longest.saturating_sub(width - columns) {
        room @ LEAST_PLACE.. => boxed(rows, room),
        _ => stacked(rows, columns),
    }
}

/// A table whose places have at most `room` columns.
fn boxed(rows: &[Row], room: usize) -> String {
    let header = [&COUNTS[..], &["where"]].concat();
    let mut table = Table::new();
    for (counts, place) in rows {
        table.add_row(counts.iter().cloned().chain([cut(place, room)]));
    }
    styled(table, header, presets::UTF8_FULL_CONDENSED)
}

/// Lines without boxes, and below each one the lock's place.
fn stacked(rows: &[Row], columns: usize) -> String {
    let mut table = Table::new();
    for (counts, _) in rows {
        table.add_row(counts);
    }
    let lines = styled(table, COUNTS.to_vec(), presets::NOTHING);
    let places = ["where"].into_iter().chain(rows.iter().map(|(_, place)| place.as_str()));
    let pairs = lines.lines().zip(places);
    let both = |(line, place): (&str, &str)| {
        format!("{}\n    {}\n", line.trim(), cut(place, columns.max(LEAST_PLACE) - 4))
    };
    pairs.map(both).collect()
}

fn styled(mut table: Table, header: Vec<&str>, style: TableStyle) -> String {
    table.load_style(style).set_header(header);
    for column in table.column_iter_mut().skip(2).take(6) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line of the box broke in two.
    #[test]
    fn table_keeps_within_the_terminal() {
        let place = "static lock in std::map<std::string, std::vector<int>>::find (map.h:12)";
        let counts = ["0x55632ed1e0a0", "mutex", "7628100", "1055 (0.0 %)", "14.4 s", "575 ms"];
        let counts: Vec<String> =
            counts.into_iter().chain(["477 ms", "1027"]).map(String::from).collect();
        let row = (counts.try_into().unwrap(), place.to_string());
        let widest = |columns| {
            let text = render(&[row.clone(), row.clone()], columns);
            assert!(text.contains("(map.h:12)") && text.contains("0x55632ed1e0a0"), "{text}");
            (text.lines().map(|line| line.chars().count()).max().unwrap(), text)
        };
        let (whole, text) = widest(None);
        assert!(whole > 140 && text.contains(place), "{text}");
        let (cut, text) = widest(Some(120));
        assert!(cut == 120 && text.contains("where"), "{text}");
        let (narrow, text) = widest(Some(80));
        assert!(narrow <= 80 && text.lines().count() == 6, "{text}");
    }
}
