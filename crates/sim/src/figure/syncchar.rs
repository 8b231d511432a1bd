//! The figures of Porter, Hofmann and Witchel, *Predicting and Tuning the Performance of Multicore Systems*, 2008, section
//! 5: plan and claims. The plots' values are in no text; the claims are what the text says of them.

use super::claims::{ANY, claim};
use super::plans::machine;
use super::{Claim, Size};
use crate::experiment::{Predicted, Projection, Task};
use crate::grid::{Cell, Result};
use crate::workload::validation::Program;

/// A lock of the kernel, as the paper's programs had. Its kernel, 2.6.16, had test-and-set; ticket locks came with 2.6.25.
const LOCK: &str = "ticket+none";

const PROCESSORS: [u32; 3] = [8, 16, 32];

const PROGRAMS: [(&str, Program); 3] = [("Prob", Program::Prob), ("RW", Program::Rw), ("RB-Tree", Program::RbTree)];

pub(super) fn plan(size: Size) -> Vec<Cell> {
    let cell = |(panel, program): (&str, Program), processors: u32| {
        let machine = machine(&format!("metatm-{processors}"));
        let predicted = Predicted { machine, program, lock: LOCK.to_string(), sections: size.of(1_000, 100), seed: 0 };
        Cell {
            panel: panel.to_string(),
            series: "projected".to_string(),
            x: f64::from(processors),
            task: Task::Predicted(predicted),
        }
    };
    PROGRAMS.into_iter().flat_map(|program| PROCESSORS.map(|processors| cell(program, processors))).collect()
}

/// What was predicted of a program, by number of processors.
fn of<'a>(results: &'a [Result], program: &str) -> Vec<(f64, &'a Projection)> {
    let those = results.iter().filter(|result| result.panel == program);
    those.filter_map(|result| Some((result.x, result.measured.projection()?))).collect()
}

fn at<'a>(results: &'a [Result], program: &str, processors: f64) -> Option<&'a Projection> {
    of(results, program).into_iter().find(|place| place.0 == processors).map(|place| place.1)
}

fn mean_error<'a>(projections: impl Iterator<Item = &'a Projection>) -> Option<f64> {
    let (count, sum) = projections.fold((0, 0.0), |(count, sum), next| (count + 1, sum + next.error().abs()));
    (count > 0).then(|| sum / f64::from(count))
}

pub(super) fn claims_5(results: &[Result]) -> Vec<Claim> {
    let all = results.iter().filter_map(|result| result.measured.projection());
    let mut claims = vec![claim("the mean error is at most .1 (paper: .1)", mean_error(all), 0.0..=0.1)];
    for (name, _) in PROGRAMS {
        let of_program = of(results, name);
        let error = mean_error(of_program.iter().map(|place| place.1));
        let falls = of_program.windows(2).map(|pair| pair[1].1.projected_ns() / pair[0].1.projected_ns());
        claims.push(claim(&format!("{name}: its own mean error is at most .15"), error, 0.0..=0.15));
        claims.push(claim(
            &format!("{name}: twice the processors shorten the projected time, to .95 of it or less"),
            falls.reduce(f64::max),
            0.0..=0.95,
        ));
    }
    claims.push(claim(
        "Prob at 32 processors: projected .15 to .45 too long (paper: .31)",
        at(results, "Prob", 32.0).map(Projection::error),
        0.15..=0.45,
    ));
    claims
}

pub(super) fn claims_6(results: &[Result]) -> Vec<Claim> {
    let by_density = |program: &str| {
        let estimate = at(results, program, 32.0)?.estimate;
        Some(1.0 - estimate.independence / estimate.speed_up())
    };
    let gained = |program: &str| at(results, program, 32.0).map(|one| one.locked_ns / one.transacted_ns);
    vec![
        claim("Prob: at 32 processors all is independence: at most .05 by density", by_density("Prob"), 0.0..=0.05),
        claim(
            "RW: every section conflicts: at 32 processors an independence of 1.5 at most",
            at(results, "RW", 32.0).map(|one| one.estimate.independence),
            1.0..=1.5,
        ),
        claim("RW: and yet transactions gain 8 times or more", gained("RW"), 8.0..=ANY),
        claim("RB-Tree: both: .2 to .8 by density at 32 processors", by_density("RB-Tree"), 0.2..=0.8),
        claim("RB-Tree: transactions gain 8 times or more at 32 processors", gained("RB-Tree"), 8.0..=ANY),
    ]
}
