//! `unconvoy sim --calibrate`.

use std::cell::Cell;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use unconvoy_measure::interrupt::Interrupts;
use unconvoy_measure::output::{can_write, complain, print, write};

use crate::calibrate::{Calibration, calibrate, default_path, steps, to_toml};

/// Thousandths beyond which a slowdown is one of a shared core: two contexts of one do at most some 1.5 times the work of
/// one alone, where cores of their own would do twice as much but for a common limit of power.
const SHARED: u32 = 200;

/// Measures, and writes the machine file.
pub(super) fn run(file: Option<&Path>, rounds: usize) -> anyhow::Result<()> {
    let is_default = file.is_none();
    let path = file.map(Path::to_path_buf).or_else(default_path);
    let path = path.context("there is no home directory to write to: name a file, as in --calibrate mine.toml")?;
    // Before half a minute is spent on it.
    can_write(&path)?;
    let interrupts = Interrupts::of_process()?;
    let bar = ProgressBar::new((rounds * steps()) as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30.cyan/dim} {msg}, {elapsed} gone, {eta} to go") {
        bar.set_style(style);
    }
    let (begin, last_line) = (Instant::now(), Cell::new(Instant::now()));
    let calibration = calibrate(rounds, &mut |key| {
        interrupts.check()?;
        bar.set_message(key);
        bar.inc(1);
        if bar.is_hidden() && last_line.get().elapsed().as_secs() >= 5 {
            last_line.set(Instant::now());
            let gone = begin.elapsed().as_secs();
            complain(&format!("measurement {} of {}, {gone} s gone", bar.position(), rounds * steps()));
        }
        Ok(())
    });
    bar.finish_and_clear();
    let calibration = calibration?;
    write(&path, to_toml(&calibration, &heading(&calibration, rounds)))?;
    print(&said(&calibration, &path, is_default))?;
    Ok(())
}

fn heading(calibration: &Calibration, rounds: usize) -> String {
    format!("This machine, measured by unconvoy sim --calibrate: {}; {rounds} rounds.", calibration.machine.origin())
}

fn said(calibration: &Calibration, path: &Path, is_default: bool) -> String {
    let mut text = format!("Calibrated: {}\n", path.display());
    text.push_str(if is_default {
        "The preset host is this machine from now on.\n"
    } else {
        "Simulate it with --machine and this file.\n"
    });
    if calibration.machine.calibrated.as_ref().is_some_and(|calibrated| calibrated.busy) {
        let others = 100.0 * calibration.others;
        text.push_str(&format!(
            "The machine was busy: others used {others:.0} % of its processors just before. Times may be too long; do it again when it is idle.\n"
        ));
    }
    let machine = &calibration.machine;
    if machine.memory.shared_core_slowdown > SHARED && *machine.topology.contexts_per_core == 1 {
        let part = machine.memory.shared_core_slowdown / 10;
        text.push_str(&format!(
            "Two processors slow each other down by {part} %: they may be contexts of one core. The system does not say so; if it is true, set \
             contexts_per_core = 2 and cores_per_cache to half in the file.\n"
        ));
    }
    let missing: Vec<&str> = calibration
        .quantities
        .iter()
        .filter(|quantity| quantity.rounds.is_err())
        .map(|quantity| quantity.key)
        .collect();
    if !missing.is_empty() {
        text.push_str(&format!("Not measured, the file says why: {}\n", missing.join(", ")));
    }
    text
}
