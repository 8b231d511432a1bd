//! The programs of `unconvoy bench` with their default options. The turns of `counter` and
//! `hashtable` have the costs calibrated on the simulated machine, if it was calibrated.

use super::step::{Others, Step, Workload};
use crate::parameters::{Parameters, Programs};

/// Costs on a machine without calibration: about 30 instructions per turn, and a chain of dependent
/// loads along a list.
pub(crate) const USUAL: Programs = Programs {
    counter_turn_ps: 2_000,
    counter_dispatch_ps: 1_000,
    table_outside_ps: 20_000,
    table_section_ps: 40_000,
    table_visit_ps: 1_000,
    table_call_ps: 2_000,
    table_dispatch_ps: 4_000,
};

/// The calibrated costs of the machine, or typical ones.
fn programs(machine: &Parameters) -> Programs {
    machine.calibrated.as_ref().map_or(USUAL, |calibrated| calibrated.programs)
}

/// `unconvoy bench counter`: one lock and one line of data. A thread holds the lock for
/// `section_ns` and then thinks for `think_ns`, both by the clock.
///
/// The measured time of a turn is spent outside the section. Inside, it would have no effect,
/// because the section ends at a time on the clock.
pub fn bench_counter(machine: &Parameters, section_ns: u64, think_ns: u64) -> Workload {
    let programs = programs(machine);
    let section = Step::Clocked {
        group: 0,
        ns: section_ns,
        lines: 1,
        dispatch_ps: programs.counter_dispatch_ps,
    };
    let think = (think_ns > 0).then_some(Step::Clock { ns: think_ns });
    let steps = [Some(section), Some(Step::Measured { ps: programs.counter_turn_ps }), think];
    Workload {
        name: "bench-counter".to_string(),
        locks: vec![1],
        others: Vec::new(),
        in_kernel: false,
        checkpoints: false,
        steps: steps.into_iter().flatten().collect(),
    }
}

/// `unconvoy bench nested`: threads that take an inner lock, one that takes it inside an outer one,
/// and one that probes the outer lock.
pub fn bench_nested(machine: &Parameters) -> Workload {
    const INNER: usize = 0;
    const OUTER: usize = 1;
    let counter = bench_counter(machine, 1_000, 0);
    let nested = Step::Nested {
        outer: OUTER,
        inner: INNER,
        outer_ns: 1_000,
        inner_ns: 1_000,
        dispatch_ps: programs(machine).counter_dispatch_ps,
    };
    let probe = [Step::Away { ns: 1_000_000 }, Step::Section { group: OUTER, ns: 0, lines: 1 }];
    Workload {
        name: "bench-nested".to_string(),
        locks: vec![1, 1],
        others: vec![
            Others { threads: 1, steps: vec![nested, Step::Clock { ns: 100_000 }] },
            Others { threads: 1, steps: probe.to_vec() },
        ],
        ..counter
    }
}

/// `unconvoy bench hashtable`: 100 buckets with one lock each, and Zipf-distributed keys whose hot
/// set moves.
pub fn hashtable(machine: &Parameters) -> Workload {
    let programs = programs(machine);
    let table = Step::Table {
        outside_ps: programs.table_outside_ps,
        section_ps: programs.table_section_ps,
        visit_ps: programs.table_visit_ps,
        call_ps: programs.table_call_ps,
        dispatch_ps: programs.table_dispatch_ps,
    };
    Workload {
        name: "hashtable".to_string(),
        locks: vec![100],
        others: Vec::new(),
        in_kernel: false,
        checkpoints: false,
        steps: vec![table],
    }
}

/// Choice of an entry and of the operation in [`rwlock`], on any machine. One thread of preset
/// `server` then takes 26 ns for a lookup under libc's lock, as one thread of the native program on
/// a server of sixteen processors does (docs/evaluation/processors.md).
const ENTRY_PS: u64 = 8_000;

/// `unconvoy bench rwlock`: a table of 256 entries under one reader-writer lock.
pub fn rwlock(name: &str, changes_per_million: u32) -> Workload {
    Workload {
        name: name.to_string(),
        locks: Vec::new(),
        others: Vec::new(),
        in_kernel: false,
        checkpoints: false,
        steps: vec![Step::Lookup { changes_per_million, outside_ps: ENTRY_PS }],
    }
}
