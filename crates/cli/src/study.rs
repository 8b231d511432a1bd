//! The study's commands, `bench`, `sim` and `papers`, which become `unconvoy-study`.
//!
//! That program is separate because few users need it. It has the definitions of all commands, so
//! it also prints completions and manual pages if it is installed.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use unconvoy::catalogue::environment;
use unconvoy_measure::parts::Part;

use crate::messages::command as messages;
use crate::refusal::Refusal;

/// The program of the study.
pub const STUDY: Part = Part {
    name: "unconvoy-study",
    variable: Some(environment::STUDY.name),
    package: "unconvoy-papers",
};

/// Subcommands of the study.
pub const COMMANDS: [&str; 3] = ["bench", "sim", "papers"];

/// Returns whether `unconvoy-study` handles these arguments.
pub fn is_wanted(mut arguments: impl Iterator<Item = OsString>) -> bool {
    let mut next = || arguments.next().unwrap_or_default();
    let first = next();
    let named = if first == "help" { next() } else { first.clone() };
    COMMANDS.iter().any(|name| named == *name)
        || ((first == "completions" || first == "man") && STUDY.find().is_ok())
}

/// Replaces this process by `unconvoy-study` with the same arguments; returns only an error.
pub fn become_it() -> anyhow::Result<Infallible> {
    let path = STUDY.find().map_err(Refusal::installation)?;
    let mut arguments = std::env::args_os();
    // Keep the name that the user typed: records and messages show the command line.
    let name = arguments.next().unwrap_or_default();
    let error = Command::new(&path).arg0(name).args(arguments).exec();
    Err(Refusal::installation(messages::cannot_execute(path.display(), error)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn study_handles_its_commands_and_their_help() {
        let is_wanted = |line: &str| is_wanted(line.split(' ').map(OsString::from));
        assert!(
            is_wanted("bench") && is_wanted("sim tm1 --seed 2") && is_wanted("help papers run")
        );
        assert!(
            !is_wanted("run -- bench")
                && !is_wanted("help")
                && !is_wanted("help run")
                && !is_wanted("--help")
        );
    }
}
