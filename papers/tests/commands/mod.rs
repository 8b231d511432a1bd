//! Programs that a test needs and that a machine may lack.

use std::process::Command;

/// Whether this machine has what these look for; says which one is missing or fails. For probes only: what fails for a reason of ours must not pass for a skipped test.
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

/// Runs what must succeed once the probes have.
pub fn run(commands: impl IntoIterator<Item = Command>) {
    for mut command in commands {
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
