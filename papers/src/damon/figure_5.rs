//! Figure 5: an ideal spin-then-block mutex. The paper draws its regions; here one is simulated.

use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::{BLOCKING, CONTROLLED, PIPELINED, SPINNING, Size, tm1_lines};
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-damon-5",
    paper: Paper::Damon(5),
    title: "A blocking mutex with pipelined wake-ups (simulated)",
    remark: "Paper: DaMoN 2009, sections 4.1 and 4.2, Figure 5, a sketch without measurements. \
        Here TM-1 on 64 contexts. A release wakes a waiter some places down the queue, so that it \
        is awake when it receives the lock. The paper expects a spin lock on an unloaded machine, \
        better performance than the pthread mutex beyond, and more context switches, whose cost \
        remains.",
    minutes: 3,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "threads",
        panels: view::switches,
        ..Simulated::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let threads = size.of(&[15_u32, 31, 39, 47, 63, 95, 127, 255][..], &[31, 39, 63, 127]);
    let locks = [("pthread", BLOCKING), ("pipelined", PIPELINED), ("load control", CONTROLLED)];
    let mut cells = tm1_lines(&[("tpmcs", SPINNING)], &threads[..threads.len() / 2], size);
    cells.extend(tm1_lines(&locks, threads, size));
    cells
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let at = |series: &str, x: f64| results.at("TM-1", series, x);
    let against = |one: &str, other: &str, x: f64| results.ratio("TM-1", (one, x), (other, x));
    let switches = |series: &str, x: f64| at(series, x).map(|outcome| outcome.switches_per_s);
    claims! {
        "at 31 threads pipelined is as fast as tpmcs, to a twentieth",
            against("pipelined", "tpmcs", 31.0), 0.95..=1.05;
        "at 39 threads pipelined has more throughput than pthread",
            against("pipelined", "pthread", 39.0), 1.0..=ANY;
        "at 127 threads pipelined has more throughput than pthread",
            against("pipelined", "pthread", 127.0), 1.0..=ANY;
        "from 63 to 127 threads pipelined loses at most a tenth",
            results.ratio("TM-1", ("pipelined", 127.0), ("pipelined", 63.0)), 0.9..=ANY;
        "at 127 threads pipelined has more context switches than pthread",
            switches("pipelined", 127.0).zip(switches("pthread", 127.0))
                .map(|(one, other)| one / other), 1.0..=ANY;
        "at 127 threads load control has more throughput than pipelined",
            against("load control", "pipelined", 127.0), 1.0..=ANY;
    }
}
