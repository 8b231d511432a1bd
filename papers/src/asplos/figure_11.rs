//! Figure 11: throughput of applications as threads are added.

use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Native, Paper, Records, Simulated};
use crate::over_threads;
use crate::plan::{BLOCKING, CONTROLLED, SPINNING, Size, lines, machine, mix};
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

/// The paper's lock without load control and with it, beside libc's locks and the default.
const LOCKS: &str = "tpmcs+none,tpmcs+control";

/// The figure on a simulated machine.
pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-11",
    paper: Paper::Asplos(11),
    title: "Throughput of applications as threads are added (simulated)",
    remark: "The paper's: ASPLOS 2010, section 5.4, Figure 11; Raytrace, TM-1 and TPC-C on 64 contexts, up to 128 threads. In Raytrace and TM-1, TP-MCS is well ahead of pthread mutexes up to 64 threads, and beyond that loses more than 60 % of its peak; with load control 85 to 92 % of the peak are kept at the highest load. In TPC-C threads wait for database locks more than for mutexes: pthread mutexes do as well as load control, and TP-MCS holds to about 150 % load.",
    minutes: 8,
    made: Made::Simulated(Simulated { plan, claims, across: "threads", panels: view::throughput, table: None }),
};

/// The figure on this machine.
pub const NATIVE: Figure = Figure {
    name: "asplos-11",
    paper: Paper::Asplos(11),
    title: "Throughput of applications as threads are added",
    remark: "The paper's: ASPLOS 2010, section 5.4, Figure 11; Raytrace (SPLASH-2), TM-1 and TPC-C in Shore-MT on a Sun Niagara II of 64 contexts, up to 128 threads, under pthread mutexes, TP-MCS, and TP-MCS with load control. In Raytrace and TM-1, TP-MCS is well ahead of pthread mutexes up to 64 threads, and beyond that loses more than 60 % of its peak; with load control 85 to 92 % of the peak are kept at the highest load. In TPC-C threads wait for database locks more than for mutexes: pthread mutexes do as well as load control, and TP-MCS holds to about 150 % load.",
    minutes: 20,
    made: Made::Native(Native {
        benchmarks: &[&["raytrace", "--locks", LOCKS], &["tatp", "--locks", LOCKS], &["tpcc", "--locks", LOCKS]],
        records: Records::And(&["splash", "leveldb"]),
        draw: Some(over_threads::draw),
        ..Native::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let threads = size.of(&[1_u32, 8, 16, 32, 48, 63, 72, 80, 96, 112, 128][..], &[1, 63, 96, 128]);
    let locks = [("pthread", BLOCKING), ("TP-MCS", SPINNING), ("load control", CONTROLLED)];
    let machine = machine("niagara2-64");
    [("Raytrace", "raytrace", 0.4, 0.2), ("TM-1", "tm1", 3.0, 1.5), ("TPC-C", "tpcc", 2.0, 1.0)]
        .into_iter()
        .flat_map(|(panel, name, full, reduced)| {
            lines(panel, &machine, &mix(name), &locks, threads, size.of(full, reduced))
        })
        .collect()
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let mut claims = Vec::new();
    for panel in ["Raytrace", "TM-1"] {
        claims.extend(claims! {
            format!("{panel}: at 63 threads TP-MCS has 1.2 times what pthread has or more"),
                results.ratio(panel, ("TP-MCS", 63.0), ("pthread", 63.0)), 1.2..=ANY;
            format!("{panel}: at 128 threads TP-MCS has lost .6 of its peak or more"),
                results.kept(panel, "TP-MCS", 128.0), 0.0..=0.4;
            format!("{panel}: load control keeps .8 of its peak or more (paper: .85 to .92)"),
                results.kept(panel, "load control", 128.0), 0.8..=1.0;
            format!("{panel}: load control has .95 of TP-MCS or more at 63 threads"),
                results.ratio(panel, ("load control", 63.0), ("TP-MCS", 63.0)), 0.95..=ANY;
        });
    }
    claims.extend(claims! {
        "Raytrace: one thread is at least a tenth slower with pthread than with TP-MCS",
            results.ratio("Raytrace", ("pthread", 1.0), ("TP-MCS", 1.0)), 0.0..=0.9;
        "TM-1: one thread is as fast with either, to a tenth",
            results.ratio("TM-1", ("pthread", 1.0), ("TP-MCS", 1.0)), 0.9..=1.1;
        "TPC-C: at 128 threads pthread has .9 of load control or more",
            results.ratio("TPC-C", ("pthread", 128.0), ("load control", 128.0)), 0.9..=ANY;
        "TPC-C: TP-MCS holds .8 of its peak at 96 threads",
            results.kept("TPC-C", "TP-MCS", 96.0), 0.8..=1.0;
    });
    claims
}
