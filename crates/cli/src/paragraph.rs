//! Paragraphs of a report or a help text for a terminal.

use console::Term;

/// Width of a report, and the greatest of a help text.
pub const COLUMNS: usize = 100;

/// Width of a help text: that of the terminal, or else the one that `COLUMNS` names.
pub fn columns_of_help() -> usize {
    let size = || Term::stdout().size_checked().or_else(|| Term::stderr().size_checked());
    let named = || std::env::var("COLUMNS").ok()?.parse().ok();
    let columns = size().map(|(_, columns)| usize::from(columns)).or_else(named);
    columns.unwrap_or(COLUMNS).min(COLUMNS)
}

/// Breaks a paragraph into lines.
pub fn wrapped(text: &str) -> String {
    commented("", text)
}

/// As [`wrapped`]; each line begins with `start`.
pub fn commented(start: &str, text: &str) -> String {
    filled(start, text, COLUMNS)
}

/// A row of a list: a name, and a text whose lines begin at the column `indent`.
pub fn row(name: &str, indent: usize, text: &str, columns: usize) -> String {
    let lines = filled(&" ".repeat(indent), text, columns);
    format!("{name:<indent$}{}", lines.get(indent..).unwrap_or_default())
}

/// Breaks a paragraph into lines of at most `columns`, each of which begins with `start`.
fn filled(start: &str, text: &str, columns: usize) -> String {
    let width = columns.saturating_sub(start.chars().count());
    let mut lines = start.to_string();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            lines += &format!("\n{start}");
            column = 0;
        }
        if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_breaks_between_words() {
        let text = wrapped(&"word ".repeat(50));
        assert!(text.lines().all(|line| line.len() <= COLUMNS && !line.ends_with(' ')));
        assert_eq!(text.split_whitespace().count(), 50);
        let text = commented("# ", &"word ".repeat(50));
        assert!(text.lines().all(|line| line.starts_with("# word") && line.len() <= COLUMNS));
    }

    #[test]
    fn text_of_a_row_is_indented() {
        let text = row("  run", 7, "one two three", 14);
        assert_eq!(text, "  run  one two\n       three\n");
        assert_eq!(row("run", 4, "longer than columns", 3), "run longer\n    than\n    columns\n");
    }
}
