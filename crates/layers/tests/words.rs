//! The style of this repository's files: columns, file lengths, and phrases that have a better
//! word.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Files that nobody edits by hand, or that quote others.
const EXEMPT: [&str; 4] = ["docs/records/", "docs/evaluation/grids/", "deny.toml", "Cargo.lock"];

/// Greatest number of columns of code and comments, and of a table's row or a link.
const COLUMNS: usize = 100;
const LONG: usize = 120;
/// Greatest number of lines of a file of Rust.
const LINES: usize = 450;

/// A tab's columns.
const TAB: &str = "    ";

/// Phrases of translated English.
const PHRASES: [(&str, &str); 10] = [
    ("who waits", "a waiter, a thread that waits"),
    ("Who waits", "a waiter, a thread that waits"),
    ("anew", "again, from scratch, or leave it out"),
    ("none any more", "no longer one"),
    ("for so long", "the length of time"),
    ("goes round", "repeats, loops over"),
    ("comes by", "acquires"),
    ("is told", "learns, receives"),
    ("are told", "learn, receive"),
    ("hinders", "prevents"),
];

/// Parts of identifiers for which the field has another word.
const IDENTIFIERS: [(&str, &str); 21] = [
    ("gate", "eventcount, barrier"),
    ("owes", "pending"),
    ("settled", "converged"),
    ("deeds", "thread state"),
    ("effort", "counters"),
    ("tally", "counter"),
    ("tallies", "counters"),
    ("director", "back end"),
    ("conductor", "back end"),
    ("heirs", "inherited"),
    ("patience", "bound, time limit"),
    ("doze", "umwait"),
    ("told", "records"),
    ("tells", "emits"),
    ("dooms", "aborts"),
    ("swell", "peak"),
    ("standstill", "no progress"),
    ("sitter", "waiter"),
    ("politely", "without barging"),
    ("awaited", "pinned holder"),
    ("depart", "end_wait"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Each file of the repository with one of these extensions, and its text.
fn files(extensions: &[&str]) -> Vec<(String, String)> {
    let listed = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output();
    let listed = listed.expect("git lists the repository's files");
    let names = String::from_utf8(listed.stdout).expect("names are UTF-8");
    names
        .split('\0')
        .filter(|name| !EXEMPT.iter().any(|exempt| name.starts_with(exempt)))
        .filter(|name| name.rsplit('.').next().is_some_and(|end| extensions.contains(&end)))
        .filter_map(|name| {
            Some((name.to_string(), std::fs::read_to_string(root().join(name)).ok()?))
        })
        .collect()
}

/// Each line of each file: `file:line` and the text.
fn lines(files: &[(String, String)]) -> impl Iterator<Item = (String, &str)> {
    files.iter().flat_map(|(name, text)| {
        text.lines().zip(1..).map(move |(line, number)| (format!("{name}:{number}"), line))
    })
}

fn columns_allowed(line: &str) -> usize {
    let text = line.trim_start().trim_start_matches(['/', '!', '*', '#', ' ']);
    if text.starts_with('|') || line.contains("://") { LONG } else { COLUMNS }
}

#[track_caller]
fn assert_none(what: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{} {what}:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn lines_of_code_fit_their_columns() {
    let files = files(&["rs", "c", "h", "cc", "py", "sh"]);
    assert!(files.len() > 500, "the repository's files are found");
    let faults: Vec<_> = lines(&files)
        .filter(|(_, line)| line.replace('\t', TAB).chars().count() > columns_allowed(line))
        .map(|(place, line)| format!("{place}: {line}"))
        .collect();
    assert_none("lines are too long", &faults);
}

#[test]
fn files_of_rust_fit_their_lines() {
    let faults: Vec<_> = files(&["rs"])
        .into_iter()
        .map(|(name, text)| (name, text.lines().count()))
        .filter(|&(_, count)| count > LINES)
        .map(|(name, count)| format!("{name}: {count} lines"))
        .collect();
    assert_none("files are too long", &faults);
}

#[test]
fn phrases_have_their_better_words() {
    let files = files(&["rs", "c", "h", "cc", "py", "sh", "md", "yml"]);
    let this = "crates/layers/tests/words.rs";
    let faults: Vec<_> = lines(&files)
        .filter(|(place, _)| !place.starts_with(this))
        .flat_map(|(place, line)| {
            PHRASES
                .iter()
                .filter(|(phrase, _)| has_word(line, phrase))
                .map(move |(phrase, better)| format!("{place}: \"{phrase}\" ({better}): {line}"))
        })
        .collect();
    assert_none("phrases have a better word", &faults);
}

#[test]
fn identifiers_have_their_better_words() {
    let files = files(&["rs", "c", "h", "cc"]);
    let faults: Vec<_> = lines(&files)
        .flat_map(|(place, line)| {
            IDENTIFIERS
                .iter()
                .filter(|(word, _)| identifier_parts(line).any(|part| part == *word))
                .map(move |(word, better)| format!("{place}: \"{word}\" ({better}): {line}"))
        })
        .collect();
    assert_none("identifiers have a better word", &faults);
}

/// The words of the identifiers in a line of code, in lower case. Leaves out comments and strings.
fn identifier_parts(line: &str) -> impl Iterator<Item = String> {
    let code = line.split("//").next().unwrap_or_default();
    let code = if code.trim_start().starts_with(['*', '/']) { "" } else { code };
    let code: Vec<_> = code.split('"').step_by(2).collect();
    let mut words = String::new();
    for c in code.join(" ").chars() {
        if c.is_uppercase() && words.ends_with(char::is_lowercase) {
            words.push(' ');
        }
        words.push(if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
    }
    words.split_whitespace().map(str::to_string).collect::<Vec<_>>().into_iter()
}

/// Whether `phrase` stands in `line` as whole words.
fn has_word(line: &str, phrase: &str) -> bool {
    let is_inside = |c: char| c.is_alphanumeric();
    line.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + phrase.len()..]);
        !before.ends_with(is_inside) && !after.starts_with(is_inside)
    })
}
