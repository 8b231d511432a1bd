//! Tables for readers: Markdown, on the terminal too.

use comfy_table::Table as Grid;
use serde::{Deserialize, Serialize};

/// A table with a heading.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Table {
    /// Heading, with the unit.
    pub title: String,
    /// Column names.
    pub header: Vec<String>,
    /// Rows, with one field per column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table without rows.
    pub fn new<H: Into<String>>(
        title: impl Into<String>,
        header: impl IntoIterator<Item = H>,
    ) -> Self {
        Self {
            title: title.into(),
            header: header.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Creates a table without rows, with numbers such as thread counts as column names.
    pub fn across<N: ToString>(title: impl Into<String>, before: &[&str], numbers: &[N]) -> Self {
        Self::new(
            title,
            before.iter().map(ToString::to_string).chain(numbers.iter().map(ToString::to_string)),
        )
    }

    /// Adds a row that starts with a name.
    pub fn line(&mut self, name: &str, fields: impl IntoIterator<Item = String>) {
        self.row(std::iter::once(name.to_string()).chain(fields));
    }

    /// Adds a row.
    pub fn row<F: Into<String>>(&mut self, fields: impl IntoIterator<Item = F>) {
        self.rows.push(fields.into_iter().map(Into::into).collect());
    }

    /// Renders heading and table as Markdown.
    pub fn markdown(&self) -> String {
        format!("{}\n\n{}\n", self.title, self.grid())
    }

    /// Renders only the table as Markdown, without a final newline.
    pub fn grid(&self) -> String {
        let mut grid = Grid::new();
        grid.load_style(comfy_table::presets::ASCII_MARKDOWN);
        grid.set_header(&self.header);
        grid.add_rows(&self.rows);
        let lines: Vec<String> = grid.lines().map(|line| line.trim_end().to_string()).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_has_rule_below_header() {
        let mut table = Table::new("Title, in s", ["a", "b"]);
        table.row(["1", "2"]);
        let text = table.markdown();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.first(), Some(&"Title, in s"));
        assert!(lines.get(2).is_some_and(|line| line.starts_with("| a")));
        assert!(lines.get(3).is_some_and(|line| line.starts_with("|--")));
        assert!(lines.get(4).is_some_and(|line| line.starts_with("| 1")));
    }
}
