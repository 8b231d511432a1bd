//! `unconvoy completions` and `unconvoy man`, generated from the command line's definition.

use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use unconvoy_measure::output::print_all;

use crate::messages::command as messages;

/// Prints a shell's completions.
///
/// # Errors
///
/// Standard output cannot be written.
pub fn completions(shell: clap_complete::Shell, mut command: Command) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "unconvoy", &mut text);
    Ok(print_all(text)?)
}

/// Writes one manual page per subcommand to `dir`, or prints the main page.
///
/// # Errors
///
/// The pages cannot be written.
pub fn manual(dir: Option<&Path>, command: Command) -> anyhow::Result<()> {
    match dir {
        Some(dir) => clap_mangen::generate_to(command, dir)
            .with_context(|| messages::cannot_write_manual(dir)),
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text)?;
            Ok(print_all(text)?)
        }
    }
}
