//! Paragraphs of a report for a terminal.

/// Width of a report.
pub const COLUMNS: usize = 100;

/// Breaks a paragraph into lines.
pub fn wrapped(text: &str) -> String {
    commented("", text)
}

/// As [`wrapped`]; each line begins with `start`.
pub fn commented(start: &str, text: &str) -> String {
    let width = COLUMNS - start.chars().count();
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
}
