//! Progress lines of `unconvoy predict`.

use std::io::{IsTerminal, Write};

/// Prints progress if standard error is a terminal.
pub(super) fn report_progress(line: &str) {
    if std::io::stderr().is_terminal() {
        let _ = writeln!(std::io::stderr(), "unconvoy: {line}");
    }
}
