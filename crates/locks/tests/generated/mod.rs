//! Generated blocks of documentation pages. A page marks a block with `<!-- generated: NAME -->`
//! and `<!-- end: NAME -->`; a test fails if the text between differs from the code.
//! `UNCONVOY_BLESS=1` rewrites the blocks (`make docs`).

use std::fs;
use std::path::{Path, PathBuf};

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[allow(dead_code)] // not every user has a table
pub fn table<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let line = |cells: &[String]| {
        assert!(cells.iter().all(|cell| !cell.contains('|') && !cell.contains('\n')), "{cells:?}");
        let cells: String = cells.iter().map(|cell| format!(" {cell} |")).collect();
        format!("|{}\n", cells.replace("  |", " |"))
    };
    let rule = line(&["---"; N].map(String::from));
    let rows: String = rows.into_iter().map(|row| line(&row)).collect();
    line(&heading.map(String::from)) + &rule + &rows
}

/// Compares the blocks of `page` (a path below docs/) with `blocks`, each a pair of a name and
/// its content.
#[track_caller]
pub fn assert_up_to_date(page: &str, blocks: &[(&str, String)]) {
    let path = repository().join("docs").join(page);
    let found =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let expected = blocks
        .iter()
        .fold(found.clone(), |text, (name, content)| replaced(&text, page, name, content));
    for name in
        found.lines().filter_map(|line| line.strip_prefix("<!-- generated: ")?.strip_suffix(" -->"))
    {
        assert!(
            blocks.iter().any(|block| block.0 == name),
            "{page}: no test generates the block {name}"
        );
    }
    if std::env::var_os("UNCONVOY_BLESS").is_some() {
        fs::write(&path, &expected).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let difference =
        found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    let (is, should_be) = difference.unwrap_or(("(fewer or more lines)", ""));
    assert!(
        found == expected,
        "{page} differs from the code; run `make docs`\nis:        {is}\nshould be: {should_be}"
    );
}

/// Returns `text` with `content` between the markers of the block `name`.
#[track_caller]
fn replaced(text: &str, page: &str, name: &str, content: &str) -> String {
    let (begin, end) = (format!("<!-- generated: {name} -->\n"), format!("<!-- end: {name} -->"));
    let parts =
        text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = parts else { panic!("{page}: no block between {begin} and {end}") };
    format!("{before}{begin}\n{content}\n{end}{after}")
}
