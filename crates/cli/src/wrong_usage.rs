//! Adds the list of options or subcommands to the error for wrong usage.
//!
//! clap lists the possible *values* of an option. For an unknown option or subcommand it only
//! points to `--help`, so this module appends the list.

use std::ffi::c_int;
use std::io::Write;

use clap::Command;
use clap::error::ErrorKind;

/// Prints a clap error, help or version, and returns the exit status.
pub fn explain(error: &clap::Error, command: &Command) -> c_int {
    // Ignore a closed standard error: it must not change the exit status.
    let _ = error.print();
    let arguments = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let addition = match error.kind() {
        ErrorKind::UnknownArgument => Some(options(&subcommand_named_in(command, arguments))),
        ErrorKind::InvalidSubcommand | ErrorKind::MissingSubcommand => {
            Some(subcommands(&subcommand_named_in(command, arguments)))
        }
        // The value parser of `--locks` lists the valid names itself.
        _ => None,
    };
    if let Some(text) = addition {
        let _ = writeln!(std::io::stderr(), "\n{text}");
    }
    error.exit_code()
}

/// Finds the subcommand of a command line, nested ones included, and the words that lead to it.
fn subcommand_named_in(command: &Command, args: impl Iterator<Item = String>) -> (String, Command) {
    let mut command = command.clone();
    let mut path = command.get_name().to_string();
    for arg in args.skip(1) {
        if let Some(inner) = command.find_subcommand(&arg) {
            path = format!("{path} {arg}");
            command = inner.clone();
        }
    }
    (path, command)
}

/// Lists the options, one per line.
fn options((path, command): &(String, Command)) -> String {
    let mut text = format!("Options of {path}:");
    for argument in command.get_arguments().filter(|argument| argument.get_long().is_some()) {
        let long = argument.get_long().unwrap_or_default();
        let value = match argument.get_value_names() {
            Some([name, ..]) if argument.get_action().takes_values() => format!(" <{name}>"),
            _ => String::new(),
        };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("\n  {:<24} {help}", format!("--{long}{value}")));
    }
    text
}

/// Lists the subcommands, one per line.
fn subcommands((path, command): &(String, Command)) -> String {
    let mut text = format!("Commands of {path}:");
    for command in command.get_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("\n  {:<12} {about}", command.get_name()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    fn list_for(line: &str) -> String {
        options(&subcommand_named_in(&Cli::grouped(), line.split(' ').map(String::from)))
    }

    #[test]
    fn options_are_those_of_the_subcommand() {
        assert!(list_for("unconvoy run --lok mcs").contains("--sleep-timeout <MS>"));
        assert!(list_for("unconvoy compare --metrik x").contains("--lower-is-better"));
        assert!(!list_for("unconvoy run --metric x").contains("--lower-is-better"));
    }
}
