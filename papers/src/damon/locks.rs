//! The locks of Figures 1 and 2.

use unconvoy_sim::grid::Cell;

use crate::plan::{BLOCKING, SPINNING, lines, mix};

const LOCKS: [(&str, &str); 5] = [
    ("pthread", BLOCKING),
    ("mcs", "mcs+none"),
    ("tpmcs", SPINNING),
    ("yield", "tpmcs-yield+none"),
    ("schedctl", "tpmcs-slice+none"),
];

/// Their lines on a machine.
pub fn lines_of(panel: &str, machine: &str, threads: &[u32], seconds: f64) -> Vec<Cell> {
    let machine = crate::plan::machine(machine);
    let of = |lock: &(&str, &str)| {
        let seconds = match lock.0 {
            // Until a waiter is preempted, which takes up to some seconds, it does well.
            "mcs" => 4.0 * seconds,
            // Waiters that all look at the time stamp of one node are slow to simulate.
            "yield" => seconds / 15.0,
            _ => seconds,
        };
        lines(panel, &machine, &mix("tm1"), core::slice::from_ref(lock), threads, seconds)
    };
    LOCKS.iter().flat_map(of).collect()
}
