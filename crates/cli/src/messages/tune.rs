//! Messages of `tune`.

use std::fmt::Display;
use std::path::Path;

pub(crate) fn no_profile() -> &'static str {
    "--advise: no profile among the records: record one with `unconvoy profile -o FILE -- PROGRAM`"
}

pub(crate) fn not_a_record(file: &Path) -> String {
    format!(
        "{}: expected a profile (unconvoy profile -o) or a prediction (unconvoy predict --json)",
        file.display()
    )
}

pub(crate) fn other_record(file: &Path, found: &str, expected: &str) -> String {
    format!(
        "{}: a record of {found}; expected a profile (profile -o) or {expected} (predict --json)",
        file.display()
    )
}

pub(crate) fn damaged_record(file: &Path, why: impl Display) -> String {
    format!("{}: a prediction that cannot be read: {why}", file.display())
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    let file = Path::new("predicted.json");
    vec![
        no_profile().into(),
        not_a_record(file),
        other_record(file, "unconvoy-compare-1", "unconvoy-syncchar-1"),
        damaged_record(file, "missing field `locks`"),
    ]
}
