//! The sched_ext scheduler behind `unconvoy sched`: confines tasks with long waits for kernel locks
//! to a special set of cores.
//!
//! | file | subject |
//! | --- | --- |
//! | `bpf/main.bpf.c` | the scheduler in the kernel: measures, executes decisions; lists the files it includes |
//! | `bpf/shared.h`, `bpf/kernel.h` | definitions for both sides; declarations of the kernel's types |
//! | `kernel.rs` | loads the BPF programs and exchanges data with them |
//! | `back_end.rs` | connects them with the policy of crates/sched |
//! | `topology.rs` | the order of cores, and the memory nodes |
//! | `requirements.rs` | requirements on the machine |
//! | `privilege.rs` | the privilege that the process keeps |
//! | `messages.rs` | errors and warnings |
//! | `report.rs` | contents of `--monitor` and `--metrics` |
//! | `monitor.rs` | choice between plain lines and a live screen |
//! | `lines.rs`, `screen.rs` | the threads of the two |
//! | `background.rs` | a thread that its output may block |
//! | `picture.rs`, `history.rs` | drawing of the screen; the last minutes |
//! | `metrics.rs` | export of the metrics |
//!
//! The kernel unloads the scheduler when this process ends, however it ends.

mod back_end;
mod background;
mod history;
mod kernel;
mod lines;
mod messages;
mod metrics;
mod monitor;
mod picture;
mod privilege;
mod report;
mod requirements;
mod screen;
mod topology;

use std::io::Write;
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use unconvoy_sched::{Parameters, Search};

use back_end::{Order, Scheduler};
use kernel::{Ending, Kernel, MAX_NODES, Settings};
use metrics::Metrics;
use monitor::Monitor;
use report::Report;
use requirements::Machine;
use topology::Topology;

/// Confine tasks with long waits for kernel locks to a special set of cores.
#[derive(Debug, Parser)]
#[command(name = "unconvoy-sched-ext", version)]
struct Arguments {
    /// Show tasks, shares, bound and votes every second; q quits on a terminal.
    #[arg(long)]
    monitor: bool,
    /// Serve OpenMetrics at ADDRESS (host:port), or write them to FILE every second.
    #[arg(long, value_name = "ADDRESS|FILE")]
    metrics: Option<String>,
    /// Waiting share that makes a task lock-intensive, 0.1 to 100 percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = percent)]
    threshold: f64,
    /// Search method for the set's size.
    #[arg(long, value_enum, default_value_t = Searches::Refined)]
    search: Searches,
    /// Fix the set at CORES cores instead of searching for a size.
    #[arg(long, value_name = "CORES", conflicts_with = "search")]
    bound: Option<NonZeroU32>,
    /// Only check the machine's requirements, with the same exit status.
    #[arg(long, hide = true)]
    check: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Searches {
    /// The search of the paper.
    Published,
    /// Refine the result to within one core; lock-intensive tasks pass their state to children.
    Refined,
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| messages::not_a_percentage(text))?;
    if (0.1..=100.0).contains(&value) { Ok(value) } else { Err(messages::not_a_percentage(text)) }
}

/// Exit status: an error, or the kernel unloaded the scheduler.
const UNLOADED: u8 = 1;
/// Exit status: a requirement is missing.
const UNAVAILABLE: u8 = 69; // EX_UNAVAILABLE of sysexits.h

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let missing = Machine::this().missing();
    if !missing.is_empty() {
        print_message(&messages::requirements_missing(&missing));
        return ExitCode::from(UNAVAILABLE);
    }
    if arguments.check {
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(ending)) => {
            print_message(&messages::unloaded_by_kernel(&ending.reason));
            ExitCode::from(UNLOADED)
        }
        Err(error) => {
            print_message(&format!("{error:#}"));
            ExitCode::from(UNLOADED)
        }
    }
}

/// Prints to standard error. Ignores errors: there is no other place to report them.
fn print_message(text: &str) {
    let _ = writeln!(std::io::stderr(), "unconvoy: {}", report::legible_lines(text));
}

/// Whether this process was started to ignore `signal`, as by nohup.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all-zero bytes are a `sigaction`, and without a new action the call only reads the
    // present one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Schedules until a signal ends it (`None`) or the kernel unloads the scheduler.
