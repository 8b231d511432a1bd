//! Programs that a test needs and that a machine may lack.

use std::process::Command;

/// Runs them in turn, and says which one is missing or fails.
pub fn succeed(commands: impl IntoIterator<Item = Command>) -> bool {
    commands.into_iter().all(|mut command| match command.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("skipped: {command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            eprintln!("skipped: {command:?}: {error}");
            false
        }
    })
}
