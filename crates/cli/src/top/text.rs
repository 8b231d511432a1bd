//! Snapshots as text, for output that is no terminal. The screen shows the same lines.

use unconvoy_measure::chart::quantity;

use super::snapshot::{Lock, Snapshot};
use super::target::Publishing;
use crate::messages::top as messages;

/// Number of places listed for a lock, on each side.
const PLACES: usize = 3;

/// A time for people.
pub fn time(ns: u64) -> String {
    quantity::seconds(ns as f64 * 1e-9)
}

/// One line on the process.
pub fn heading(snapshot: &Snapshot) -> String {
    let Snapshot { pid, program, lock, load, .. } = snapshot;
    let name = program.rsplit('/').next().unwrap_or_default();
    let served = if lock.is_empty() { String::new() } else { format!(", {lock}+{load}") };
    let state = if snapshot.ended { messages::ENDED } else { "" };
    format!("{name} (process {pid}){served}{state}")
}

/// Two lines on waits and load.
pub fn summary(snapshot: &Snapshot) -> [String; 2] {
    let per_second = |value: f64| value / snapshot.seconds.max(1e-9);
    let waits = format!(
        "{:.0} waits/s; {:.2} threads waiting on average over {:.1} s",
        per_second(snapshot.waits as f64),
        per_second(snapshot.waited_ns as f64 * 1e-9),
        snapshot.seconds
    );
    let load = match &snapshot.controller {
        None => "no controller runs".to_string(),
        Some(it) => {
            let confined = match it.cores {
                0 => String::new(),
                cores => format!("; {} confined to {cores} cores", it.confined),
            };
            let busy = it.busy.map_or("-".into(), |busy| format!("{:.2} %", busy * 100.0));
            format!(
                "{:.1} runnable on {:.1} processors; {} asleep for load (target {}){confined}; \
                 controller {busy}",
                it.runnable, it.capacity, it.sleeping, it.target
            )
        }
    };
    [waits, load]
}

/// The headings of the columns of [`columns`].
pub const COLUMNS: [&str; 5] = ["waited", "share", "waits/s", "wait p50", "held"];

/// The figures of a lock.
pub fn columns(lock: &Lock, seconds: f64) -> [String; 5] {
    let optional = |ns: Option<u64>| ns.map_or_else(|| "-".to_string(), time);
    [
        time(lock.waited_ns),
        format!("{:.0} %", lock.share * 100.0),
        format!("{:.0}", lock.waits as f64 / seconds.max(1e-9)),
        optional(lock.wait_p50_ns),
        optional(lock.held_p50_ns),
    ]
}

/// A lock's name, with their number if there are several.
pub fn name(lock: &Lock) -> String {
    if lock.locks > 1 { format!("{} x {}", lock.locks, lock.name) } else { lock.name.clone() }
}

/// The places of a lock.
pub fn places(lock: &Lock, most: usize) -> Vec<String> {
    let sides = [("waits", &lock.waiters), ("holds", &lock.holders)];
    let lines = sides.iter().flat_map(|(verb, places)| {
        places.iter().take(most).map(move |at| format!("{verb} {:>8}  {}", time(at.ns), at.place))
    });
    lines.collect()
}

/// Renders a snapshot.
pub fn snapshot(snapshot: &Snapshot) -> String {
    let [waits, load] = summary(snapshot);
    let mut text = format!("{}\n{waits}\n{load}\n", heading(snapshot));
    if !snapshot.locks.is_empty() {
        text += "\n";
        for heading in COLUMNS {
            text += &format!("{heading:>9} ");
        }
        text += " lock\n";
    }
    for lock in &snapshot.locks {
        for value in columns(lock, snapshot.seconds) {
            text += &format!("{value:>9} ");
        }
        text += &format!(" {}\n", name(lock));
        for line in places(lock, PLACES) {
            text += &format!("{:>51} {line}\n", "");
        }
    }
    for remark in &snapshot.remarks {
        text += &format!("\n{remark}\n");
    }
    text
}

/// Renders the list of processes.
pub fn processes(processes: &[Publishing]) -> String {
    let mut text = format!("{:>8} {:>8}  {:<20} COMMAND\n", "PID", "THREADS", "LOCKS");
    for Publishing { pid, command, threads, served } in processes {
        text += &format!("{pid:>8} {threads:>8}  {served:<20} {command}\n");
    }
    text
}
