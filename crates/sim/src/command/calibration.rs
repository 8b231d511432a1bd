//! `unconvoy sim --calibrate`.

use std::cell::Cell;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::{can_write, complain, print, write};

use crate::calibrate::{Calibration, calibrate, default_path, steps, to_toml};
use crate::messages;

/// A slowdown above this (in thousandths) indicates a shared core. Two contexts of a core do at
/// most about 1.5 times the work of one. Two cores do twice the work, less the effect of a common
/// power limit.
const SHARED: u32 = 200;

/// Measures this machine and writes the machine file.
pub(super) fn run(file: Option<&Path>, rounds: usize) -> anyhow::Result<()> {
    let is_default = file.is_none();
    let path = file.map(Path::to_path_buf).or_else(default_path);
    let path = path.context(messages::no_home())?;
    // Fail before the measurement, which takes half a minute.
    can_write(&path)?;
    let interrupts = Interrupts::of_process()?;
    let bar = ProgressBar::new((rounds * steps()) as u64);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30.cyan/dim} {msg}, {elapsed} elapsed, {eta} left")
    {
        bar.set_style(style);
    }
    let (begin, last_line) = (Instant::now(), Cell::new(Instant::now()));
    let calibration = calibrate(rounds, &mut |key| {
        interrupts.check()?;
        bar.set_message(key);
        bar.inc(1);
        if bar.is_hidden() && last_line.get().elapsed().as_secs() >= 5 {
            last_line.set(Instant::now());
            let seconds = begin.elapsed().as_secs();
            complain(&messages::calibration_progress(bar.position(), rounds * steps(), seconds));
        }
        Ok(())
    });
    bar.finish_and_clear();
    let calibration = calibration?;
    write(&path, to_toml(&calibration, &heading(&calibration, rounds)))?;
    print(&summary(&calibration, &path, is_default))?;
    Ok(())
}

fn heading(calibration: &Calibration, rounds: usize) -> String {
    format!(
        "This machine, measured by unconvoy sim --calibrate: {}; {rounds} rounds.",
        calibration.machine.origin()
    )
}

fn summary(calibration: &Calibration, path: &Path, is_default: bool) -> String {
    let mut text = format!("Calibrated: {}\n", path.display());
    text.push_str(if is_default {
        "The preset `host` now describes this machine.\n"
    } else {
        "Simulate this machine with --machine FILE.\n"
    });
    let mut warnings = Vec::new();
    if calibration.machine.calibrated.as_ref().is_some_and(|calibrated| calibrated.busy) {
        warnings.push(messages::measured_while_busy(calibration.others));
    }
    let machine = &calibration.machine;
    if machine.memory.shared_core_slowdown > SHARED && *machine.topology.contexts_per_core == 1 {
        warnings.push(messages::perhaps_shared_core(machine.memory.shared_core_slowdown));
    }
    let missing: Vec<&str> = calibration
        .quantities
        .iter()
        .filter(|quantity| quantity.rounds.is_err())
        .map(|quantity| quantity.key)
        .collect();
    if !missing.is_empty() {
        warnings.push(messages::not_measured(&missing));
    }
    for warning in warnings {
        text.push_str(&warning);
        text.push('\n');
    }
    text
}
