//! The programs of both figures, their predictions, and their panels.

use unconvoy_sim::experiment::{Predicted, Projection, Task};
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::workload::validation::Program;

use crate::figure::Change;
use crate::plan::{Size, cell, machine};
use crate::view::{self, Lines, Quantity};

/// The lock of both figures, a kernel lock; see [`CHANGES`].
const LOCK: &str = "ticket+none";
/// The lock of the paper's kernel: spinners read until they see it free, then exchange.
const PUBLISHED_LOCK: &str = "ttas+none";

/// How the figures differ from the paper's.
pub const CHANGES: &[Change] = &[Change {
    paper: "the test-and-set locks of Linux 2.6.16",
    here: "ticket locks",
    why: "kernels have had them since 2.6.25, and predictions for those kernels start from their \
        runs",
}];

const PROCESSORS: [u32; 3] = [8, 16, 32];

/// The three programs.
pub const PROGRAMS: [(&str, Program); 3] =
    [("Prob", Program::Prob), ("RW", Program::Rw), ("RB-Tree", Program::RbTree)];

/// The plan of both figures.
pub fn plan(size: Size) -> Vec<Cell> {
    plan_of(LOCK, size)
}

/// The plan of both figures with the paper's locks.
pub fn published_plan(size: Size) -> Vec<Cell> {
    plan_of(PUBLISHED_LOCK, size)
}

fn plan_of(lock: &str, size: Size) -> Vec<Cell> {
    let at = |(panel, program): (&str, Program), processors: u32| {
        let machine = machine(&format!("metatm-{processors}"));
        let predicted = Predicted {
            machine,
            program,
            lock: lock.to_string(),
            sections: size.of(1_000, 100),
            seed: 0,
        };
        cell(panel, "projected", f64::from(processors), Task::Predicted(predicted))
    };
    PROGRAMS
        .into_iter()
        .flat_map(|program| PROCESSORS.map(|processors| at(program, processors)))
        .collect()
}

/// A program's projections, by number of processors.
pub fn of<'a>(results: &'a [Result], program: &str) -> Vec<(f64, &'a Projection)> {
    let those = results.iter().filter(|result| result.panel == program);
    those.filter_map(|result| Some((result.x, result.measured.projection()?))).collect()
}

/// A program's projection at one number of processors.
pub fn at<'a>(results: &'a [Result], program: &str, processors: f64) -> Option<&'a Projection> {
    of(results, program).into_iter().find(|place| place.0 == processors).map(|place| place.1)
}

/// One panel per program.
pub fn projected(results: &[Result], what: &str, lines: &[Quantity<Projection>]) -> Vec<Lines> {
    view::each(results, |panel, values| {
        let line = |&(name, of): &Quantity<Projection>| {
            let mut of_projection = values(&|measured| measured.projection().map(of));
            (name.to_string(), of_projection.pop().map_or_else(Vec::new, |line| line.1))
        };
        vec![(format!("{panel}: {what}"), lines.iter().map(line).collect())]
    })
}