fn run(arguments: &Arguments) -> anyhow::Result<Option<Ending>> {
    let stop = Arc::new(AtomicBool::new(false));
    // A background job of a script ignores SIGINT, but `kill -INT` must end it.
    let hang_up = Some(libc::SIGHUP).filter(|signal| !is_ignored(*signal));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT].into_iter().chain(hang_up) {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    privilege::limit().context(messages::PRIVILEGE_NOT_LIMITED)?;
    let metrics = arguments.metrics.as_deref().map(Metrics::open).transpose()?;
    let read_topology = || topology::topology(Path::new("/sys/devices/system"), MAX_NODES);
    loop {
        let mut object = MaybeUninit::uninit();
        let topology = read_topology()?;
        let parameters = parameters(arguments, topology.order.len() as u32);
        let settings = Settings {
            topology,
            threshold: (arguments.threshold * 10.0) as u32,
            inherits: parameters.inherits,
        };
        let mut kernel = Kernel::load(&mut object, &settings)?;
        // A processor that goes offline stays in the list for some time after the kernel has
        // unloaded the last scheduler. Loading waits for such a processor, so that every later
        // change ends this scheduler.
        if read_topology()? != settings.topology {
            print_message(messages::PROCESSORS_CHANGED);
            continue;
        }
        print_message(&messages::scheduling(settings.topology.order.len()));
        match schedule(
            &mut kernel,
            parameters,
            &settings.topology,
            arguments.monitor,
            metrics.as_ref(),
            &stop,
        )? {
            Some(ending) if ending.is_hotplug => print_message(messages::PROCESSORS_CHANGED),
            ending => return Ok(ending),
        }
    }
}

fn parameters(arguments: &Arguments, cores: u32) -> Parameters {
    let parameters = match arguments.search {
        Searches::Published => Parameters::published(cores),
        Searches::Refined => Parameters::refined(cores),
    };
    Parameters {
        threshold: arguments.threshold / 100.0,
        slices_in_a_row: SLICES_IN_A_ROW,
        search: arguments.bound.map_or(parameters.search, Search::Fixed),
        voted_ns_per_core: VOTED_NS_PER_CORE,
        votes_per_core: VOTES_PER_CORE,
        hold_ns: HOLD_NS,
        ..parameters
    }
}

/// One slice above the threshold proves little: on a virtual machine, or during a long interrupt,
/// any task may wait for a lock once.
const SLICES_IN_A_ROW: u32 = 3;

/// Slices last milliseconds here, so a single slice would fill the paper's 135 us, and chance would
/// decide whether a bound is good.
const VOTED_NS_PER_CORE: u64 = 50_000_000;
const VOTES_PER_CORE: u32 = 8;
const HOLD_NS: u64 = 3_000_000_000;

/// How often this process reads votes while lock-intensive tasks exist. Nothing waits for votes.
const BUSY: Duration = Duration::from_millis(20);
/// How often it does so without lock-intensive tasks. The first such task wakes this process.
const IDLE: Duration = Duration::from_millis(500);

fn schedule(
    kernel: &mut Kernel<'_>,
    parameters: Parameters,
    topology: &Topology,
    monitors: bool,
    metrics: Option<&Metrics>,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Ending>> {
    let start = Instant::now();
    let mut scheduler = Scheduler::new(parameters, 0);
    kernel.update_set(scheduler.bound())?;
    let mut lost_ends = 0;
    let mut next_report = start;
    let mut monitor = monitors.then(Monitor::open).transpose()?;
    while !stop.load(Relaxed) {
        let records =
            kernel.take_records(if scheduler.policy().tasks() == 0 { IDLE } else { BUSY })?;
        let now_ns = start.elapsed().as_nanos() as u64;
        for record in records {
            scheduler.record(record, now_ns);
        }
        let orders = scheduler.take_orders();
        apply(kernel, &mut scheduler, orders)?;
        if let Some(ending) = kernel.ending() {
            return Ok(Some(ending));
        }
        if Instant::now() >= next_report {
            next_report = Instant::now() + Duration::from_secs(1);
            let totals = kernel.totals()?;
            if std::mem::replace(&mut lost_ends, totals.lost_ends) != totals.lost_ends {
                let orders = scheduler.all();
                apply(kernel, &mut scheduler, orders)?;
            }
            let room = monitor.as_ref().map_or(0, Monitor::room);
            let report =
                Report::new(&scheduler, topology, totals, kernel.specials(), start.elapsed(), room);
            if let Some(Err(error)) = metrics.map(|metrics| metrics.publish(report.open_metrics()))
            {
                print_message(&format!("{error:#}"));
            }
            if let Some(monitor) = &mut monitor {
                monitor.show(report)?;
            }
        }
    }
    Ok(None)
}

/// Executes the orders. An order for a task that no longer exists shows that the record of its end
/// was lost.
fn apply(
    kernel: &mut Kernel<'_>,
    scheduler: &mut Scheduler,
    mut orders: Vec<Order>,
) -> anyhow::Result<()> {
    while !orders.is_empty() {
        for order in orders {
            match order {
                Order::Resize(bound) => kernel.update_set(bound)?,
                Order::Update { task, tid, is_special, passes_on } => {
                    if !kernel.update_task(task, tid, is_special, passes_on)? {
                        scheduler.ended(task);
                    }
                }
            }
        }
        orders = scheduler.take_orders();
    }
    Ok(())
}
