//! Messages about strategy files.

use std::fmt::Display;
use std::path::Path;

/// Start of a message about a key.
pub(crate) fn position(file: &Path, line: usize, key: &str) -> String {
    format!("{}:{line}: {key}", file.display())
}

pub(crate) fn cannot_read(file: &Path, error: impl Display) -> String {
    format!("cannot read {}: {error}", file.display())
}

pub(crate) fn not_toml(file: &Path, line: usize, error: &str) -> String {
    format!("{}:{line}: not TOML: {}", file.display(), error.replace('\n', ", "))
}

pub(crate) fn no_version(own: &str) -> String {
    format!("not given: begin the file with `version = {own}`")
}

pub(crate) fn other_version(found: &str, own: &str) -> String {
    format!("{found}, but this command reads version {own}")
}

pub(crate) fn unknown_key(known: &str) -> String {
    format!("unknown key; expected one of {known}")
}

pub(crate) fn no_table() -> &'static str {
    "expected a table"
}

pub(crate) fn no_entries() -> &'static str {
    "expected entries: write each as [[lock]]"
}

pub(crate) fn no_text() -> &'static str {
    "expected a text in quotes"
}

pub(crate) fn one_of(known: &str) -> String {
    format!("expected one of {known}")
}

/// Follows [`one_of`]: the load manager that takes a spinning time in microseconds.
pub(crate) fn or_spinning(us: std::ops::RangeInclusive<u32>) -> String {
    format!(", park:{} to park:{} (microseconds of spinning)", us.start(), us.end())
}

pub(crate) fn milliseconds(least: f64, most: f64) -> String {
    format!("expected {least} to {most} milliseconds")
}

pub(crate) fn no_name() -> &'static str {
    "the entry names no lock: add symbol, initialised or first-taken"
}

pub(crate) fn two_names(first: &str) -> String {
    format!("the entry also has {first}: write two entries")
}

pub(crate) fn no_choice() -> &'static str {
    "the entry chooses nothing: add lock or load"
}

pub(crate) fn wrong_kind() -> &'static str {
    "expected mutex or rwlock; a spin lock has no room for a choice"
}

pub(crate) fn load_of_libc() -> &'static str {
    "libc's lock has no load manager: remove the key"
}

pub(crate) fn not_for_rwlocks() -> &'static str {
    "a reader-writer lock takes default, elided or libc"
}

/// `at` is the position of the second entry.
pub(crate) fn contradiction(at: &str, first: usize) -> String {
    format!("{at}: names a lock for which line {first} makes another choice")
}

pub(crate) fn too_many_places(file: &Path, rules: usize) -> String {
    let file = file.display();
    format!("{file}: the names match {rules} places, which is too many: narrow the patterns")
}

pub(crate) fn too_many_choices(at: &str, most: usize) -> String {
    format!("{at}: more than {most} different choices in one strategy")
}

pub(crate) fn too_long(most: usize) -> String {
    format!("expected at most {most} bytes")
}

pub(crate) fn matches_nothing(at: &str, name: &str, what: &str) -> String {
    format!("{at}: no {what} of the program or its libraries matches '{name}'; ignoring the entry")
}

pub(crate) fn other_build(at: &str, file: &str, build_id: &str) -> String {
    format!("{at}: {file} has the build id {build_id}; ignoring the entry")
}

pub(crate) fn reduced(at: &str, lock: &str, reason: &str) -> String {
    format!("{at}: {lock}: {reason}; running without it")
}

pub(crate) fn refused(at: &str, lock: &str, reason: &str) -> String {
    format!("{at}: {lock}: {reason}; ignoring the entry")
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    let file = Path::new("server.toml");
    let at = position(file, 12, "symbol");
    vec![
        at.clone(),
        cannot_read(file, "No such file or directory (os error 2)"),
        not_toml(file, 3, "key with no value, expected `=`"),
        no_version("1"),
        other_version("2", "1"),
        unknown_key("version, process, lock"),
        no_table().into(),
        no_entries().into(),
        no_text().into(),
        one_of("true, false"),
        one_of("default, park") + &or_spinning(1..=10_000_000),
        milliseconds(0.5, 1000.0),
        no_name().into(),
        two_names("symbol"),
        no_choice().into(),
        wrong_kind().into(),
        load_of_libc().into(),
        not_for_rwlocks().into(),
        contradiction(&at, 4),
        too_many_places(file, 20_000),
        too_many_choices(&at, 200),
        too_long(4096),
        matches_nothing(&at, "cache_lock", "variable"),
        other_build(&at, "server", "8f3c"),
        reduced(&at, "tpmcs-slice", "this kernel has no time-slice extension"),
        refused(&at, "elided", "this processor has no transactions"),
    ]
}
