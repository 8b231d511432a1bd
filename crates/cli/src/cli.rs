//! What a user may write on the command line: options, their values and the examples of `--help`.

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};

use crate::compare::options::{self as comparison, CompareArgs};
use crate::predict::options::{self, PredictArgs};
use crate::run::{self, RunArgs};
use crate::sched::{self, SchedArgs};
use crate::stats::{self, StatsArgs};
use crate::study;

/// Keep threaded programs at full speed when threads outnumber processors.
#[derive(Debug, Parser)]
#[command(name = "unconvoy", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program with its pthread locks replaced.
    #[command(after_help = run::EXAMPLES)]
    Run(RunArgs),
    /// Measure a program under several locks, side by side.
    #[command(after_help = comparison::EXAMPLES)]
    Compare(Box<CompareArgs>),
    /// Measure unconvoy's locks on workloads of its own, and judge them by what they promise.
    Bench,
    /// Run unconvoy's locks on a simulated machine of any size.
    Sim,
    /// Make the papers' figures and tables, native and simulated.
    Papers,
    /// Predict, lock by lock, what transactions or finer locks would gain.
    #[command(alias = "syncchar", after_help = options::EXAMPLES)]
    Predict(Box<PredictArgs>),
    /// Confine tasks that wait too much for the kernel's locks to few cores.
    #[command(after_help = sched::EXAMPLES)]
    Sched(SchedArgs),
    /// List the locks, the load managers and the controller's policies.
    #[command(after_help = LOCKS_EXAMPLES)]
    Locks,
    /// Print what `run --stats FILE` has written, worst lock first.
    #[command(after_help = stats::EXAMPLES)]
    Stats(StatsArgs),
    /// Print the completions for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell to complete for.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one page per subcommand into a directory.
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// Directory for the pages; without it the main page goes to standard output.
        #[arg(value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

/// What the subcommands are for, in the order of `--help`.
const GROUPS: [(&str, &[&str]); 3] = [
    ("From symptom to remedy", &["run", "stats", "predict", "compare", "sched"]),
    ("Study", &study::COMMANDS),
    ("Reference", &["locks", "completions", "man", "help"]),
];

impl Cli {
    /// The definition of the command line, its subcommands in [`GROUPS`].
    pub fn grouped() -> clap::Command {
        let mut command = Self::command();
        command.build();
        let about = |name: &str| {
            let subcommand = command.find_subcommand(name).expect("groups name subcommands");
            subcommand.get_about().map(ToString::to_string).unwrap_or_default()
        };
        let mut groups = String::new();
        for (title, names) in GROUPS {
            groups += &format!("{title}:\n");
            names.iter().for_each(|name| groups += &format!("  {name:<12} {}\n", about(name)));
            groups.push('\n');
        }
        let template = format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
        );
        Self::command().help_template(template)
    }

    /// Reads the command line of this process.
    ///
    /// # Errors
    ///
    /// Wrong usage, or a request for help or the version.
    pub fn read() -> Result<Self, clap::Error> {
        Self::from_arg_matches(&Self::grouped().try_get_matches()?)
    }
}

const EXAMPLES: &str = "\
Examples:
  unconvoy run -- ./server --threads 64
  unconvoy run --stats locks.json -- ./server && unconvoy stats locks.json
  unconvoy compare --metric 'throughput: ([0-9.]+)' -- ./bench --threads {threads}
  unconvoy predict --html report.html -- ./server --threads 8
  unconvoy locks";

const LOCKS_EXAMPLES: &str = "\
Examples:
  unconvoy locks";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  unconvoy completions bash > ~/.local/share/bash-completion/completions/unconvoy
  unconvoy completions zsh > ~/.zfunc/_unconvoy";

const MAN_EXAMPLES: &str = "\
Examples:
  unconvoy man | man -l -
  unconvoy man /usr/local/share/man/man1";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_is_in_one_group() {
        let mut command = Cli::command();
        command.build();
        let mut named: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let mut known: Vec<_> = command.get_subcommands().map(|subcommand| subcommand.get_name()).collect();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }

    #[test]
    fn old_names_work_and_are_not_listed() {
        assert!(Cli::try_parse_from(["unconvoy", "syncchar", "--", "true"]).is_ok());
        assert!(Cli::try_parse_from(["unconvoy", "run", "--ssc=published", "--", "true"]).is_ok());
        let help = Cli::grouped().render_long_help().to_string();
        assert!(help.contains("predict") && !help.contains("syncchar"), "{help}");
        let run = Cli::command().find_subcommand_mut("run").expect("there").render_long_help().to_string();
        assert!(run.contains("--confine") && !run.contains("--ssc"), "{run}");
    }
}
