//! Figure 12: two processes that compete for the processors.

use super::interference::{fraction, fraction_lines};
use super::sweep::Shape;
use crate::claim::{Claim, Results, claims};
use crate::figure::{Figure, Made, Native, Paper, Simulated};
use crate::messages;
use crate::plan::{CONTROLLED, SPINNING, Size, machine, mix, point};
use crate::record_view::lines as panel_of;
use crate::view::{self, Lines};
use anyhow::Context as _;
use unconvoy_bench::readings::readings;
use unconvoy_measure::chart::panel::Panel;
use unconvoy_measure::record::Record;
use unconvoy_sim::experiment::Measured;
use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::{Cell, Result};

pub const SIMULATED: Figure = Figure {
    name: "sim-asplos-12",
    paper: Paper::Asplos(12),
    title: "Two processes that compete for the processors (simulated)",
    remark: "Paper: ASPLOS 2010, section 5.5, Figure 12; two TM-1 processes on 64 contexts, self \
        with 64 threads under load control, other with a growing number of threads. If both use \
        load control, they share the machine and lose 10 to 15 % together. If other does not and \
        has many threads, self keeps about 35 % of its peak, and other does badly because its \
        holders are preempted.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "threads of other",
        panels,
        ..Simulated::MEDIANS
    }),
};

pub const NATIVE: Figure = Figure {
    name: "asplos-12",
    paper: Paper::Asplos(12),
    title: "Two processes that compete for the processors",
    remark: "Paper: ASPLOS 2010, section 5.5, Figure 12; two TM-1 processes on a Sun Niagara II \
        of 64 contexts, self with as many threads as contexts and under load control, other with \
        a growing number of threads. If both use load control, they share the machine evenly and \
        lose 10 to 15 % together. If other does not and has many threads, self keeps about 35 % \
        of its peak, and other does badly because its holders are preempted. The paper names a \
        process that only burns time as the case that load control cannot defend against, and has \
        no curve for it.",
    minutes: 3,
    made: Made::Native(Native {
        benchmarks: &[&["interference"]],
        draw: Some(draw),
        ..Native::MEDIANS
    }),
};

fn plan(size: Size) -> Vec<Cell> {
    let others = size.of(&[8_u32, 16, 32, 64, 96, 128, 192][..], &[64, 192]);
    let (machine, tm1) = (machine("niagara2-64"), mix("tm1"));
    let own = || point(&machine, &tm1, CONTROLLED, 64, size.of(4.0, 2.0));
    let mut cells = vec![Cell {
        panel: "TM-1".to_string(),
        series: "alone".to_string(),
        x: 0.0,
        task: Task::Point(own()),
    }];
    for (series, lock) in [("without", SPINNING), ("with", CONTROLLED)] {
        cells.extend(others.iter().map(|&threads| Cell {
            panel: "TM-1".to_string(),
            series: series.to_string(),
            x: f64::from(threads),
            task: Task::Beside(own(), lock.to_string(), threads),
        }));
    }
    cells
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let alone = Results(results).per_s("TM-1", "alone", 0.0);
    let shares = |series: &str, x: f64| {
        let found = results.iter().find(|result| result.series == series && result.x == x)?;
        match (&found.measured, alone) {
            (Measured::Shares(shares), Some(alone)) => {
                Some((shares.own_per_s / alone, shares.other_per_s / alone))
            }
            _ => None,
        }
    };
    claims! {
        "with 64 threads each under load control, self and other together have .8 to .95 of \
            self's throughput alone (paper: .85 to .9)",
            shares("with", 64.0).map(|(own, other)| own + other), 0.8..=0.95;
        "with 64 threads each under load control, self has .3 to .7 of their joint throughput",
            shares("with", 64.0).map(|(own, other)| own / (own + other)), 0.3..=0.7;
        "against 192 threads without load control, self keeps .2 to .5 of its throughput alone \
            (paper: about .35)",
            shares("without", 192.0).map(|(own, _)| own), 0.2..=0.5;
        "with 192 threads without load control, other has less throughput than self",
            shares("without", 192.0).map(|(own, other)| other / own), 0.0..=1.0;
    }
}

fn panels(results: &[Result]) -> Vec<Lines> {
    let Some(alone) = results.iter().find_map(|result| result.measured.outcome()) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for result in results {
        let Measured::Shares(shares) = result.measured else { continue };
        for (process, per_s) in [("self", shares.own_per_s), ("other", shares.other_per_s)] {
            view::add(
                &mut lines,
                &format!("{process}, other {} load control", result.series),
                (result.x, per_s / alone.per_s),
            );
        }
    }
    vec![("fraction of self alone".to_string(), lines)]
}

/// Draws both processes' throughput as fractions of self's throughput alone.
fn draw(record: &Record, names: &mut Vec<String>) -> anyhow::Result<Panel> {
    let shape =
        Shape::of(record).with_context(|| messages::record_lacks("the quantity that it varied"))?;
    let readings = readings(record);
    let places: Vec<f64> = shape.places.iter().copied().filter(|&x| x > 0.0).collect();
    let line = |(name, other, metric): (String, &str, &str)| {
        let at = |&x: &f64| Some((x, fraction(&readings, other, x, metric)?));
        (name, places.iter().filter_map(at).collect())
    };
    let measured = fraction_lines().into_iter().map(line).collect();
    Ok(panel_of("fraction of self alone".to_string(), &shape.across, &places, measured, names))
}
