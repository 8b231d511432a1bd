//! Adds the list of options or subcommands to the error for wrong usage.
//!
//! clap lists the possible *values* of an option. For an unknown option or subcommand it only
//! points to `--help`, so this module appends the list.

use std::ffi::c_int;
use std::io::Write;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use unconvoy_measure::output::{complain, not_printed};

use crate::executable::resolve;
use crate::messages::command as messages;
use crate::paragraph::{COLUMNS, commented, row};

/// Prints a clap error, help or version, and returns the exit status.
pub fn explain(mut error: clap::Error, command: &Command) -> c_int {
    let arguments = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let addition = match error.kind() {
        ErrorKind::UnknownArgument => Some(options(&subcommand_named_in(command, arguments))),
        ErrorKind::InvalidSubcommand | ErrorKind::MissingSubcommand => {
            Some(subcommands(&subcommand_named_in(command, arguments)))
        }
        // The value parser of `--locks` lists the valid names itself.
        _ => take_values(&mut error),
    };
    let status = error.exit_code();
    if error.use_stderr() {
        // Ignore a closed standard error: it must not change the exit status.
        let _ = with_working_tip(error).print();
    } else if let Err(lost) = print_to_output(error) {
        complain(&not_printed(lost).to_string());
        return 1;
    }
    if let Some(text) = addition.filter(|text| !text.is_empty()) {
        let _ = writeln!(std::io::stderr(), "\n{text}");
    }
    status
}

/// Prints help or the version. A closed pipe (`| head`) is no error.
fn print_to_output(error: clap::Error) -> std::io::Result<()> {
    match error.print().and_then(|()| std::io::stdout().flush()) {
        Err(lost) if lost.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Replaces the tip to write a value after `--`, where PROGRAM begins or nothing may follow. Adds
/// how to run a program that was taken for a subcommand.
fn with_working_tip(mut error: clap::Error) -> clap::Error {
    if let Some(program) = program_as_subcommand(&error) {
        let tip = StyledStr::from(messages::run_program(&program));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let is_after_dashes = |tip: &StyledStr| tip.to_string().contains("as a value");
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !is_after_dashes(tip));
        if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg)
            && word.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit())
        {
            tips.push(StyledStr::from(messages::negative_value(word)));
        }
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

/// The unknown subcommand, if it is the path of a program.
fn program_as_subcommand(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if word.contains('/') => {
            resolve(word.as_ref()).map(|_| word.clone())
        }
        _ => None,
    }
}

/// Removes the possible values of an option from the error if they do not fit in a line; returns a
/// list of them.
fn take_values(error: &mut clap::Error) -> Option<String> {
    let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue) else {
        return None;
    };
    let values = values.join(", ");
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let list = format!("Values of {option}:\n{}", commented("  ", &values));
    (values.len() > COLUMNS).then(|| error.remove(ContextKind::ValidValue))?;
    Some(list.trim_end().to_string())
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

/// Lists the options, each with its help.
fn options((path, command): &(String, Command)) -> String {
    let mut rows = Vec::new();
    for argument in command.get_arguments() {
        let Some(long) = argument.get_long() else { continue };
        let is_optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
        let value = match argument.get_value_names() {
            Some([name, ..]) if argument.get_action().takes_values() => match is_optional {
                true if argument.is_require_equals_set() => format!("[=<{name}>]"),
                true => format!(" [<{name}>]"),
                false => format!(" <{name}>"),
            },
            _ => String::new(),
        };
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        rows.push((format!("  --{long}{value}  "), help));
    }
    list(&format!("Options of {path}"), &rows)
}

/// Lists the subcommands in the order of the help.
fn subcommands((path, command): &(String, Command)) -> String {
    let about =
        |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let row = |command: &Command| (format!("  {}  ", command.get_name()), about(command));
    let rows: Vec<_> = command.get_subcommands().map(row).collect();
    list(&format!("Commands of {path}"), &rows)
}

/// A list of names, each with a text; empty without names.
fn list(title: &str, rows: &[(String, String)]) -> String {
    let Some(indent) = rows.iter().map(|(name, _)| name.len()).max() else { return String::new() };
    let lines: String = rows.iter().map(|(name, text)| row(name, indent, text, COLUMNS)).collect();
    format!("{title}:\n{}", lines.trim_end())
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

    #[test]
    fn optional_value_is_in_brackets_and_a_list_without_options_is_empty() {
        assert!(list_for("unconvoy run --metric x").contains("--confine[=<SEARCH>]"));
        assert_eq!(list_for("unconvoy locks --metric x"), "");
    }

    #[test]
    fn lists_have_the_order_of_the_help_and_fit_their_columns() {
        let command = Cli::grouped();
        let all = subcommands(&subcommand_named_in(&command, ["unconvoy".into()].into_iter()));
        let help = command.clone().render_help().to_string();
        let listed: Vec<&str> = all.lines().skip(1).collect();
        let shown: Vec<&str> = help.lines().filter(|line| listed.contains(line)).collect();
        assert_eq!(listed, shown);
        for name in command.get_subcommands().map(Command::get_name) {
            let list = list_for(&format!("unconvoy {name} --nosuch"));
            let long = list.lines().find(|line| line.chars().count() > COLUMNS);
            assert_eq!(long, None);
        }
    }

    #[test]
    fn long_list_of_values_is_broken() {
        let words = ["unconvoy", "run", "--lock", "nosuch", "--", "true"];
        let mut wrong = Cli::grouped().try_get_matches_from(words).unwrap_err();
        let list = take_values(&mut wrong).expect("a long list");
        assert!(list.starts_with("Values of --lock <LOCK>:\n  loiter, tpmcs, "), "{list}");
        let text = wrong.to_string() + &list;
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        let words = ["unconvoy", "run", "--policy", "nosuch", "--", "true"];
        let mut wrong = Cli::grouped().try_get_matches_from(words).unwrap_err();
        assert_eq!(take_values(&mut wrong), None);
        assert!(wrong.to_string().contains("[possible values: direct"), "{wrong}");
    }

    #[test]
    fn tip_for_a_negative_value_works() {
        let error = |words: &[&str]| {
            let wrong = Cli::grouped().try_get_matches_from(words).unwrap_err();
            with_working_tip(wrong).to_string()
        };
        let negative = error(&["unconvoy", "run", "--interval", "-5", "--", "true"]);
        assert!(negative.contains("--OPTION=-5"), "{negative}");
        let unknown = error(&["unconvoy", "run", "--nosuch", "--", "true"]);
        assert!(!unknown.contains("as a value"), "{unknown}");
    }

    #[test]
    fn tip_for_a_program_in_place_of_a_subcommand() {
        let error = |word: &str| {
            let wrong = Cli::grouped().try_get_matches_from(["unconvoy", word]).unwrap_err();
            with_working_tip(wrong).to_string()
        };
        assert!(error("/bin/sh").contains("'unconvoy run -- /bin/sh'"));
        assert!(!error("/no/such").contains("unconvoy run"));
        assert!(!error("nosuch").contains("unconvoy run"));
    }
}
