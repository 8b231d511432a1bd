//! Waiting until this process's controller has started or exited.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use unconvoy::runtime::{ControllerReport, controller_report};

use crate::messages;

/// Longest time for contention to bring up a controller, and for the controller to exit after it.
const LIMIT: Duration = Duration::from_secs(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Waits until `contenders` contending threads have brought up a controller.
///
/// # Errors
///
/// No controller started within 5 s.
pub(crate) fn await_start(contenders: u32) -> anyhow::Result<()> {
    let started = becomes(|report| report.thread != 0);
    ensure!(started, messages::no_controller(LIMIT.as_secs(), contenders));
    Ok(())
}

/// Waits until no controller runs. Takes a few tenths of a second after contention.
///
/// # Errors
///
/// A controller still ran after 5 s.
pub fn await_exit() -> anyhow::Result<()> {
    let exited = becomes(|report| !report.running && report.thread == 0);
    ensure!(exited, messages::controller_stayed(LIMIT.as_secs()));
    Ok(())
}

/// Whether the controller's report fulfils `condition` within [`LIMIT`].
fn becomes(condition: impl Fn(&ControllerReport) -> bool) -> bool {
    let started = Instant::now();
    while !condition(&controller_report()) {
        if started.elapsed() > LIMIT {
            return false;
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    true
}
