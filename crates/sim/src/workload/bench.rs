//! The programs of `unconvoy bench` as it runs them by default: each turn with what it takes on the simulated machine, as far
//! as that was measured.

use super::{Step, Workload};
use crate::parameters::{Parameters, Programs};

/// On a machine that was not measured: some 30 instructions a turn, a chain of dependent loads along a list.
pub(crate) const USUAL: Programs = Programs {
    lock_pair_ps: 10_000,
    dispatch_ps: 4_000,
    counter_turn_ps: 4_000,
    table_outside_ps: 20_000,
    table_section_ps: 15_000,
    table_visit_ps: 1_500,
};

/// What was measured on the machine, or else what is usual.
fn programs(machine: &Parameters) -> Programs {
    machine.calibrated.as_ref().map_or(USUAL, |calibrated| calibrated.programs)
}

/// What a pair of calls that lock and unlock takes beyond the accesses that are simulated one by one: two atomic ones
/// and five others (`crate::pair`).
fn call_ps(machine: &Parameters, programs: &Programs) -> u64 {
    let memory = &machine.memory;
    programs.lock_pair_ps.saturating_sub(1000 * (6 * memory.hit_ns + memory.rmw_ns))
}

/// `unconvoy bench counter`: one lock, `section_ns` in it and `think_ns` out of it, by the clock, and one line of data.
pub fn bench_counter(machine: &Parameters, section_ns: u64, think_ns: u64) -> Workload {
    let programs = programs(machine);
    let call_ps = call_ps(machine, &programs);
    let turn_ps = programs.counter_turn_ps.saturating_sub(2_000 * machine.memory.hit_ns);
    let section = Step::Clocked { group: 0, ns: section_ns, lines: 1, call_ps, dispatch_ps: programs.dispatch_ps };
    let think = (think_ns > 0).then_some(Step::Clock { ns: think_ns });
    let steps = [Some(section), Some(Step::Measured { ps: turn_ps }), think];
    Workload { name: "bench-counter".to_string(), locks: vec![1], steps: steps.into_iter().flatten().collect() }
}

/// `unconvoy bench hashtable`: 100 buckets with a lock each, and keys by Zipf's law whose hot set moves.
pub fn hashtable(machine: &Parameters) -> Workload {
    let programs = programs(machine);
    let table = Step::Table {
        outside_ps: programs.table_outside_ps,
        section_ps: programs.table_section_ps,
        visit_ps: programs.table_visit_ps,
        call_ps: call_ps(machine, &programs),
        dispatch_ps: programs.dispatch_ps,
    };
    Workload { name: "hashtable".to_string(), locks: vec![100], steps: vec![table] }
}
