//! The options of `unconvoy predict`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use unconvoy_measure::arguments::timeout;
use unconvoy_syncchar::MOST_PROCESSORS;

use super::kernel::Workload;

/// `unconvoy predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// Numbers of processors to predict for.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,8,16,32",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PROCESSORS)))]
    pub processors: Vec<u32>,
    /// Sections after which a sample is compared although fewer threads were seen than processors
    /// are asked for.
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub window: u32,
    /// Sample one in N critical sections, at random.
    #[arg(long, value_name = "N", default_value_t = 10, conflicts_with = "analyse",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rate: u32,
    /// Seed of all that is drawn at random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Locks to tell in detail, longest held first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Longest that each of the two runs may take, in seconds; then it is ended, and what was seen
    /// is reported.
    #[arg(long, value_name = "S", value_parser = timeout, conflicts_with = "analyse")]
    pub timeout: Option<Duration>,
    /// Write the report as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the report as a page that needs no other file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Keep the address sets, names and times, to analyse them again or query them (Parquet).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "analyse")]
    pub keep_trace: Option<PathBuf>,
    /// Run nothing: analyse a trace that was kept.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "program")]
    pub analyse: Option<PathBuf>,
    /// What only a kernel's profile has.
    #[command(flatten)]
    pub guest: KernelArgs,
    /// The program and its arguments; with --kernel, a command for the guest's shell.
    #[arg(required_unless_present_any = ["analyse", "workload"], trailing_var_arg = true, value_name = "PROGRAM",
          value_hint = ValueHint::CommandWithArguments)]
    pub program: Vec<OsString>,
}

/// Of `unconvoy predict`, what only a kernel's profile has.
#[derive(Debug, Args)]
#[command(next_help_heading = "Profiling a kernel")]
pub struct KernelArgs {
    /// Profile a Linux kernel's own spin locks while the command runs in a guest under it: the
    /// stock one of `make kernel`, or a bzImage or vmlinux.
    #[arg(long, value_name = "IMAGE", num_args = 0..=1, value_hint = ValueHint::FilePath,
          conflicts_with = "analyse")]
    pub kernel: Option<Option<PathBuf>>,
    /// Virtual processors of the guest.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "kernel",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub cpus: u32,
    /// Memory of the guest, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048, requires = "kernel",
          value_parser = clap::value_parser!(u32).range(256..=65536))]
    pub memory: u32,
    /// The kernel's modules, if it has virtio_blk or ext4 as such [default: `modules` beside IMAGE,
    /// or /lib/modules/RELEASE].
    #[arg(long, value_name = "DIR", requires = "kernel", value_hint = ValueHint::DirPath)]
    pub modules: Option<PathBuf>,
    /// A vmlinux with debug information, for source lines [default: IMAGE, if it is one].
    #[arg(long, value_name = "FILE", requires = "kernel", value_hint = ValueHint::FilePath)]
    pub debug_info: Option<PathBuf>,
    /// QEMU's system mode, release 10 or later, with plug-ins.
    #[arg(long, value_name = "PATH", requires = "kernel", value_hint = ValueHint::ExecutablePath)]
    pub qemu: Option<PathBuf>,
    /// Run one of the paper's workloads in the guest instead of a command.
    #[arg(long, value_name = "NAME", value_enum, requires = "kernel", conflicts_with = "program")]
    pub workload: Option<Workload>,
    /// Size of the workload, 1 being the paper's.
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "workload", value_parser = scale)]
    pub scale: f64,
}

/// A positive number, not so large that no machine has space for it.
fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| (0.001..=100.0).contains(scale));
    scale.ok_or_else(|| "a scale is a number from 0.001 to 100".to_string())
}

/// Below the options in `--help`.
pub const EXAMPLES: &str = "\
The program runs twice: natively, for the time that each lock is held, and emulated (by
qemu-x86_64, several times slower), for what its critical sections touch. Standard input is given
to both runs if it is a file.

With --kernel, a guest of its own boots (twice, the first time for symbols, which are kept for later
runs) with a busybox, an ext4 disk in /scratch and nothing else, and the command is given to its shell.

Exit status: 0 with a report, whatever the program's own. 1: nothing could be collected, or a file
could not be written, or a trace is truncated or foreign. 2: wrong options, or a file that cannot
be written. 125: QEMU or a part of unconvoy is missing. 126, 127: as of `run`. 130 after Ctrl-C:
what was seen is reported.

Examples:
  unconvoy predict -- ./server --threads 8
  unconvoy predict --processors 4,64 --html report.html -- ./server --threads 64
  unconvoy predict --keep-trace server.parquet -- ./server
  unconvoy predict --analyse server.parquet --processors 2,128 --window 1024
  unconvoy predict --rate 1 --timeout 60 -- ./short
  unconvoy predict --kernel --cpus 16 -- 'find /sys -type f | wc -l'
  unconvoy predict --kernel --cpus 32 --workload mab --html mab.html
  unconvoy predict --kernel arch/x86/boot/bzImage --debug-info vmlinux --workload find";
