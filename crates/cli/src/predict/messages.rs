//! What `unconvoy predict` says on standard error.

use std::io::{IsTerminal, Write};

/// Reports progress, to a person at a terminal.
pub(super) fn say(line: &str) {
    if std::io::stderr().is_terminal() {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Reports a failure. Standard error may be closed, which must not cost the results.
pub(super) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "unconvoy: {line}");
}
