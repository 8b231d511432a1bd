//! Figure 10: throughput and the controller's interval.

use super::sweep;
use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Native, Paper, Simulated};
use crate::plan::{CONTROLLED, Size, machine, mix, point};
use crate::view;
use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-10",
    paper: Paper::Asplos(10),
    title: "Throughput and the controller's interval (simulated)",
    remark: "Paper: ASPLOS 2010, section 5.3, Figure 10; TM-1 on 64 contexts with 63, 72 and 96 \
        threads (98, 110 and 150 % load). Very short intervals slow all three, the highest load \
        most, because Solaris walks all threads for each reading. The overloaded lines are best \
        between 3 and 10 ms. Beyond 10 ms decisions use stale readings, and throughput falls. The \
        authors chose 7 ms.",
    minutes: 9,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "ms between two readings",
        panels: view::throughput,
        ..Simulated::MEDIANS
    }),
};

pub const NATIVE: Figure = Figure {
    name: "asplos-10",
    paper: Paper::Asplos(10),
    title: "Throughput and the controller's interval",
    remark: "Paper: ASPLOS 2010, section 5.3, Figure 10; TM-1 on a Sun Niagara II of 64 contexts \
        with 63, 72 and 96 threads (98, 110 and 150 % load), load control on. Very short \
        intervals slow all three, the highest load most, because Solaris walks all threads for \
        each reading. The overloaded lines are best between 3 and 10 ms, while 98 % sees only the \
        cost. Beyond 10 ms, a scheduler tick, decisions use stale readings and throughput falls. \
        The authors chose 7 ms.",
    minutes: 6,
    made: Made::Native(Native {
        benchmarks: &[&["interval"]],
        draw: Some(sweep::draw),
        ..Native::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let intervals = size
        .of(&[0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 40.0, 80.0, 100.0][..], &[0.5, 7.0, 100.0]);
    let (machine, tm1) = (machine("niagara2-64"), mix("tm1"));
    let at = |(series, threads): (&str, u32)| {
        let cell = |&ms: &f64| {
            let mut point = point(&machine, &tm1, CONTROLLED, threads, size.of(2.0, 1.0));
            point.interval_ns = Some((ms * 1e6) as u64);
            Cell {
                panel: "TM-1".to_string(),
                series: series.to_string(),
                x: ms,
                task: Task::Point(point),
            }
        };
        intervals.iter().map(cell).collect::<Vec<_>>()
    };
    [("98 %", 63), ("110 %", 72), ("150 %", 96)].into_iter().flat_map(at).collect()
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let ratio =
        |series: &str, one: f64, other: f64| results.ratio("TM-1", (series, one), (series, other));
    claims! {
        "at 150 % load an interval of .5 ms gives less throughput than 7 ms",
            ratio("150 %", 0.5, 7.0), 0.0..=0.98;
        "at 150 % load an interval of 100 ms gives less throughput than 7 ms",
            ratio("150 %", 100.0, 7.0), 0.0..=0.98;
        "at 98 % load an interval of 7 ms gives at least .9 of the throughput at 100 ms",
            ratio("98 %", 7.0, 100.0), 0.9..=ANY;
        "readings cost more with more threads: an interval of .5 ms costs 150 % load more than 98 \
            %",
            ratio("150 %", 0.5, 7.0).zip(ratio("98 %", 0.5, 7.0))
                .map(|(one, other)| one / other), 0.0..=0.99;
    }
}
