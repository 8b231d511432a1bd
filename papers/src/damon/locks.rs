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

/// The lines of these locks on one machine. `yield` has its own length, `of_yield` seconds, because
/// it is slow to simulate: all its waiters watch the time stamp of one node. Solaris raises
/// priorities once a second, so a shorter run, as at reduced size, cannot confirm a claim.
pub fn lines_of(
    panel: &str,
    machine: &str,
    threads: &[u32],
    seconds: f64,
    of_yield: f64,
) -> Vec<Cell> {
    let machine = crate::plan::machine(machine);
    let of = |lock: &(&str, &str)| {
        let seconds = match lock.0 {
            // MCS does well until a waiter is preempted. The first preemption may take seconds.
            "mcs" => 4.0 * seconds,
            "yield" => of_yield,
            _ => seconds,
        };
        lines(panel, &machine, &mix("tm1"), core::slice::from_ref(lock), threads, seconds)
    };
    LOCKS.iter().flat_map(of).collect()
}
