//! Figure 7: the lock-contention-aware scheduler on another architecture.

use super::programs::{DEFAULT, FULL, SPECIAL, collapse, default, special, sustained};
use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::{Size, machine};
use crate::view;
use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-taco-7",
    paper: Paper::Taco(7),
    title: "Throughput of the lock-contention-aware scheduler on Intel processors (simulated)",
    remark: "Paper: TACO 2013, section 4.8, Figure 7; four Xeon X7560 with eight cores each. The \
        results are like those of the AMD machine: sockbench and postmark sustain their maximum, \
        and find, with short-lived processes, falls slightly. The mixes are those of the AMD \
        machine; only the costs of memory accesses differ.",
    minutes: 4,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "cores",
        panels: view::throughput,
        ..Simulated::MEDIANS
    }),
};

const PROGRAMS: [&str; 3] = ["sockbench", "postmark", "find"];

fn plan(size: Size) -> Vec<Cell> {
    let xeon = machine("xeon-32");
    let of_program = |program| {
        let mut cells = default(program, FULL, size);
        cells.extend(special(program, size.of(FULL, &[32]), size));
        cells
    };
    let mut cells: Vec<Cell> = PROGRAMS.into_iter().flat_map(of_program).collect();
    for cell in &mut cells {
        if let Task::Point(point) | Task::Scheduled(point, _) = &mut cell.task {
            point.machine = xeon.clone();
        }
    }
    cells
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let mut claims = Vec::new();
    for program in ["sockbench", "postmark"] {
        claims.extend(collapse(&results, program));
    }
    claims.extend(claims! {
        "find: at 32 cores the scheduler has at least 1.1 times the default's throughput",
            results.ratio("find", (SPECIAL, 32.0), (DEFAULT, 32.0)), 1.1..=ANY;
        "find: at 32 cores the scheduler sustains at least .6 of the default's peak, but not all \
            of it",
            sustained(&results, "find"), 0.6..=1.0;
    });
    claims
}
