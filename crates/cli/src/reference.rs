//! `unconvoy completions` and `unconvoy man`, of a definition of the command line.

use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use unconvoy_measure::output::print_all;

/// Prints the completions for a shell.
///
/// # Errors
///
/// They cannot be printed.
pub fn completions(shell: clap_complete::Shell, mut command: Command) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "unconvoy", &mut text);
    Ok(print_all(text)?)
}

/// Writes one manual page per subcommand into `dir`, or prints the main page.
///
/// # Errors
///
/// They cannot be written.
pub fn manual(dir: Option<&Path>, command: Command) -> anyhow::Result<()> {
    match dir {
        Some(dir) => clap_mangen::generate_to(command, dir)
            .with_context(|| format!("cannot write the manual pages into {}", dir.display())),
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text)?;
            Ok(print_all(text)?)
        }
    }
}
