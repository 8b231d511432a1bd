//! Servers of 64 to 1024 contexts.

use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::{Size, machine, point};
use crate::view;
use unconvoy::catalogue::{CONTENTION, LOAD};
use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::parameters::Count;
use unconvoy_sim::workload::{Step, Workload};

pub const SIMULATED: Figure = Figure {
    name: "sim-sizes",
    paper: Paper::Ours,
    title: "Managers on servers of 64 to 1024 contexts (simulated)",
    remark: "Not from a paper. Servers of 1 to 16 sockets with 64 contexts each: four threads per \
        context, one lock per 16 contexts, sections of 500 ns with 20 us between two sections.",
    minutes: 13,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "contexts",
        panels: view::throughput,
        ..Simulated::MEDIANS
    }),
};

/// A workload whose sections of 500 ns each take one of `locks` locks at random, with 20 us on
/// average between two sections.
fn buckets(locks: u32) -> Workload {
    let section = Step::Section { group: 0, ns: 500, lines: 1 };
    Workload {
        name: "buckets".to_string(),
        locks: vec![locks],
        steps: vec![section, Step::Varying { ns: 20_000 }],
        others: Vec::new(),
        in_kernel: false,
        checkpoints: false,
    }
}

/// Every contention manager with and without load control, and every load manager, on servers of 1
/// to 16 sockets with four threads per context.
fn plan(size: Size) -> Vec<Cell> {
    let mut locks: Vec<(&str, String, String)> = Vec::new();
    for contention in CONTENTION {
        locks.push(("spinning", contention.name.to_string(), format!("{}+none", contention.name)));
        locks.push((
            "load control",
            contention.name.to_string(),
            format!("{}+control", contention.name),
        ));
    }
    locks.extend(LOAD.iter().map(|load| {
        ("TP-MCS under every load manager", load.name.to_string(), format!("tpmcs+{}", load.name))
    }));
    if size == Size::Reduced {
        locks.retain(|(.., lock)| {
            ["tpmcs+none", "tpmcs+control", "loiter+control"].contains(&lock.as_str())
        });
    }
    let sockets = size.of(&[1_u32, 4, 16][..], &[1, 2]);
    let mut cells = Vec::new();
    for &sockets in sockets {
        let mut machine = machine("server");
        machine.topology.sockets = Count::new(sockets);
        let contexts = machine.topology.contexts() as u32;
        for (panel, series, lock) in &locks {
            let mut point = point(&machine, &buckets(contexts / 16), lock, 4 * contexts, 0.05);
            point.warm_up = Some(size.of(0.02, 0.01)); // the controller's first reading
            cells.push(Cell {
                panel: panel.to_string(),
                series: series.clone(),
                x: f64::from(contexts),
                task: Task::Point(point),
            });
        }
    }
    cells
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let (first, last) = (64.0, results.largest_x());
    // Throughput per context, relative to 64 contexts.
    let scaled = |panel: &str, series: &str| {
        results.ratio(panel, (series, last), (series, first)).map(|ratio| ratio * first / last)
    };
    let against = |one: &str, other: &str| {
        Some(results.per_s("load control", one, last)? / results.per_s("spinning", other, last)?)
    };
    claims! {
        "on the largest machine the default has at least .8 of its throughput per context on 64 \
            contexts (ours)",
            scaled("load control", "loiter"), 0.8..=ANY;
        "on the largest machine TP-MCS under load control has at least .8 of its throughput per \
            context on 64 contexts (ours)",
            scaled("load control", "tpmcs"), 0.8..=ANY;
        "at 400 % load, load control gives TP-MCS at least 5 times the throughput \
            (ours)",
            against("tpmcs", "tpmcs"), 5.0..=ANY;
    }
}
