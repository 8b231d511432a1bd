//! Programs that a test needs and a machine may lack.

use std::process::Command;

/// Whether all probes succeed; prints the first that is missing or fails. Use it only for probes,
/// so that no failure of our own code passes for a missing program.
pub fn succeed(commands: impl IntoIterator<Item = Command>) -> bool {
    commands.into_iter().all(|mut command| match command.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("missing: {command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            eprintln!("missing: {command:?}: {error}");
            false
        }
    })
}

/// Runs commands that must succeed once the probes have.
pub fn run(commands: impl IntoIterator<Item = Command>) {
    for mut command in commands {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
