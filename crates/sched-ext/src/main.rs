//! Schedules the machine's tasks so that those which wait too much for the kernel's locks keep to a special set of cores.
//!
//! | file | idea |
//! | --- | --- |
//! | `bpf/main.bpf.c` | the scheduler, in the kernel: measures and obeys; its head says what the files that it includes are about |
//! | `bpf/shared.h`, `bpf/kernel.h` | what both sides know; what is used of the kernel |
//! | `kernel.rs` | loads it and talks to it |
//! | `back_end.rs` | lets the policy of crates/sched drive it |
//! | `topology.rs` | the order of cores, and the memory nodes |
//! | `requirements.rs` | what it takes, and what to do where that is missing |
//! | `report.rs` | what `--monitor` and `--metrics` show |
//! | `monitor.rs` | whether that goes into lines or to a screen |
//! | `screen.rs`, `terminal.rs` | the screen's thread; the terminal, taken and given back |
//! | `picture.rs`, `history.rs` | what is drawn there; the last minutes |
//! | `metrics.rs` | where the metrics go |
//!
//! `unconvoy sched` executes this program. Nothing stays in the kernel when it ends, however it does.

mod back_end;
mod history;
mod kernel;
mod metrics;
mod monitor;
mod picture;
mod report;
mod requirements;
mod screen;
mod terminal;
mod topology;

use std::io::Write;
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use unconvoy_sched::{Parameters, Search};

use back_end::{Order, Scheduler};
use kernel::{Ending, Kernel, MAX_NODES, Settings};
use metrics::Metrics;
use monitor::Monitor;
use report::Report;
use requirements::Machine;
use topology::Topology;

/// Keep tasks that wait too much for the kernel's locks on a special set of cores.
#[derive(Debug, Parser)]
#[command(name = "unconvoy-sched-ext", version)]
struct Arguments {
    /// Show tasks, shares, bound and votes once a second: on a terminal as a live screen (q ends), otherwise as lines
    /// (also with TERM=dumb or NO_COLOR=1).
    #[arg(long)]
    monitor: bool,
    /// Serve OpenMetrics at ADDRESS (host:port), or write them to a FILE once a second.
    #[arg(long, value_name = "ADDRESS|FILE")]
    metrics: Option<String>,
    /// A task that waits for locks for more than this part of a time slice is lock-intensive, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0, value_parser = percent)]
    threshold: f64,
    /// How the size of the set is searched for.
    #[arg(long, value_enum, default_value_t = Searches::Refined)]
    search: Searches,
    /// The set has so many cores (or all, if those are fewer), and nothing is searched for.
    #[arg(long, value_name = "CORES", conflicts_with = "search")]
    bound: Option<NonZeroU32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Searches {
    /// As published.
    Published,
    /// The same, and then between its last two sizes; children of lock-intensive tasks are so, too.
    Refined,
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("{text} is no number"))?;
    if (0.1..=100.0).contains(&value) { Ok(value) } else { Err(format!("{text} is not between 0.1 and 100")) }
}

/// What ended the scheduler otherwise than a wish to.
const UNLOADED: u8 = 1;
/// Something that it needs is missing.
const LACKING: u8 = 69; // EX_UNAVAILABLE of sysexits.h

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let lacks = Machine::this().lacks();
    if !lacks.is_empty() {
        say(&requirements::explain(&lacks));
        return ExitCode::from(LACKING);
    }
    match run(&arguments) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(ending)) => {
            say(&format!("the kernel has unloaded the scheduler and gone back to its default: {}", ending.reason));
            ExitCode::from(UNLOADED)
        }
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::from(UNLOADED)
        }
    }
}

/// Standard error may be closed; there is nobody else to tell.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "unconvoy: {}", report::legible_lines(text));
}

/// Schedules until it is told to end (`None`), or the kernel has had enough.
fn run(arguments: &Arguments) -> anyhow::Result<Option<Ending>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let metrics = arguments.metrics.as_deref().map(Metrics::open).transpose()?;
    loop {
        let mut object = MaybeUninit::uninit();
        let topology = topology::topology(Path::new("/sys/devices/system"), MAX_NODES)?;
        let parameters = parameters(arguments, topology.order.len() as u32);
        let settings =
            Settings { topology, threshold: (arguments.threshold * 10.0) as u32, inherits: parameters.inherits };
        let mut kernel = Kernel::load(&mut object, &settings)?;
        say(&format!("scheduling {} processors; end with Ctrl-C", settings.topology.order.len()));
        match schedule(&mut kernel, parameters, &settings.topology, arguments.monitor, metrics.as_ref(), &stop)? {
            Some(ending) if ending.is_hotplug => say("a processor came or went: starting over"),
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
        patience_ns: PATIENCE_NS,
        ..parameters
    }
}

/// Where this machine is a guest of another one, or an interrupt takes long, any task may have to wait for a lock once.
const SLICES_IN_A_ROW: u32 = 3;

/// Slices are milliseconds here, of which the paper's 135 us would be one: a bound would be judged by a single task's luck.
const VOTED_NS_PER_CORE: u64 = 50_000_000;
const VOTES_PER_CORE: u32 = 8;
const PATIENCE_NS: u64 = 3_000_000_000;

/// Votes are read this often while there are lock-intensive tasks; nobody waits for them.
const BUSY: Duration = Duration::from_millis(20);
/// And without any, where the first one wakes this process up.
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
    kernel.rebound(scheduler.bound())?;
    let mut lost_ends = 0;
    let mut next_report = start;
    let mut monitor = monitors.then(Monitor::open);
    while !stop.load(Relaxed) {
        let records = kernel.hear(if scheduler.policy().tasks() == 0 { IDLE } else { BUSY })?;
        let now_ns = start.elapsed().as_nanos() as u64;
        for record in records {
            scheduler.record(record, now_ns);
        }
        let orders = scheduler.take_orders();
        obey(kernel, &mut scheduler, orders)?;
        if let Some(ending) = kernel.ending() {
            return Ok(Some(ending));
        }
        if Instant::now() >= next_report {
            next_report = Instant::now() + Duration::from_secs(1);
            let totals = kernel.totals()?;
            if std::mem::replace(&mut lost_ends, totals.lost_ends) != totals.lost_ends {
                let orders = scheduler.all();
                obey(kernel, &mut scheduler, orders)?;
            }
            let room = monitor.as_ref().map_or(0, Monitor::room);
            let report = Report::new(&scheduler, topology, totals, kernel.specials(), start.elapsed(), room);
            if let Some(metrics) = metrics {
                metrics.publish(report.open_metrics());
            }
            if let Some(monitor) = &mut monitor {
                monitor.show(report)?;
            }
        }
    }
    Ok(None)
}

/// Carries out the orders. A task that is gone has ended unheard.
fn obey(kernel: &mut Kernel<'_>, scheduler: &mut Scheduler, mut orders: Vec<Order>) -> anyhow::Result<()> {
    while !orders.is_empty() {
        for order in orders {
            match order {
                Order::Rebound(bound) => kernel.rebound(bound)?,
                Order::Tell { task, tid, is_special, passes_on } => {
                    if !kernel.tell(task, tid, is_special, passes_on)? {
                        scheduler.ended(task);
                    }
                }
            }
        }
        orders = scheduler.take_orders();
    }
    Ok(())
}
