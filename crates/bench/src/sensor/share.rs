//! The controller's share of one processor while threads contend.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use unconvoy::runtime::controller_report;
use unconvoy_measure::cells::Samples;
use unconvoy_measure::goal::Judgement;
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::statistics::short;
use unconvoy_measure::table::Table;

use crate::controller;
use crate::goals;
use crate::messages;
use crate::process;
use crate::threads::Threads;

/// Time from the controller's start until the load is steady.
const SETTLE: Duration = Duration::from_millis(200);
const SECTION: Duration = Duration::from_nanos(100);

/// The controller's shares of one processor during a window.
#[derive(Debug, Clone, Serialize)]
pub struct Share {
    /// Time that the controller did not sleep by its own account, run-queue time included.
    busy_percent: f64,
    /// Time on a processor by the kernel's account.
    run_percent: f64,
    /// Time in a run queue by the kernel's account.
    wait_percent: f64,
    /// Control intervals per second.
    ticks_per_s: f64,
}

/// A row's name and its value.
type Account = (&'static str, fn(&Share) -> f64);

/// Measures one window of `seconds`.
pub fn measure(contenders: u32, seconds: f64) -> anyhow::Result<Share> {
    // The controller of an earlier window may be about to exit.
    controller::await_exit()?;
    let _contenders = Threads::contend(contenders, SECTION)?;
    controller::await_start(contenders)?;
    thread::sleep(SETTLE);

    let (begin, before) = (Instant::now(), controller_report());
    let account_before = process::schedstat(before.thread).context(messages::controller_exited())?;
    Interrupts::of_process()?.sleep(Duration::from_secs_f64(seconds))?;
    let (wall, after) = (begin.elapsed(), controller_report());
    let account = process::schedstat(before.thread)
        .filter(|_| after.thread == before.thread)
        .context(messages::controller_exited())?;

    let percent = |ns: u64| ns as f64 / wall.as_nanos() as f64 * 100.0;
    Ok(Share {
        busy_percent: percent(after.busy_ns - before.busy_ns),
        run_percent: percent(account.run_ns - account_before.run_ns),
        wait_percent: percent(account.wait_ns - account_before.wait_ns),
        ticks_per_s: f64::from(after.ticks - before.ticks) / wall.as_secs_f64(),
    })
}

/// Number of threads of the goal.
const CONTENDERS_OF_GOAL: u32 = 64;

pub fn judge(contenders: u32, samples: &Samples<Share>) -> Judgement {
    if contenders != CONTENDERS_OF_GOAL {
        return goals::CONTROLLER.not_judged(format!("needs --contenders {CONTENDERS_OF_GOAL}"));
    }
    match samples.spread(0, |share| Some(share.run_percent)) {
        Some(spread) => goals::CONTROLLER.judge(
            spread.median,
            format!("median of {} windows, {contenders} threads", spread.count),
        ),
        None => goals::CONTROLLER.not_judged("nothing was measured"),
    }
}

pub fn table(samples: &Samples<Share>) -> Table {
    let mut table =
        Table::new("The controller's thread, % of one processor", ["account", "median (min..max)"]);
    let rows: [Account; 4] = [
        ("the kernel's: on a processor", |share| share.run_percent),
        ("the kernel's: waiting for one", |share| share.wait_percent),
        ("its own: time outside sleep, waits included", |share| share.busy_percent),
        ("intervals served per second", |share| share.ticks_per_s),
    ];
    for (name, metric) in rows {
        if let Some(spread) = samples.spread(0, |share| Some(metric(share))) {
            table.row([name.to_string(), spread.text(short)]);
        }
    }
    table
}
