//! The loads: what each is called, what it counts and what its subcommand takes. The parameters are those of Cui, Wang, Chen and Shi, "Lock-Contention-Aware Scheduler" (ACM TACO 9(4), 2013), section 4.2, as far as it has them.

use clap::Args;

use crate::workloads::{COMPILE, FIND, GREP, MMAPBENCH, POSTMARK, SOCKBENCH};
use unconvoy_bench::grid::workload::Workload;
use unconvoy_bench::run::options;

/// A load as the options of its subcommand make it.
#[derive(Debug)]
pub struct Load {
    /// Its row in the list of workloads.
    pub workload: &'static Workload,
    /// Name in the program and, with what tells two of a kind apart, in headings.
    pub title: String,
    /// Its options of the program `tasks`.
    pub words: Vec<String>,
    /// Room for its files, beside what each task takes, and that; bytes. `None`: it makes none.
    pub room: Option<(u64, u64)>,
    /// A program of the system that it runs, and the package that has it.
    pub tool: Option<(String, &'static str)>,
}

/// What a subcommand's options say of its load.
pub trait Describes {
    /// The load.
    fn load(&self) -> Load;
}

impl Load {
    /// One that makes no files and runs no other program.
    fn of(workload: &'static Workload, words: Vec<String>) -> Self {
        Self { workload, title: workload.name.to_string(), words, room: None, tool: None }
    }
}

const MEGABYTE: u64 = 1 << 20;
/// What a file or directory takes in a file system that is memory, about.
const INODE: u64 = 1 << 10;

/// Options of `mmapbench`.
#[derive(Debug, Args)]
pub struct MmapbenchOptions {
    /// Size of the file that is mapped; the paper's is 500
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    megabytes: u64,
}

impl Describes for MmapbenchOptions {
    fn load(&self) -> Load {
        Load {
            room: Some((self.megabytes * MEGABYTE, 0)),
            ..Load::of(&MMAPBENCH, options([("megabytes", self.megabytes.to_string())]))
        }
    }
}

/// Options of `sockbench`.
#[derive(Debug, Args)]
pub struct SockbenchOptions {
    /// Kind of the sockets
    #[arg(long, value_name = "NAME", default_value = "inet",
          value_parser = clap::builder::PossibleValuesParser::new(["inet", "unix"]))]
    family: String,
}

impl Describes for SockbenchOptions {
    fn load(&self) -> Load {
        Load::of(&SOCKBENCH, options([("family", self.family.clone())]))
    }
}

/// Options of `postmark`.
#[derive(Debug, Args)]
pub struct PostmarkOptions {
    /// Files of each thread at the start; the paper's are 500 and 10000
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    files: u64,
}

impl Describes for PostmarkOptions {
    fn load(&self) -> Load {
        // Of 500 to 10000 bytes, in whole pages.
        const MEAN_FILE: u64 = 8 << 10;
        Load {
            title: format!("{} ({} files)", POSTMARK.name, self.files),
            room: Some((0, self.files * (MEAN_FILE + INODE))),
            ..Load::of(&POSTMARK, options([("files", self.files.to_string())]))
        }
    }
}

/// Options of `find`.
#[derive(Debug, Args)]
pub struct FindOptions {
    /// Files of each process's tree; a kernel of the paper's time has about so many
    #[arg(long, value_name = "N", default_value_t = 27_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    files: u64,
}

impl Describes for FindOptions {
    fn load(&self) -> Load {
        Load {
            room: Some((0, self.files * INODE)),
            tool: Some(("find".to_string(), "findutils")),
            ..Load::of(&FIND, options([("files", self.files.to_string())]))
        }
    }
}

/// Options of `grep`.
#[derive(Debug, Args)]
pub struct GrepOptions {
    /// Size of all files together; the paper's is 4096
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    megabytes: u64,
}

impl Describes for GrepOptions {
    fn load(&self) -> Load {
        Load {
            room: Some((self.megabytes * MEGABYTE * 5 / 4, 0)),
            tool: Some(("grep".to_string(), "grep")),
            ..Load::of(&GREP, options([("megabytes", self.megabytes.to_string())]))
        }
    }
}

/// Options of `compile`.
#[derive(Debug, Args)]
pub struct CompileOptions {
    /// Source files, which are made and compiled in turn
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    sources: u64,
    /// Pairs of functions in each; 20 take a third of a second or so
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    functions: u64,
    /// Name or path of the compiler
    #[arg(long, value_name = "PROGRAM", default_value = "cc")]
    compiler: String,
}

impl Describes for CompileOptions {
    fn load(&self) -> Load {
        // Of the text of one pair of functions, and of what a compiler makes of it on the way.
        const PAIR: u64 = 1 << 10;
        const ON_THE_WAY: u64 = 16 << 10;
        Load {
            room: Some((self.sources * self.functions * PAIR, self.functions * ON_THE_WAY)),
            tool: Some((self.compiler.clone(), "gcc")),
            ..Load::of(
                &COMPILE,
                options([
                    ("sources", self.sources.to_string()),
                    ("functions", self.functions.to_string()),
                    ("compiler", self.compiler.clone()),
                ]),
            )
        }
    }
}
