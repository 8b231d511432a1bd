//! Figure 11: throughput of applications as threads are added.

use super::FULL_LOAD;
use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Change, Figure, Made, Native, Paper, Records, Simulated};
use crate::over_threads;
use crate::plan::{BLOCKING, CONTROLLED, SPINNING, Size, lines, machine, mix};
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

/// The paper's lock without and with load control; libc's locks and the default are always
/// measured.
const LOCKS: &str = "tpmcs+none,tpmcs+control";

pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-11",
    paper: Paper::Asplos(11),
    title: "Throughput of applications as threads are added (simulated)",
    remark: "Paper: ASPLOS 2010, section 5.4, Figure 11; Raytrace, TM-1 and TPC-C on 64 contexts, \
        up to 128 threads. In Raytrace and TM-1, TP-MCS is well ahead of pthread mutexes up to 64 \
        threads, and loses more than 60 % of its peak beyond that; load control keeps 85 to 92 % \
        of the peak at the highest load. In TPC-C threads wait more for database locks than for \
        mutexes: pthread mutexes do as well as load control, and TP-MCS holds to about 150 % load.",
    minutes: 8,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "threads",
        panels: view::throughput,
        changes: CHANGES,
        ..Simulated::MEDIANS
    }),
};

const CHANGES: &[Change] = &[
    FULL_LOAD,
    Change {
        paper: "runs of up to 5 s, six for each point of Raytrace (section 4)",
        here: ".4 to 3 s simulated, one run per seed",
        why: "a second of Raytrace takes minutes to simulate, and slices are 100 ms long",
    },
];

/// The figure at full load as in the paper.
pub const PUBLISHED: Figure = Figure {
    name: "sim-asplos-11-published",
    paper: Paper::Asplos(11),
    title: "Throughput of applications at 64 threads and beyond (simulated)",
    remark: "Paper: ASPLOS 2010, section 5.4, Figure 11; Raytrace, TM-1 and TPC-C on 64 contexts, \
        with 64 threads at full load.",
    minutes: 4,
    made: Made::Simulated(Simulated {
        plan: |size| plan_of(&[1, 64, 96, 128], size),
        claims: |results| claims_at(results, 64.0),
        across: "threads",
        panels: view::throughput,
        ..Simulated::MEDIANS
    }),
};

pub const NATIVE: Figure = Figure {
    name: "asplos-11",
    paper: Paper::Asplos(11),
    title: "Throughput of applications as threads are added",
    remark: "Paper: ASPLOS 2010, section 5.4, Figure 11; Raytrace (SPLASH-2), TM-1 and TPC-C in \
        Shore-MT on a Sun Niagara II of 64 contexts, up to 128 threads, under pthread mutexes, \
        TP-MCS, and TP-MCS with load control. In Raytrace and TM-1, TP-MCS is well ahead of \
        pthread mutexes up to 64 threads, and loses more than 60 % of its peak beyond that; load \
        control keeps 85 to 92 % of the peak at the highest load. In TPC-C threads wait more for \
        database locks than for mutexes: pthread mutexes do as well as load control, and TP-MCS \
        holds to about 150 % load.",
    minutes: 20,
    made: Made::Native(Native {
        benchmarks: &[
            &["splash", "--locks", LOCKS],
            &["tatp", "--locks", LOCKS],
            // Section 4: each disk request takes 6 ms.
            &["tpcc", "--locks", LOCKS, "--io-ms", "6"],
        ],
        records: Records::And(&["raytrace", "leveldb"]),
        draw: Some(over_threads::draw),
        ..Native::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    plan_of(size.of(&[1_u32, 8, 16, 32, 48, 63, 72, 80, 96, 112, 128][..], &[1, 63, 96, 128]), size)
}

fn plan_of(threads: &[u32], size: Size) -> Vec<Cell> {
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
    claims_at(results, 63.0)
}

/// The claims, with the thread count of full load.
fn claims_at(results: &[Result], full: f64) -> Vec<Claim> {
    let results = Results(results);
    let mut claims = Vec::new();
    for panel in ["Raytrace", "TM-1"] {
        claims.extend(claims! {
            format!("{panel}: at {full} threads TP-MCS has at least 1.2 times pthread's \
                throughput"),
                results.ratio(panel, ("TP-MCS", full), ("pthread", full)), 1.2..=ANY;
            format!("{panel}: at 128 threads TP-MCS keeps .2 to .4 of its peak (paper: less than \
                .4, about .3 in its figure)"),
                results.kept(panel, "TP-MCS", 128.0), 0.2..=0.4;
            format!("{panel}: at 128 threads load control keeps .8 to .97 of its peak (paper: .85 \
                to .92)"),
                results.kept(panel, "load control", 128.0), 0.8..=0.97;
            format!("{panel}: at {full} threads load control has at least .95 of TP-MCS's \
                throughput"),
                results.ratio(panel, ("load control", full), ("TP-MCS", full)), 0.95..=ANY;
        });
    }
    claims.extend(claims! {
        "Raytrace: one thread is at least a tenth slower with pthread than with TP-MCS",
            results.ratio("Raytrace", ("pthread", 1.0), ("TP-MCS", 1.0)), 0.0..=0.9;
        "TM-1: one thread is as fast with pthread as with TP-MCS, to a tenth",
            results.ratio("TM-1", ("pthread", 1.0), ("TP-MCS", 1.0)), 0.9..=1.1;
        "TPC-C: at 128 threads pthread has at least .9 of load control's throughput",
            results.ratio("TPC-C", ("pthread", 128.0), ("load control", 128.0)), 0.9..=ANY;
        "TPC-C: at 96 threads TP-MCS keeps at least .8 of its peak",
            results.kept("TPC-C", "TP-MCS", 96.0), 0.8..=1.0;
    });
    claims
}
