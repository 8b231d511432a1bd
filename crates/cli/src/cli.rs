//! The command line: subcommands, their groups and the examples of `--help`.

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};

use crate::compare::options::{self as comparison, CompareArgs};
use crate::doctor::{self, DoctorArgs};
use crate::inspect::options::{self as inspection, InspectArgs};
use crate::paragraph::{columns_of_help, row};
use crate::predict::options::{self, PredictArgs};
use crate::profile::options::{self as profiling, ProfileArgs};
use crate::run::{self, RunArgs};
use crate::sched::{self, SchedArgs};
use crate::stats::{self, StatsArgs};
use crate::study;
use crate::top::{self, TopArgs};
use crate::tune::options::{self as tuning, TuneArgs};

/// Keep threaded programs at full speed when threads outnumber processors.
#[derive(Debug, Parser)]
#[command(name = "unconvoy", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands, in the order of [`GROUPS`].
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program with its pthread locks replaced.
    #[command(after_help = run::EXAMPLES)]
    Run(Box<RunArgs>),
    /// Show which locks a program waits for, from where, and which places hold them.
    #[command(after_help = profiling::EXAMPLES)]
    Profile(Box<ProfileArgs>),
    /// Find the locks under which a program runs fastest, and prove it.
    #[command(after_help = tuning::EXAMPLES)]
    Tune(Box<TuneArgs>),
    /// Watch the locks of a running process, live.
    #[command(after_help = top::EXAMPLES)]
    Top(TopArgs),
    /// Print the record of `run --stats FILE`, worst lock first.
    #[command(after_help = stats::EXAMPLES)]
    Stats(StatsArgs),
    /// Predict what transactions or finer locks would gain, lock by lock.
    #[command(alias = "syncchar", after_help = options::EXAMPLES)]
    Predict(Box<PredictArgs>),
    /// Measure a program under several locks, side by side.
    #[command(after_help = comparison::EXAMPLES)]
    Compare(Box<CompareArgs>),
    /// Keep tasks that wait long for kernel locks on a few cores.
    #[command(after_help = sched::EXAMPLES)]
    Sched(SchedArgs),
    /// Show what the threads of a hung process, or of a core dump, wait for.
    #[command(after_help = inspection::EXAMPLES)]
    Inspect(InspectArgs),
    /// Benchmark unconvoy's locks and judge them against their goals.
    Bench,
    /// Run unconvoy's locks on a simulated machine of any size.
    Sim,
    /// Reproduce the papers' figures and tables, native and simulated.
    Papers,
    /// Show what works on this machine, and whether a program's locks can be replaced.
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(DoctorArgs),
    /// List the locks, load managers and controller policies.
    #[command(after_help = LOCKS_EXAMPLES)]
    Locks,
    /// Print a shell's completions.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// Shell to complete for.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one page per subcommand.
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// Directory for the pages [default: print the main page].
        #[arg(value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

/// Headings of `--help` and their subcommands, in the order shown.
const GROUPS: [(&str, &[&str]); 3] = [
    (
        "From symptom to remedy",
        &["run", "profile", "tune", "top", "stats", "predict", "compare", "sched", "inspect"],
    ),
    ("Study", &study::COMMANDS),
    ("Reference", &["doctor", "locks", "completions", "man", "help"]),
];

impl Cli {
    /// The command's definition, whose help lists the subcommands under the headings of [`GROUPS`].
    pub fn grouped() -> clap::Command {
        let mut command = Self::command();
        command.build();
        let about = |name: &str| {
            let subcommand = command.find_subcommand(name).expect("groups name subcommands");
            subcommand.get_about().map(ToString::to_string).unwrap_or_default()
        };
        let columns = columns_of_help();
        let mut groups = String::new();
        for (title, names) in GROUPS {
            groups += &format!("{title}:\n");
            let row = |name: &&str| row(&format!("  {name}"), 15, &about(name), columns);
            groups.extend(names.iter().map(row));
            groups.push('\n');
        }
        let template = format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n\
             {{options}}{{after-help}}"
        );
        Self::command().help_template(template)
    }

    /// Parses this process's command line.
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
  unconvoy profile -- ./server --threads 64
  unconvoy tune --time -- ./job
  unconvoy compare --threads 1,8,64 -- ./bench --threads {threads}
  unconvoy predict --html report.html -- ./server --threads 8
  unconvoy locks";

const LOCKS_EXAMPLES: &str = "\
Examples:
  unconvoy locks";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  unconvoy completions bash >> ~/.bash_completion
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
    fn definition_passes_claps_checks() {
        Cli::command().debug_assert();
    }

    #[test]
    fn subcommands_have_the_order_of_the_groups() {
        let mut command = Cli::command();
        command.build();
        let named: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let known: Vec<_> =
            command.get_subcommands().map(|subcommand| subcommand.get_name()).collect();
        assert_eq!(named, known);
    }

    #[test]
    fn old_names_parse_unlisted() {
        assert!(Cli::try_parse_from(["unconvoy", "syncchar", "--", "true"]).is_ok());
        assert!(Cli::try_parse_from(["unconvoy", "run", "--ssc=published", "--", "true"]).is_ok());
        let help = Cli::grouped().render_long_help().to_string();
        assert!(help.contains("predict") && !help.contains("syncchar"), "{help}");
        let run = Cli::command()
            .find_subcommand_mut("run")
            .expect("there")
            .render_long_help()
            .to_string();
        assert!(run.contains("--confine") && !run.contains("--ssc"), "{run}");
    }
}
