//! Figure 3: load-triggered backoff against the best of the others.

use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::{BACKOFF, BLOCKING, SPINNING, Size, lines, machine, mix};
use crate::view;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-damon-3",
    paper: Paper::Damon(3),
    title: "Load-triggered backoff against the best of the others (simulated)",
    remark: "Paper: DaMoN 2009, section 3.4, Figure 3. On 64 contexts backoff tracks the best of \
        the others: tpmcs while there is no overload, pthread beyond. On 16 contexts it cannot \
        match the pthread mutex beyond 100 % load.",
    minutes: 6,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "threads",
        panels: view::throughput,
        ..Simulated::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let locks = [("pthread", BLOCKING), ("tpmcs", SPINNING), ("backoff", BACKOFF)];
    let small = size.of(&[1_u32, 4, 8, 12, 15, 18, 20, 24, 28, 32][..], &[15, 32]);
    let large = size.of(&[1_u32, 16, 31, 39, 47, 63, 72, 80, 96, 128][..], &[63, 96, 128]);
    let mut cells = lines(
        "16 contexts",
        &machine("niagara2-16"),
        &mix("tm1"),
        &locks,
        small,
        size.of(3.0, 1.5),
    );
    cells.extend(lines(
        "64 contexts",
        &machine("niagara2-64"),
        &mix("tm1"),
        &locks,
        large,
        size.of(3.0, 1.5),
    ));
    cells
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let against =
        |panel: &str, other: &str, x: f64| results.ratio(panel, ("backoff", x), (other, x));
    claims! {
        "64 contexts, 63 threads: backoff has at least .9 of tpmcs's throughput",
            against("64 contexts", "tpmcs", 63.0), 0.9..=ANY;
        "64 contexts, 128 threads: backoff has at least .8 of pthread's throughput",
            against("64 contexts", "pthread", 128.0), 0.8..=ANY;
        "64 contexts, 128 threads: backoff has more throughput than tpmcs",
            against("64 contexts", "tpmcs", 128.0), 1.0..=ANY;
        "16 contexts, 32 threads: backoff has at most .95 of pthread's throughput",
            against("16 contexts", "pthread", 32.0), 0.0..=0.95;
    }
}
