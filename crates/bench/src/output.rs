//! Standard output, a failure (a full disk behind a redirection) being an error and not a panic as with `print!`.

use std::io::{ErrorKind, Write};

/// Writes `text`. A reader that has gone (`| head`) has seen enough.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
