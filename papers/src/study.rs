//! `unconvoy-study`: the commands `bench`, `sim` and `papers`. It also generates completions and
//! manual pages for all commands, since only this binary knows every option.

use std::ffi::{OsString, c_int};
use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use unconvoy_cli::cli::Cli;
use unconvoy_cli::{reference, wrong_usage};
use unconvoy_measure::output::complain;
use unconvoy_sim::command::{SimArgs, sim};

use crate::bench::{BenchArgs, bench};
use crate::command::{PapersArgs, papers};
use crate::messages;

/// The whole command line, in which the study's commands replace their placeholders.
fn definition() -> Command {
    let with = |augment: fn(Command) -> Command| {
        move |stand_in: Command| {
            let about = stand_in.get_about().cloned().unwrap_or_default();
            augment(stand_in).about(about)
        }
    };
    let command = Cli::grouped().mut_subcommand("bench", with(BenchArgs::augment_args));
    command
        .mut_subcommand("sim", with(SimArgs::augment_args))
        .mut_subcommand("papers", with(PapersArgs::augment_args))
}

/// Runs this process's command line; returns the exit status.
pub fn main() -> c_int {
    // Messages call the program `unconvoy`, the name that users know.
    let words = from_old_spelling(std::env::args_os().skip(1).collect());
    let words = [OsString::from("unconvoy")].into_iter().chain(words);
    let matches = definition().try_get_matches_from(words).and_then(|matches| run(&matches));
    matches.map_or_else(|error| wrong_usage::explain(error, &definition()), c_int::from)
}

fn run(matches: &ArgMatches) -> Result<u8, clap::Error> {
    match matches.subcommand() {
        Some(("bench", of)) => Ok(bench(&BenchArgs::from_arg_matches(of)?)),
        Some(("sim", of)) => Ok(sim(&SimArgs::from_arg_matches(of)?)),
        Some(("papers", of)) => Ok(papers(&PapersArgs::from_arg_matches(of)?)),
        Some(("completions", of)) => {
            let shell = of.get_one("shell").copied();
            Ok(printed(shell.map_or(Ok(()), |shell| reference::completions(shell, definition()))))
        }
        Some(("man", of)) => {
            let directory = of.get_one::<PathBuf>("dir").map(PathBuf::as_path);
            Ok(printed(reference::manual(directory, definition())))
        }
        _ => {
            complain(messages::not_a_study_command());
            Ok(2)
        }
    }
}

fn printed(result: anyhow::Result<()>) -> u8 {
    result.map_or_else(
        |error| {
            complain(&format!("{error:#}"));
            1
        },
        |()| 0,
    )
}

/// Rewrites `sim --figure NAME` and `bench --figure NAME RECORD...` to `papers run`.
fn from_old_spelling(words: Vec<OsString>) -> Vec<OsString> {
    let command = words.first().and_then(|word| word.to_str()).unwrap_or_default();
    let is_sim = command == "sim";
    let place =
        words.iter().position(|word| word == "--figure").filter(|_| is_sim || command == "bench");
    let Some(place) = place else { return words };
    let mut renamed: Vec<OsString> = vec!["papers".into(), "run".into()];
    renamed.extend_from_slice(&words[1..place]);
    let mut rest = words[place + 1..].iter().cloned();
    if let Some(name) = rest.next() {
        let mut full = OsString::from(if is_sim { "sim-" } else { "" });
        full.push(name);
        renamed.push(full);
    }
    if !is_sim {
        renamed.push("--from".into());
    }
    renamed.extend(rest);
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(line: &str) -> String {
        let words = from_old_spelling(line.split(' ').map(OsString::from).collect());
        words.join(" ".as_ref()).into_string().expect("text")
    }

    #[test]
    fn definition_is_consistent() {
        definition().debug_assert();
    }

    /// clap then breaks the lines at the terminal's width. Lists and examples are indented.
    #[test]
    fn paragraph_of_help_is_one_line() {
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        let mut commands = vec![definition()];
        while let Some(command) = commands.pop() {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let broken = lines.windows(2).find(|pair| is_prose(pair[0]) && is_prose(pair[1]));
            assert_eq!(broken, None, "{}", command.get_name());
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn old_figure_options_become_papers_run() {
        assert_eq!(
            spelled("sim --seed 2 --figure taco-1 --plot p"),
            "papers run --seed 2 sim-taco-1 --plot p"
        );
        assert_eq!(
            spelled("bench --figure asplos-9 r.json --plot p"),
            "papers run asplos-9 --from r.json --plot p"
        );
        assert_eq!(spelled("bench counter --out figure"), "bench counter --out figure");
    }
}
