//! Paragraphs of a report or a help text for a terminal.

use console::Term;

/// Width of a report, and the greatest of a help text.
pub const COLUMNS: usize = 100;

/// Least width of a report: that of its tables.
const LEAST: usize = 80;

/// Width of a help text: that of the terminal, or else the one that `COLUMNS` names.
pub fn columns_of_help() -> usize {
    let size = || columns_of(&Term::stdout()).or_else(|| columns_of(&Term::stderr()));
    let named = || std::env::var("COLUMNS").ok()?.parse().ok();
    size().or_else(named).unwrap_or(COLUMNS).min(COLUMNS)
}

/// Width of a report on standard output.
pub fn columns_of_report() -> usize {
    columns_of_output().unwrap_or(COLUMNS).clamp(LEAST, COLUMNS)
}

/// Width of the terminal of standard output; `None` if that is no terminal.
pub fn columns_of_output() -> Option<usize> {
    columns_of(&Term::stdout())
}

fn columns_of(terminal: &Term) -> Option<usize> {
    terminal.size_checked().map(|(_, columns)| usize::from(columns))
}

/// Shortens a text in its middle, where paths and template arguments say least.
pub fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_string();
    }
    let (head, tail) = (width / 2 - 1, width - width / 2 - 2);
    let first: String = text.chars().take(head).collect();
    let last: String = text.chars().skip(length - tail).collect();
    format!("{first}...{last}")
}

/// Breaks a paragraph into lines of at most `columns`.
pub fn wrapped(text: &str, columns: usize) -> String {
    filled("", text, columns)
}

/// Breaks a paragraph into lines for a file, each of which begins with `start`.
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
        let text = wrapped(&"word ".repeat(50), COLUMNS);
        assert!(text.lines().all(|line| line.len() <= COLUMNS && !line.ends_with(' ')));
        assert_eq!(text.split_whitespace().count(), 50);
        let text = commented("# ", &"word ".repeat(50));
        assert!(text.lines().all(|line| line.starts_with("# word") && line.len() <= COLUMNS));
    }

    #[test]
    fn cut_keeps_both_ends() {
        assert_eq!(cut("short", 10), "short");
        let cut = cut("std::map<std::string, std::vector<int>>::find (map.h:12)", 30);
        assert_eq!(cut.chars().count(), 30);
        assert!(cut.starts_with("std::map<") && cut.ends_with("(map.h:12)"), "{cut}");
    }

    #[test]
    fn text_of_a_row_is_indented() {
        let text = row("  run", 7, "one two three", 14);
        assert_eq!(text, "  run  one two\n       three\n");
        assert_eq!(row("run", 4, "longer than columns", 3), "run longer\n    than\n    columns\n");
    }
}
