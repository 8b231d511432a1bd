//! A calibration as a machine file.

use std::fmt::Write as _;

use super::quantity::{Calibration, Quantity};

/// As a machine file, with `heading`, and what was measured beside each number.
pub fn to_toml(calibration: &Calibration, heading: &str) -> String {
    let plain = toml::to_string(&calibration.machine).expect("numbers and names");
    let mut text = format!(
        "# {heading}\n# Beside each number: what was measured, and the least and the greatest of the rounds.\n"
    );
    let others = 100.0 * calibration.others;
    if calibration.machine.calibrated.as_ref().is_some_and(|calibrated| calibrated.busy) {
        let _ = writeln!(text, "# THE MACHINE WAS BUSY: others used {others:.0} % of its processors just before.");
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

/// Whose measured value has what the simulation adds taken from it.
const LESS: [&str; 2] = ["counter_turn_ps", "table_call_ps"];

fn comment(quantity: &Quantity) -> String {
    match &quantity.rounds {
        Ok(rounds) => {
            let (least, most) = (rounds[0], rounds[rounds.len() - 1]);
            let less = if LESS.contains(&quantity.key) { ", less what is simulated of it" } else { "" };
            format!("{} ({}..{}){less}", quantity.what, short(least), short(most))
        }
        Err(why) => format!("not measured, the preset's: {why}"),
    }
}

/// With a tenth where that matters.
fn short(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Why a key was not measured, and what it is then.
fn unmeasured(key: &str) -> Option<&'static str> {
    Some(match key {
        "read_occupancy_ns" => "not measured, the preset's: takes three cores and more",
        "switches_per_s" => "not measured: no limit",
        "sleeper_credit_ns" => "not measured: a slice, as in kernel/sched/fair.c, and enough to preempt",
        "balance_ns" => "not measured: a tick",
        "extension_ns" => "not measured, the preset's: before Linux 7.0 there is none",
        "timer_tick_ns" => "not measured, the preset's: high-resolution timers",
        _ => return None,
    })
}
