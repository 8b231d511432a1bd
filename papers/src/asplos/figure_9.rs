//! Figure 9: throughput and contention, below and above full load.

use super::sweep;
use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Native, Paper, Simulated};
use crate::plan::{CONTROLLED, SPINNING, Size, machine, point};
use crate::view;
use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::workload;

pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-9",
    paper: Paper::Asplos(9),
    title: "Throughput and contention, below and above full load (simulated)",
    remark: "Paper: ASPLOS 2010, section 5.2, Figure 9; threads that take one lock with a fixed \
        delay between requests, on 64 contexts: 61 threads (95 % load), and 96 (150 %) without \
        and with load control. At 150 % without load control throughput is far below that of 95 % \
        under contention, and approaches it as contention falls. Load control removes most of the \
        loss over a wide range, and least at the highest contention (12 us).",
    minutes: 6,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "us between two requests",
        panels: view::throughput,
        ..Simulated::MEDIANS
    }),
};

pub const NATIVE: Figure = Figure {
    name: "asplos-9",
    paper: Paper::Asplos(9),
    title: "Throughput and contention, below and above full load",
    remark: "Paper: ASPLOS 2010, section 5.2, Figure 9; threads that take one lock with a fixed \
        delay between requests, on a Sun Niagara II of 64 contexts: 61 threads (95 % load), and \
        96 threads (150 %) without and with load control. Contention is high on the left and \
        falls to the right. At 95 % throughput soon depends only on the number of threads. At 150 \
        % without load control throughput is far lower under contention, and approaches that of \
        95 % as contention falls. Load control removes most of the loss over a wide range, and \
        least at the highest contention, where every preempted holder costs about 12 us.",
    minutes: 3,
    made: Made::Native(Native {
        benchmarks: &[&["contention"]],
        draw: Some(sweep::draw),
        ..Native::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let delays = size.of(&[12_u32, 15, 18, 24, 36, 48, 72, 100][..], &[12, 24, 100]);
    let rows =
        [("95 %", SPINNING, 61), ("150 %", SPINNING, 96), ("150 %, load control", CONTROLLED, 96)];
    let machine = machine("niagara2-64");
    let at = |(series, lock, threads): (&str, &str, u32)| {
        let cell = |&delay: &u32| {
            let counter = workload::counter(60, u64::from(delay) * 1_000, 0);
            Cell {
                panel: "counter".to_string(),
                series: series.to_string(),
                x: f64::from(delay),
                // Single preemptions of the holder, several per second, cause the losses. With
                // short delays there are more of them, so a short run is enough.
                task: Task::Point(point(
                    &machine,
                    &counter,
                    lock,
                    threads,
                    if delay < 15 { 0.5 } else { size.of(8.0, 2.0) },
                )),
            }
        };
        delays.iter().map(cell).collect::<Vec<_>>()
    };
    rows.into_iter().flat_map(at).collect()
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let ratio = |series: &str, x: f64| results.ratio("counter", (series, x), ("95 %", x));
    let gain = |x: f64| results.ratio("counter", ("150 %, load control", x), ("150 %", x));
    claims! {
        "at 12 us, 150 % load without load control has at most .7 of the throughput of 95 %",
            ratio("150 %", 12.0), 0.0..=0.7;
        "without load control, 150 % load has a larger part of the throughput of 95 % at 100 us \
            than at 12 us",
            ratio("150 %", 100.0).zip(ratio("150 %", 12.0))
                .map(|(one, other)| one / other), 1.0..=ANY;
        "at 24 us, 150 % load with load control has at least .8 of the throughput of 95 %",
            ratio("150 %, load control", 24.0), 0.8..=ANY;
        "at 12 us, load control gives 150 % load at least 1.2 times the throughput",
            gain(12.0), 1.2..=ANY;
        "with load control, 150 % load has a smaller part of the throughput of 95 % at 12 us than \
            at 24 us",
            ratio("150 %, load control", 12.0).zip(ratio("150 %, load control", 24.0))
                .map(|(one, other)| one / other), 0.0..=1.0;
    }
}
