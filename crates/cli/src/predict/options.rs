//! Options of `unconvoy predict`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, ValueHint};
use unconvoy_measure::arguments::timeout;
use unconvoy_syncchar::MOST_PROCESSORS;
use unconvoy_trace_stream::sampling::Sampling;

use super::kernel::Workload;
use crate::messages::predict as messages;

/// `unconvoy predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// Predict for these numbers of processors.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,8,16,32",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PROCESSORS)))]
    pub processors: Vec<u32>,
    /// Compare a lock's sections after at most N, even if fewer threads than processors took part.
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub window: u32,
    /// Widen these windows up to N times while threads take a lock in turns; 1: never.
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub widen: u32,
    /// Sample one in N critical sections, at random.
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "analyse",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rate: u32,
    /// Draw a lock's sections in bursts of up to 1024, or each section independently.
    #[arg(long, value_name = "HOW", default_value = Sampling::default().name(),
          conflicts_with = "analyse",
          value_parser = PossibleValuesParser::new(Sampling::ALL.map(Sampling::name)).map(named))]
    pub sampling: Sampling,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of locks to describe in detail, longest held first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Longest time for each of the two runs, in seconds; a longer run is ended, and the report
    /// covers what was recorded.
    #[arg(long, value_name = "S", value_parser = timeout, conflicts_with = "analyse")]
    pub timeout: Option<Duration>,
    /// Write the report as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the report as a self-contained HTML page.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Keep address sets, names and times as Parquet, for `--analyse` or queries.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "analyse")]
    pub keep_trace: Option<PathBuf>,
    /// Analyse a kept trace instead of running a program.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "program")]
    pub analyse: Option<PathBuf>,
    /// Options of a kernel's profile.
    #[command(flatten)]
    pub guest: KernelArgs,
    /// Program and arguments; with --kernel, a command for the guest's shell.
    #[arg(required_unless_present_any = ["analyse", "workload"], trailing_var_arg = true,
          value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

#[expect(clippy::needless_pass_by_value, reason = "clap passes the value")]
fn named(name: String) -> Sampling {
    Sampling::named(&name).expect("one of the possible values")
}

/// Options of `unconvoy predict --kernel`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Profiling a kernel")]
pub struct KernelArgs {
    /// Profile a Linux kernel's spin locks while a guest runs the command; IMAGE: bzImage or
    /// vmlinux [default: `make kernel`'s].
    #[arg(long, value_name = "IMAGE", num_args = 0..=1, value_hint = ValueHint::FilePath,
          conflicts_with = "analyse")]
    pub kernel: Option<Option<PathBuf>>,
    /// Number of the guest's virtual processors, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "kernel",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub cpus: u32,
    /// Size of the guest's memory in MiB, 256 to 65536.
    #[arg(long, value_name = "MIB", default_value_t = 2048, requires = "kernel",
          value_parser = clap::value_parser!(u32).range(256..=65536))]
    pub memory: u32,
    /// Load virtio_blk and ext4 from these kernel modules [default: `modules` beside IMAGE, or
    /// /lib/modules/RELEASE].
    #[arg(long, value_name = "DIR", requires = "kernel", value_hint = ValueHint::DirPath)]
    pub modules: Option<PathBuf>,
    /// Read source lines from a vmlinux with debug information [default: IMAGE, if it is a
    /// vmlinux].
    #[arg(long, value_name = "FILE", requires = "kernel", value_hint = ValueHint::FilePath)]
    pub debug_info: Option<PathBuf>,
    /// Run this qemu-system-x86_64, release 10 or later with plug-ins.
    #[arg(long, value_name = "PATH", requires = "kernel", value_hint = ValueHint::ExecutablePath)]
    pub qemu: Option<PathBuf>,
    /// Run one of the paper's workloads in the guest instead of a command.
    #[arg(long, value_name = "NAME", value_enum, requires = "kernel", conflicts_with = "program")]
    pub workload: Option<Workload>,
    /// Scale the workload; 1 is the paper's size, range 0.001 to 100.
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "workload",
          value_parser = scale)]
    pub scale: f64,
}

/// Parses a scale, limited to sizes that fit on a disk.
fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| (0.001..=100.0).contains(scale));
    scale.ok_or_else(|| messages::scale_out_of_range().to_string())
}

/// Text below the options in `--help`.
pub const EXAMPLES: &str = "\
The program runs twice: natively, to time its locks, then under qemu-x86_64, several times \
slower, to record what its critical sections access. If standard input is a file, both runs read \
it.

With --kernel, a guest boots twice: for the kernel's symbols, which are cached, and for the \
command. The guest has a busybox and an ext4 disk at /scratch.

Exit status: 0 with a report, even of a program that failed. 1: nothing collected, a file not \
written, or an invalid trace. 2: wrong options, or a file that cannot be written. 125: QEMU or a \
part of unconvoy missing. 126, 127: as in run. 130: interrupted, reported.

Examples:
  unconvoy predict --processors 2,8 -- ./server --threads 8
  unconvoy predict --html report.html -- ./server --threads 32
  unconvoy predict --keep-trace server.parquet -- ./server --threads 128
  unconvoy predict --analyse server.parquet --processors 2,128
  unconvoy predict --rate 1 --timeout 60 -- ./short
  unconvoy predict --kernel --cpus 16 -- 'find /sys -type f | wc -l'
  unconvoy predict --kernel --cpus 32 --workload mab --html mab.html
  unconvoy predict --kernel bzImage --debug-info vmlinux --workload find";
