//! A calibration in the format of a machine file.

use std::fmt::Write as _;

use super::quantity::{Calibration, Quantity};

/// Formats a machine file that begins with `heading`. A comment beside each number describes its
/// measurement.
pub fn to_toml(calibration: &Calibration, heading: &str) -> String {
    let plain = toml::to_string(&calibration.machine).expect("numbers and names");
    let mut text = format!(
        "# {heading}\n\
         # Comments: what was measured, and the smallest and the largest round.\n"
    );
    let others = 100.0 * calibration.others;
    if calibration.machine.calibrated.as_ref().is_some_and(|calibrated| calibrated.busy) {
        let _ = writeln!(
            text,
            "# THE MACHINE WAS BUSY: other programs used {others:.0} % of its processors."
        );
    }
    text.push('\n');
    for line in plain.lines() {
        let key = line.split(" = ").next().unwrap_or("");
        let quantity = calibration.quantities.iter().find(|quantity| quantity.key == key);
        let comment = quantity.map(comment).or_else(|| unmeasured(key).map(str::to_string));
        let _ = match comment {
            Some(comment) => writeln!(text, "{line:<28} # {comment}"),
            None => writeln!(text, "{line}"),
        };
    }
    text
}

/// Keys of values from which [`super::calibrate`] subtracts the costs that the simulation adds.
const LESS: [&str; 2] = ["counter_turn_ps", "table_call_ps"];

fn comment(quantity: &Quantity) -> String {
    match &quantity.rounds {
        Ok(rounds) => {
            let (least, most) = (rounds[0], rounds[rounds.len() - 1]);
            let less = if LESS.contains(&quantity.key) { ", minus the simulated part" } else { "" };
            format!("{} ({}..{}){less}", quantity.what, short(least), short(most))
        }
        Err(why) => format!("not measured, from the preset: {why}"),
    }
}

/// Formats small values with one decimal.
fn short(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// The reason why a key was not measured, and the origin of its value.
fn unmeasured(key: &str) -> Option<&'static str> {
    Some(match key {
        "read_occupancy_ns" => "not measured, from the preset: needs three cores",
        "switches_per_s" => "not measured: no limit",
        "sleeper_credit_ns" => {
            "not measured: a slice, as in kernel/sched/fair.c, but enough to preempt"
        }
        "balance_ns" => "not measured: 16 ms for each processor, as in kernel/sched/fair.c",
        "extension_ns" => "not measured, from the preset: unavailable before Linux 7.0",
        "timer_tick_ns" => "not measured, from the preset: high-resolution timers",
        _ => return None,
    })
}
