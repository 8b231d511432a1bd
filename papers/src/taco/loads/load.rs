//! The loads and their options. They follow Cui, Wang, Chen and Shi, "Lock-Contention-Aware
//! Scheduler" (ACM TACO 9(4), 2013), section 4.2. An option's help names the paper's value where
//! the paper gives one.

use clap::Args;

use crate::workloads::{COMPILE, FIND, GREP, MMAPBENCH, POSTMARK, SOCKBENCH};
use unconvoy_bench::grid::workload::Workload;
use unconvoy_bench::run::options;

/// A load, as its options define it.
#[derive(Debug)]
pub struct Load {
    /// The load's row in the list of workloads.
    pub workload: &'static Workload,
    /// Name for headings, which distinguishes variants of a load.
    pub title: String,
    /// Options of the program `tasks`.
    pub words: Vec<String>,
    /// Bytes of the files that the tasks share, and of each task's own. `None` if the load makes no
    /// files.
    pub room: Option<(u64, u64)>,
    /// The system program that the load runs, and its package.
    pub tool: Option<(String, &'static str)>,
}

/// Options that describe a load.
pub trait Describes {
    /// The load that the options describe.
    fn load(&self) -> Load;
}

impl Load {
    /// A load that makes no files and runs no other program.
    fn of(workload: &'static Workload, words: Vec<String>) -> Self {
        Self { workload, title: workload.name.to_string(), words, room: None, tool: None }
    }
}

const MEGABYTE: u64 = 1 << 20;
/// Approximate size of a file or directory in tmpfs.
const INODE: u64 = 1 << 10;

/// Options of `mmapbench`.
#[derive(Debug, Args)]
pub struct MmapbenchOptions {
    /// Size of the mapped file, in MB (the paper has 500)
    #[arg(long, value_name = "N", default_value_t = 500,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
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
    /// Family of the sockets
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
    /// Number of files per thread at the start (the paper has 500 and 10000)
    #[arg(long, value_name = "N", default_value_t = 500,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    files: u64,
}

impl Describes for PostmarkOptions {
    fn load(&self) -> Load {
        // Files have 500 to 10000 bytes, in whole pages.
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
    /// Number of files in each process's tree (about as many as Linux 2.6.29 has)
    #[arg(long, value_name = "N", default_value_t = 27_000,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
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
    /// Total size of the files, in MB (the paper has 4096)
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
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
    /// Number of source files, which are generated and compiled in turn
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    sources: u64,
    /// Pairs of functions per file; 20 take about a third of a second
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    functions: u64,
    /// Name or path of the compiler
    #[arg(long, value_name = "PROGRAM", default_value = "cc")]
    compiler: String,
}

impl Describes for CompileOptions {
    fn load(&self) -> Load {
        // Bytes of one pair's source, and of the compiler's intermediate files for it.
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
